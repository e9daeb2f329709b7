/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/one_account.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/unit.h"

static bool same_receipt(const ts_receipt *a, const ts_receipt *b) {
    return a->kind == b->kind && a->slice == b->slice && a->worker == b->worker && a->step == b->step && a->version == b->version;
}

void keep_one_account(uint64_t seed, ts_cluster_result *run) {
    enum { SLICES = 64, SERVERS = 8 };
    static size_t told[SLICES][SERVERS];
    size_t *of_slice[SLICES], count[SLICES] = {0}, kept = 0;
    memset(told, 0, sizeof told);
    for (unsigned s = 0; s < SLICES; s++) of_slice[s] = malloc((run->event_count + 1) * sizeof(size_t));
    for (size_t i = 0; i < run->event_count; i++) {
        ts_cluster_event event = run->events[i];
        uint32_t s = event.receipt.slice;
        if (event.kind == TS_CLUSTER_RECEIPT) {
            ck_assert(s < SLICES && event.server < SERVERS);
            size_t at = told[s][event.server]++;
            if (at < count[s]) {
                ck_assert_msg(same_receipt(&event.receipt, &run->events[of_slice[s][at]].receipt),
                              "seed %llu: of slice %u server %u tells another thing than the other one", (unsigned long long)seed, s,
                              event.server);
                continue;
            }
            of_slice[s][count[s]++] = kept;
        }
        run->events[kept++] = event;
    }
    run->event_count = kept;
    for (unsigned s = 0; s < SLICES; s++) free(of_slice[s]);
}
