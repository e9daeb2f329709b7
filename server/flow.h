/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker may make the server hold: of limits.traffic_bytes each running job has an equal share, and of that each of
 * its workers, in parts:
 *
 *   a half      packets that wait for their rounds        beyond it a packet is refused, to come again
 *   a quarter   frames queued for the worker              beyond it answers are withheld until the worker has read
 *   a quarter   under way between the two, half each way  the transport's credits (mpi_rollcall.c), at least 128 KiB
 *
 * Beside it: one message that is coming in (limits.frame_bytes at most), and the packet of one slice, the one that the
 * job needs first: that is always taken, so that rounds go on however small the shares are. And where rounds do not wait
 * for stragglers, all of a worker's packets, one a slice at most: who belongs to a round is decided by who delivered all.
 */
#ifndef TS_SERVER_FLOW_H
#define TS_SERVER_FLOW_H

#include "server/server_internal.h"

/* Bytes of one worker's held packets, of what is queued for it. Thread: the loop's, for all of these. */
size_t ts_flow_held_limit(const ts_server *server, uint32_t peer);
size_t ts_flow_queue_limit(const ts_server *server, uint32_t peer);
/* Replies for one worker alone are made while less than this is queued for it. */
size_t ts_flow_reply_limit(const ts_server *server, uint32_t peer);

/* Whether the worker's queue has room for so many bytes; always when it is empty. */
bool ts_flow_queue_has_room(const ts_server *server, uint32_t peer, size_t bytes);
/* Counts what was not taken from the peer, or not queued for it; the log names the peer the 1st, 2nd, 4th … time. */
void ts_flow_note_refused(ts_server *server, uint32_t peer, size_t packets);
void ts_flow_note_withheld(ts_server *server, uint32_t peer);

/*
 * Workers share a link as it comes, and a round waits for the last of them, with the link back idle meanwhile. So whoever has
 * delivered more of the open rounds than the last one by some slices is held back, while that one sends.
 */
void ts_flow_pace(struct ts_job *job);

#endif
