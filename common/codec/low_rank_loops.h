/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of low_rank_kernels.h, compiled once a level: include with TS_LEVEL(name) defined, and VECTOR_BYTES, the
 * width of a register. Sums run in lanes whose number does not depend on that width, so their order is the same
 * everywhere; vectors wider than a register would be spilled by the compiler, hence the arrays of them.
 */
#include <stdbool.h>
#include <string.h>
#if VECTOR_BYTES > 16
#include <immintrin.h>
#endif

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

/* WIDE_WIDTH values from x[i] on, doubles or floats. */
ALWAYS_INLINE wide_vector wide_at(const void *x, size_t i, bool floats) {
    return floats ? widen((const float *)x + i) : *(const wide_vector *)(const void *)((const double *)x + i);
}
ALWAYS_INLINE double value_at(const void *x, size_t i, bool floats) {
    return floats ? (double)((const float *)x)[i] : ((const double *)x)[i];
}

/* Like dot_double() for `count` <= 4 rows side by side, since one sum alone would wait for itself. */
ALWAYS_INLINE void dots_some(const double *v, const void *x, bool floats, size_t count, size_t stride, size_t n,
                             double *out) {
    wide_vector sum[4][WIDE_LANES / WIDE_WIDTH];
    size_t i = 0;
    memset(sum, 0, sizeof sum);
    for (; i + WIDE_LANES <= n; i += WIDE_LANES) {
#pragma GCC unroll 4
        for (size_t l = 0; l < WIDE_LANES / WIDE_WIDTH; l++) {
            wide_vector all = wide_at(v, i + l * WIDE_WIDTH, false);
#pragma GCC unroll 4
            for (size_t k = 0; k < count; k++) sum[k][l] += all * wide_at(x, k * stride + i + l * WIDE_WIDTH, floats);
        }
    }
    for (size_t k = 0; k < count; k++) {
        double lane[WIDE_LANES];
        memcpy(lane, sum[k], sizeof lane);
        for (size_t j = i; j < n; j++) lane[j % WIDE_LANES] += v[j] * value_at(x, k * stride + j, floats);
        out[k] = add_up_wide(lane);
    }
}

ALWAYS_INLINE void add_some(double *y, const double *c, const void *x, bool floats, size_t count, size_t stride, size_t n) {
    size_t j = 0;
    for (; j + WIDE_WIDTH <= n; j += WIDE_WIDTH) {
        wide_vector *to = (wide_vector *)(void *)(y + j), sum = *to;
#pragma GCC unroll 4
        for (size_t k = 0; k < count; k++) sum += c[k] * wide_at(x, k * stride + j, floats);
        *to = sum;
    }
    for (; j < n; j++) {
        for (size_t k = 0; k < count; k++) y[j] += c[k] * value_at(x, k * stride + j, floats);
    }
}

static void dots(const double *v, const double *x, size_t count, size_t stride, size_t n, double *out) {
    size_t k = 0;
    for (; k + 4 <= count; k += 4) dots_some(v, x + k * stride, false, 4, stride, n, out + k);
    for (; k < count; k++) dots_some(v, x + k * stride, false, 1, stride, n, out + k);
}

static void add_rows(double *y, const double *c, const double *x, size_t count, size_t stride, size_t n) {
    size_t k = 0;
    for (; k + 4 <= count; k += 4) add_some(y, c + k, x + k * stride, false, 4, stride, n);
    for (; k < count; k++) add_some(y, c + k, x + k * stride, false, 1, stride, n);
}

static void rotate(double *x, double *y, size_t n, double c, double s) {
    for (size_t i = 0; i < n; i++) {
        double a = x[i], b = y[i];
        x[i] = c * a - s * b;
        y[i] = s * a + c * b;
    }
}

static void times(const float *x, size_t rows, size_t cols, const double *v, size_t b, double *t) {
    for (size_t a = 0; a < b; a++, v += cols, t += rows) {
        size_t i = 0;
        for (; i + 4 <= rows; i += 4) dots_some(v, x + i * cols, true, 4, cols, cols, t + i);
        for (; i < rows; i++) dots_some(v, x + i * cols, true, 1, cols, cols, t + i);
    }
}

static void apply(const float *x, size_t rows, size_t cols, const double *v, size_t b, double *w) {
    double t[4];
    size_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        for (size_t a = 0; a < b; a++) {
            dots_some(v + a * cols, x + i * cols, true, 4, cols, cols, t);
            add_some(w + a * cols, t, x + i * cols, true, 4, cols, cols);
        }
    }
    for (; i < rows; i++) {
        for (size_t a = 0; a < b; a++) {
            dots_some(v + a * cols, x + i * cols, true, 1, cols, cols, t);
            add_some(w + a * cols, t, x + i * cols, true, 1, cols, cols);
        }
    }
}

/* sum + a b where the product is exact: one rounding, fused or not. */
ALWAYS_INLINE wide_vector add_exact(wide_vector a, wide_vector b, wide_vector sum) {
#if VECTOR_BYTES == 64
    return (wide_vector)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)sum);
#elif VECTOR_BYTES == 32
    return (wide_vector)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)sum);
#else
    return sum + a * b;
#endif
}

#define GRAM_ACROSS (VECTOR_BYTES == 64 ? 4 : 2) /* what the registers hold */

/* Four rows from i on by GRAM_ACROSS rows from j on; lanes as in dot(). */
ALWAYS_INLINE void gram_tile(const double *panel, size_t m, size_t n, size_t i, size_t j, double *g) {
    double lane[4][GRAM_ACROSS][WIDE_LANES];
    for (size_t part = 0; part < WIDE_LANES; part += WIDE_WIDTH) {
        wide_vector sum[4][GRAM_ACROSS];
        memset(sum, 0, sizeof sum);
        for (size_t k = part; k < n; k += WIDE_LANES) {
            wide_vector down[4];
#pragma GCC unroll 4
            for (size_t a = 0; a < 4; a++) down[a] = wide_at(panel, (i + a) * TS_GRAM_STRIDE + k, false);
#pragma GCC unroll 4
            for (size_t b = 0; b < GRAM_ACROSS; b++) {
                wide_vector across = wide_at(panel, (j + b) * TS_GRAM_STRIDE + k, false);
#pragma GCC unroll 4
                for (size_t a = 0; a < 4; a++) sum[a][b] = add_exact(down[a], across, sum[a][b]);
            }
        }
        for (size_t a = 0; a < 4; a++) {
            for (size_t b = 0; b < GRAM_ACROSS; b++) memcpy(lane[a][b] + part, &sum[a][b], sizeof sum[a][b]);
        }
    }
    for (size_t a = 0; a < 4 && i + a < m; a++) {
        for (size_t b = 0; b < GRAM_ACROSS && j + b <= i + a; b++) g[(i + a) * m + j + b] += add_up_wide(lane[a][b]);
    }
}

static void gram(const double *panel, size_t m, size_t n, double *g) {
    for (size_t i = 0; i < m; i += 4) {
        for (size_t j = 0; j < i + 4; j += GRAM_ACROSS) gram_tile(panel, m, n, i, j, g);
    }
}

const ts_low_rank_kernels TS_LEVEL(ts_low_rank_kernels) = {
    .multiply = multiply,
    .project = project,
    .product = product,
    .dot = dot,
    .dot_double = dot_double,
    .dots = dots,
    .add_rows = add_rows,
    .rotate = rotate,
    .times = times,
    .apply = apply,
    .gram = gram,
};
