/* SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <string.h>

#include "common/base/bytes.h"
#include "common/base/mem.h"
#include "common/net/loopback.h"
#include "common/net/mpi_internal.h"

/*
 * A neighbour heard from so lately polls still (the pump does for twice as long). What came from another host may
 * have been under way for longer than that, so those are always rung.
 */
#define AWAKE_US (TS_AWAKE_US / 2)
/* Whoever was rung looks around for a while: so often is enough. */
#define RING_EVERY_US (TS_AWAKE_US / 2)
#define EASE_EVERY_US 1000u
#define COMES_US 250000u /* so long after a part of a large frame the next one may come, on a slow link too */

static void ring(ts_mpi *mpi, uint32_t number) {
    ts_mpi_peer *peer = &mpi->peers[number];
    uint64_t now = ts_mpi_clock_us();
    if (now - peer->rung_us < RING_EVERY_US) return;
    if (peer->same_host && now - peer->heard_us < AWAKE_US) return;
    if (ts_bell_ring(mpi->bell, number)) peer->rung_us = now;
}

static terse_status enqueue(ts_mpi *mpi, uint32_t number, ts_buffer *frame) {
    ts_mpi_peer *peer = &mpi->peers[number];
    if (peer->count == peer->room) {
        size_t room = peer->room ? peer->room * 2 : 16;
        ts_mpi_outgoing *grown = ts_mem_calloc(room, sizeof *grown);
        TS_REQUIRE(grown, TERSE_ENOMEM);
        for (size_t i = 0; i < peer->count; i++) grown[i] = peer->queue[(peer->head + i) % peer->room];
        ts_mem_free(peer->queue);
        peer->queue = grown;
        peer->room = room;
        peer->head = 0;
    }
    peer->queue[(peer->head + peer->count) % peer->room] = (ts_mpi_outgoing){.frame = ts_buffer_ref(frame)};
    if (peer->count++ == 0) mpi->backlog++;
    peer->queued_bytes += ts_buffer_bytes(frame);
    mpi->counters.queued_bytes += ts_buffer_bytes(frame);
    return TERSE_OK;
}

terse_status ts_mpi_queue_frame(ts_mpi *mpi, uint32_t number, ts_buffer *frame) {
    ts_buffer *flat;
    if (!frame->outside || frame->len <= TS_MPI_AROUND_BYTES) return enqueue(mpi, number, frame);
    TS_TRY(ts_buffer_flat(frame, &flat));
    terse_status status = enqueue(mpi, number, flat);
    ts_buffer_unref(flat);
    return status;
}

static void pop(ts_mpi *mpi, ts_mpi_peer *peer) {
    ts_buffer_unref(peer->queue[peer->head].frame);
    peer->head = (peer->head + 1) % peer->room;
    if (--peer->count == 0) mpi->backlog--;
}

void ts_mpi_forget_queue(ts_mpi *mpi, uint32_t number) {
    ts_mpi_peer *peer = &mpi->peers[number];
    while (peer->count) pop(mpi, peer); /* what MPI reads from is held by its requests */
    mpi->counters.queued_bytes -= peer->queued_bytes;
    peer->queued_bytes = 0;
}

void ts_mpi_send_completed(ts_mpi *mpi, const ts_mpi_owner *owner) {
    ts_mpi_peer *peer = &mpi->peers[owner->peer];
    ts_buffer_unref(owner->frame);
    if (owner->tag != TS_TAG_CREDIT) {
        peer->sends--;
        return;
    }
    peer->crediting = false;
    ts_mpi_return_credit(mpi, owner->peer); /* what came meanwhile: the peer may have nothing else to wait for */
}

/* One message to MPI. frame: what holds the bytes; gets a reference until they have been read. Room is reserved. */
static bool post(ts_mpi *mpi, uint32_t number, int tag, ts_buffer *frame, const uint8_t *bytes, size_t len) {
    MPI_Request request;
    int complete = 0; /* small messages are copied at once: no need to ask for them again */
    ts_mpi_enter(mpi);
    bool begun = MPI_Isend(bytes, (int)len, MPI_BYTE, mpi->peers[number].rank, tag, mpi->peers[number].comm, &request) == MPI_SUCCESS;
    if (begun && MPI_Test(&request, &complete, MPI_STATUS_IGNORE) != MPI_SUCCESS) complete = 1;
    ts_mpi_leave(mpi);
    if (!begun) {
        mpi->counters.dropped++;
        return false;
    }
    mpi->counters.bytes_out += len;
    ring(mpi, number);
    if (complete) return true;
    ts_mpi_owner owner = {.peer = number, .tag = tag, .sends = true, .bytes = len};
    if (frame) owner.frame = ts_buffer_ref(frame);
    if (tag == TS_TAG_CREDIT) mpi->peers[number].crediting = true;
    else mpi->peers[number].sends++;
    ts_mpi_requests_add(&mpi->active, request, &owner);
    return true;
}

static size_t prefix_bytes(const ts_buffer *frame) { return TS_MPI_PREFIX_BYTES + (frame->outside ? frame->len : 0); }

/* The length of a frame that comes in chunks, and what is around those, ahead of them. */
static bool post_prefix(ts_mpi *mpi, uint32_t number, ts_mpi_outgoing *head) {
    const ts_buffer *frame = head->frame;
    ts_buffer *prefix;
    size_t around = frame->outside ? frame->len : 0;
    if (ts_buffer_create(TS_MPI_PREFIX_BYTES + around, &prefix) != TERSE_OK) return false; /* the next poll tries again */
    ts_store_u64(prefix->data, ts_buffer_bytes(frame));
    ts_store_u64(prefix->data + 8, mpi->peers[number].to.bytes);
    ts_store_u64(prefix->data + 16, frame->outside_at);
    if (around) memcpy(prefix->data + TS_MPI_PREFIX_BYTES, frame->data, around);
    prefix->len = TS_MPI_PREFIX_BYTES + around;
    head->prefixed = true;
    bool sent = post(mpi, number, TS_TAG_PREFIX, prefix, prefix->data, prefix->len);
    ts_buffer_unref(prefix);
    return sent;
}

/* Much travels, over a connection that stands by now, and no link is in between. */
static void leave_bbr(ts_mpi_peer *peer) {
    if (peer->left_bbr || !peer->same_host || !peer->to.paced || peer->to.bytes < TS_WINDOW_SLOW_BYTES) return;
    peer->left_bbr = true;
    ts_loopback_leave_bbr();
}

bool ts_mpi_take_credit(ts_mpi *mpi, uint32_t number, uint64_t credited) {
    ts_mpi_peer *peer = &mpi->peers[number];
    if (!ts_send_window_credit(&peer->to, credited, peer->count > 0, ts_mpi_clock_us())) return false;
    leave_bbr(peer);
    ts_mpi_push_out(mpi, number);
    return true;
}

static size_t message_bytes(const ts_mpi *mpi, const ts_mpi_peer *peer) {
    bool may = mpi->large && !peer->attached && !mpi->daemon; /* see Pacing */
    return ts_send_window_message_bytes(&peer->to, TS_MPI_CHUNK_BYTES, TS_MPI_EAGER_BYTES,
                                        may ? TS_MPI_LARGE_BYTES : TS_MPI_EAGER_BYTES);
}

static void note_sent(ts_mpi *mpi, ts_mpi_peer *peer, size_t bytes) {
    peer->queued_bytes -= bytes;
    mpi->counters.queued_bytes -= bytes;
}

bool ts_mpi_push_out(ts_mpi *mpi, uint32_t number) {
    ts_mpi_peer *peer = &mpi->peers[number];
    bool moved = false;
    while (peer->count && peer->sends < TS_MPI_SENDS_PER_PEER && ts_mpi_may_write(mpi, number)) {
        ts_mpi_outgoing *head = &peer->queue[peer->head];
        const ts_buffer *frame = head->frame;
        const uint8_t *bytes = frame->outside ? frame->outside : frame->data;
        size_t all = frame->outside ? frame->outside_len : frame->len, left = all - head->at;
        size_t most = message_bytes(mpi, peer);
        bool whole = !frame->outside && !head->prefixed && all <= most;
        bool prefix = !whole && !head->prefixed;
        size_t len = prefix ? prefix_bytes(frame) : left < most ? left : most;
        if (!ts_send_window_fits(&peer->to, len) || ts_mpi_requests_reserve(&mpi->active) != TERSE_OK) break;
        bool sent = prefix ? post_prefix(mpi, number, head)
                           : post(mpi, number, whole ? TS_TAG_WHOLE : TS_TAG_CHUNK, head->frame, bytes + head->at, len);
        if (!sent) {
            if (prefix && !head->prefixed) break;
            ts_mpi_drop(mpi, number); /* a gap in the stream: nothing behind it makes sense */
            return true;
        }
        moved = true;
        ts_send_window_note(&peer->to, len, ts_mpi_clock_us());
        note_sent(mpi, peer, prefix ? len - TS_MPI_PREFIX_BYTES : len);
        if (prefix) continue;
        head->at += len;
        if (head->at == all) pop(mpi, peer);
    }
    return moved;
}

bool ts_mpi_push_out_all(ts_mpi *mpi) {
    bool moved = false;
    for (uint32_t p = 0; mpi->backlog && p < mpi->base.peer_count; p++) {
        if (mpi->peers[p].count) moved = ts_mpi_push_out(mpi, p) || moved;
    }
    return moved;
}

static void return_credit(ts_mpi *mpi, uint32_t number) {
    ts_mpi_peer *peer = &mpi->peers[number];
    if (peer->dropped || peer->crediting || !ts_receive_window_owes(&peer->from)) return;
    if (!ts_mpi_may_write(mpi, number)) return;
    if (ts_mpi_requests_reserve(&mpi->active) != TERSE_OK) return;
    uint64_t told = peer->from.taken;
    ts_store_u64(peer->credit, told);
    if (post(mpi, number, TS_TAG_CREDIT, NULL, peer->credit, sizeof peer->credit)) peer->from.returned = told;
}

void ts_mpi_return_credit(ts_mpi *mpi, uint32_t number) {
    if (!mpi->peers[number].held_back) return_credit(mpi, number);
}

void ts_mpi_hold_back(ts_mpi *mpi, uint32_t number, bool ahead) {
    ts_mpi_peer *peer = &mpi->peers[number];
    if (peer->held_back == ahead || peer->dropped || !peer->to.paced) return;
    peer->held_back = ahead;
    mpi->held_back += ahead ? 1 : -1u;
    ts_mpi_return_credit(mpi, number);
}

/* Whether large frames keep coming from others of the peer's job that are behind it. */
static bool others_come(const ts_mpi *mpi, uint32_t number) {
    const ts_peer *name = &mpi->names[number];
    for (uint32_t p = 0; p < mpi->base.peer_count; p++) {
        const ts_mpi_peer *other = &mpi->peers[p];
        if (other->held_back || other->dropped || mpi->names[p].role != name->role || mpi->names[p].job != name->job) continue;
        if (mpi->polled_us - other->chunk_us < COMES_US) return true;
    }
    return false;
}

void ts_mpi_ease(ts_mpi *mpi) {
    if (mpi->polled_us - mpi->eased_us < EASE_EVERY_US) return;
    mpi->eased_us = mpi->polled_us;
    for (uint32_t p = 0; p < mpi->base.peer_count; p++)
        if (mpi->peers[p].held_back && !others_come(mpi, p)) return_credit(mpi, p);
}
