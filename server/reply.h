/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replies to one worker alone: log packets for one that is behind, snapshots
 * for a newcomer, parameters for saving. What a worker asks for is noted in its
 * slots, so asking again costs nothing, and it is built only while the worker's
 * queue is short: a slow reader cannot make the server grow.
 */
#ifndef TS_SERVER_REPLY_H
#define TS_SERVER_REPLY_H

#include "common/wire/frame.h"
#include "server/store.h"

struct ts_job;

/* Notes that the worker holds `have` of the slice and wants `want`; an older wish than the noted one is left out. */
void ts_reply_owe(struct ts_job *job, ts_slice_state *slice, uint32_t worker, uint64_t have, uint64_t want);
/* A checked Pull from a worker. Returns TERSE_ECORRUPT when it names slices that are not here. */
terse_status ts_reply_pull(struct ts_job *job, uint32_t worker, const Terse__Pull *pull) TERSE_NODISCARD;
/* Sends what is owed to the worker and can be said now. */
void ts_reply_serve(struct ts_job *job, uint32_t worker);

#endif
