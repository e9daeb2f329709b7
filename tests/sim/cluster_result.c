/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "tests/sim/cluster.h"

const ts_cluster_tensor ts_cluster_tensors[TS_CLUSTER_TENSORS] = {
    {"a.weight", {30, 17}, 2, 510}, {"a.bias", {30}, 1, 30}, {"b.weight", {7, 6}, 2, 42}, {"c.scale", {1}, 1, 1}};

float ts_cluster_initial(uint32_t tensor, size_t element) {
    return ts_random_unit((uint32_t)ts_random_key(11, tensor, element, 0, 0)) - 0.5f;
}

float ts_cluster_gradient(uint32_t tensor, size_t element, float param, uint32_t worker, uint64_t step) {
    float target = ts_random_unit((uint32_t)ts_random_key(12, tensor, element, 0, 0));
    float noise = ts_random_unit((uint32_t)ts_random_key(13, tensor, element, worker, step)) - 0.5f;
    float scale = element % 29 == 0 ? 4.0f : 0.25f; /* long-tailed, as gradients are */
    return (param - target) + noise * scale;
}

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
