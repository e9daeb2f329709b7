/* SPDX-License-Identifier: Apache-2.0 */
/* Sending to peers, with counters; heartbeats to those who have heard nothing for a while. */
#ifndef TS_SERVER_PEER_LINK_H
#define TS_SERVER_PEER_LINK_H

#include "server/server_internal.h"

struct ts_job;

/* Sends a finished frame. frame: [borrow]. A frame that cannot be sent is counted: peers ask again. */
void ts_link_send(ts_server *server, uint32_t peer, ts_buffer *frame);
/* The same for what the peer asks for again when it does not come: withheld and counted while its queue is full. */
void ts_link_answer(ts_server *server, uint32_t peer, ts_buffer *frame);
/*
 * Builds and sends a frame without payload. header: [borrow]. What cannot be built is counted like what is not sent; what
 * finds the peer's queue full is withheld and counted.
 */
void ts_link_control(ts_server *server, uint32_t peer, Terse__Header *header);
/*
 * An Ack of the job's `step`, unless the job is mute. slices: [borrow] count local numbers; none acknowledges the request
 * itself. reason: [borrow] a sentence for people, NULL when the status says it all.
 */
void ts_link_ack(const struct ts_job *job, uint32_t peer, uint64_t step, terse_status status,
                 const uint32_t *slices, size_t count, const char *reason);
/* An Ack of OK with `settled`: the packets of that step are applied. */
void ts_link_settled(const struct ts_job *job, uint32_t peer, uint64_t step, const uint32_t *slices, size_t count);
/* Tells the peer that a job has ended. reason: [borrow] names who, what and where. */
void ts_link_abort(ts_server *server, uint32_t peer, uint32_t job, terse_status status, const char *reason);
/* Tells a worker that this life of it has been given up. reason: [borrow] */
void ts_link_stale(ts_server *server, uint32_t peer, uint32_t job, uint32_t incarnation, const char *reason);
/* Whether nothing was sent to the peer for so long that a heartbeat is due. */
bool ts_link_quiet(const ts_server *server, uint32_t peer);

#endif
