/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sparse sums: arrays of n floats beside a bitmap of n bits that names the elements which may differ from 0, so that
 * a sweep costs what was touched. Whole arrays go through the codec's kernels. Element by element and without
 * reassociation, so every compiler and vector width gives the same bits.
 */
#ifndef TS_SERVER_SLICE_MATH_H
#define TS_SERVER_SLICE_MATH_H

#include <stddef.h>
#include <stdint.h>

#include "common/codec/kernels.h"

/* The kernels for whole arrays on this CPU. Thread: any. */
static inline const ts_kernels *ts_slice_kernels(void) { return ts_kernels_get(ts_cpu_simd()); }

/* Words of a bitmap of n bits. */
static inline size_t ts_bitmap_words(size_t n) { return n / 64 + (n % 64 != 0); }

/*
 * Over the elements that the bitmap names; arrays: [borrow] n, touched: [borrow] ts_bitmap_words(n), no bit above n.
 * Thread: any.
 */
/* sum[i] = 0 */
void ts_touched_clear(float *sum, const uint64_t *touched, size_t n);
/* sum[i] *= factor */
void ts_touched_scale(float *sum, float factor, const uint64_t *touched, size_t n);
/* sum[i] += x[i] */
void ts_touched_add(float *sum, const float *x, const uint64_t *touched, size_t n);
/* x[i] clamped to ±limit; touched: NULL for all of them. NaN stays. */
void ts_touched_clamp(float *x, float limit, const uint64_t *touched, size_t n);
/* Σ x[i]² in double: in element order, or by the kernel's lanes when touched is NULL. */
double ts_touched_sum_squares(const float *x, const uint64_t *touched, size_t n);
/* How many of x are NaN or infinite. touched: NULL for all of them. */
size_t ts_touched_nonfinite(const float *x, const uint64_t *touched, size_t n);
/* params[i] -= rate * gradient[i], rounded after the product and after the difference */
void ts_touched_descend(float *params, const float *gradient, float rate, const uint64_t *touched, size_t n);

#endif
