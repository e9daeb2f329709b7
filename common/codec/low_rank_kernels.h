/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner loops of the low-rank transforms, by level; every level gives the same bits. Sums over long rows run in
 * lanes whose number does not depend on the CPU; everything else is element by element, ranks in ascending order.
 *
 * Shapes: a matrix of rows × cols, row by row; P as r × rows and Q as r × cols, each rank's values together.
 */
#ifndef TS_CODEC_LOW_RANK_KERNELS_H
#define TS_CODEC_LOW_RANK_KERNELS_H

#include <stddef.h>

#include "common/base/cpu.h"

typedef enum { TS_PRODUCT_SET, TS_PRODUCT_ADD, TS_PRODUCT_SUBTRACT } ts_product_use;

typedef struct {
    /* p[a · rows + i] = row i of x times row a of q, for `some` rows from x on; p points to the first of them. */
    void (*multiply)(const float *x, size_t some, size_t cols, const float *q, size_t r, float *p, size_t rows);
    /* q += pᵀ x over all rows. */
    void (*project)(const float *x, size_t rows, size_t cols, const float *p, size_t r, float *q);
    /* to = , += or -= p q: the product's value is rounded to a float before it is added. */
    void (*product)(const float *p, const float *q, size_t rows, size_t cols, size_t r, ts_product_use use, float *to);
    /* Sum of a[i] · b[i] in double. */
    double (*dot)(const float *a, const float *b, size_t n);
    double (*dot_double)(const double *a, const double *b, size_t n);
} ts_low_rank_kernels;

/* Kernels of that level, or of the next lower one that was built. Thread: any. */
const ts_low_rank_kernels *ts_low_rank_kernels_get(ts_simd level);

extern const ts_low_rank_kernels ts_low_rank_kernels_scalar;
#if defined(__x86_64__)
extern const ts_low_rank_kernels ts_low_rank_kernels_avx2; /* only for CPUs that have it */
extern const ts_low_rank_kernels ts_low_rank_kernels_avx512;
#endif

#endif
