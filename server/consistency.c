/* SPDX-License-Identifier: Apache-2.0 */
#include "server/consistency.h"

#include "server/consistency_list.h"

#define TS_CONSISTENCY_DECLARE(symbol) extern const ts_consistency symbol;
TS_CONSISTENCY_LIST(TS_CONSISTENCY_DECLARE)
#undef TS_CONSISTENCY_DECLARE

const ts_consistency *ts_consistency_find(ts_mode mode) {
#define TS_CONSISTENCY_ENTRY(symbol) &symbol,
    static const ts_consistency *const all[] = {TS_CONSISTENCY_LIST(TS_CONSISTENCY_ENTRY)};
#undef TS_CONSISTENCY_ENTRY
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i]->mode == mode) return all[i];
    return NULL;
}

uint64_t ts_consistency_awaited(const ts_consistency *consistency, const ts_slice_state *slice, uint32_t worker) {
    return consistency->alone ? slice->slots[worker].next : slice->version;
}
