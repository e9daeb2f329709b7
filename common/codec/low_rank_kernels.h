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

/* A panel of a matrix on its way to the Gram matrix: its strides are no power of two, which would share cache sets. */
#define TS_GRAM_COLS 512
#define TS_GRAM_STRIDE (TS_GRAM_COLS + 8)
#define TS_GRAM_ROWS(m) (((m) + 3) / 4 * 4)

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
    /* out[k] = v times row k of x (count rows of n, `stride` apart). */
    void (*dots)(const double *v, const double *x, size_t count, size_t stride, size_t n, double *out);
    /* y += c[0] times row 0 of x, then c[1] times row 1 and so on. */
    void (*add_rows)(double *y, const double *c, const double *x, size_t count, size_t stride, size_t n);
    /* x and y become c x - s y and s x + c y. */
    void (*rotate)(double *x, double *y, size_t n, double c, double s);
    /* t[a · rows + i] = row i of x times vector a of v. */
    void (*times)(const float *x, size_t rows, size_t cols, const double *v, size_t b, double *t);
    /* w += xᵀ (x v) for b vectors of length cols, one after the other. */
    void (*apply)(const float *x, size_t rows, size_t cols, const double *v, size_t b, double *w);
    /*
     * g[i · m + j] += row i times row j of the panel, for j <= i < m. The panel's values are floats, so that products
     * are exact; it has TS_GRAM_ROWS(m) rows, TS_GRAM_STRIDE apart, and n <= TS_GRAM_COLS columns, a multiple of 8.
     */
    void (*gram)(const double *panel, size_t m, size_t n, double *g);
} ts_low_rank_kernels;

/* Kernels of that level, or of the next lower one that was built. Thread: any. */
const ts_low_rank_kernels *ts_low_rank_kernels_get(ts_simd level);

extern const ts_low_rank_kernels ts_low_rank_kernels_scalar;
#if defined(__x86_64__)
extern const ts_low_rank_kernels ts_low_rank_kernels_avx2; /* only for CPUs that have it */
extern const ts_low_rank_kernels ts_low_rank_kernels_avx512;
#endif

#endif
