/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/mem.h"
#include "tests/sim/cluster.h"

terse_status ts_cluster_result_create(ts_cluster_result *out, uint32_t workers) {
    memset(out, 0, sizeof *out);
    for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++) {
        size_t n = ts_cluster_tensors[t].n;
        TS_REQUIRE((out->fetched[t] = ts_mem_aligned(n, sizeof(float))) != NULL, TERSE_ENOMEM);
        for (uint32_t w = 0; w < workers; w++) {
            TS_REQUIRE((out->replica[w][t] = ts_mem_aligned(n, sizeof(float))) != NULL, TERSE_ENOMEM);
            TS_REQUIRE((out->residual[w][t] = ts_mem_aligned(n, sizeof(float))) != NULL, TERSE_ENOMEM);
        }
    }
    return TERSE_OK;
}

void ts_cluster_result_free(ts_cluster_result *result) {
    ts_mem_free(result->events);
    for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++) {
        ts_mem_free(result->fetched[t]);
        for (uint32_t w = 0; w < TS_CLUSTER_WORKERS; w++) {
            ts_mem_free(result->replica[w][t]);
            ts_mem_free(result->residual[w][t]);
        }
    }
}
