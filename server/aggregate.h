/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sum of one slice's packets. Packets are added in ascending worker order,
 * so the bits depend neither on arrival nor on threads nor on servers; with
 * sparse packets the cost grows with what was sent, not with the slice.
 */
#ifndef TS_SERVER_AGGREGATE_H
#define TS_SERVER_AGGREGATE_H

#include "common/codec/codec.h"
#include "common/contract/contract.h"

/* Working memory of one thread. Between uses every float and every bit is 0. */
typedef struct {
    float *value;      /* [own] elems */
    uint64_t *touched; /* [own] a bit an element that some packet named */
    size_t elems;      /* room */
    bool dense;        /* some packet spoke of every element: the bits say nothing */
} ts_sum;

/* What one worker said of the slice. */
typedef struct {
    uint32_t worker;
    const uint8_t *packet; /* [borrow] */
    size_t len;
    ts_decode_state *state; /* [borrow] of that worker at the slice; NULL when its pipeline keeps none */
} ts_contribution;

/* Which slice, and at which step. */
typedef struct {
    const ts_contract *contract;
    uint32_t slice; /* the job's number of the slice */
    uint64_t step;
} ts_aggregate_place;

/* Room for slices of n elements. Returns TERSE_ENOMEM (unchanged). */
terse_status ts_sum_reserve(ts_sum *sum, size_t n) TERSE_NODISCARD;
void ts_sum_free(ts_sum *sum);
/* Back to zero after a slice of n elements; costs what was touched. */
void ts_sum_clear(ts_sum *sum, size_t n);
/* Multiplies by 1/participants. */
void ts_sum_average(ts_sum *sum, size_t n, uint32_t participants);

/*
 * EF21: adds the sum to that of all workers' estimates and becomes their mean. estimate: n. A worker that has left
 * stays in it with its last estimate, so `workers` are all there ever were.
 */
void ts_sum_estimate(ts_sum *sum, float *estimate, size_t n, uint32_t workers);

/*
 * Adds the packets of one slice to a cleared sum.
 * contributions: in ascending worker order. culprit: [out] the worker whose packet failed, on failure.
 * Returns: TERSE_OK; TERSE_ECORRUPT, TERSE_ENOMEM (the sum is cleared again).
 */
terse_status ts_aggregate(ts_sum *sum, ts_scratch *scratch, const ts_aggregate_place *place,
                          const ts_contribution *contributions, uint32_t count, uint32_t *culprit) TERSE_NODISCARD;

#endif
