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

/* A packet of a reply under construction. */
typedef struct {
    uint64_t version, answers;
    const uint8_t *packet; /* [borrow] of the slice, until the reply is sent */
    size_t len;
    uint32_t slice;
    bool snapshot, params;
} ts_reply_packet;

/* Working memory of one reply after the other. */
typedef struct {
    ts_reply_packet *packets; /* [own] */
    size_t count, room, bytes;
    uint32_t *told;           /* [own] slices of one Ack; room for each twice */
    uint32_t told_count;
    uint64_t told_step;
} ts_replies;

/* slices: how many the job has here. replies: [out], ts_replies_free. Returns TERSE_OK, TERSE_ENOMEM (unchanged). */
terse_status ts_replies_create(ts_replies *replies, uint32_t slices) TERSE_NODISCARD;
void ts_replies_free(ts_replies *replies); /* a zeroed one is fine */

/* Notes that the worker holds `have` of the slice and wants `want`; an older wish than the noted one is left out. */
void ts_reply_owe(struct ts_job *job, ts_slice_state *slice, uint32_t worker, uint64_t have, uint64_t want);
/* Notes that the worker wants to be told when its packet of step want - 1 is settled, and no data. */
void ts_reply_owe_word(struct ts_job *job, ts_slice_state *slice, uint32_t worker, uint64_t want);
/* A checked Pull from a worker. Returns TERSE_ECORRUPT when it names slices that are not here. */
terse_status ts_reply_pull(struct ts_job *job, uint32_t worker, const Terse__Pull *pull) TERSE_NODISCARD;
/* Whether somebody's wish can be answered once what is held is applied, and takes a new version (SSP, ASP). */
bool ts_reply_needs_version(const struct ts_job *job, const ts_slice_state *slice);
/* Notes whose wishes at the slice can be answered now. */
void ts_reply_wake(struct ts_job *job, const ts_slice_state *slice);
/* Sends what is owed to the worker and can be said now. */
void ts_reply_serve(struct ts_job *job, uint32_t worker);

#endif
