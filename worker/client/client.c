/* SPDX-License-Identifier: Apache-2.0 */
/* The client's state: made, declared, failed, asked about, freed. */
#include "worker/client/client_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"

/* What a frame needs beside the packets of a slice. */
#define FRAME_HEAD_BYTES 65536u

static terse_status find_servers(ts_client *client) {
    ts_transport *transport = client->transport;
    client->server_count = transport->servers;
    client->servers = ts_mem_calloc(client->server_count ? client->server_count : 1, sizeof *client->servers);
    TS_REQUIRE(client->servers, TERSE_ENOMEM);
    uint64_t now = ts_client_now(client);
    for (uint32_t s = 0; s < client->server_count; s++) {
        client->servers[s].peer = client->servers[s].home = ts_transport_find(transport, TS_ROLE_SERVER, s);
        client->servers[s].heard_us = client->servers[s].sent_us = now;
        client->servers[s].rto_us = TS_CLIENT_RTO_US;
    }
    client->ticked_us = now;
    ts_client_find_standins(client);
    return TERSE_OK;
}

static terse_status take_secret(ts_client *client) {
    ts_error error = {""};
    terse_status status = ts_secret_load(client->config->auth.secret_file, &client->secret, &error);
    if (status == TERSE_OK) ts_secret_nonce(client->nonce);
    else ts_log(TS_LOG_ERROR, "client", "the secret cannot be had", "reason=\"%s\"", error.text);
    return status;
}

terse_status ts_client_create(const ts_config *config, ts_transport *transport, ts_client **out) {
    ts_client *client = ts_mem_calloc(1, sizeof *client);
    TS_REQUIRE(client, TERSE_ENOMEM);
    client->config = config;
    client->transport = transport;
    client->worker = transport->peers[transport->self].index;
    client->job = transport->peers[transport->self].job;
    client->incarnation = transport->incarnation ? transport->incarnation : 1;
    client->deadline_us = (uint64_t)(config->consistency.deadline_s * 1e6);
    client->alone_bytes = TS_CLIENT_ALONE_BYTES;
    client->ahead_bytes = TS_CLIENT_AHEAD_BYTES;
    terse_status status = find_servers(client);
    if (status == TERSE_OK) status = ts_config_contract(config, &client->contract);
    if (status == TERSE_OK) status = ts_scratch_create(&client->scratch);
    if (status == TERSE_OK) status = ts_scratch_create(&client->decode_scratch);
    if (status == TERSE_OK && config->auth.secret_file) status = take_secret(client);
    if (status != TERSE_OK) {
        ts_client_destroy(client);
        return status;
    }
    transport->handler = (ts_transport_handler){.context = client, .on_frame = ts_client_on_frame};
    *out = client;
    return TERSE_OK;
}

void ts_client_destroy(ts_client *client) {
    if (!client) return;
    ts_client_checkpoint_free(client);
    ts_secret_free(client->secret);
    uint32_t tensors = client->contract ? client->contract->tensor_count : 0;
    bool ended = client->state == TS_CLIENT_DONE; /* else another life may go on from here */
    for (uint32_t t = 0; client->tensors && t < tensors; t++) {
        ts_encoder_destroy(client->tensors[t].encoder);
        ts_feedback_destroy(&client->tensors[t].memory);
        ts_mem_free(client->tensors[t].dense);
    }
    for (uint32_t i = 0; client->slices && i < client->contract->slice_count; i++)
        ts_client_drop_arrivals(client, &client->slices[i]);
    ts_client_free_spare(client);
    ts_mem_free(client->tensors);
    ts_mem_free(client->slices);
    ts_mem_free(client->slice_hash);
    ts_mem_free(client->slice_order);
    for (uint32_t i = 0; client->servers && i < client->server_count; i++) ts_client_gather_forget(&client->servers[i]);
    ts_mem_free(client->servers);
    ts_mem_free(client->reduce.values);
    ts_outbox_destroy(&client->outbox);
    ts_client_lent_free(client);
    ts_keep_close(client->keep, ended);
    ts_scratch_destroy(client->scratch);
    ts_scratch_destroy(client->decode_scratch);
    ts_mem_free(client->expanded);
    ts_contract_destroy(client->contract);
    if (client->transport->handler.context == client) client->transport->handler = (ts_transport_handler){0};
    ts_mem_free(client);
}

void ts_client_set_pause(ts_client *client, void (*pause)(void *context), void *context) {
    client->pause = pause;
    client->pause_context = context;
}

void ts_client_set_large(ts_client *client, size_t bytes) { client->alone_bytes = client->ahead_bytes = bytes; }

void ts_client_set_lock(ts_client *client, void (*lock)(void *context), void (*unlock)(void *context), void *context) {
    client->lock = lock;
    client->unlock = unlock;
    client->lock_context = context;
}

terse_status ts_client_declare(ts_client *client, const char *name, const int64_t *shape, unsigned ndim, float *param,
                               uint32_t *tensor) {
    uint32_t count = client->contract->tensor_count;
    ts_error reason = {""};
    terse_status status = ts_contract_check_name(count, name, &reason);
    if (status != TERSE_OK) return ts_client_refuse(client, status, "terse_declare: %s", reason.text);
    if (client->state != TS_CLIENT_DECLARING)
        return ts_client_refuse(client, TERSE_ESTATE, "tensor %s is declared after start", name);
    if (!param || (ndim && !shape) || ndim > TS_TENSOR_DIMS)
        return ts_client_refuse(client, TERSE_EINVAL, "tensor %s needs a buffer and 0 to %d extents", name, TS_TENSOR_DIMS);
    if (client->config->limits.tensors && count >= client->config->limits.tensors)
        return ts_client_refuse(client, TERSE_ELIMIT, "tensor %s would be number %" PRIu32 ", limits.tensors is %" PRIu64,
                                name, count + 1, client->config->limits.tensors);
    if (count == client->tensor_capacity) {
        uint32_t capacity = count ? count * 2 : 16;
        ts_client_tensor *grown = ts_mem_realloc(client->tensors, capacity, sizeof *grown);
        TS_REQUIRE(grown, TERSE_ENOMEM);
        client->tensors = grown;
        client->tensor_capacity = capacity;
    }
    memset(&client->tensors[count], 0, sizeof client->tensors[count]);
    const ts_pipeline *push = ts_config_pipeline(&client->config->push, name, shape, ndim);
    const ts_pipeline *pull = ts_config_pipeline(&client->config->pull, name, shape, ndim);
    uint32_t id = 0;
    status = ts_contract_add(client->contract, name, shape, ndim, push, pull,
                             ts_config_worker_momentum(client->config, push), &id, &reason);
    if (status != TERSE_OK)
        return ts_client_refuse(client, status, "%s", reason.text[0] ? reason.text : terse_strerror(status));
    uint64_t whole = (uint64_t)ts_contract_slice_elems(client->contract, id) * 2 * sizeof(float) + FRAME_HEAD_BYTES;
    if (whole > client->config->limits.frame_bytes)
        return ts_client_fail(client, TERSE_ELIMIT, "tensor %s: `%s` sends it whole, which takes limits.frame_bytes of at "
                                "least %" PRIu64, name, client->contract->whole_tensors ? "optimizer" : push->text, whole);
    client->tensors[count].param = param;
    if (tensor) *tensor = id;
    return TERSE_OK;
}

terse_status ts_client_set_total_steps(ts_client *client, uint64_t steps) {
    if (client->state != TS_CLIENT_DECLARING)
        return ts_client_refuse(client, TERSE_ESTATE, "the number of steps is set after start");
    client->contract->total_steps = steps;
    return TERSE_OK;
}

static void fail(ts_client *client, terse_status status, const char *format, va_list arguments) {
    ts_error_write(&client->message, format, arguments);
    client->state = TS_CLIENT_FAILED;
    client->failure = status;
}

terse_status ts_client_fail(ts_client *client, terse_status status, const char *format, ...) {
    if (client->state == TS_CLIENT_FAILED) return client->failure;
    va_list arguments;
    va_start(arguments, format);
    fail(client, status, format, arguments);
    va_end(arguments);
    Terse__Abort abort_message = TERSE__ABORT__INIT;
    abort_message.status = (uint32_t)status;
    abort_message.reason = client->message.text;
    for (uint32_t s = 0; s < client->server_count; s++) {
        /* Best effort: the servers' own deadlines catch what is lost. */
        ts_client_send_control(client, &client->servers[s], TERSE__HEADER__BODY_ABORT, &abort_message);
    }
    return status;
}

void ts_client_told_to_end(ts_client *client, terse_status status, const char *format, ...) {
    if (client->state == TS_CLIENT_FAILED) return;
    va_list arguments;
    va_start(arguments, format);
    fail(client, status, format, arguments);
    va_end(arguments);
}

terse_status ts_client_refuse(ts_client *client, terse_status status, const char *format, ...) {
    if (client->state == TS_CLIENT_FAILED) return client->failure; /* the first failure keeps its sentence */
    va_list arguments;
    va_start(arguments, format);
    ts_error_write(&client->message, format, arguments);
    va_end(arguments);
    return status;
}

void ts_client_abort(ts_client *client, terse_status status, const char *reason) {
    ts_client_keep_job_ended(client);
    ts_client_fail(client, status, "%s", reason);
}

ts_client_state ts_client_get_state(const ts_client *client) { return client->state; }
terse_status ts_client_failure(const ts_client *client) { return client->failure; }
const char *ts_client_message(const ts_client *client) { return client->message.text; }
const ts_contract *ts_client_contract(const ts_client *client) { return client->contract; }
const ts_client_counters *ts_client_get_counters(const ts_client *client) { return &client->counters; }

uint64_t ts_client_step(const ts_client *client) {
    uint32_t tensors = client->contract->tensor_count;
    uint64_t step = tensors ? client->tensors[0].step : 0;
    for (uint32_t t = 1; t < tensors; t++)
        if (client->tensors[t].step < step) step = client->tensors[t].step;
    return step;
}

uint64_t ts_client_slice_version(const ts_client *client, uint32_t slice) {
    return client->slices && slice < client->contract->slice_count ? client->slices[slice].version : 0;
}

uint64_t ts_client_tensor_step(const ts_client *client, uint32_t tensor) {
    return tensor < client->contract->tensor_count ? client->tensors[tensor].step : 0;
}

bool ts_client_keeps_residual(const ts_client *client) { return client->config->error_feedback.enabled; }

const float *ts_client_residual(const ts_client *client, uint32_t tensor) {
    if (tensor >= client->contract->tensor_count) return NULL;
    const ts_feedback *memory = &client->tensors[tensor].memory;
    if (!memory->brief) return memory->residual;
    ts_feedback_read_brief(memory, client->expanded);
    return client->expanded;
}

const char *ts_client_server_name(const ts_client *client, const ts_client_server *server) {
    return client->transport->peers[server->peer].name;
}

const char *ts_client_tensor_name(const ts_client *client, uint32_t tensor) {
    return client->contract->tensors[tensor].name;
}

/* The first slice of a server whose next version or acknowledgement is due; slice_count of the job for none. */
static uint32_t first_owed_slice(const ts_client *client, const ts_client_server *server) {
    for (uint32_t i = 0; client->slices && i < server->slice_count; i++) {
        uint32_t slice = server->slices[i];
        if (ts_client_lacks(client, slice) || ts_outbox_unanswered(&client->outbox.slots[slice])) return slice;
    }
    return client->contract->slice_count;
}

bool ts_client_owes(const ts_client *client, const ts_client_server *server) {
    if (server->requests || server->unsettled) return true;
    return client->slices && first_owed_slice(client, server) < client->contract->slice_count;
}

void ts_client_awaited(const ts_client *client, const ts_client_server *server, char *text, size_t capacity) {
    unsigned requests = server->requests;
    if (requests & (TS_REQUEST_HELLO | TS_REQUEST_CONTRACT)) snprintf(text, capacity, "its welcome");
    else if (requests & TS_REQUEST_SET) snprintf(text, capacity, "the acknowledgement of the first parameters");
    else if (requests & TS_REQUEST_SNAPSHOT) snprintf(text, capacity, "the first parameters");
    else if (requests & TS_REQUEST_REDUCE) snprintf(text, capacity, "sum %" PRIu64 " over all workers", client->reduce.sequence);
    else if (requests & TS_REQUEST_FETCH) snprintf(text, capacity, "the parameters");
    else if (requests & TS_REQUEST_STATS) snprintf(text, capacity, "its statistics");
    else if (requests & TS_REQUEST_DONE) snprintf(text, capacity, "the acknowledgement of done");
    else {
        uint32_t slice = first_owed_slice(client, server);
        if (slice >= client->contract->slice_count) { snprintf(text, capacity, "nothing"); return; }
        uint32_t tensor = client->contract->slices[slice].tensor;
        bool rounds = ts_client_in_rounds(client);
        snprintf(text, capacity, "%s %" PRIu64 " of %s", rounds ? "version" : "what comes of step",
                 client->tensors[tensor].step + rounds, ts_client_tensor_name(client, tensor));
    }
}

void ts_client_waiting(const ts_client *client, char *text, size_t capacity) {
    if (!capacity) return;
    text[0] = '\0';
    uint64_t now = ts_client_now(client);
    for (uint32_t s = 0; s < client->server_count; s++) {
        const ts_client_server *server = &client->servers[s];
        if (!ts_client_owes(client, server)) continue;
        char what[200];
        ts_client_awaited(client, server, what, sizeof what);
        snprintf(text, capacity, "%s for %s since %.1f s%s%s", ts_client_server_name(client, server), what,
                 (double)(now - server->asked_us) / 1e6, server->waiting[0] ? "; it waits for " : "", server->waiting);
        return;
    }
}
