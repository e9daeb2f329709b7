/* SPDX-License-Identifier: Apache-2.0 */
/* Attaching: Hello, Contract, Welcome, then the same parameters everywhere. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cpu.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/kernels.h"
#include "worker/client/client_internal.h"

/* Each server's slices in its own order, and room to gather as many. */
static terse_status index_slices(ts_client *client) {
    const ts_contract *contract = client->contract;
    size_t count = contract->slice_count ? contract->slice_count : 1;
    client->slice_order = ts_mem_calloc(count, 2 * sizeof(uint32_t));
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < client->contract->tensor_count; t++) bytes += client->contract->tensors[t].n * sizeof(float);
    client->large = bytes >= TS_CLIENT_LARGE_BYTES;
    client->slices = ts_mem_calloc(count, sizeof *client->slices);
    client->slice_hash = ts_mem_calloc(count, sizeof *client->slice_hash);
    TS_REQUIRE(client->slice_order && client->slices && client->slice_hash, TERSE_ENOMEM);
    uint32_t *at = client->slice_order;
    for (uint32_t s = 0; s < client->server_count; s++) {
        ts_client_server *server = &client->servers[s];
        server->slices = at;
        server->slice_count = contract->server_slices[s];
        server->gathered = client->slice_order + count + (at - client->slice_order);
        server->unsettled = server->slice_count;
        for (uint32_t i = 0; i < contract->slice_count; i++)
            if (contract->slices[i].server == s) {
                at[contract->slices[i].local] = i;
                server->gathers_bytes += contract->slices[i].n * sizeof(float) + TS_BUNDLE_ENTRY_MAX_BYTES;
            }
        at += server->slice_count;
    }
    return ts_outbox_create(contract->slice_count, &client->outbox);
}

static terse_status make_tensors(ts_client *client) {
    size_t largest = 0;
    for (uint32_t t = 0; t < client->contract->tensor_count; t++) {
        const ts_tensor *declared = &client->contract->tensors[t];
        ts_client_tensor *tensor = &client->tensors[t];
        ts_codec_spec spec = ts_contract_push_spec(client->contract, t, client->worker);
        TS_TRY(ts_encoder_create(&spec, &tensor->encoder));
        ts_feedback_needs needs = {.velocity = declared->worker_momentum,
                                   .estimate = ts_config_estimates(client->config),
                                   .brief = client->config->error_feedback.residual == TS_RESIDUAL_BF16};
        ts_feedback_memory *memory = client->keep ? &client->keep_memory.memory : &ts_feedback_heap;
        TS_TRY(ts_feedback_create(memory, declared->name, declared->n, &needs, &tensor->memory));
        if (needs.brief && declared->n > largest) largest = declared->n;
    }
    if (largest == 0) return TERSE_OK;
    client->expanded = ts_mem_aligned(largest, sizeof *client->expanded);
    return client->expanded ? TERSE_OK : TERSE_ENOMEM;
}

/* Worker 0's replica is everybody's beginning; with `optimizer: none` it is only where averages will be written. */
static terse_status check_first_values(const ts_client *client, ts_error *reason) {
    const ts_kernels *kernels = ts_kernels_get(ts_cpu_simd());
    if (client->worker != 0 || client->transport->incarnation > 0) return TERSE_OK;
    if (client->config->optimizer.name == TS_OPTIMIZER_NONE) return TERSE_OK;
    for (uint32_t t = 0; t < client->contract->tensor_count; t++) {
        size_t first = 0, count = kernels->nonfinite(client->tensors[t].param, client->contract->tensors[t].n, &first);
        if (count > 0)
            return ts_error_set(reason, TERSE_ENONFINITE, "the first parameters: tensor %s holds %zu values that are not finite, "
                                "the first at element %zu; allowed: finite values", ts_client_tensor_name(client, t), count, first);
    }
    return TERSE_OK;
}

static ts_config_tensor tensor_of(const void *list, size_t i) {
    const ts_tensor *tensor = &((const ts_contract *)list)->tensors[i];
    return (ts_config_tensor){tensor->name, tensor->shape, tensor->ndim};
}

static void say_unused(void *context, const char *text) {
    (void)context;
    ts_log(TS_LOG_WARN, "client", "a rule of the config is not used", "rule=\"%s\"", text);
}

terse_status ts_client_start(ts_client *client) {
    if (client->state != TS_CLIENT_DECLARING) return ts_client_refuse(client, TERSE_ESTATE, "start was called twice");
    if (!client->contract->tensor_count) return ts_client_refuse(client, TERSE_ESTATE, "no tensor was declared before start");
    if (!client->server_count)
        return ts_client_fail(client, TERSE_EPEER, "no terse-server in this job: launch as "
                              "mpirun -n 2 terse-server c.yaml : -n 4 ...");
    ts_error reason = {""};
    terse_status status = check_first_values(client, &reason);
    if (status == TERSE_OK) status = ts_contract_seal(client->contract, client->server_count);
    if (status == TERSE_OK) status = index_slices(client);
    if (status == TERSE_OK) status = ts_client_keep_open(client, &reason);
    if (status == TERSE_OK) status = make_tensors(client);
    if (status != TERSE_OK)
        return ts_client_fail(client, status, "start: %s", reason.text[0] ? reason.text : terse_strerror(status));
    if (client->worker == 0) /* one of the job's workers is enough to say it */
        ts_config_unused_rules(client->config, tensor_of, client->contract, client->contract->tensor_count, say_unused, NULL);
    client->state = TS_CLIENT_ATTACHING;
    uint64_t now = ts_client_now(client);
    for (uint32_t s = 0; s < client->server_count; s++) {
        client->servers[s].heard_us = now; /* nobody had to say anything before */
        if (client->transport->incarnation == 0) ts_client_send_hello(client, &client->servers[s]);
    }
    if (client->transport->incarnation > 0) ts_client_begin_return(client); /* into a job that runs */
    return TERSE_OK;
}

void ts_client_send_hello(ts_client *client, ts_client_server *server) {
    char host[65] = "";
    if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
    Terse__Hello hello = TERSE__HELLO__INIT;
    hello.protocol = TS_PROTOCOL_VERSION;
    hello.digest.data = client->contract->digest;
    hello.digest.len = TS_DIGEST_BYTES;
    hello.worker = client->worker;
    hello.incarnation = client->incarnation;
    hello.workers = client->transport->workers;
    hello.version = (char *)TS_VERSION;
    hello.host = host;
    hello.pid = (uint32_t)getpid();
    hello.told = client->return_told;
    if (client->secret) {
        hello.nonce.data = client->nonce;
        hello.nonce.len = TS_NONCE_BYTES;
    }
    ts_client_send_control(client, server, TERSE__HEADER__BODY_HELLO, &hello); /* the timer repeats it */
    ts_client_asked(client, server, TS_REQUEST_HELLO);
}

void ts_client_send_contract(ts_client *client, ts_client_server *server) {
    Terse__Contract body = TERSE__CONTRACT__INIT;
    Terse__Header header = TERSE__HEADER__INIT;
    ts_client_head(client, server, &header);
    header.body_case = TERSE__HEADER__BODY_CONTRACT;
    header.contract = &body;
    uint8_t *bytes = NULL;
    size_t len = 0;
    ts_buffer *frame = NULL;
    ts_client_asked(client, server, TS_REQUEST_CONTRACT);
    if (ts_contract_pack(client->contract, &bytes, &len) != TERSE_OK) return;
    terse_status status = ts_frame_begin(&header, len + 8, &frame);
    if (status == TERSE_OK) status = ts_buffer_reserve(frame, len);
    if (status == TERSE_OK) {
        memcpy(frame->data + frame->len, bytes, len);
        frame->len += len;
        status = ts_frame_finish(frame);
    }
    ts_mem_free(bytes);
    if (status == TERSE_OK) ts_client_send(client, server, frame);
    else ts_buffer_unref(frame);
}

/* One Set frame with slices from number `from` of the server on. Returns how many it took; 0 on failure. */
static uint32_t send_set_frame(ts_client *client, ts_client_server *server, uint32_t from) {
    Terse__Set body = TERSE__SET__INIT;
    Terse__Header header = TERSE__HEADER__INIT;
    ts_client_head(client, server, &header);
    header.body_case = TERSE__HEADER__BODY_SET;
    header.set = &body;
    ts_buffer *frame = NULL;
    if (ts_frame_begin(&header, TS_CLIENT_RAW_FRAME_BYTES, &frame) != TERSE_OK) return 0;
    ts_bundle_writer writer = ts_bundle_write(frame);
    terse_status status = TERSE_OK;
    size_t bytes = 0;
    uint32_t at = from;
    for (; at < server->slice_count && status == TERSE_OK; at++) {
        uint32_t id = server->slices[at];
        if (client->slices[id].settled) continue;
        const ts_slice *slice = &client->contract->slices[id];
        if (bytes && bytes + slice->n * sizeof(float) > TS_CLIENT_RAW_FRAME_BYTES) break;
        bytes += slice->n * sizeof(float);
        status = ts_bundle_add(&writer, slice->local, (const uint8_t *)(client->tensors[slice->tensor].param + slice->first),
                               slice->n * sizeof(float));
    }
    if (status == TERSE_OK) status = ts_frame_finish(frame);
    if (status == TERSE_OK && bytes) ts_client_send(client, server, frame);
    else ts_buffer_unref(frame);
    return status == TERSE_OK ? at - from : 0;
}

void ts_client_send_set(ts_client *client, ts_client_server *server) {
    for (uint32_t at = 0; at < server->slice_count;) {
        uint32_t taken = send_set_frame(client, server, at);
        if (!taken) break;
        at += taken;
    }
    ts_client_asked(client, server, TS_REQUEST_SET);
}

void ts_client_send_snapshot_pull(ts_client *client, ts_client_server *server) {
    Terse__Pull pull = TERSE__PULL__INIT;
    pull.snapshot = true;
    if (client->returning && ts_client_in_rounds(client)) pull.want = client->return_from;
    uint32_t *missing = NULL;
    if (server->unsettled < server->slice_count) {
        missing = ts_mem_calloc(server->unsettled, sizeof *missing);
        for (uint32_t i = 0; missing && i < server->slice_count; i++)
            if (!client->slices[server->slices[i]].settled) missing[pull.n_slices++] = i;
        pull.slices = missing;
    }
    ts_client_send_control(client, server, TERSE__HEADER__BODY_PULL, &pull);
    ts_mem_free(missing);
    ts_client_asked(client, server, TS_REQUEST_SNAPSHOT);
}

void ts_client_on_welcome(ts_client *client, ts_client_server *server, const Terse__Welcome *welcome) {
    client->replicas = client->replicas || welcome->replicas;
    if (client->state != TS_CLIENT_ATTACHING || !(server->requests & (TS_REQUEST_HELLO | TS_REQUEST_CONTRACT))) return;
    if (welcome->incarnation > 0 && welcome->incarnation != client->incarnation) return; /* it answers a former life's Hello */
    if (welcome->verdict == TERSE__WELCOME__VERDICT__REFUSED) {
        terse_status status = welcome->status ? (terse_status)welcome->status : TERSE_EPEER;
        ts_client_told_to_end(client, status, "%s refused worker %" PRIu32 ": %s", ts_client_server_name(client, server),
                              client->worker, welcome->reason);
        return;
    }
    if (welcome->verdict == TERSE__WELCOME__VERDICT__CHALLENGE) {
        if (server->requests & TS_REQUEST_HELLO) ts_client_on_challenge(client, server, welcome);
        return;
    }
    if (!ts_client_trusts(client, server)) return;
    if (welcome->verdict == TERSE__WELCOME__VERDICT__NEED_CONTRACT) {
        bool first = server->requests & TS_REQUEST_HELLO; /* a repeated request is the timer's business */
        ts_client_progress(client, server, TS_REQUEST_HELLO);
        if (first) ts_client_send_contract(client, server);
        return;
    }
    if (!ts_client_keep_admits(client, server, welcome)) return;
    if (welcome->joined) client->returning = true; /* or we were given up before we had come */
    if (client->returning && (!welcome->joined || !ts_client_on_joined(client, server, welcome->joined))) return;
    ts_client_progress(client, server, TS_REQUEST_HELLO | TS_REQUEST_CONTRACT);
    ts_client_greet_standin(client, server);
    client->settles = client->settles || welcome->settles;
    ts_client_checkpoint_welcome(client, welcome);
    if (client->state == TS_CLIENT_FAILED) return;
    if (!server->slice_count) {
        ts_client_attached(client);
    } else if (client->worker == 0 && !welcome->initialised && !client->returning) {
        ts_client_send_set(client, server);
    } else {
        ts_client_send_snapshot_pull(client, server);
    }
}

static void settle(ts_client *client, ts_client_server *server, uint32_t slice, uint64_t version) {
    ts_client_slice *state = &client->slices[slice];
    if (state->settled) return;
    state->settled = true;
    state->version = state->ready = version;
    state->answered = state->ready_answers = ts_client_in_rounds(client) ? version : client->return_from;
    ts_client_progress(client, server, --server->unsettled ? 0 : TS_REQUEST_SET | TS_REQUEST_SNAPSHOT);
}

void ts_client_on_set_ack(ts_client *client, ts_client_server *server, const Terse__Ack *ack) {
    if (!(server->requests & TS_REQUEST_SET)) return;
    if (ack->status == TERSE_ESTALE) { /* a relay: what holds comes from above */
        ts_client_progress(client, server, TS_REQUEST_SET);
        ts_client_send_snapshot_pull(client, server);
        return;
    }
    if (ack->status != TERSE_OK && ack->status != TERSE_EDUPLICATE) {
        if (ack->status == TERSE_ECORRUPT) return; /* sent again by the timer */
        ts_client_fail(client, (terse_status)ack->status, "%s refused the first parameters: %s",
                       ts_client_server_name(client, server), ack->reason);
        return;
    }
    for (size_t i = 0; i < ack->n_slices; i++)
        if (ack->slices[i] < server->slice_count) settle(client, server, server->slices[ack->slices[i]], 0);
    ts_client_attached(client);
}

void ts_client_on_first_snapshot(ts_client *client, ts_client_server *server, uint32_t slice, uint64_t version,
                                 const uint8_t *packet, size_t len) {
    const ts_slice *where = &client->contract->slices[slice];
    if (client->slices[slice].settled || !(server->requests & TS_REQUEST_SNAPSHOT)) return;
    if (client->returning && ts_client_in_rounds(client) && version < client->return_from) return; /* asked for by a former life */
    memcpy(client->tensors[where->tensor].param + where->first, packet, len);
    settle(client, server, slice, version);
}

/* The version of all slices of a tensor; false when they differ (a job that went on while we attached). */
static bool tensor_version(const ts_client *client, uint32_t tensor, uint64_t *version) {
    const ts_tensor *declared = &client->contract->tensors[tensor];
    *version = client->slices[declared->first_slice].version;
    for (uint32_t i = 0; i < declared->slices; i++)
        if (client->slices[declared->first_slice + i].version != *version) return false;
    return true;
}

void ts_client_attached(ts_client *client) {
    if (client->state != TS_CLIENT_ATTACHING) return;
    const unsigned first = TS_REQUEST_HELLO | TS_REQUEST_CONTRACT | TS_REQUEST_SET | TS_REQUEST_SNAPSHOT;
    for (uint32_t s = 0; s < client->server_count; s++)
        if ((client->servers[s].requests & first) || client->servers[s].unsettled) return;
    for (uint32_t t = 0; t < client->contract->tensor_count; t++)
        client->tensors[t].step = client->returning ? client->return_from : ts_client_resumed(client);
    /* Where nobody waits for us others may have begun, slice by slice. */
    for (uint32_t t = 0; t < client->contract->tensor_count && ts_client_in_rounds(client) && !client->settles;
         t++) {
        if (tensor_version(client, t, &client->tensors[t].step)) continue;
        ts_client_fail(client, TERSE_ESTATE, "tensor %s: its slices came at different versions", ts_client_tensor_name(client, t));
        return;
    }
    client->begun = true;
    client->state = TS_CLIENT_TRAINING;
    if (client->returning) ts_client_has_returned(client);
}
