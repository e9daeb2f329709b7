/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of low_rank_kernels.h, compiled once a level: include with TS_LEVEL(name) defined, and VECTOR_BYTES, the
 * width of a register. Sums run in lanes whose number does not depend on that width, so their order is the same
 * everywhere; vectors wider than a register would be spilled by the compiler, hence the arrays of them.
 */
#include <string.h>

#include "common/codec/low_rank_kernels.h"

/* Only functions of this file hand such vectors to each other. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define WIDTH ((size_t)VECTOR_BYTES / sizeof(float))
#define SUM_LANES 32
#define WIDE_WIDTH ((size_t)VECTOR_BYTES / sizeof(double))
#define WIDE_LANES 8
#define TILE_COLS 1024 /* of a few rows stay in the first-level cache while all ranks pass over them */

typedef float vector __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef float half_vector __attribute__((vector_size(VECTOR_BYTES / 2), aligned(4), may_alias));
typedef double wide_vector __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));

ALWAYS_INLINE vector load(const float *x) { return *(const vector *)(const void *)x; }
ALWAYS_INLINE void store(float *x, vector v) { *(vector *)(void *)x = v; }
ALWAYS_INLINE vector spread(float x) { return x - (vector){0}; }

/* Element j goes to lane j % SUM_LANES; lanes are added pairwise: lane l with l + half, halving. */
ALWAYS_INLINE float row_dot(const float *x, const float *q, size_t n) {
    vector sum[SUM_LANES / WIDTH];
    float lane[SUM_LANES];
    size_t j = 0;
    memset(sum, 0, sizeof sum);
    for (; j + SUM_LANES <= n; j += SUM_LANES) {
#pragma GCC unroll 8
        for (size_t v = 0; v < SUM_LANES / WIDTH; v++) sum[v] += load(x + j + v * WIDTH) * load(q + j + v * WIDTH);
    }
    memcpy(lane, sum, sizeof lane);
    for (; j < n; j++) lane[j % SUM_LANES] += x[j] * q[j];
    for (size_t half = SUM_LANES / 2; half > 0; half /= 2) {
        for (size_t l = 0; l < half; l++) lane[l] += lane[l + half];
    }
    return lane[0];
}

static void multiply(const float *x, size_t some, size_t cols, const float *q, size_t r, float *p, size_t rows) {
    for (size_t i = 0; i < some; i++) {
        for (size_t a = 0; a < r; a++) p[a * rows + i] = row_dot(x + i * cols, q + a * cols, cols);
    }
}

/* q[j] += c[0] x[0][j], then c[1] x[1][j] and so on: four rows to one pass over q. */
ALWAYS_INLINE void add_four(const float *x, size_t cols, const float *c, size_t n, float *q) {
    vector c0 = spread(c[0]), c1 = spread(c[1]), c2 = spread(c[2]), c3 = spread(c[3]);
    size_t j = 0;
    for (; j + WIDTH <= n; j += WIDTH) {
        vector sum = load(q + j);
        sum += c0 * load(x + j);
        sum += c1 * load(x + cols + j);
        sum += c2 * load(x + 2 * cols + j);
        sum += c3 * load(x + 3 * cols + j);
        store(q + j, sum);
    }
    for (; j < n; j++) {
        for (size_t row = 0; row < 4; row++) q[j] += c[row] * x[row * cols + j];
    }
}

ALWAYS_INLINE void add_one(const float *x, float c, size_t n, float *q) {
    size_t j = 0;
    vector all = spread(c);
    for (; j + WIDTH <= n; j += WIDTH) store(q + j, load(q + j) + all * load(x + j));
    for (; j < n; j++) q[j] += c * x[j];
}

static void project(const float *x, size_t rows, size_t cols, const float *p, size_t r, float *q) {
    size_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        for (size_t at = 0; at < cols; at += TILE_COLS) {
            size_t n = cols - at < TILE_COLS ? cols - at : TILE_COLS;
            for (size_t a = 0; a < r; a++) add_four(x + i * cols + at, cols, p + a * rows + i, n, q + a * cols + at);
        }
    }
    for (; i < rows; i++) {
        for (size_t a = 0; a < r; a++) add_one(x + i * cols, p[a * rows + i], cols, q + a * cols);
    }
}

/* One row of the product, the ranks in ascending order. */
ALWAYS_INLINE void product_row(const float *p, size_t rows, const float *q, size_t cols, size_t r, ts_product_use use,
                               float *to) {
    size_t j = 0;
    vector first = spread(p[0]);
    for (; j + WIDTH <= cols; j += WIDTH) {
        vector d = first * load(q + j);
        for (size_t a = 1; a < r; a++) d += spread(p[a * rows]) * load(q + a * cols + j);
        if (use == TS_PRODUCT_ADD) d = load(to + j) + d;
        if (use == TS_PRODUCT_SUBTRACT) d = load(to + j) - d;
        store(to + j, d);
    }
    for (; j < cols; j++) {
        float d = p[0] * q[j];
        for (size_t a = 1; a < r; a++) d += p[a * rows] * q[a * cols + j];
        to[j] = use == TS_PRODUCT_ADD ? to[j] + d : use == TS_PRODUCT_SUBTRACT ? to[j] - d : d;
    }
}

/* Ranks that are often asked for get loops of their own. */
ALWAYS_INLINE void product_rows(const float *p, const float *q, size_t rows, size_t cols, size_t r, ts_product_use use,
                                float *to) {
    for (size_t i = 0; i < rows; i++) {
        if (r == 1) product_row(p + i, rows, q, cols, 1, use, to + i * cols);
        else if (r == 2) product_row(p + i, rows, q, cols, 2, use, to + i * cols);
        else if (r == 4) product_row(p + i, rows, q, cols, 4, use, to + i * cols);
        else product_row(p + i, rows, q, cols, r, use, to + i * cols);
    }
}

static void product(const float *p, const float *q, size_t rows, size_t cols, size_t r, ts_product_use use, float *to) {
    switch (use) {
    case TS_PRODUCT_SET: product_rows(p, q, rows, cols, r, TS_PRODUCT_SET, to); break;
    case TS_PRODUCT_ADD: product_rows(p, q, rows, cols, r, TS_PRODUCT_ADD, to); break;
    case TS_PRODUCT_SUBTRACT: product_rows(p, q, rows, cols, r, TS_PRODUCT_SUBTRACT, to); break;
    }
}

ALWAYS_INLINE double add_up_wide(double lane[WIDE_LANES]) {
    for (size_t half = WIDE_LANES / 2; half > 0; half /= 2) {
        for (size_t l = 0; l < half; l++) lane[l] += lane[l + half];
    }
    return lane[0];
}

ALWAYS_INLINE wide_vector widen(const float *x) {
    return __builtin_convertvector(*(const half_vector *)(const void *)x, wide_vector);
}

static double dot(const float *a, const float *b, size_t n) {
    wide_vector sum[WIDE_LANES / WIDE_WIDTH];
    double lane[WIDE_LANES];
    size_t i = 0;
    memset(sum, 0, sizeof sum);
    for (; i + WIDE_LANES <= n; i += WIDE_LANES) {
#pragma GCC unroll 4
        for (size_t v = 0; v < WIDE_LANES / WIDE_WIDTH; v++) {
            sum[v] += widen(a + i + v * WIDE_WIDTH) * widen(b + i + v * WIDE_WIDTH);
        }
    }
    memcpy(lane, sum, sizeof lane);
    for (; i < n; i++) lane[i % WIDE_LANES] += (double)a[i] * (double)b[i];
    return add_up_wide(lane);
}

static double dot_double(const double *a, const double *b, size_t n) {
    wide_vector sum[WIDE_LANES / WIDE_WIDTH];
    double lane[WIDE_LANES];
    size_t i = 0;
    memset(sum, 0, sizeof sum);
    for (; i + WIDE_LANES <= n; i += WIDE_LANES) {
#pragma GCC unroll 4
        for (size_t v = 0; v < WIDE_LANES / WIDE_WIDTH; v++) {
            const double *x = a + i + v * WIDE_WIDTH, *y = b + i + v * WIDE_WIDTH;
            sum[v] += *(const wide_vector *)(const void *)x * *(const wide_vector *)(const void *)y;
        }
    }
    memcpy(lane, sum, sizeof lane);
    for (; i < n; i++) lane[i % WIDE_LANES] += a[i] * b[i];
    return add_up_wide(lane);
}

const ts_low_rank_kernels TS_LEVEL(ts_low_rank_kernels) = {
    .multiply = multiply,
    .project = project,
    .product = product,
    .dot = dot,
    .dot_double = dot_double,
};
