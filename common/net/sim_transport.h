/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The in-process back end: a network of endpoints under a fake clock, with a
 * seeded scheduler that delays, drops, duplicates, reorders, corrupts, cuts and
 * kills. Also the plain local transport of tests (all faults 0).
 */
#ifndef TS_NET_SIM_TRANSPORT_H
#define TS_NET_SIM_TRANSPORT_H

#include "common/net/transport.h"

typedef struct ts_sim_network ts_sim_network;

#define TS_SIM_JOBS 4

typedef struct {
    uint64_t seed;
    uint32_t servers, workers;   /* peers 0 … servers-1 are servers, then workers, job by job */
    uint32_t job_workers[TS_SIM_JOBS]; /* the workers of each job; all zero: one job of all of them */
    uint32_t late_jobs;          /* so many of the last jobs join later: ts_sim_join */
    uint32_t late_workers, spare; /* with one job: so many of its last workers come in later, and so many processes more may
                                     come in the place of others: ts_sim_come */
    uint64_t delay_min_us, delay_max_us;
    bool vain;                   /* one more process comes in at the beginning, and dies when only server 0 has heard of it */
    double drop, duplicate, corrupt; /* probability per frame, 0 … 1 */
    bool reorder;                /* false: frames between two peers arrive in order (unless dropped) */
    size_t frame_limit_bytes;
    /* Sees each frame that is sent. Returns what goes out instead: a reference of its own, to the same frame or another;
     * NULL loses it. NULL: nobody looks. */
    ts_buffer *(*meddle)(void *context, uint64_t now_us, uint32_t from, uint32_t to, ts_buffer *frame);
    void *meddler;
} ts_sim_options;

terse_status ts_sim_network_create(const ts_sim_options *options, ts_sim_network **out) TERSE_NODISCARD;
void ts_sim_network_destroy(ts_sim_network *network);
/* The endpoint of a peer; [borrow] from the network. */
ts_transport *ts_sim_endpoint(ts_sim_network *network, uint32_t peer);
/*
 * The servers learn of the next of the late jobs. Its workers' endpoints may be used before; later they know who is dead. Returns
 * whether a server leads which could let it in.
 */
bool ts_sim_join(ts_sim_network *network);
/*
 * A process comes into the job, as it would over a transport that lets workers in: server 0 gives it a place, and all servers
 * learn of its peer. worker: [out] which it is; peer: [out] its endpoint. Returns TERSE_OK; TERSE_ELIMIT: no endpoint is left;
 * or as server 0 says (handler.on_wish).
 */
terse_status ts_sim_come(ts_sim_network *network, const ts_transport_wish *wish, uint32_t *worker, uint32_t *peer,
                         ts_error *reason) TERSE_NODISCARD;
/* A peer's process has ended, and the servers know it at once. */
void ts_sim_tell_lost(ts_sim_network *network, uint32_t peer);
/* A peer dies: frames to and from it are lost, those under way included. */
void ts_sim_kill(ts_sim_network *network, uint32_t peer);
/* It comes back with an empty queue. */
void ts_sim_revive(ts_sim_network *network, uint32_t peer);
/* Cuts or heals the link between two peers, both ways. */
void ts_sim_cut(ts_sim_network *network, uint32_t a, uint32_t b, bool cut);
/* It stops, or goes on, reading: what it is sent meanwhile stays in the senders' queues (see ops->queued). */
void ts_sim_stop_reading(ts_sim_network *network, uint32_t peer, bool stopped);
/* Whether a server has said that a peer is ahead of others (ops->hold_back), which changes nothing here. */
bool ts_sim_held_back(const ts_sim_network *network, uint32_t server, uint32_t peer);
uint64_t ts_sim_now_us(const ts_sim_network *network);
/*
 * Delivers the next due frame if it is due by `until_us` and moves the clock to it, else moves the clock to until_us.
 * peer: [out] who got a frame (its endpoint's poll hands it on). Returns whether a frame was delivered.
 */
bool ts_sim_step(ts_sim_network *network, uint64_t until_us, uint32_t *peer);

#endif
