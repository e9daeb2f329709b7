/* SPDX-License-Identifier: Apache-2.0 */
/* Frames on their way out: control messages, gathered packets, the retransmission timer's start. */
#include "common/base/mem.h"
#include "worker/client/client_internal.h"

void ts_client_send(ts_client *client, ts_client_server *server, ts_buffer *frame) {
    if (!frame) return;
    size_t len = ts_buffer_bytes(frame);
    /* A refusal here is a peer that is gone or memory that ran out: the timers repeat what matters, or give up. */
    if (client->transport->ops->send(client->transport, server->peer, frame) == TERSE_OK) {
        client->counters.bytes_out += len;
        server->sent_us = ts_client_now(client);
    }
    ts_buffer_unref(frame);
}

void ts_client_send_control(ts_client *client, ts_client_server *server, Terse__Header__BodyCase body_case, void *body) {
    Terse__Header header = TERSE__HEADER__INIT;
    ts_client_head(client, server, &header);
    header.body_case = body_case;
    header.hello = body; /* all members of the union are pointers to the body */
    ts_buffer *frame = NULL;
    if (ts_frame_control(&header, &frame) == TERSE_OK) ts_client_send(client, server, frame);
}

void ts_client_asked(ts_client *client, ts_client_server *server, unsigned request) {
    server->requests |= request;
    server->asked_us = ts_client_now(client);
    server->rto_at_us = server->asked_us + server->rto_us;
}

void ts_client_progress(ts_client *client, ts_client_server *server, unsigned answered) {
    ts_client_progressed(server, answered, ts_client_now(client));
}

void ts_client_progressed(ts_client_server *server, unsigned answered, uint64_t now_us) {
    uint64_t gap = now_us - server->asked_us;
    server->requests &= ~answered;
    /* A slow link or a long round is no loss: what lately took so long may take four times that before we repeat. */
    uint64_t faded = server->gap_us - server->gap_us / 8;
    server->gap_us = gap > faded ? gap : faded;
    uint64_t patience = 4 * server->gap_us;
    server->rto_us = patience < TS_CLIENT_RTO_US ? TS_CLIENT_RTO_US
                     : patience > TS_CLIENT_RTO_MAX_US ? TS_CLIENT_RTO_MAX_US : patience;
    server->asked_us = now_us;
    server->rto_at_us = server->asked_us + (server->crowded ? TS_CLIENT_CROWDED_US : server->rto_us);
}

static bool on_demand(const ts_client *client, uint32_t slice) {
    return client->tensors[client->contract->slices[slice].tensor].on_demand;
}

/* The versions that we hold of some slices. Returns how many numbers say so: one when all are equal. */
static size_t versions_of(const ts_client *client, const ts_client_server *server, const uint32_t *locals,
                          uint32_t count, uint64_t *have) {
    bool equal = true;
    for (uint32_t i = 0; i < count; i++) {
        have[i] = client->slices[server->slices[locals[i]]].ready;
        equal = equal && have[i] == have[0];
    }
    return equal ? 1 : count;
}

/* For Push, where 0 stands for the first. */
static uint32_t life(const ts_client *client) { return client->incarnation > 1 ? client->incarnation : 0; }

/* A push that begins with a slice. */
typedef struct {
    Terse__Header header;
    Terse__Push push;
    uint64_t have;
} push_head;

static void head_of(const ts_client *client, const ts_client_server *server, uint32_t slice, push_head *head) {
    const ts_slice *place = &client->contract->slices[slice];
    *head = (push_head){.header = TERSE__HEADER__INIT, .push = TERSE__PUSH__INIT};
    ts_client_head(client, server, &head->header);
    head->push.step = client->tensors[place->tensor].step;
    head->push.samples = client->samples;
    head->push.incarnation = life(client);
    head->push.pull = !on_demand(client, slice);
    if (!ts_client_in_rounds(client) || client->settles) {
        head->push.n_have = versions_of(client, server, &place->local, 1, &head->have);
        head->push.have = &head->have;
    }
    head->header.body_case = TERSE__HEADER__BODY_PUSH;
    head->header.push = &head->push;
}

terse_status ts_client_begin_alone(ts_client *client, ts_client_server *server, uint32_t slice, size_t bytes,
                                   ts_buffer **out) {
    push_head head;
    head_of(client, server, slice, &head);
    size_t room = bytes + TS_BUNDLE_ENTRY_MAX_BYTES;
    ts_buffer *last = ts_outbox_take_frame(&client->outbox.slots[slice]);
    if (last && ts_buffer_sole(last) && ts_frame_begin_over(last, &head.header, room) == TERSE_OK) {
        *out = last;
        return TERSE_OK;
    }
    ts_buffer_unref(last);
    return ts_frame_begin_in(client->transport->pool, &head.header, room, out);
}

terse_status ts_client_begin_together(ts_client *client, ts_client_server *server, uint32_t slice, size_t bytes,
                                      ts_buffer **out) {
    push_head head;
    head_of(client, server, slice, &head);
    return ts_frame_begin_in(client->transport->pool, &head.header, bytes, out);
}

/* One frame of at most the gather size and one packet more. Returns how many slices it took; 0 on failure. */
static uint32_t send_frame(ts_client *client, ts_client_server *server, const uint32_t *locals, uint32_t count) {
    const uint32_t *slices = server->slices;
    uint64_t step = client->outbox.slots[slices[locals[0]]].step;
    uint32_t samples = client->outbox.slots[slices[locals[0]]].samples;
    bool lazy = on_demand(client, slices[locals[0]]);
    size_t bytes = 0;
    uint32_t taken = 0;
    while (taken < count) {
        const ts_outbox_slot *slot = &client->outbox.slots[slices[locals[taken]]];
        size_t more = slot->len + TS_BUNDLE_ENTRY_MAX_BYTES;
        if (taken && (slot->step != step || on_demand(client, slices[locals[taken]]) != lazy || slot->samples != samples || bytes + more > TS_CLIENT_GATHER_BYTES)) break;
        bytes += more;
        taken++;
    }
    Terse__Push push = TERSE__PUSH__INIT;
    push.step = step;
    push.samples = samples;
    push.incarnation = life(client);
    push.pull = !lazy;
    uint64_t *have = NULL;
    if (!ts_client_in_rounds(client) || client->settles) {
        have = ts_mem_calloc(taken, sizeof *have);
        if (!have) return 0;
        push.n_have = versions_of(client, server, locals, taken, have);
        push.have = have;
    }
    Terse__Header header = TERSE__HEADER__INIT;
    ts_client_head(client, server, &header);
    header.body_case = TERSE__HEADER__BODY_PUSH;
    header.push = &push;
    ts_buffer *frame = NULL;
    terse_status status = ts_frame_begin_in(client->transport->pool, &header, bytes, &frame);
    ts_mem_free(have);
    if (status != TERSE_OK) return 0;
    ts_bundle_writer writer = ts_bundle_write(frame);
    for (uint32_t i = 0; i < taken && status == TERSE_OK; i++) {
        const ts_outbox_slot *slot = &client->outbox.slots[slices[locals[i]]];
        status = ts_bundle_add(&writer, locals[i], slot->bytes, slot->len);
    }
    if (status == TERSE_OK) status = ts_frame_finish(frame);
    if (status != TERSE_OK) {
        ts_buffer_unref(frame);
        return 0;
    }
    ts_client_send(client, server, frame);
    return taken;
}

void ts_client_send_packets(ts_client *client, ts_client_server *server, const uint32_t *locals, uint32_t count) {
    for (uint32_t at = 0; at < count;) {
        uint32_t taken = send_frame(client, server, locals + at, count - at);
        if (!taken) break; /* out of memory: the timer sends the rest */
        at += taken;
    }
    ts_client_asked(client, server, 0);
}
