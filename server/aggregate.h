/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the workers said of one slice becomes one gradient. Packets are added in
 * ascending worker order, so the bits depend neither on arrival nor on threads
 * nor on servers; with sparse packets the cost grows with what was sent, not
 * with the slice (but for a bit an element that is looked at).
 */
#ifndef TS_SERVER_AGGREGATE_H
#define TS_SERVER_AGGREGATE_H

#include "common/codec/codec.h"
#include "common/config/config.h"
#include "common/contract/contract.h"

struct ts_contribution;

/* Working memory of one thread. Between uses every bit is 0, and every float from `stale` on. */
typedef struct {
    float *value;      /* [own] elems */
    size_t stale;      /* the first floats hold what nobody wants: most often the next slice is written over them */
    uint64_t *touched; /* [own] a bit an element that some packet named */
    size_t elems;      /* room */
    bool dense;        /* some packet spoke of every element: the bits say nothing */
    const struct ts_contribution *parts; /* [borrow] not NULL: of floats that are added when they are asked for (ts_sum_part), */
    uint32_t part_count;                 /* so many packets, */
    float factor;                        /* and multiplied by that; `value` is room for a part */
    float *lanes;      /* [own] robust modes: what each worker said, count × n, then a block of ordering */
    size_t lanes_elems;
} ts_sum;

/* What one worker said of the slice. */
typedef struct ts_contribution {
    uint32_t worker;
    const uint8_t *packet; /* [borrow] */
    size_t len;
    ts_decode_state *state; /* [borrow] of that worker at the slice; NULL when its pipeline keeps none */
    uint32_t samples;       /* that its gradient is a mean of; 0 stands for 1 */
    uint64_t late;          /* steps since it was pushed: its own step is the place's less this */
    bool first;             /* EF21: of a worker whose estimate is not in the slice's sum yet */
    bool quarantined;       /* [out] left out: it holds NaN or infinity, */
    bool adrift;            /* [out] or (`delta`) goes on from a packet that was left out */
    const uint8_t *floats;  /* [out] of a sum in parts: in the packet */
} ts_contribution;

/* Which slice, at which step, and how to aggregate. */
typedef struct {
    const ts_contract *contract;
    uint32_t slice; /* the job's number of the slice */
    uint64_t step;
    const ts_config *config; /* [borrow] its section aggregation; NULL for the plain mean */
    bool in_parts;           /* the sum may be one that is made part by part: nothing but scale, part and clear is done with it */
} ts_aggregate_place;

typedef struct {
    uint32_t taken;   /* packets that went in: all but the quarantined ones */
    float factor;     /* what the sum is still to be multiplied by (ts_sum_scale) */
    uint32_t culprit; /* on failure: the worker whose packet it was */
} ts_aggregate_outcome;

/* Room for slices of n elements. Returns TERSE_ENOMEM (unchanged). */
terse_status ts_sum_reserve(ts_sum *sum, size_t n) TERSE_NODISCARD;
void ts_sum_free(ts_sum *sum);
size_t ts_sum_bytes(const ts_sum *sum);
/* Back to zero after a slice of n elements; costs what was touched. */
void ts_sum_clear(ts_sum *sum, size_t n);
/*
 * Elements [at, at + n) of a dense sum, in whatever order parts are asked for; valid until the next part. A sum of floats is
 * added here, while it is in the nearest cache: an array of it would only push the packets out of theirs.
 */
const float *ts_sum_part(ts_sum *sum, size_t at, size_t n);
/* Multiplies by the outcome's factor. */
void ts_sum_scale(ts_sum *sum, size_t n, float factor);
/* Clamps each element to ±value, then scales the slice down to a norm; 0 leaves out either. */
void ts_sum_clip(ts_sum *sum, size_t n, double value, double norm);

/*
 * EF21: adds the sum to that of all workers' estimates and becomes their mean. estimate: n. A worker that has left
 * stays in it with its last estimate, so `workers` are all of which something was ever added.
 */
void ts_sum_estimate(ts_sum *sum, float *estimate, size_t n, uint32_t workers);

/*
 * Aggregates the packets of one slice into a cleared sum:
 *   mean, sum          Σ g over the workers
 *   samples            Σ samples · g; when all say the same number, Σ g
 *   clip               each g of norm above clip_norm is scaled down to it first
 *   median, trimmed    of each coordinate, see robust_order.h; absent elements of sparse packets are 0
 * contributions: in ascending worker order; `quarantined` is set.
 * outcome: [out] on success taken and factor, else culprit.
 * Returns: TERSE_OK; TERSE_ECORRUPT, TERSE_ENOMEM (the sum is cleared again).
 */
terse_status ts_aggregate(ts_sum *sum, ts_scratch *scratch, const ts_aggregate_place *place,
                          ts_contribution *contributions, uint32_t count, ts_aggregate_outcome *outcome) TERSE_NODISCARD;

#endif
