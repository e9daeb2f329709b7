/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transport: frames between numbered peers. Back ends: MPI (mpi_transport) and
 * in-process with faults (sim_transport). Never blocks; reliable back ends keep
 * the order between two peers, but no user may rely on reliability or order.
 *
 * Thread: all calls on one transport from one thread at a time.
 */
#ifndef TS_NET_TRANSPORT_H
#define TS_NET_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buffer.h"
#include "common/base/status.h"

typedef struct ts_transport ts_transport;

typedef enum { TS_ROLE_SERVER = 0, TS_ROLE_WORKER = 1, TS_ROLE_NONE = 2 } ts_role;

typedef struct {
    ts_role role;
    uint32_t index; /* server or worker number within its role, from 0 */
    char name[64];  /* "worker 2 (rank 4, host h1)": for messages */
} ts_peer;

/* Called from inside poll. */
typedef struct {
    void *context;
    /* frame: [borrow]; take a reference to keep it. */
    void (*on_frame)(void *context, uint32_t peer, ts_buffer *frame);
} ts_transport_handler;

typedef struct {
    uint64_t bytes_out, bytes_in;   /* every byte handed to or got from the back end, chunks and credits included */
    uint64_t frames_out, frames_in;
    uint64_t dropped;               /* over a limit, or of a peer that is not there */
    uint64_t queued_bytes;          /* accepted by send, not yet taken by the back end */
} ts_transport_counters;

typedef struct {
    /*
     * Queues a frame. frame: takes its own reference; must not be changed afterwards.
     * Returns TERSE_OK; TERSE_EPEER (no such peer, or it was dropped); TERSE_ENOMEM.
     */
    terse_status (*send)(ts_transport *transport, uint32_t peer, ts_buffer *frame);
    /* Moves bytes and calls the handler. Returns whether anything moved. */
    bool (*poll)(ts_transport *transport);
    /* Bytes queued for a peer and not yet handed on: back-pressure for whoever produces. */
    size_t (*queued)(const ts_transport *transport, uint32_t peer);
    /* Stops dealing with a peer: its queue is set aside, its frames are ignored. */
    void (*drop_peer)(ts_transport *transport, uint32_t peer);
    /* Monotonic microseconds (the simulation's fake clock there). */
    uint64_t (*now_us)(const ts_transport *transport);
    void (*counters)(const ts_transport *transport, ts_transport_counters *out);
    void (*destroy)(ts_transport *transport);
} ts_transport_ops;

struct ts_transport {
    const ts_transport_ops *ops;
    ts_transport_handler handler; /* set by the owner before the first poll */
    const ts_peer *peers;         /* peer_count entries, self included */
    uint32_t peer_count;
    uint32_t self;
    uint32_t servers, workers;    /* how many peers have each role */
    ts_buffer_pool *pool;         /* [borrow] for frames, those that come in and those to be sent; may be NULL */
};

/* The peer number of server or worker `index`; peer_count when there is none. */
uint32_t ts_transport_find(const ts_transport *transport, ts_role role, uint32_t index);

#endif
