/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pulling: packets of the downlink are queued as they come and decoded in the
 * user's thread, in the order of versions, when param may change.
 */
#include <inttypes.h>
#include <string.h>

#include "common/base/copy.h"
#include "common/base/mem.h"
#include "worker/client/client_internal.h"

static void ask(ts_client *client, ts_client_tensor *tensor);

static ts_arrival *take_node(ts_client *client) {
    ts_arrival *node = client->spare_arrivals;
    if (!node) return ts_mem_calloc(1, sizeof *node);
    client->spare_arrivals = node->next;
    client->spare_count--;
    return node;
}

static void give_node(ts_client *client, ts_arrival *node) {
    ts_buffer_unref(node->frame);
    if (client->spare_count == TS_CLIENT_SPARE_MAX) {
        ts_mem_free(node);
        return;
    }
    node->next = client->spare_arrivals;
    client->spare_arrivals = node;
    client->spare_count++;
}

void ts_client_free_spare(ts_client *client) {
    while (client->spare_arrivals) {
        ts_arrival *node = client->spare_arrivals;
        client->spare_arrivals = node->next;
        ts_mem_free(node);
    }
    client->spare_count = 0;
}

static void drop_at(ts_client *client, ts_arrival **at) {
    ts_arrival *arrival = *at;
    *at = arrival->next;
    give_node(client, arrival);
}

void ts_client_drop_arrivals(ts_client *client, ts_client_slice *slice) {
    while (slice->arrivals) drop_at(client, &slice->arrivals);
}

/* The same packet may have come once more while it was decoded, without the lock. */
static void drop_known(ts_client *client, ts_client_slice *slice) {
    while (slice->arrivals && slice->arrivals->version <= slice->version) {
        if (slice->arrivals->answers > slice->answered) slice->answered = slice->arrivals->answers;
        drop_at(client, &slice->arrivals);
    }
}

/* How far the arrivals reach without a gap. */
static void update_ready(ts_client_slice *slice) {
    uint64_t ready = slice->version, answers = slice->answered;
    for (const ts_arrival *a = slice->arrivals; a; a = a->next) {
        if (!a->snapshot && a->version != ready + 1) break;
        ready = a->version;
        if (a->answers > answers) answers = a->answers;
    }
    slice->ready = ready;
    slice->ready_answers = answers;
}

/* Files a packet under its version. Returns whether it was new and is kept. */
static bool file_arrival(ts_client *client, ts_client_slice *slice, const ts_arrival *what) {
    uint32_t held = 0;
    ts_arrival **at = &slice->arrivals;
    if (what->version <= slice->version) { /* known, but it may end a newer wish */
        if (what->answers <= slice->answered) return false;
        slice->answered = what->answers;
        update_ready(slice);
        return true;
    }
    for (; *at && (*at)->version < what->version; at = &(*at)->next) held++;
    bool there = *at && (*at)->version == what->version && (*at)->snapshot >= what->snapshot;
    if (there && what->answers > (*at)->answers) {
        (*at)->answers = what->answers;
        update_ready(slice);
        return true;
    }
    if (there || (held >= TS_CLIENT_ARRIVALS_MAX && !what->snapshot)) return false;
    ts_arrival *arrival = take_node(client);
    if (!arrival) return false; /* asked for again later */
    *arrival = *what;
    arrival->next = *at;
    ts_buffer_ref(arrival->frame);
    *at = arrival;
    while (what->snapshot && slice->arrivals != arrival) drop_at(client, &slice->arrivals); /* it says all that they do */
    if (arrival->next && arrival->next->version == what->version) drop_at(client, &arrival->next);
    update_ready(slice);
    return true;
}

static void take_packet(ts_client *client, ts_client_server *server, uint32_t slice, const ts_arrival *arrival,
                        uint64_t now_us) {
    const ts_slice *where = &client->contract->slices[slice];
    if (arrival->snapshot && arrival->len != where->n * sizeof(float)) {
        client->counters.dropped_frames++;
        return;
    }
    if (client->state == TS_CLIENT_ATTACHING) {
        if (arrival->snapshot)
            ts_client_on_first_snapshot(client, server, slice, arrival->version, arrival->packet, arrival->len);
        return;
    }
    if (!client->settles) ts_client_acknowledge(client, slice, arrival->answers);
    if (!file_arrival(client, &client->slices[slice], arrival)) return;
    client->tensors[where->tensor].arrived = true;
    client->undecoded_bytes += arrival->len;
    ts_client_progressed(server, 0, now_us);
}

void ts_client_on_data(ts_client *client, ts_client_server *server, ts_buffer *buffer, const ts_frame *frame) {
    if (!client->slices) return;
    const Terse__Data *data = frame->header->data;
    uint64_t now_us = ts_client_now(client);
    ts_bundle_reader reader = ts_bundle_read(frame->payload, frame->payload_bytes, server->slice_count);
    for (;;) {
        uint32_t local = 0;
        ts_arrival arrival = {.frame = buffer, .version = data->version, .snapshot = data->snapshot,
                              .answers = ts_client_in_rounds(client) ? data->version : data->answers};
        terse_status status = ts_bundle_next(&reader, &local, &arrival.packet, &arrival.len);
        if (status == TERSE_EAGAIN) break;
        if (status != TERSE_OK) {
            client->counters.dropped_frames++;
            return;
        }
        if (data->params) ts_client_on_params(client, server, server->slices[local], arrival.packet, arrival.len);
        else take_packet(client, server, server->slices[local], &arrival, now_us);
    }
    ts_client_attached(client);
    ts_client_maybe_done(client);
}

/* Applies one packet to param. Without the lock. */
static terse_status apply(ts_client *client, uint32_t slice, const ts_arrival *arrival) {
    const ts_slice *where = &client->contract->slices[slice];
    float *param = client->tensors[where->tensor].param + where->first;
    if (arrival->snapshot) {
        if (client->large && arrival->len >= TS_CLIENT_ALONE_BYTES) ts_copy_past(param, arrival->packet, arrival->len);
        else memcpy(param, arrival->packet, arrival->len);
        return TERSE_OK;
    }
    /* The averaged gradient replaces; a difference of parameters adds, new values of some (`exact`) take their place. */
    if (client->config->optimizer.name == TS_OPTIMIZER_NONE) memset(param, 0, where->n * sizeof(float));
    ts_codec_spec spec = ts_contract_pull_spec(client->contract, slice);
    /* encoded when its round closed: under the version that was left */
    return ts_decode_apply(client->decode_scratch, &spec, NULL, 0, arrival->version - 1, arrival->packet, arrival->len, param);
}

/* Decodes what is there of a slice; in BSP up to version `want`, which others may leave behind. */
static void catch_up(ts_client *client, uint32_t slice, uint64_t want) {
    ts_client_slice *state = &client->slices[slice];
    if (!ts_client_in_rounds(client) || client->settles) want = UINT64_MAX;
    while (state->version < want && state->ready > state->version && client->state != TS_CLIENT_FAILED) {
        ts_arrival *arrival = state->arrivals;
        state->arrivals = arrival->next;
        bool away = ts_client_let_go_for(client, arrival->len);
        terse_status status = apply(client, slice, arrival);
        if (away) ts_client_take_back(client);
        if (status == TERSE_OK) {
            state->version = arrival->version;
            if (arrival->answers > state->answered) state->answered = arrival->answers;
            drop_known(client, state);
        } else if (++client->bad_packets > TS_CLIENT_BAD_PACKETS_MAX || status != TERSE_ECORRUPT) {
            uint32_t tensor = client->contract->slices[slice].tensor;
            ts_client_fail(client, status, "version %" PRIu64 " of %s does not decode: %s",
                           arrival->version, ts_client_tensor_name(client, tensor),
                           terse_strerror(status));
        }
        update_ready(state); /* after a bad packet there is a gap, and the timer asks for it again */
        give_node(client, arrival);
    }
}

/* Decodes what has come of a tensor. Returns whether the version that its pull waits for is there. */
static bool decode(ts_client *client, uint32_t t) {
    const ts_tensor *declared = &client->contract->tensors[t];
    uint64_t want = client->tensors[t].step + 1;
    bool all = true;
    client->tensors[t].arrived = false;
    for (uint32_t i = 0; i < declared->slices; i++) {
        catch_up(client, declared->first_slice + i, want);
        all = all && client->slices[declared->first_slice + i].answered >= want;
    }
    return all;
}

/* began_us: [in/out] when decoding began, for several tensors in a row; 0: it has not. */
static bool pulled(ts_client *client, uint32_t t, uint64_t *began_us) {
    if (t >= client->contract->tensor_count || client->state == TS_CLIENT_FAILED) return false;
    ts_client_tensor *tensor = &client->tensors[t];
    if (client->stale) (void)ts_client_comes_back(client);
    if (client->state == TS_CLIENT_ATTACHING || client->state == TS_CLIENT_FAILED) return false;
    if (tensor->phase == TS_TENSOR_IDLE) return true;
    if (tensor->phase == TS_TENSOR_PUSHED && tensor->on_demand) return !tensor->unanswered && !tensor->deferred;
    if (tensor->phase != TS_TENSOR_PULLING || !tensor->arrived) return false;
    if (*began_us == 0) *began_us = ts_client_now(client);
    bool all = decode(client, t);
    if (client->settles) all = all && !tensor->unanswered;
    if (!all || client->state == TS_CLIENT_FAILED) return false;
    tensor->step++;
    tensor->phase = TS_TENSOR_IDLE;
    client->pushed_tensors--;
    ts_client_cut(client, t);
    return client->state != TS_CLIENT_FAILED;
}

static void note_decoded(ts_client *client, uint64_t began_us) {
    if (began_us > 0) client->counters.decode_us += ts_client_now(client) - began_us;
}

bool ts_client_pulled(ts_client *client, uint32_t t) {
    uint64_t began_us = 0;
    bool here = pulled(client, t, &began_us);
    note_decoded(client, began_us);
    return here;
}

bool ts_client_pulled_all(ts_client *client, uint32_t *next) {
    uint32_t tensors = client->contract->tensor_count;
    uint64_t began_us = 0;
    bool all = true;
    for (uint32_t t = *next; t < tensors; t++) {
        bool here = pulled(client, t, &began_us);
        if (here && all) *next = t + 1;
        all = all && here;
    }
    note_decoded(client, began_us);
    return all;
}

void ts_client_decode_arrived(ts_client *client) {
    uint64_t began_us = ts_client_now(client);
    client->undecoded_bytes = 0;
    if (client->settles) return; /* a step is one round's, whatever comes meanwhile */
    for (uint32_t t = 0; t < client->ahead && client->state != TS_CLIENT_FAILED; t++) {
        ts_client_tensor *tensor = &client->tensors[t];
        if (tensor->phase == TS_TENSOR_IDLE || tensor->on_demand || !tensor->arrived) continue;
        (void)decode(client, t);
        tensor->arrived = true; /* whether that was all is for ts_client_pulled to say */
    }
    note_decoded(client, began_us);
}

void ts_client_step_reaches(ts_client *client, uint32_t tensors) {
    client->ahead = tensors;
    if (tensors <= 1) client->impatient = false;
    if (client->undecoded_bytes >= client->ahead_bytes) ts_client_decode_arrived(client);
}

terse_status ts_client_pull(ts_client *client, uint32_t t) {
    if (client->state == TS_CLIENT_FAILED) return client->failure;
    if (client->state != TS_CLIENT_TRAINING && client->state != TS_CLIENT_LEAVING && client->state != TS_CLIENT_DONE)
        return ts_client_refuse(client, TERSE_ESTATE, "pull is allowed after start only");
    if (t >= client->contract->tensor_count)
        return ts_client_refuse(client, TERSE_ENOTFOUND, "no tensor has number %" PRIu32, t);
    ts_client_tensor *tensor = &client->tensors[t];
    if (tensor->phase == TS_TENSOR_PUSHED) {
        tensor->phase = TS_TENSOR_PULLING;
        tensor->arrived = true;
        if (!tensor->on_demand) return TERSE_OK; /* the push has asked already */
        tensor->asked = false;
        if (!tensor->unanswered && !tensor->deferred) ask(client, tensor); /* else when it is settled */
    }
    return TERSE_OK;
}

bool ts_client_lacks(const ts_client *client, uint32_t slice) {
    const ts_client_tensor *tensor = &client->tensors[client->contract->slices[slice].tensor];
    return tensor->phase == TS_TENSOR_PULLING && !tensor->deferred && client->slices[slice].ready_answers <= tensor->step;
}

/* A tensor that its pushes did not ask for. */
static void ask(ts_client *client, ts_client_tensor *tensor) {
    tensor->asked = true;
    for (uint32_t s = 0; s < client->server_count; s++) {
        ts_client_pull_missing(client, &client->servers[s]);
        ts_client_asked(client, &client->servers[s], 0);
    }
}

void ts_client_on_nothing_new(ts_client *client, uint32_t slice, uint64_t answers) {
    ts_client_slice *state = &client->slices[slice];
    ts_client_acknowledge(client, slice, answers);
    client->tensors[client->contract->slices[slice].tensor].arrived = true;
    ts_client_tensor *tensor = &client->tensors[client->contract->slices[slice].tensor];
    if (tensor->on_demand && tensor->phase == TS_TENSOR_PULLING && !tensor->unanswered && !tensor->asked)
        ask(client, tensor);
    if (client->settles || ts_client_in_rounds(client) || answers <= state->answered) return;
    if (tensor->on_demand && !tensor->asked) return; /* the push is settled; what came of it was not asked for */
    state->answered = answers;
    update_ready(state);
}

static void send_pull(ts_client *client, ts_client_server *server, uint64_t have, uint64_t want, uint32_t *locals,
                      size_t count) {
    Terse__Pull pull = TERSE__PULL__INIT;
    pull.have = have;
    pull.want = want;
    if (count < server->slice_count) {
        pull.n_slices = count;
        pull.slices = locals;
    }
    ts_client_send_control(client, server, TERSE__HEADER__BODY_PULL, &pull);
}

void ts_client_pull_missing(ts_client *client, ts_client_server *server) {
    uint32_t *locals = ts_mem_calloc(server->slice_count ? server->slice_count : 1, sizeof *locals);
    if (!locals) return;
    size_t count = 0;
    uint64_t have = 0, want = 0;
    for (uint32_t i = 0; i < server->slice_count; i++) {
        uint32_t slice = server->slices[i];
        const ts_client_tensor *tensor = &client->tensors[client->contract->slices[slice].tensor];
        /* A push without an answer is sent again instead, and asks for the same. */
        if (ts_outbox_unanswered(&client->outbox.slots[slice]) || !ts_client_lacks(client, slice)) continue;
        if (count && (have != client->slices[slice].ready || want != tensor->step + 1)) {
            send_pull(client, server, have, want, locals, count);
            count = 0;
        }
        have = client->slices[slice].ready;
        want = tensor->step + 1;
        locals[count++] = i;
    }
    if (count) send_pull(client, server, have, want, locals, count);
    ts_mem_free(locals);
}

terse_status ts_client_prefetch(ts_client *client, uint32_t t, bool wanted) {
    if (client->state == TS_CLIENT_FAILED) return client->failure;
    if (client->state != TS_CLIENT_TRAINING)
        return ts_client_refuse(client, TERSE_ESTATE, "prefetch is allowed between start and done only");
    if (t >= client->contract->tensor_count)
        return ts_client_refuse(client, TERSE_ENOTFOUND, "no tensor has number %" PRIu32, t);
    if (!wanted && (client->settles || client->config->optimizer.name == TS_OPTIMIZER_NONE))
        return ts_client_refuse(client, TERSE_EUNSUPPORTED, "tensor %s: a worker that skips versions needs rounds that "
                                "wait for it (consistency.stragglers) and an optimizer at the servers",
                                ts_client_tensor_name(client, t));
    if (client->tensors[t].phase != TS_TENSOR_IDLE)
        return ts_client_refuse(client, TERSE_ESTATE, "tensor %s: step %" PRIu64 " was pushed, and its pull is missing",
                                ts_client_tensor_name(client, t), client->tensors[t].step);
    client->tensors[t].on_demand = !wanted;
    return TERSE_OK;
}

bool ts_client_prefetches(const ts_client *client, uint32_t t) {
    return t < client->contract->tensor_count && !client->tensors[t].on_demand;
}
