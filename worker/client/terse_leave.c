/* SPDX-License-Identifier: Apache-2.0 */
/* How a worker leaves, in the user's thread: pushes of what is left (client_leave.c), and Done. */
#include "worker/client/terse_internal.h"

static bool pulled(terse *client, void *argument) { return ts_client_pulled(client->client, *(const uint32_t *)argument); }

static bool all_pulled(terse *client, void *argument) {
    uint32_t tensors = ts_client_contract(client->client)->tensor_count;
    bool all = true;
    (void)argument;
    for (uint32_t t = 0; t < tensors; t++)
        if (ts_client_prefetches(client->client, t)) all = ts_client_pulled(client->client, t) && all;
    return all;
}

/* A tensor whose last push has not been pulled yet is. */
static terse_status pull_all(terse *client) {
    uint32_t tensors = ts_client_contract(client->client)->tensor_count;
    for (uint32_t t = 0; t < tensors; t++)
        if (ts_client_prefetches(client->client, t)) TS_TRY(ts_client_pull(client->client, t));
    return ts_terse_wait(client, all_pulled, NULL);
}

static terse_status push_all(terse *client) {
    uint32_t tensors = ts_client_contract(client->client)->tensor_count;
    for (uint32_t t = 0; t < tensors; t++) {
        terse_status status = ts_client_push_rest(client->client, t);
        if (status == TERSE_EAGAIN) {
            TS_TRY(ts_terse_wait(client, pulled, &t));
            status = ts_client_push_rest(client->client, t);
        }
        TS_TRY(status);
    }
    return TERSE_OK;
}

static terse_status flush_rest(terse *client) {
    if (!client->config->flush || ts_client_get_state(client->client) != TS_CLIENT_TRAINING) return TERSE_OK;
    terse_status status = pull_all(client);
    while (status == TERSE_OK && ts_client_rest_due(client->client)) {
        status = push_all(client);
        if (status == TERSE_OK) status = pull_all(client);
    }
    return status;
}

/* Done, or back in the job, which then is to be told again. */
static bool done_or_back(terse *client, void *argument) {
    ts_client_state state = ts_client_get_state(client->client);
    (void)argument;
    return state == TS_CLIENT_DONE || state == TS_CLIENT_TRAINING;
}

terse_status ts_terse_be_done(terse *client) {
    terse_status status = TERSE_OK;
    while (status == TERSE_OK && ts_client_get_state(client->client) != TS_CLIENT_DONE) {
        status = flush_rest(client);
        if (status == TERSE_OK) status = ts_client_done(client->client);
        if (status == TERSE_OK || status == TERSE_EAGAIN) status = ts_terse_wait(client, done_or_back, NULL);
    }
    return status;
}
