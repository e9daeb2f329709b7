/* SPDX-License-Identifier: Apache-2.0 */
/* What selectors share: their view of one step, and exact choice among candidates. */
#ifndef TS_CODEC_SELECTION_H
#define TS_CODEC_SELECTION_H

#include <float.h>

#include "common/codec/kernels.h"
#include "common/codec/stage.h"

/* One step of one tensor, as the selector sees it. */
typedef struct ts_selection {
    const ts_kernels *kernels;
    const ts_stage_args *args; /* with this step's ratio */
    size_t n;
    uint64_t key;    /* of the stream of random numbers: seed, step, tensor, worker, direction */
    bool unbiased;   /* see ts_encode_input */
    size_t origin;   /* added to an element's number in keys */
    ts_sweep *sweep; /* taken in by select() */
    ts_candidates candidates; /* [out] the choice, ascending */
} ts_selection;

/* value · gain as the largest float can say it: scaled values of finite ones are finite. */
static inline float ts_scaled_up(float value, float gain) {
    float x = value * gain;
    return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : x;
}

/* ceil(ratio · n), at least 1, at most n; 0 for an empty tensor. */
size_t ts_ratio_elems(double ratio, size_t n);

/* Room for ts_select_largest(): for large tensors and small k, two buffers. */
size_t ts_candidates_room(size_t k, size_t n);

/*
 * A magnitude, as bits, that a little more than k elements are expected to reach once the gradient is taken in; 1, all
 * but zeros, for small tensors. Changes nothing but the candidates, which are work space here.
 */
uint32_t ts_sample_floor(ts_selection *selection, size_t k);

/*
 * Takes the gradient in (when there is one) and leaves in the candidates every element that can be among the k largest:
 * at least k when so many reach `floor`, ascending. Returns how often a buffer was full and had to be thinned out.
 */
unsigned ts_select_largest(ts_selection *selection, size_t k, uint32_t floor);

/*
 * Keeps the k candidates of largest magnitude, ascending in index; equal ones by the smaller keyed hash of their index.
 * Sets floor to the k-th magnitude. With k candidates or fewer only the floor is set (when there are exactly k).
 */
void ts_candidates_keep(const ts_kernels *kernels, ts_candidates *candidates, size_t k, uint64_t key, size_t origin);

/* Work space; where there is little, choosing takes longer. */
typedef struct {
    uint32_t *at; /* [borrow] room */
    size_t room;
} ts_work;

/*
 * The k-th largest of v[m] & mask, 1 <= k <= m. greater, equal: [out] how many are larger, and as large.
 * Algorithm: radix selection from the top, 11, 11 and 10 bits.
 */
uint32_t ts_kth_largest(const ts_kernels *kernels, const uint32_t *v, size_t m, size_t k, uint32_t mask, ts_work work,
                        size_t *greater, size_t *equal);

#endif
