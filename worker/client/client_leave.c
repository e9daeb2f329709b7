/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker that leaves has not said yet: pushed before (error_feedback.flush), while others go on; and told to the
 * servers, in numbers, with its Done.
 */
#include <inttypes.h>
#include <math.h>

#include "common/base/log.h"
#include "common/codec/kernels.h"
#include "worker/client/client_internal.h"

#define ROUNDS_MAX 16u      /* pushes of what is left */
#define LITTLE 1e-4         /* of what there was, is not worth another push */

static bool keeps_sums(const ts_client *client) {
    return client->config->error_feedback.enabled && !ts_config_estimates(client->config); /* EF21 has no sum to lose */
}

ts_client_unsent ts_client_measure_unsent(ts_client *client) {
    const ts_kernels *kernels = ts_kernels_get(ts_cpu_simd());
    ts_client_unsent unsent = {0};
    for (uint32_t t = 0; keeps_sums(client) && t < client->contract->tensor_count; t++) {
        const float *residual = ts_client_residual(client, t);
        size_t n = client->contract->tensors[t].n;
        unsent.l1 += kernels->sum_abs(residual, n);
        unsent.squares += kernels->sum_squares(residual, n);
        for (size_t i = 0; i < n; i++) unsent.nonzero += residual[i] != 0;
    }
    return unsent;
}

/* Every tensor stands at the same step, and nothing of it is deferred. */
static bool between_steps(const ts_client *client) {
    uint64_t first = client->tensors[0].step + (client->tensors[0].phase != TS_TENSOR_IDLE);
    for (uint32_t t = 1; t < client->contract->tensor_count; t++)
        if (client->tensors[t].step + (client->tensors[t].phase != TS_TENSOR_IDLE) != first) return false;
    return client->deferred_tensors == 0;
}

bool ts_client_rest_due(ts_client *client) {
    uint64_t total = client->contract->total_steps, step = ts_client_step(client);
    bool wanted = client->config->flush && keeps_sums(client);
    if (!wanted || client->state != TS_CLIENT_TRAINING || client->stale || !between_steps(client)) return false;
    if (total > 0 && step >= total) return false; /* all end together: there is no round that it could be pushed in */
    ts_client_unsent now = ts_client_measure_unsent(client);
    uint32_t rounds = client->rest.rounds;
    if (rounds == 0) client->rest.first_l1 = now.l1;
    bool little = now.l1 <= LITTLE * client->rest.first_l1, stuck = rounds > 0 && now.l1 >= client->rest.last_l1;
    client->rest.last_l1 = now.l1;
    if (little || stuck || rounds == ROUNDS_MAX) {
        if (rounds > 0)
            ts_log(TS_LOG_INFO, "client", "what was not sent yet was pushed before leaving",
                   "rounds=%" PRIu32 " sum_of_magnitudes=%.6g left=%.6g", rounds, client->rest.first_l1, now.l1);
        return false;
    }
    if (client->rest.rounds++ == 0) { /* who stands at a barrier meanwhile is not to wait for us, who would wait for its push */
        client->rest.leaving = true;
        for (uint32_t s = 0; s < client->server_count; s++) ts_client_send_heartbeat(client, &client->servers[s]);
    }
    return true;
}
