/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of low_rank_kernels.h, compiled once a level: include with TS_LEVEL(name) defined. Written in the
 * compiler's vectors of 16 floats whatever the registers hold, so that the order of every sum is the same everywhere.
 */
#include <string.h>

#include "common/codec/low_rank_kernels.h"

/* Only functions of this file hand such vectors to each other. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define LANES 16
#define TILE_COLS 1024 /* of a few rows stay in the first-level cache while all ranks pass over them */

typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef float half_lanes __attribute__((vector_size(32), aligned(4), may_alias));
typedef double wide_lanes __attribute__((vector_size(64), aligned(8), may_alias));

ALWAYS_INLINE lanes load(const float *x) { return *(const lanes *)(const void *)x; }
ALWAYS_INLINE void store(float *x, lanes v) { *(lanes *)(void *)x = v; }

/* The last values of a row, zeros behind them. */
ALWAYS_INLINE lanes load_some(const float *x, size_t n) {
    lanes v = {0};
    memcpy(&v, x, n * sizeof *x);
    return v;
}

/* Lanes added pairwise: lane l with l + half, halving. */
ALWAYS_INLINE float add_up(lanes v) {
    float lane[LANES];
    memcpy(lane, &v, sizeof lane);
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int l = 0; l < half; l++) lane[l] += lane[l + half];
    }
    return lane[0];
}

ALWAYS_INLINE float row_dot(const float *x, const float *q, size_t n) {
    lanes even = {0}, odd = {0};
    size_t j = 0;
    for (; j + 2 * LANES <= n; j += 2 * LANES) {
        even += load(x + j) * load(q + j);
        odd += load(x + j + LANES) * load(q + j + LANES);
    }
    if (j + LANES <= n) {
        even += load(x + j) * load(q + j);
        j += LANES;
    }
    if (j < n) odd += load_some(x + j, n - j) * load_some(q + j, n - j);
    return add_up(even + odd);
}

static void multiply(const float *x, size_t some, size_t cols, const float *q, size_t r, float *p, size_t rows) {
    for (size_t i = 0; i < some; i++) {
        for (size_t a = 0; a < r; a++) p[a * rows + i] = row_dot(x + i * cols, q + a * cols, cols);
    }
}

/* q[j] += c[0] x[0][j], then c[1] x[1][j] and so on: four rows to one pass over q. */
ALWAYS_INLINE void add_four(const float *x, size_t cols, const float *c, size_t n, float *q) {
    lanes c0 = c[0] - (lanes){0}, c1 = c[1] - (lanes){0}, c2 = c[2] - (lanes){0}, c3 = c[3] - (lanes){0};
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        lanes sum = load(q + j);
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
    lanes all = c - (lanes){0};
    for (; j + LANES <= n; j += LANES) store(q + j, load(q + j) + all * load(x + j));
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

/* One group of a row of the product. */
ALWAYS_INLINE lanes product_lanes(const float *p, size_t rows, const float *q, size_t cols, size_t r) {
    lanes d = p[0] * load(q);
    for (size_t a = 1; a < r; a++) d += p[a * rows] * load(q + a * cols);
    return d;
}

ALWAYS_INLINE void product_row(const float *p, size_t rows, const float *q, size_t cols, size_t r, ts_product_use use,
                               float *to) {
    size_t j = 0;
    for (; j + LANES <= cols; j += LANES) {
        lanes d = product_lanes(p, rows, q + j, cols, r);
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

static void product(const float *p, const float *q, size_t rows, size_t cols, size_t r, ts_product_use use, float *to) {
    for (size_t i = 0; i < rows; i++) {
        switch (use) {
        case TS_PRODUCT_SET: product_row(p + i, rows, q, cols, r, TS_PRODUCT_SET, to + i * cols); break;
        case TS_PRODUCT_ADD: product_row(p + i, rows, q, cols, r, TS_PRODUCT_ADD, to + i * cols); break;
        case TS_PRODUCT_SUBTRACT: product_row(p + i, rows, q, cols, r, TS_PRODUCT_SUBTRACT, to + i * cols); break;
        }
    }
}

ALWAYS_INLINE double add_up_wide(wide_lanes v) {
    double lane[LANES / 2];
    memcpy(lane, &v, sizeof lane);
    for (int half = LANES / 4; half > 0; half /= 2) {
        for (int l = 0; l < half; l++) lane[l] += lane[l + half];
    }
    return lane[0];
}

ALWAYS_INLINE wide_lanes widen(const float *x) {
    return __builtin_convertvector(*(const half_lanes *)(const void *)x, wide_lanes);
}

static double dot(const float *a, const float *b, size_t n) {
    wide_lanes sum = {0};
    size_t i = 0;
    for (; i + LANES / 2 <= n; i += LANES / 2) sum += widen(a + i) * widen(b + i);
    double total = add_up_wide(sum);
    for (; i < n; i++) total += (double)a[i] * (double)b[i];
    return total;
}

static double dot_double(const double *a, const double *b, size_t n) {
    wide_lanes sum = {0};
    size_t i = 0;
    for (; i + LANES / 2 <= n; i += LANES / 2) {
        sum += *(const wide_lanes *)(const void *)(a + i) * *(const wide_lanes *)(const void *)(b + i);
    }
    double total = add_up_wide(sum);
    for (; i < n; i++) total += a[i] * b[i];
    return total;
}

const ts_low_rank_kernels TS_LEVEL(ts_low_rank_kernels) = {
    .multiply = multiply,
    .project = project,
    .product = product,
    .dot = dot,
    .dot_double = dot_double,
};
