/* SPDX-License-Identifier: Apache-2.0 */
#include "server/optimizer.h"

#include "server/optimizer_list.h"

#define TS_OPTIMIZER_DECLARE(symbol) extern const ts_optimizer symbol;
TS_OPTIMIZER_LIST(TS_OPTIMIZER_DECLARE)
#undef TS_OPTIMIZER_DECLARE

const ts_optimizer *ts_optimizer_find(ts_optimizer_name id) {
#define TS_OPTIMIZER_ENTRY(symbol) &symbol,
    static const ts_optimizer *const all[] = {TS_OPTIMIZER_LIST(TS_OPTIMIZER_ENTRY)};
#undef TS_OPTIMIZER_ENTRY
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i]->id == id) return all[i];
    return NULL;
}
