/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closed slices on their way out: packets are gathered into frames that are
 * built once and sent to every worker that wants them. Large frames go at once,
 * small ones wait until the work at hand is done or enough has gathered.
 */
#ifndef TS_SERVER_OUTGOING_H
#define TS_SERVER_OUTGOING_H

#include "common/base/buffer.h"
#include "server/store.h"

struct ts_job;
struct ts_round_item;

#define TS_OUTGOING_GATHER_BYTES ((size_t)32 << 10) /* from here on a header of a dozen bytes weighs nothing */

/* A packet inside the frame that its work item built. */
typedef struct {
    ts_slice_state *slice;
    ts_buffer *frame;  /* [own] one reference */
    size_t offset, len;
    uint64_t version;  /* reached by it */
    bool replaces;
} ts_outgoing_packet;

typedef struct {
    ts_outgoing_packet *packets; /* [own] room for every slice */
    uint32_t count;
    size_t bytes;
    uint64_t frames, packets_sent; /* shared frames built, packets in them */
} ts_outgoing;

/* slices: how many the job has here, each with at most one packet on its way. Returns TERSE_OK, TERSE_ENOMEM. */
terse_status ts_outgoing_create(ts_outgoing *outgoing, uint32_t slices) TERSE_NODISCARD;
void ts_outgoing_free(ts_outgoing *outgoing); /* a zeroed one is fine */

/* Takes over what an item brought: sends its frame when it is large, else keeps the packets. */
void ts_outgoing_take(struct ts_job *job, struct ts_round_item *item);
/* Sends what has gathered. */
void ts_outgoing_send(struct ts_job *job);

#endif
