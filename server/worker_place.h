/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that come into a running job over a transport which lets workers in: in the place of a worker that was lost, or
 * as a new one. Server 0 gives places; then each server maps the worker to its new peer, and makes room for new numbers. The
 * rest is worker_join.h's, for which a new number is that of a worker who was lost before anybody had seen it.
 */
#ifndef TS_SERVER_WORKER_PLACE_H
#define TS_SERVER_WORKER_PLACE_H

#include "server/server_internal.h"

struct ts_job;

/* Thread: the loop's, for all of these; the first two as ts_transport_handler has them. */
terse_status ts_place_wish(ts_server *server, const ts_transport_wish *wish, uint32_t count, ts_transport_place *place,
                           ts_error *reason) TERSE_NODISCARD;
void ts_place_workers(ts_server *server, uint32_t first);
/*
 * Where a secret is asked for, a place is taken with the proof only: until then nobody is displaced, no number is used up and
 * no room is made. Whoever came with it has now proven it.
 */
void ts_place_proven(ts_server *server, uint32_t peer);
/*
 * Server 0 lets a new life of a worker in, which has proven itself there: who has come for the place here gets it on that word,
 * unless somebody has it who has proven itself here and lives. Nothing of it is listened to before its proof, and whoever comes
 * with one after all takes its place.
 */
void ts_place_vouched(struct ts_job *job, uint32_t worker, uint32_t incarnation);
/* This server leads from now on: whoever has come for a place, and asked another server so far, has all its time again. */
void ts_place_lead_taken(ts_server *server);
/* The job has ended: nobody comes for its places any more. */
void ts_place_over(const struct ts_job *job);

/* The command that brings a worker back, UINT32_MAX for whichever; "" where nobody can come. text: `capacity` bytes. */
void ts_place_command(const struct ts_job *job, uint32_t worker, char *text, size_t capacity);

/* ---- a job whose workers have all died ---- */
/* Whether it would be kept for them to come back. */
bool ts_place_keeps(const struct ts_job *job);
/* Says so, and ends it when nobody has come for daemon.orphan_s. */
void ts_place_tick(struct ts_job *job);
/* Ends the first of them, if there is one; reason: in words. Returns whether it did. */
bool ts_place_end_orphan(ts_server *server, const char *reason);

#endif
