/* SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <string.h>

#include "common/base/bytes.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/mpi_internal.h"

static ts_mpi_incoming *take_node(ts_mpi *mpi) {
    ts_mpi_incoming *node = mpi->spare;
    if (!node) return ts_mem_calloc(1, sizeof *node);
    mpi->spare = node->next;
    *node = (ts_mpi_incoming){0};
    return node;
}

static void give_node(ts_mpi *mpi, ts_mpi_incoming *node) {
    ts_buffer_unref(node->frame);
    node->next = mpi->spare;
    mpi->spare = node;
}

static bool is_whole(const ts_mpi_incoming *node) { return node->open == 0 && node->posted == node->expected; }

/* Hands on what is whole, in order. The handler may send, and may drop peers, this one too. */
static void deliver(ts_mpi *mpi, uint32_t number) {
    ts_mpi_peer *peer = &mpi->peers[number];
    while (peer->first && is_whole(peer->first)) {
        ts_mpi_incoming *node = peer->first;
        peer->first = node->next;
        if (!peer->first) peer->last = &peer->first;
        if (node->frame) {
            mpi->counters.frames_in++;
            bool above = mpi->above && mpi->names[number].role == TS_ROLE_NONE;
            ts_transport_handler *handler = above ? &mpi->above->handler : &mpi->base.handler;
            if (handler->on_frame) handler->on_frame(handler->context, number, node->frame);
        }
        give_node(mpi, node);
    }
}

static void append(ts_mpi_peer *peer, ts_mpi_incoming *node) {
    node->next = NULL;
    *peer->last = node;
    peer->last = &node->next;
}

/* Who breaks the rules is not spoken with any more; the owner's deadline will say who is silent. */
static void refuse(ts_mpi *mpi, uint32_t number, const char *reason) {
    mpi->counters.dropped++;
    ts_log(TS_LOG_ERROR, "transport", "peer dropped", "peer=\"%s\" reason=\"%s\"", mpi->names[number].name, reason);
    ts_mpi_drop(mpi, number);
}

void ts_mpi_receive_completed(ts_mpi *mpi, const ts_mpi_owner *owner, bool failed) {
    ts_mpi_incoming *node = owner->incoming;
    ts_mpi_peer *peer = &mpi->peers[owner->peer];
    ts_buffer_unref(owner->frame);
    node->open--;
    if (failed && node->frame) {
        mpi->counters.dropped++;
        ts_buffer_unref(node->frame);
        node->frame = NULL;
    }
    if (node->orphan) {
        if (node->open == 0) give_node(mpi, node);
        return;
    }
    ts_receive_window_note(&peer->from, owner->bytes);
    ts_mpi_return_credit(mpi, owner->peer);
    deliver(mpi, owner->peer);
}

/*
 * Receives a matched message of `len` bytes into the node's frame, or, when that is NULL, into a buffer that is
 * thrown away: MPI must get room for all of it, a receive cut short has crashed Open MPI 4.1.4 (rendezvous).
 */
static void receive(ts_mpi *mpi, uint32_t number, int tag, MPI_Message *message, ts_mpi_incoming *node, size_t len) {
    ts_mpi_owner owner = {.peer = number, .tag = tag, .bytes = len, .incoming = node};
    if (!node->frame && ts_buffer_create(len ? len : 1, &owner.frame) != TERSE_OK) {
        refuse(mpi, number, "no memory");
        return;
    }
    uint8_t *to = node->frame ? node->frame->data + node->posted : owner.frame->data;
    MPI_Request request = MPI_REQUEST_NULL;
    int complete = 1;
    ts_mpi_enter(mpi);
    bool failed = MPI_Imrecv(to, (int)len, MPI_BYTE, message, &request) != MPI_SUCCESS;
    if (!failed) failed = MPI_Test(&request, &complete, MPI_STATUS_IGNORE) != MPI_SUCCESS;
    ts_mpi_leave(mpi);
    mpi->counters.bytes_in += len;
    node->posted += len;
    node->open++;
    if (failed || complete) ts_mpi_receive_completed(mpi, &owner, failed);
    else ts_mpi_requests_add(&mpi->active, request, &owner);
}

/* A small control message, read at once: those are eager, so a matched one is here already. */
static bool read_small(ts_mpi *mpi, MPI_Message *message, size_t len, uint8_t *bytes) {
    if (MPI_Mrecv(bytes, (int)len, MPI_BYTE, message, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    mpi->counters.bytes_in += len;
    return true;
}

/* A place for a frame of `bytes`, behind those before it. Without memory, or over the limit, it will be lost. */
static ts_mpi_incoming *expect_frame(ts_mpi *mpi, uint32_t number, uint64_t bytes) {
    ts_mpi_incoming *node = take_node(mpi);
    if (!node) return NULL;
    node->expected = (size_t)bytes;
    terse_status status = TERSE_ELIMIT;
    if (bytes <= mpi->frame_limit_bytes) status = ts_buffer_pool_take(mpi->base.pool, bytes ? (size_t)bytes : 1, &node->frame);
    if (status != TERSE_OK) {
        mpi->counters.dropped++;
        ts_log(TS_LOG_WARN, "transport", "frame lost", "peer=\"%s\" bytes=%zu limit=%zu status=%s",
               mpi->names[number].name, (size_t)bytes, mpi->frame_limit_bytes, terse_status_name(status));
    } else {
        node->frame->len = (size_t)bytes;
    }
    append(&mpi->peers[number], node);
    return node;
}

static void take_chunk(ts_mpi *mpi, uint32_t number, MPI_Message *message, size_t len) {
    ts_mpi_peer *peer = &mpi->peers[number];
    ts_mpi_incoming *node = peer->assembling;
    bool last = node->posted + len == node->expected;
    if (last) peer->assembling = NULL;
    peer->chunk_us = mpi->polled_us;
    receive(mpi, number, TS_TAG_CHUNK, message, node, len);
}

static void take_credit(ts_mpi *mpi, uint32_t number, MPI_Message *message, size_t len) {
    uint8_t bytes[sizeof(uint64_t)];
    if (len != sizeof bytes || !read_small(mpi, message, len, bytes)) {
        refuse(mpi, number, "malformed credit");
        return;
    }
    if (!ts_mpi_take_credit(mpi, number, ts_load_u64(bytes))) refuse(mpi, number, "credit for what was not sent");
}

/* What of a frame stands around its chunks. */
static void fill_around(ts_mpi_incoming *node, const uint8_t *bytes, size_t head, size_t tail) {
    node->posted = head;
    node->expected -= tail;
    if (!node->frame) return;
    if (head) memcpy(node->frame->data, bytes, head);
    if (tail) memcpy(node->frame->data + node->expected, bytes + head, tail);
}

static void take_prefix(ts_mpi *mpi, uint32_t number, MPI_Message *message, size_t len) {
    ts_mpi_peer *peer = &mpi->peers[number];
    uint8_t bytes[TS_MPI_PREFIX_BYTES + TS_MPI_AROUND_BYTES];
    if (len < TS_MPI_PREFIX_BYTES || len > sizeof bytes || !read_small(mpi, message, len, bytes)) {
        refuse(mpi, number, "malformed prefix");
        return;
    }
    uint64_t frame_bytes = ts_load_u64(bytes), head = ts_load_u64(bytes + 16);
    size_t around = len - TS_MPI_PREFIX_BYTES;
    if (peer->assembling || frame_bytes > SIZE_MAX / 2 || frame_bytes <= around || head > around) {
        refuse(mpi, number, "unexpected prefix");
        return;
    }
    ts_receive_window_learn(&peer->from, ts_load_u64(bytes + 8));
    ts_receive_window_note(&peer->from, len);
    peer->assembling = expect_frame(mpi, number, frame_bytes);
    if (peer->assembling) fill_around(peer->assembling, bytes + TS_MPI_PREFIX_BYTES, (size_t)head, around - (size_t)head);
    else refuse(mpi, number, "no memory");
}

bool ts_mpi_probe(ts_mpi *mpi, uint32_t link) {
    int flag = 0, len = 0;
    MPI_Message message;
    MPI_Status status;
    if (ts_mpi_requests_reserve(&mpi->active) != TERSE_OK) return false;
    ts_mpi_enter(mpi);
    if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi->links[link].comm, &flag, &message, &status) != MPI_SUCCESS) flag = 0;
    ts_mpi_leave(mpi);
    if (!flag) return false;
    uint32_t number = mpi->links[link].first + (uint32_t)status.MPI_SOURCE;
    ts_mpi_peer *peer = &mpi->peers[number];
    peer->heard_us = mpi->sent_after_us;
    peer->spoke = true;
    MPI_Get_count(&status, MPI_BYTE, &len);
    size_t bytes = len > 0 ? (size_t)len : 0;
    if (peer->dropped) {
        /* Left as it is: a receive might never end. What it can still send is bounded by the window. */
        mpi->counters.dropped++;
    } else if (status.MPI_TAG == TS_TAG_WHOLE && !peer->assembling && bytes <= TS_MPI_CHUNK_BYTES) {
        ts_mpi_incoming *node = expect_frame(mpi, number, bytes);
        if (node) receive(mpi, number, TS_TAG_WHOLE, &message, node, bytes);
        else refuse(mpi, number, "no memory");
    } else if (status.MPI_TAG == TS_TAG_CHUNK && peer->assembling && bytes > 0 &&
               bytes <= peer->assembling->expected - peer->assembling->posted) {
        take_chunk(mpi, number, &message, bytes);
    } else if (status.MPI_TAG == TS_TAG_PREFIX) {
        take_prefix(mpi, number, &message, bytes);
    } else if (status.MPI_TAG == TS_TAG_CREDIT) {
        take_credit(mpi, number, &message, bytes);
    } else {
        refuse(mpi, number, "message out of turn");
    }
    return true;
}

void ts_mpi_forget_incoming(ts_mpi *mpi, uint32_t number) {
    ts_mpi_peer *peer = &mpi->peers[number];
    while (peer->first) {
        ts_mpi_incoming *node = peer->first;
        peer->first = node->next;
        node->orphan = true;
        if (node->open == 0) give_node(mpi, node);
    }
    peer->last = &peer->first;
    peer->assembling = NULL;
}
