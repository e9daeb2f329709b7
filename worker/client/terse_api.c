/* SPDX-License-Identifier: Apache-2.0 */
/* terse.h's calls over the client's core: the lock, the waiting, the sentences. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "common/net/mpi_transport.h"
#include "worker/client/terse_internal.h"

#define WAIT_NS 100000000L     /* a sleeper looks up this often even when nobody wakes it */
#define POLL_TICK_US 10000u
#define NAP_MIN_NS 20000L
#define NAP_MAX_NS 1000000L
#define LAST_WORDS_US 1000000u /* after a failure: what a server reads that lives is gone by then */

/* handle = (step + 1) << 25 | tensor << 1 | kind */
enum { HANDLE_PUSH = 0, HANDLE_PULL = 1 };
#define HANDLE_TENSOR_BITS 24

static uint64_t now_us(const terse *client) { return client->transport->ops->now_us(client->transport); }

const char *terse_version(void) { return TS_VERSION; }

/* Takes the lock of a client that works. Returns TERSE_ESTATE (nothing is locked) after a failed open. */
static terse_status enter(terse *client) {
    TS_REQUIRE(client, TERSE_EINVAL);
    if (!client->client || client->failure != TERSE_OK) return client->failure != TERSE_OK ? client->failure : TERSE_ESTATE;
    pthread_mutex_lock(&client->mutex);
    return TERSE_OK;
}

terse_status ts_terse_leave(terse *client, terse_status status) {
    if (status != TERSE_OK) {
        const char *said = ts_client_message(client->client);
        snprintf(client->message.text, sizeof client->message.text, "%s", said[0] ? said : terse_strerror(status));
    }
    pthread_mutex_unlock(&client->mutex);
    return status;
}

bool ts_terse_progress(terse *client) {
    if (client->comm) return false;
    bool moved = client->transport->ops->poll(client->transport);
    uint64_t now = now_us(client);
    if (now - client->ticked_us >= POLL_TICK_US) {
        client->ticked_us = now;
        ts_client_tick(client->client);
    }
    return moved;
}

/* Sleeps until something may have changed. The mutex is held on entry and return. */
static void sleep_a_little(terse *client, long *nap_ns) {
    if (client->comm) {
        ts_terse_await(client, WAIT_NS);
        return;
    }
    if (ts_terse_progress(client)) {
        *nap_ns = NAP_MIN_NS;
        return;
    }
    struct timespec nap = {0, *nap_ns};
    nanosleep(&nap, NULL);
    if (*nap_ns < NAP_MAX_NS) *nap_ns *= 2;
}

terse_status ts_terse_wait(terse *client, bool (*ready)(terse *client, void *argument), void *argument) {
    uint64_t began = now_us(client);
    long nap_ns = NAP_MIN_NS;
    terse_status status = TERSE_OK;
    ts_client_flush(client->client);
    ts_terse_drive(client);
    while (!ready(client, argument)) {
        ts_client_cut_due(client->client);
        /* Who is silent too long fails the client in its tick; a server that lives may let us wait for a slow worker. */
        if (ts_client_get_state(client->client) == TS_CLIENT_FAILED) {
            status = ts_client_failure(client->client);
            break;
        }
        ts_client_come_back_due(client->client);
        sleep_a_little(client, &nap_ns);
    }
    ts_terse_rest(client);
    client->wait_us += now_us(client) - began;
    return status;
}

/* A call that makes no sense: leaves the sentence and lets go of the mutex. Returns: status. */
static terse_status refuse(terse *client, terse_status status, const char *sentence) {
    if (ts_client_get_state(client->client) == TS_CLIENT_FAILED)
        return ts_terse_leave(client, ts_client_failure(client->client)); /* which matters more */
    snprintf(client->message.text, sizeof client->message.text, "%s", sentence);
    pthread_mutex_unlock(&client->mutex);
    return status;
}

terse_status terse_declare(terse *client, const char *name, terse_dtype dtype, const int64_t *shape, int ndim,
                           float *param, terse_tensor *tensor) {
    TS_TRY(enter(client));
    if (dtype != TERSE_FLOAT32) return refuse(client, TERSE_EUNSUPPORTED, "terse_declare: only TERSE_FLOAT32 is there");
    unsigned extents = ndim >= 0 ? (unsigned)ndim : UINT_MAX; /* refused with the tensor's name */
    return ts_terse_leave(client, ts_client_declare(client->client, name, shape, extents, param, tensor));
}

terse_status terse_set_total_steps(terse *client, uint64_t steps) {
    TS_TRY(enter(client));
    return ts_terse_leave(client, ts_client_set_total_steps(client->client, steps));
}

terse_status terse_set_samples(terse *client, uint32_t samples) {
    TS_TRY(enter(client));
    ts_client_set_samples(client->client, samples);
    return ts_terse_leave(client, TERSE_OK);
}

static bool attached(terse *client, void *argument) {
    (void)argument;
    return ts_client_get_state(client->client) == TS_CLIENT_TRAINING;
}

terse_status terse_start(terse *client) {
    TS_TRY(enter(client));
    terse_status status = ts_client_start(client->client);
    if (status == TERSE_OK) status = ts_terse_wait(client, attached, NULL);
    if (status == TERSE_OK) status = ts_client_resume(client->client);
    return ts_terse_leave(client, status);
}

uint32_t terse_returns(terse *client, uint64_t *step) {
    uint32_t returns = 0;
    if (enter(client) != TERSE_OK) return 0;
    returns = ts_client_returns(client->client);
    if (step) *step = ts_client_step(client->client);
    pthread_mutex_unlock(&client->mutex);
    return returns;
}

terse_status terse_set_sums(terse *client, uint64_t count) {
    TS_TRY(enter(client));
    ts_client_set_sums(client->client, count);
    return ts_terse_leave(client, TERSE_OK);
}

uint64_t terse_resumed(const terse *client) {
    return client && client->client && client->failure == TERSE_OK ? ts_client_resumed(client->client) : 0;
}

terse_status terse_checkpoint(terse *client, int stop, const char *reason) {
    TS_TRY(enter(client));
    return ts_terse_leave(client, ts_client_request_checkpoint(client->client, stop != 0, reason ? reason : "the program"));
}

static bool pulled(terse *client, void *argument) { return ts_client_pulled(client->client, *(const terse_tensor *)argument); }
static bool pushed(terse *client, void *argument) { return ts_client_pushed(client->client, *(const terse_tensor *)argument); }

static terse_handle handle_of(const terse *client, terse_tensor tensor, unsigned kind) {
    uint64_t step = ts_client_tensor_step(client->client, tensor);
    return ((step + 1) << (HANDLE_TENSOR_BITS + 1)) | ((uint64_t)tensor << 1) | kind;
}

typedef struct {
    terse_tensor tensor;
    bool sparse, lent;
    const float *gradient;
    const uint32_t *index;
    const float *value;
    size_t count;
} push_input;

static terse_status push_once(terse *client, const push_input *input) {
    if (input->lent) return ts_client_push_lent(client->client, input->tensor, input->gradient);
    if (!input->sparse) return ts_client_push(client->client, input->tensor, input->gradient);
    return ts_client_push_sparse(client->client, input->tensor, input->index, input->value, input->count);
}

/* The mutex is held. */
static terse_status push(terse *client, const push_input *input, terse_handle *handle) {
    terse_status status = push_once(client, input);
    if (status == TERSE_EAGAIN) {
        terse_tensor tensor = input->tensor;
        TS_TRY(ts_terse_wait(client, pulled, &tensor));
        status = push_once(client, input);
    }
    /* Only now: where rounds do not wait, a push joins the newest. */
    if (status == TERSE_OK && handle) *handle = handle_of(client, input->tensor, HANDLE_PUSH);
    return status;
}

terse_status terse_push(terse *client, terse_tensor tensor, const float *gradient, terse_handle *handle) {
    TS_TRY(enter(client));
    push_input input = {.tensor = tensor, .gradient = gradient};
    return ts_terse_leave(client, push(client, &input, handle));
}

terse_status terse_push_sparse(terse *client, terse_tensor tensor, const uint32_t *index, const float *value,
                               size_t count, terse_handle *handle) {
    TS_TRY(enter(client));
    if (count && (!index || !value)) return refuse(client, TERSE_EINVAL, "terse_push_sparse: no indices or no values");
    push_input input = {.tensor = tensor, .sparse = true, .index = index, .value = value, .count = count};
    return ts_terse_leave(client, push(client, &input, handle));
}

terse_status terse_pull(terse *client, terse_tensor tensor, terse_handle *handle) {
    TS_TRY(enter(client));
    terse_handle made = handle_of(client, tensor, HANDLE_PULL);
    terse_status status = ts_client_pull(client->client, tensor);
    if (status == TERSE_OK && handle) *handle = made;
    return ts_terse_leave(client, status);
}

terse_status terse_prefetch(terse *client, terse_tensor tensor, int wanted) {
    TS_TRY(enter(client));
    return ts_terse_leave(client, ts_client_prefetch(client->client, tensor, wanted != 0));
}

terse_status terse_wait(terse *client, terse_handle handle) {
    TS_TRY(enter(client));
    terse_tensor tensor = (terse_tensor)(handle >> 1) & ((1u << HANDLE_TENSOR_BITS) - 1);
    uint64_t step = handle >> (HANDLE_TENSOR_BITS + 1);
    const ts_contract *contract = ts_client_contract(client->client);
    if (!step || tensor >= contract->tensor_count)
        return refuse(client, TERSE_ENOTFOUND, "terse_wait: this is not the handle of a push or pull");
    bool pull = (handle & 1) == HANDLE_PULL;
    bool earlier = ts_client_tensor_step(client->client, tensor) >= step; /* the version is here already */
    terse_status status = ts_client_check_wait(client->client, tensor, step, pull);
    if (status == TERSE_OK && !earlier) status = ts_terse_wait(client, pull ? pulled : pushed, &tensor);
    return ts_terse_leave(client, status);
}

static bool all_pulled(terse *client, void *argument) { return ts_client_pulled_all(client->client, argument); }

/* The step is over, and its gradients are the user's again. */
static terse_status recall(terse *client, terse_status status) {
    if (!ts_client_has_lent(client->client)) return status;
    uint64_t failed_us = 0;
    while (ts_client_lent_under_way(client->client)) {
        bool failed = ts_client_get_state(client->client) == TS_CLIENT_FAILED;
        if (failed && !failed_us) failed_us = now_us(client);
        if (failed && now_us(client) - failed_us > LAST_WORDS_US) break;
        pthread_mutex_unlock(&client->mutex);
        bool moved = client->comm && ts_comm_thread_poll(client->comm);
        if (!moved) nanosleep(&(struct timespec){.tv_nsec = NAP_MIN_NS}, NULL);
        pthread_mutex_lock(&client->mutex);
        if (!client->comm) ts_terse_progress(client);
    }
    if (client->comm) { /* nobody sends them meanwhile */
        pthread_mutex_unlock(&client->mutex);
        ts_comm_thread_hold(client->comm);
        pthread_mutex_lock(&client->mutex);
    }
    terse_status recalled = ts_client_recall(client->client);
    if (client->comm) ts_comm_thread_release(client->comm);
    return status == TERSE_OK ? recalled : status;
}

terse_status terse_step(terse *client, const float *const *gradients) {
    TS_TRY(enter(client));
    uint32_t tensors = ts_client_contract(client->client)->tensor_count, next = 0;
    terse_status status = TERSE_OK;
    if (!gradients || !tensors) return refuse(client, TERSE_EINVAL, "terse_step: no gradients, or no tensors are declared");
    ts_terse_drive(client);
    for (uint32_t t = 0; t < tensors && status == TERSE_OK; t++) {
        push_input input = {.tensor = t, .gradient = gradients[t], .lent = true};
        ts_client_step_reaches(client->client, t + 1);
        status = push(client, &input, NULL);
        if (status == TERSE_OK && ts_client_prefetches(client->client, t)) status = ts_client_pull(client->client, t);
    }
    ts_client_step_reaches(client->client, 0);
    if (status == TERSE_OK) status = ts_terse_wait(client, all_pulled, &next);
    status = recall(client, status);
    ts_terse_rest(client);
    return ts_terse_leave(client, status);
}

terse_status terse_progress(terse *client) {
    TS_TRY(enter(client));
    ts_client_flush(client->client);
    while (ts_terse_progress(client)) {}
    ts_terse_drive(client);
    if (client->drivers > 0) {
        pthread_mutex_unlock(&client->mutex);
        while (ts_comm_thread_poll(client->comm)) {}
        pthread_mutex_lock(&client->mutex);
    }
    ts_terse_rest(client);
    return ts_terse_leave(client, ts_client_failure(client->client));
}

typedef struct {
    uint64_t sequence;
    double *values;
    size_t count;
} reduce_wait;

static bool reduced(terse *client, void *argument) {
    const reduce_wait *wanted = argument;
    return ts_client_reduced(client->client, wanted->sequence, wanted->values, wanted->count);
}

terse_status terse_reduce_sum(terse *client, double *values, size_t count) {
    TS_TRY(enter(client));
    if (count && !values) return refuse(client, TERSE_EINVAL, "terse_reduce_sum: no values");
    reduce_wait wanted = {.values = values, .count = count};
    terse_status status = ts_client_reduce(client->client, values, count, &wanted.sequence);
    if (status == TERSE_OK) status = ts_terse_wait(client, reduced, &wanted);
    return ts_terse_leave(client, status);
}

static bool fetched(terse *client, void *argument) { return ts_client_fetched(client->client, *(const terse_tensor *)argument); }

terse_status terse_fetch(terse *client, terse_tensor tensor, float *out) {
    TS_TRY(enter(client));
    if (!out) return refuse(client, TERSE_EINVAL, "terse_fetch: no buffer");
    terse_status status = ts_client_fetch(client->client, tensor, out);
    if (status == TERSE_OK) status = ts_terse_wait(client, fetched, &tensor);
    return ts_terse_leave(client, status);
}

terse_status terse_done(terse *client) {
    TS_TRY(enter(client));
    return ts_terse_leave(client, ts_terse_be_done(client));
}

terse_status terse_abort(terse *client, terse_status cause, const char *reason) {
    TS_TRY(enter(client));
    if (cause == TERSE_OK || !reason) return refuse(client, TERSE_EINVAL, "terse_abort: no cause or no reason");
    ts_client_abort(client->client, cause, reason); /* changes nothing when the job has failed already */
    return ts_terse_leave(client, ts_client_failure(client->client));
}

static bool have_stats(terse *client, void *argument) { return ts_client_stats(client->client, argument); }

terse_status terse_get_stats(terse *client, terse_stats *stats) {
    TS_TRY(enter(client));
    if (!stats) return refuse(client, TERSE_EINVAL, "terse_get_stats: no buffer");
    terse_status status = ts_client_request_stats(client->client);
    if (status == TERSE_OK) status = ts_terse_wait(client, have_stats, stats);
    return ts_terse_leave(client, status);
}

static double residual_norm(const ts_client *client) {
    const ts_contract *contract = ts_client_contract(client);
    double sum = 0;
    for (uint32_t t = 0; ts_client_keeps_residual(client) && t < contract->tensor_count; t++) {
        const float *residual = ts_client_residual(client, t);
        for (size_t i = 0; residual && i < contract->tensors[t].n; i++) sum += (double)residual[i] * (double)residual[i];
    }
    return sqrt(sum);
}

terse_status terse_get_local_stats(terse *client, terse_local_stats *stats) {
    TS_TRY(enter(client));
    if (!stats) return refuse(client, TERSE_EINVAL, "terse_get_local_stats: no buffer");
    const ts_client_counters *counters = ts_client_get_counters(client->client);
    *stats = (terse_local_stats){.step = ts_client_step(client->client),
                                 .push_bytes = counters->bytes_out,
                                 .pull_bytes = counters->bytes_in,
                                 .push_payload_bytes = counters->push_payload_bytes,
                                 .encode_us = counters->encode_us,
                                 .wait_us = client->wait_us,
                                 .decode_us = counters->decode_us,
                                 .residual_norm = residual_norm(client->client),
                                 .nonfinite = counters->nonfinite};
    return ts_terse_leave(client, TERSE_OK);
}

uint32_t terse_worker(const terse *client) {
    return client->transport ? client->transport->peers[client->transport->self].index : 0;
}

uint32_t terse_workers(const terse *client) { return client->transport ? client->transport->workers : 0; }
uint32_t terse_servers(const terse *client) { return client->transport ? client->transport->servers : 0; }

terse_status terse_comm(terse *client, void *comm) {
    TS_REQUIRE(client && client->transport, TERSE_ESTATE);
    return ts_mpi_transport_workers_comm(client->transport, comm);
}

const char *terse_message(const terse *client) { return client ? client->message.text : "out of memory"; }
