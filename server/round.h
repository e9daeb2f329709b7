/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closing rounds: slices that are ready are grouped into work items, at most
 * as many as the executor has threads; an item sums, steps and encodes its
 * slices on its own memory and comes back with one frame.
 *
 * Thread: all calls on the loop's; only the item's work runs elsewhere, on
 * slices that are marked busy and that nobody else touches meanwhile.
 */
#ifndef TS_SERVER_ROUND_H
#define TS_SERVER_ROUND_H

#define TS_ROUND_LENT_BYTES ((size_t)128 << 10) /* of parameters that are sent from where they are: a copy costs more than a message more */
#define TS_ROUND_BRIEF_BYTES ((uint64_t)8 << 20) /* packets and parameters of an item that takes a millisecond or two */

#include "common/base/buffer.h"
#include "common/wire/bundle.h"
#include "common/wire/frame.h"
#include "server/aggregate.h"
#include "server/server.h"
#include "server/store.h"

struct ts_job;

/* One slice of an item. */
typedef struct {
    ts_slice_state *slice;
    uint32_t first, count; /* its part of the item's contributions */
    uint64_t version;      /* being left, if at all */
    uint32_t estimates;    /* EF21: of how many workers the slice's sum was before these */
    bool encodes;          /* SSP, ASP: make a version of what comes of it */
    uint32_t applied;      /* [out] SSP, ASP: how many of the contributions, from the first, are in the parameters */
    terse_status status;   /* [out] */
    uint32_t culprit;      /* [out] worker, with TERSE_ECORRUPT */
    size_t offset, len;    /* [out] its packet in the item's frame */
    bool deferred;         /* [out] with an upstream: only summed so far, there is no packet */
    uint32_t samples;      /* [out] then: what the sum is a mean of */
} ts_round_entry;

typedef struct ts_round_item {
    struct ts_job *job;    /* for the loop's thread only */
    bool in_use;
    /* For the work: borrowed and constant while it runs. */
    const ts_contract *contract;
    const ts_config *config;
    const ts_optimizer *optimizer;
    uint32_t job_id, part; /* of the frame's header */
    bool alone;            /* each contribution is an optimizer step; slices may be at different versions */
    uint32_t weight;       /* SSP, ASP: how many packets make a round's worth */
    uint64_t version;      /* being left by all; the first's when alone */
    bool replaces;         /* the frame carries parameters, not differences */
    double lr;
    ts_round_entry *entries;        /* [own] */
    uint32_t entry_count, entry_room;
    ts_contribution *contributions; /* [own] */
    uint64_t *steps;                /* [own] at which each was pushed */
    uint32_t contribution_count, contribution_room;
    /* Working memory. */
    ts_scratch *scratch;
    ts_sum sum;
    ts_frame_sum *checksum; /* [own] of the frame under way */
    bool lends;             /* the frame carries the slice's parameters from where they are, and no copy */
    float *difference;     /* [own] */
    size_t difference_elems;
    uint8_t *packet;       /* [own] */
    size_t packet_room;
    /* Results. */
    terse_status status;   /* other than TERSE_OK: the server lacks something */
    ts_buffer *frame;
    bool finished;         /* the frame is complete: it goes out alone */
} ts_round_item;

typedef struct {
    ts_slice_state **ready; /* [own] room for every slice */
    uint32_t ready_count;
    bool sorted;
    ts_round_item *items;   /* [own] */
    uint32_t item_count, running;
    uint64_t closed;        /* slice rounds so far */
} ts_rounds;

/* slices, threads: of the job here, of the executor. rounds: [out]. Returns TERSE_OK, TERSE_ENOMEM (unchanged). */
terse_status ts_rounds_create(ts_rounds *rounds, struct ts_job *job, uint32_t slices, unsigned threads) TERSE_NODISCARD;
void ts_rounds_free(ts_rounds *rounds); /* zeroed is fine; not while items run */
/* Working memory of the items that are not at work now. */
size_t ts_rounds_bytes(const ts_rounds *rounds);

/* Puts a slice into the list when its round can close, or something else can be done with it. */
void ts_rounds_consider(struct ts_job *job, ts_slice_state *slice);
/* Whether there are ready slices, and an item for them. */
bool ts_rounds_ready(const struct ts_job *job);
/*
 * Submits the first ready slices as one work; ends the job when it cannot. Returns its cost: the bytes of the packets and
 * of one array of the slices.
 */
uint64_t ts_rounds_submit(struct ts_job *job);

/* ---- round_alone.c: SSP and ASP ---- */
/*
 * The work on a slice: an optimizer step for each contribution, then perhaps a version. Thread: any.
 * Returns TERSE_OK; TERSE_ECORRUPT (the contribution behind the applied ones does not decode); others: entry->status.
 */
terse_status ts_round_alone(ts_round_item *item, ts_round_entry *entry, ts_bundle_writer *writer) TERSE_NODISCARD;
/* What the loop does with its outcome. */
void ts_round_alone_settle(struct ts_job *job, ts_round_item *item, const ts_round_entry *entry);

/* ---- round.c, for round_alone.c ---- */
/*
 * The optimizer's step on what item->sum holds, and whether the parameters are still finite.
 * copy: [out] 4n bytes at any address that get the new parameters; NULL when nobody wants them. Thread: any.
 */
terse_status ts_round_optimize(ts_round_item *item, ts_slice_state *slice, uint64_t step, double lr,
                               const ts_aggregate_outcome *outcome, uint8_t *copy) TERSE_NODISCARD;
/* EF21: of how many workers the slice's sum is with the item's contributions before number `end`. Thread: any. */
uint32_t ts_round_estimates(const ts_round_item *item, const ts_round_entry *entry, uint32_t end);
/* The item's contribution number `at` is in the parameters: its packet goes. */
void ts_round_used(struct ts_job *job, ts_slice_state *slice, const ts_round_item *item, uint32_t at);
/* Tells whoever listens. */
void ts_round_receipt(struct ts_job *job, ts_slice_state *slice, ts_receipt_kind kind, uint32_t worker, uint64_t step);
/* The same of an optimizer step. worth: without rounds, how many packets make a round's worth. */
void ts_round_stepped(struct ts_job *job, const ts_slice_state *slice, uint32_t worth, uint64_t step);
/* Refuses the packet of entry->culprit by name. */
void ts_round_refuse_packet(struct ts_job *job, ts_slice_state *slice, const ts_round_entry *entry, uint64_t step);

#endif
