/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who trains on what: each epoch shuffles all samples by the seed, the same way
 * at every worker; a step takes the next workers × batch of them, and each
 * worker its share of those. The last step of an epoch shares out what remains
 * (shares differ by at most one and may be empty), so every sample counts once
 * an epoch and all workers have the same number of steps.
 */
#ifndef TS_DATA_SPLIT_H
#define TS_DATA_SPLIT_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct {
    uint64_t seed;
    size_t samples;
    uint32_t worker, workers, batch;
    uint64_t steps_per_epoch;
    uint64_t epoch;   /* which one `order` is of; UINT64_MAX before the first */
    uint32_t *order;  /* [own] a permutation of the samples */
} ts_split;

typedef struct {
    const uint32_t *samples; /* [borrow] until the next call */
    size_t count;            /* this worker's, 0 … batch */
    size_t total;            /* of all workers at this step */
} ts_share;

/* samples, workers, batch > 0, worker < workers. Returns: TERSE_OK, EINVAL, ELIMIT (2^32 samples or more), ENOMEM. */
terse_status ts_split_init(ts_split *split, uint64_t seed, size_t samples, uint32_t worker, uint32_t workers,
                           uint32_t batch) TERSE_NODISCARD;
void ts_split_free(ts_split *split);

/* This worker's samples of a step (counts from 0 over epochs; any order of calls, ascending is cheap). */
ts_share ts_split_step(ts_split *split, uint64_t step);

/* Part `part` of `parts` equal ranges of `count` things: [*first, *first + returned). */
size_t ts_split_part(size_t count, uint32_t part, uint32_t parts, size_t *first);

#endif
