/* SPDX-License-Identifier: Apache-2.0 */
/* Leading singular vectors: against cyclic Jacobi rotations, which share nothing with what is tested, and against numpy. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"
#include "common/codec/eigen.h"
#include "common/codec/krylov.h"
#include "common/codec/spectral.h"
#include "tests/unit/codec_support.h"

static const ts_low_rank_kernels *kernels(void) { return ts_low_rank_kernels_get(ts_cpu_simd()); }

static void *room(size_t count, size_t size) {
    void *p = calloc(count ? count : 1, size);
    ck_assert_ptr_nonnull(p);
    return p;
}

/* As make.py in tests/vectors/low-rank: the cubes of numbers between -1/2 and 1/2. */
static void fill(float *x, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++) {
        float u = (float)(ts_mix64((seed << 32) + i) >> 40) * 0x1p-24f - 0.5f;
        x[i] = u * u * u;
    }
}

/* ---- the oracle ---- */

/* Eigenvalues of a (d × d, used up), descending, by rotations that make one pair of elements zero at a time. */
static void jacobi(double *a, size_t d, double *value) {
    for (int sweep = 0; sweep < 60; sweep++) {
        bool turned = false;
        for (size_t p = 0; p + 1 < d; p++) {
            for (size_t q = p + 1; q < d; q++) {
                double apq = a[p * d + q];
                if (fabs(apq) <= DBL_EPSILON * sqrt(fabs(a[p * d + p])) * sqrt(fabs(a[q * d + q])) || fabs(apq) < DBL_MIN) continue;
                double theta = (a[q * d + q] - a[p * d + p]) / (2 * apq);
                double t = (theta < 0 ? -1.0 : 1.0) / (fabs(theta) + sqrt(theta * theta + 1)), c = 1 / sqrt(t * t + 1), s = t * c;
                for (size_t k = 0; k < d; k++) {
                    double x = a[k * d + p], y = a[k * d + q];
                    a[k * d + p] = c * x - s * y;
                    a[k * d + q] = s * x + c * y;
                }
                for (size_t k = 0; k < d; k++) {
                    double x = a[p * d + k], y = a[q * d + k];
                    a[p * d + k] = c * x - s * y;
                    a[q * d + k] = s * x + c * y;
                }
                turned = true;
            }
        }
        if (!turned) break;
    }
    for (size_t i = 0; i < d; i++) {
        value[i] = a[i * d + i];
        for (size_t j = i; j > 0 && value[j] > value[j - 1]; j--) {
            double kept = value[j];
            value[j] = value[j - 1];
            value[j - 1] = kept;
        }
    }
}

/* Element e, k of the unfolding. */
static double unfolded(const float *x, ts_mode m, size_t e, size_t k) {
    return (double)x[((k / m.inner) * m.extent + e) * m.inner + k % m.inner];
}

/* The eigenvalues of the smaller Gram matrix; room for min(extent, rest). */
static void energies(const float *x, ts_mode m, double *value) {
    size_t rest = m.outer * m.inner, d = m.extent < rest ? m.extent : rest, n = m.extent < rest ? rest : m.extent;
    bool across = rest < m.extent;
    double *g = room(d * d, sizeof *g);
    for (size_t i = 0; i < d; i++) {
        for (size_t j = 0; j <= i; j++) {
            double sum = 0;
            for (size_t k = 0; k < n; k++) {
                sum += across ? unfolded(x, m, k, i) * unfolded(x, m, k, j) : unfolded(x, m, i, k) * unfolded(x, m, j, k);
            }
            g[i * d + j] = g[j * d + i] = sum;
        }
    }
    jacobi(g, d, value);
    free(g);
}

/* ‖uᵀ X‖², what a vector holds of the matrix. */
static double energy_along(const float *x, ts_mode m, const float *u) {
    double all = 0;
    for (size_t k = 0; k < m.outer * m.inner; k++) {
        double sum = 0;
        for (size_t e = 0; e < m.extent; e++) sum += (double)u[e] * unfolded(x, m, e, k);
        all += sum * sum;
    }
    return all;
}

static float *left_vectors(ts_simd level, const float *x, ts_mode m, size_t r) {
    void *work = malloc(ts_left_vectors_work(m, r));
    float *u = room(r * m.extent, sizeof *u);
    ck_assert_ptr_nonnull(work);
    ts_left_vectors(ts_low_rank_kernels_get(level), x, m, r, work, u);
    free(work);
    return u;
}

/* They are orthonormal or zero, hold what the largest singular values say, and are the same bits at each level. */
static void check(const float *x, ts_mode m, size_t r, const double *expected) {
    float *u = left_vectors(TS_SIMD_SCALAR, x, m, r);
    static const ts_simd levels[] = {TS_SIMD_AVX2, TS_SIMD_AVX512};
    char where[120];
    (void)snprintf(where, sizeof where, "%zu × %zu × %zu, %zu vectors", m.outer, m.extent, m.inner, r);
    for (size_t l = 0; l < 2; l++) {
        if (!ts_cpu_supports(levels[l])) continue;
        float *other = left_vectors(levels[l], x, m, r);
        ck_assert_msg(memcmp(u, other, r * m.extent * sizeof *u) == 0, "%s: other bits at level %d", where, (int)levels[l]);
        free(other);
    }
    for (size_t a = 0; a < r; a++) {
        double largest = 0;
        for (size_t e = 0; e < m.extent; e++) largest = fabs((double)u[a * m.extent + e]) > fabs(largest) ? (double)u[a * m.extent + e] : largest;
        ck_assert_msg(largest >= 0, "%s: vector %zu has another sign", where, a);
        bool empty = !(expected[a] > 1e-13 * expected[0]);
        double held = energy_along(x, m, u + a * m.extent);
        ck_assert_msg(fabs(held - expected[a]) <= 2e-7 * expected[0], "%s: vector %zu holds %.10g, not %.10g", where, a, held, expected[a]);
        for (size_t b = 0; b <= a && !empty; b++) {
            double dot = 0;
            for (size_t e = 0; e < m.extent; e++) dot += (double)u[a * m.extent + e] * (double)u[b * m.extent + e];
            ck_assert_msg(fabs(dot - (a == b)) < 2e-6, "%s: vectors %zu and %zu: %g", where, a, b, dot);
        }
    }
    free(u);
}

static const ts_mode modes[] = {
    {1, 1, 9},   {1, 9, 1},   {1, 2, 2},    {1, 3, 2000}, {1, 2000, 3}, {700, 3, 3},  {2000, 3, 1}, {1, 64, 65},
    {1, 65, 64}, {1, 65, 66}, {1, 130, 90}, {1, 90, 519}, {90, 130, 1}, {13, 80, 10}, {2, 130, 41}, {3, 70, 1},
};

START_TEST(rotations_agree) {
    static const size_t ranks[] = {1, 2, 5};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        ts_mode m = modes[i];
        size_t rest = m.outer * m.inner, least = m.extent < rest ? m.extent : rest;
        float *x = room(m.extent * rest, sizeof *x);
        double *value = room(least, sizeof *value);
        fill(x, m.extent * rest, i);
        energies(x, m, value);
        for (size_t r = 0; r < 3 && ranks[r] <= least; r++) check(x, m, ranks[r], value);
        free(x), free(value);
    }
}
END_TEST

/* Shapes too large for rotations: sums of outer products of known strength, over rows of a Hadamard matrix. */
static float hadamard(size_t i, size_t j) { return __builtin_parityll(i & j) ? -1.0f : 1.0f; }

/* rows and cols are powers of two; singular value a is strength[a] · sqrt(rows · cols). */
static void fill_known(float *x, size_t rows, size_t cols, const float *strength, size_t count) {
    memset(x, 0, rows * cols * sizeof *x);
    for (size_t a = 0; a < count; a++) {
        for (size_t i = 0; i < rows; i++) {
            for (size_t j = 0; j < cols; j++) x[i * cols + j] += strength[a] * hadamard(a + 1, i) * hadamard(2 * a + 1, j);
        }
    }
}

START_TEST(known_strengths_are_found) {
    static const struct { size_t rows, cols, r, count; float strength[8]; } cases[] = {
        {1024, 1024, 1, 3, {3, 2, 1}},        {1024, 2048, 1, 2, {1, 1}},         {512, 1024, 2, 2, {5, 5}},
        {512, 512, 3, 8, {2, 2, 2, 2, 2, 2, 2, 2}}, {512, 512, 3, 5, {4, 4, 4, 4, 1}}, {1024, 1024, 2, 5, {4, 3, 3, 3, 3}},
        {512, 512, 3, 1, {1}},                {1024, 1024, 2, 8, {8, 4, 2, 1, 0.5f, 0.25f, 0.125f, 0.0625f}},
        {128, 64, 4, 2, {1, 1}},              {512, 512, 2, 1, {0}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        static const float scales[] = {1, 0x1p60f, 0x1p120f, 0x1p-118f};
        size_t rows = cases[c].rows, cols = cases[c].cols, r = cases[c].r;
        float *x = room(rows * cols, sizeof *x), *first = NULL;
        for (size_t k = 0; k < sizeof scales / sizeof scales[0]; k++) {
            double expected[8] = {0};
            float strength[8];
            for (size_t a = 0; a < cases[c].count; a++) strength[a] = cases[c].strength[a] * scales[k];
            for (size_t a = 0; a < r && a < cases[c].count; a++) {
                expected[a] = (double)strength[a] * (double)strength[a] * (double)(rows * cols);
            }
            fill_known(x, rows, cols, strength, cases[c].count);
            check(x, ts_mode_matrix(rows, cols), r, expected);
            float *u = left_vectors(ts_cpu_simd(), x, ts_mode_matrix(rows, cols), r);
            if (first) ck_assert_msg(memcmp(u, first, r * rows * sizeof *u) == 0, "case %zu: not the same at scale %g", c, (double)scales[k]);
            if (!first) first = u;
            else free(u);
        }
        free(x), free(first);
    }
}
END_TEST

/* All singular values are equal, or zero. */
START_TEST(no_vector_is_better_than_another) {
    static const struct { size_t side, r; } cases[] = {{32, 3}, {128, 1}, {128, 5}, {512, 1}, {1024, 2}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        size_t side = cases[c].side;
        float *x = room(side * side, sizeof *x);
        double expected[8];
        for (size_t i = 0; i < side * side; i++) x[i] = hadamard(i / side, i % side);
        for (size_t a = 0; a < 8; a++) expected[a] = (double)side;
        check(x, ts_mode_matrix(side, side), cases[c].r, expected);
        for (size_t i = 0; i < side * side; i++) x[i] = i / side == i % side;
        for (size_t a = 0; a < 8; a++) expected[a] = 1;
        check(x, ts_mode_matrix(side, side), cases[c].r, expected);
        free(x);
    }
}
END_TEST

/* numpy's factors of what fill() makes; see make.py. */
START_TEST(numpy_agrees_on_long_sides) {
    static const struct { const char *name; ts_mode mode; size_t r; } cases[] = {
        {"made-670x690", {1, 670, 690}, 1},   {"made-690x670", {1, 690, 670}, 1}, {"made-12x700x60", {12, 700, 60}, 1},
        {"made-700x650x1", {700, 650, 1}, 1}, {"made-330x40x9", {330, 40, 9}, 3}, {"made-12x300x70", {12, 300, 70}, 2},
        {"made-140x130", {1, 140, 130}, 12},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        char path[160];
        ts_mode m = cases[c].mode;
        size_t n = m.outer * m.extent * m.inner, count;
        (void)snprintf(path, sizeof path, "%s/low-rank/%s.f32", TS_TEST_VECTORS, cases[c].name);
        float *expected = ts_unit_read_f32(path, &count), *x = room(n, sizeof *x);
        ck_assert_uint_eq(count, cases[c].r * m.extent);
        fill(x, n, c);
        float *u = left_vectors(ts_cpu_simd(), x, m, cases[c].r);
        for (size_t a = 0; a < cases[c].r; a++) {
            double off = 0;
            for (size_t e = a * m.extent; e < (a + 1) * m.extent; e++) {
                off += ((double)u[e] - (double)expected[e]) * ((double)u[e] - (double)expected[e]);
            }
            ck_assert_msg(sqrt(off) < 1e-6, "%s: vector %zu is %g off", cases[c].name, a, sqrt(off));
        }
        free(expected), free(x), free(u);
    }
}
END_TEST

/* ---- the parts ---- */

enum { ROWS = 11, COLS = 83, BLOCK = 3, OUT = 4 * COLS * BLOCK };

/* Everything that kernels make of x, v and a panel, one after the other. */
static size_t run_kernels(const ts_low_rank_kernels *k, const float *x, const double *v, const double *panel, double *out) {
    double *at = out;
    k->dots(v, v, BLOCK, COLS, COLS, at);
    at += BLOCK;
    for (size_t i = 0; i < COLS; i++) at[i] = v[i];
    k->add_rows(at, v + COLS, v, BLOCK, COLS, COLS);
    k->add_rows(at, v + COLS, v, 7, 20, COLS); /* rows that overlap */
    at += COLS;
    for (size_t i = 0; i < 2 * COLS; i++) at[i] = v[i];
    k->rotate(at, at + COLS, COLS, 0.6, -0.8);
    at += 2 * COLS;
    k->times(x, ROWS, COLS, v, BLOCK, at);
    at += BLOCK * ROWS;
    for (size_t i = 0; i < BLOCK * COLS; i++) at[i] = 1;
    k->apply(x, ROWS, COLS, v, BLOCK, at);
    at += BLOCK * COLS;
    memset(at, 0, ROWS * ROWS * sizeof *at);
    k->gram(panel, ROWS, 88, at);
    return (size_t)(at + ROWS * ROWS - out);
}

START_TEST(kernels_give_the_same_bits) {
    static const ts_simd levels[] = {TS_SIMD_AVX2, TS_SIMD_AVX512};
    static float x[ROWS * COLS];
    static double v[BLOCK * COLS], panel[TS_GRAM_ROWS(ROWS) * TS_GRAM_STRIDE], out[OUT], other[OUT];
    fill(x, ROWS * COLS, 1);
    for (size_t i = 0; i < BLOCK * COLS; i++) v[i] = (double)(ts_mix64(i) >> 11) * 0x1p-53 - 0.5;
    for (size_t i = 0; i < ROWS * COLS; i++) panel[i / COLS * TS_GRAM_STRIDE + i % COLS] = (double)x[i];
    size_t count = run_kernels(&ts_low_rank_kernels_scalar, x, v, panel, out);
    ck_assert_uint_le(count, OUT);
    for (size_t l = 0; l < 2; l++) {
        if (!ts_cpu_supports(levels[l])) continue;
        (void)run_kernels(ts_low_rank_kernels_get(levels[l]), x, v, panel, other);
        for (size_t i = 0; i < count; i++) {
            ck_assert_msg(memcmp(&out[i], &other[i], sizeof *out) == 0, "value %zu: %.17g at level %d, not %.17g", i, other[i], (int)levels[l], out[i]);
        }
    }
    for (size_t i = 0; i < ROWS; i++) {
        for (size_t j = 0; j < ROWS; j++) {
            double sum = 0;
            for (size_t c = 0; c < COLS; c++) sum += (double)x[i * COLS + c] * (double)x[j * COLS + c];
            ck_assert_double_eq_tol(out[count - ROWS * ROWS + i * ROWS + j], j <= i ? sum : 0, 1e-14);
        }
    }
}
END_TEST

static void check_eigen(const double *a, size_t d, double most) {
    double *used = room(d * d, sizeof *used), *z = room(d * d, sizeof *z), *value = room(d, sizeof *value);
    double *work = room(ts_eigen_work(d, d), sizeof *work), *rotated = room(d, sizeof *rotated);
    double *some = room(d * 2, sizeof *some);
    memcpy(used, a, d * d * sizeof *a);
    for (size_t i = 0; i < d; i++) z[i * d + i] = 1;
    ts_eigen(kernels(), used, d, z, d, value, work);
    for (size_t i = 0; i < d; i++) {
        ck_assert(i == 0 || value[i] <= value[i - 1]);
        for (size_t j = 0; j < d; j++) {
            double along = 0, off = -value[i] * z[i * d + j];
            for (size_t k = 0; k < d; k++) {
                along += z[i * d + k] * z[j * d + k];
                off += a[j * d + k] * z[i * d + k];
            }
            ck_assert_msg(fabs(along - (i == j)) < 1e-13, "%zu: %zu and %zu: %g", d, i, j, along);
            ck_assert_msg(fabs(off) <= 1e-13 * most, "%zu: value %zu: %g off", d, i, off);
        }
    }
    /* Two elements of each vector alone. */
    if (d > 1) {
        memcpy(used, a, d * d * sizeof *a);
        some[(d - 2) * 2] = some[(d - 1) * 2 + 1] = 1;
        ts_eigen(kernels(), used, d, some, 2, rotated, work);
        ck_assert_mem_eq(rotated, value, d * sizeof *value);
        for (size_t i = 0; i < d; i++) {
            for (size_t j = 0; j < 2; j++) ck_assert_double_eq_tol(some[i * 2 + j], z[i * d + d - 2 + j], 1e-14);
        }
    }
    free(used), free(z), free(value), free(work), free(rotated), free(some);
}

START_TEST(eigenvalues_of_small_matrices) {
    static const size_t sizes[] = {1, 2, 3, 7, 40, 97};
    static double a[97 * 97];
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        size_t d = sizes[s];
        for (int kind = 0; kind < 9; kind++) {
            double most = kind == 0 ? 1 : 0;
            for (size_t i = 0; i < d; i++) {
                for (size_t j = 0; j <= i; j++) {
                    double unit = (double)(ts_mix64(i * 1000 + j) >> 11) * 0x1p-53 - 0.5, v = 0;
                    if (kind == 1) v = i == j;
                    if (kind == 2) v = unit;
                    if (kind == 3) v = unit * ldexp(1, -(int)(2 * (i + j)));
                    if (kind == 4) v = 1;
                    if (kind == 5) v = unit * 0x1p260;
                    if (kind == 7) v = unit * 0x1p-260;
                    if (kind == 8) v = i == j ? unit : unit * 0x1p-530; /* of which squares are no doubles any more */
                    if (kind == 6) v = i == j ? 2 : i == j + 1 ? -1 : 0;
                    a[i * d + j] = a[j * d + i] = v;
                    most = fabs(v) * (double)d > most ? fabs(v) * (double)d : most;
                }
            }
            check_eigen(a, d, most);
        }
    }
}
END_TEST

static void by_diagonal(const void *context, const double *v, size_t b, double *w) {
    const ts_krylov_matrix *m = context;
    const double *value = m->context;
    for (size_t i = 0; i < b * m->length; i++) w[i] = value[i % m->length] * v[i];
}

typedef struct { ts_krylov_matrix matrix; size_t calls; } counted;
static void by_counted_diagonal(const void *context, const double *v, size_t b, double *w) {
    counted *c = (counted *)(uintptr_t)context;
    c->calls++;
    by_diagonal(&c->matrix, v, b, w);
}

/* Values that lie close together, so that the basis is restarted; the largest are somewhere in the middle. */
START_TEST(close_eigenvalues_are_told_apart) {
    static const struct { double apart; size_t r, equal; } cases[] = {{1e-3, 1, 1}, {1e-4, 1, 1}, {1e-4, 3, 1}, {1e-4, 4, 4}, {0.1, 2, 2}};
    enum { LENGTH = 1500 };
    static double diagonal[LENGTH], expected[LENGTH];
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        double value[8], *work = room(ts_krylov_work(LENGTH, cases[c].r), sizeof *work);
        for (size_t i = 0; i < LENGTH; i++) {
            expected[i] = 1 / (1 + cases[c].apart * (double)(i / cases[c].equal));
            diagonal[i * 7 % LENGTH] = expected[i];
        }
        counted context = {.matrix = {.length = LENGTH, .context = diagonal}};
        ts_krylov_matrix matrix = {.length = LENGTH, .apply = by_counted_diagonal, .context = &context};
        const double *v = ts_krylov(kernels(), &matrix, cases[c].r, work, value);
        for (size_t a = 0; a < cases[c].r; a++) {
            double off = 0;
            for (size_t i = 0; i < LENGTH; i++) off += pow((diagonal[i] - value[a]) * v[a * LENGTH + i], 2);
            ck_assert_msg(fabs(value[a] - expected[a]) < 1e-10, "case %zu, value %zu: %.12g, not %.12g", c, a, value[a], expected[a]);
            ck_assert_msg(sqrt(off) < 1.5e-9, "case %zu, vector %zu: %g", c, a, sqrt(off));
        }
        if (cases[c].apart == 1e-4 && cases[c].equal == 1) ck_assert_uint_gt(context.calls * cases[c].r, 96 + 8 * cases[c].r); /* it was restarted */
        free(work);
    }
}
END_TEST

TCase *test_spectral(void);
TCase *test_spectral(void) {
    TCase *tests = tcase_create("spectral");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, rotations_agree);
    tcase_add_test(tests, known_strengths_are_found);
    tcase_add_test(tests, no_vector_is_better_than_another);
    tcase_add_test(tests, numpy_agrees_on_long_sides);
    tcase_add_test(tests, kernels_give_the_same_bits);
    tcase_add_test(tests, eigenvalues_of_small_matrices);
    tcase_add_test(tests, close_eigenvalues_are_told_apart);
    return tests;
}
