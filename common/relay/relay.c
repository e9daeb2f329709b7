/* SPDX-License-Identifier: Apache-2.0 */
#include "common/relay/relay.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/relay/relay_link.h"
#include "worker/client/client.h"

typedef enum {
    TENSOR_BELOW,  /* the server's: it sums, or its workers have the values */
    TENSOR_FULL,   /* its gradient is to be pushed */
    TENSOR_ABOVE,  /* pushed; its next values are asked for */
    TENSOR_BACK    /* they are here */
} tensor_phase;

typedef struct {
    float *gradient, *values; /* [own] n */
    tensor_phase phase;
    uint32_t samples;
} relay_tensor;

struct ts_relay {
    ts_upstream upstream; /* first: the server's view of it */
    const ts_config *config;
    ts_transport *real, *link;
    ts_executor *executor;
    ts_server *server;
    const ts_contract *contract; /* of the job below */
    pthread_mutex_t mutex;       /* over the client and the phases */
    ts_client *client;
    relay_tensor *tensors;       /* [own] */
    uint32_t tensor_count;
    bool started, attached, done, aborted;
    bool working;                /* one work is in the executor */
    bool news;                   /* frames have come since the last look */
};

static ts_relay *of(const ts_upstream *upstream) { return (ts_relay *)(uintptr_t)upstream; }

static void lock(void *context) { pthread_mutex_lock(&((ts_relay *)context)->mutex); }
static void unlock(void *context) { pthread_mutex_unlock(&((ts_relay *)context)->mutex); }

/* ---- what the server calls ------------------------------------------------------------------------------------------- */

static terse_status begin(ts_upstream *upstream, const ts_contract *contract) {
    ts_relay *relay = of(upstream);
    relay->tensors = ts_mem_calloc(contract->tensor_count, sizeof *relay->tensors);
    TS_REQUIRE(relay->tensors, TERSE_ENOMEM);
    relay->contract = contract;
    relay->tensor_count = contract->tensor_count;
    lock(relay);
    terse_status status = ts_client_set_total_steps(relay->client, contract->total_steps);
    for (uint32_t t = 0; t < relay->tensor_count && status == TERSE_OK; t++) {
        const ts_tensor *tensor = &contract->tensors[t];
        relay->tensors[t].gradient = ts_mem_aligned(tensor->n, sizeof(float));
        relay->tensors[t].values = ts_mem_aligned(tensor->n, sizeof(float));
        bool room = relay->tensors[t].gradient && relay->tensors[t].values;
        status = room ? ts_client_declare(relay->client, tensor->name, tensor->shape, tensor->ndim,
                                          relay->tensors[t].values, NULL) : TERSE_ENOMEM;
    }
    unlock(relay);
    return status;
}

static float *gradient(ts_upstream *upstream, uint32_t tensor) { return of(upstream)->tensors[tensor].gradient; }
static float *values(ts_upstream *upstream, uint32_t tensor) { return of(upstream)->tensors[tensor].values; }

static void start(ts_upstream *upstream) {
    ts_relay *relay = of(upstream);
    relay->started = true;
    lock(relay);
    (void)!ts_client_start(relay->client); /* the tick passes a failure on */
    unlock(relay);
    ts_relay_link_drain(relay->link);
}

static void push(ts_upstream *upstream, uint32_t tensor, uint32_t samples) {
    ts_relay *relay = of(upstream);
    lock(relay);
    assert(relay->tensors[tensor].phase == TENSOR_BELOW);
    relay->tensors[tensor].phase = TENSOR_FULL;
    relay->tensors[tensor].samples = samples;
    unlock(relay);
    relay->news = true; /* flush, which follows every round of polling, takes it up */
}

static void done(ts_upstream *upstream) {
    ts_relay *relay = of(upstream);
    relay->done = true;
    lock(relay);
    (void)!ts_client_done(relay->client);
    unlock(relay);
    ts_relay_link_drain(relay->link);
}

static bool ended(const ts_upstream *upstream) {
    ts_relay *relay = of(upstream);
    if (!relay->started) return true;
    lock(relay);
    ts_client_state state = ts_client_get_state(relay->client);
    unlock(relay);
    return state == TS_CLIENT_DONE || state == TS_CLIENT_FAILED;
}

static void waiting(const ts_upstream *upstream, char *text, size_t capacity) {
    ts_relay *relay = of(upstream);
    lock(relay);
    ts_client_waiting(relay->client, text, capacity);
    unlock(relay);
}

static const ts_upstream_ops relay_ops = {
    .begin = begin,
    .gradient = gradient,
    .values = values,
    .start = start,
    .push = push,
    .done = done,
    .ended = ended,
    .waiting = waiting,
};

/* ---- the work: pushes and pulls, one at a time ------------------------------------------------------------------------ */

/* Called with the lock; push and pulled let go of it while they compute. */
static void go_up(ts_relay *relay, uint32_t t) {
    relay_tensor *tensor = &relay->tensors[t];
    ts_client_set_samples(relay->client, tensor->samples);
    if (ts_client_push(relay->client, t, tensor->gradient) != TERSE_OK) return; /* the tick passes it on */
    if (ts_client_pull(relay->client, t) == TERSE_OK) tensor->phase = TENSOR_ABOVE;
}

static void work(void *argument) {
    ts_relay *relay = argument;
    lock(relay);
    for (uint32_t t = 0; t < relay->tensor_count; t++)
        if (relay->tensors[t].phase == TENSOR_FULL) go_up(relay, t);
    ts_client_flush(relay->client);
    for (uint32_t t = 0; t < relay->tensor_count; t++)
        if (relay->tensors[t].phase == TENSOR_ABOVE && ts_client_pulled(relay->client, t))
            relay->tensors[t].phase = TENSOR_BACK;
    unlock(relay);
}

/* Tensors that are back become the server's again. Returns whether there were any. */
static bool hand_down(ts_relay *relay) {
    bool any = false;
    for (uint32_t t = 0; t < relay->tensor_count; t++) {
        lock(relay);
        bool back = relay->tensors[t].phase == TENSOR_BACK;
        if (back) relay->tensors[t].phase = TENSOR_BELOW;
        unlock(relay);
        if (back) ts_upstream_arrived(relay->server, t);
        any = any || back;
    }
    return any;
}

static void work_done(void *argument) {
    ts_relay *relay = argument;
    relay->working = false;
    ts_relay_link_drain(relay->link);
    if (hand_down(relay)) ts_server_flush(relay->server);
    ts_relay_flush(relay);
}

/* ---- the loop's side ------------------------------------------------------------------------------------------------ */

static void on_frame(void *context, uint32_t peer, ts_buffer *frame) {
    ts_relay *relay = context;
    lock(relay);
    ts_transport_handler *to = &relay->link->handler;
    if (to->on_frame) to->on_frame(to->context, peer, frame);
    unlock(relay);
    relay->news = true;
}

/* The servers above have told everybody's first values. */
static void check_attached(ts_relay *relay) {
    lock(relay);
    bool attached = ts_client_get_state(relay->client) == TS_CLIENT_TRAINING;
    unlock(relay);
    if (!relay->started || relay->attached || !attached) return;
    relay->attached = true;
    ts_log(TS_LOG_INFO, "relay", "has joined the servers above", "servers=%u workers=%u", relay->real->servers,
           relay->real->workers);
    for (uint32_t t = 0; t < relay->tensor_count; t++) ts_upstream_arrived(relay->server, t);
    ts_server_flush(relay->server);
}

void ts_relay_flush(ts_relay *relay) {
    ts_relay_link_drain(relay->link);
    check_attached(relay);
    if (relay->working || !relay->attached || !relay->news) return;
    relay->news = false;
    relay->working = true;
    if (relay->executor->submit(relay->executor, work, work_done, relay) == TERSE_OK) return;
    relay->working = false;
    ts_upstream_failed(relay->server, TERSE_ENOMEM, terse_strerror(TERSE_ENOMEM));
}

void ts_relay_tick(ts_relay *relay) {
    lock(relay);
    ts_client_tick(relay->client);
    terse_status failure = ts_client_failure(relay->client);
    char text[512];
    snprintf(text, sizeof text, "%s", ts_client_message(relay->client));
    if (ts_server_get_state(relay->server) == TS_SERVER_FAILED && relay->started && !relay->aborted) {
        relay->aborted = true;
        if (failure == TERSE_OK)
            ts_client_abort(relay->client, ts_server_failure(relay->server), ts_server_message(relay->server));
    }
    unlock(relay);
    if (failure != TERSE_OK && ts_server_get_state(relay->server) == TS_SERVER_RUNNING)
        ts_upstream_failed(relay->server, failure, text);
    ts_relay_flush(relay);
}

bool ts_relay_idle(const ts_relay *relay) { return !relay->working; }
const struct ts_client *ts_relay_client(const ts_relay *relay) { return relay->client; }

/* ---- life ------------------------------------------------------------------------------------------------------------ */

terse_status ts_relay_bind(ts_relay *relay, ts_server *server, ts_error *error) {
    TS_TRY(ts_server_set_upstream(server, &relay->upstream, error));
    relay->server = server;
    return TERSE_OK;
}

terse_status ts_relay_create(const ts_config *config, ts_transport *transport, ts_executor *executor, ts_relay **out) {
    ts_relay *relay = ts_mem_calloc(1, sizeof *relay);
    TS_REQUIRE(relay, TERSE_ENOMEM);
    *relay = (ts_relay){.upstream = {.ops = &relay_ops}, .config = config, .real = transport, .executor = executor};
    if (pthread_mutex_init(&relay->mutex, NULL) != 0) {
        ts_mem_free(relay);
        return TERSE_ENOMEM;
    }
    terse_status status = ts_relay_link_create(transport, &relay->link);
    if (status == TERSE_OK) status = ts_client_create(config, relay->link, &relay->client);
    if (status != TERSE_OK) {
        ts_relay_destroy(relay);
        return status;
    }
    ts_client_set_lock(relay->client, lock, unlock, relay);
    transport->handler = (ts_transport_handler){.context = relay, .on_frame = on_frame};
    *out = relay;
    return TERSE_OK;
}

void ts_relay_destroy(ts_relay *relay) {
    if (!relay) return;
    assert(ts_relay_idle(relay));
    if (relay->client && ts_client_get_state(relay->client) == TS_CLIENT_DONE) ts_client_bye(relay->client);
    if (relay->link) ts_relay_link_drain(relay->link);
    if (relay->real->handler.context == relay) relay->real->handler = (ts_transport_handler){0};
    ts_client_destroy(relay->client);
    if (relay->link) relay->link->ops->destroy(relay->link);
    for (uint32_t t = 0; t < relay->tensor_count; t++) {
        ts_mem_free(relay->tensors[t].gradient);
        ts_mem_free(relay->tensors[t].values);
    }
    ts_mem_free(relay->tensors);
    pthread_mutex_destroy(&relay->mutex);
    ts_mem_free(relay);
}
