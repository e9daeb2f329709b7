/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/spectral.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/random.h"

#define ROTATION_SWEEPS 60
#define ITERATIONS 300
#define CONVERGED 1e-9    /* |G v - λ v| / λ1 */
#define EMPTY 1e-14       /* an eigenvalue below that of the largest is rounding noise */
#define SPARE_VECTORS 8   /* iterated along, for speed where eigenvalues lie close */
#define EXACT_ELEMS 48    /* matrices up to that size are solved by rotations alone */
#define PURPOSE_START 0x73706563u /* "spec" */

/* Vectors iterated for r wanted of dimension m. */
static size_t block_size(size_t m, size_t r) {
    size_t b = 2 * r + SPARE_VECTORS;
    return b < m && m > EXACT_ELEMS ? b : m;
}

/* Pieces of the work space. */
typedef struct {
    double *gram;             /* m × m */
    double *v, *w, *ritz;     /* b × m each */
    double *small, *rotation; /* b × b each */
    double *value;            /* b */
    double *sum;              /* rows */
    float *turned;            /* cols × rows, when rows > cols */
} space;

static size_t cut_space(size_t rows, size_t cols, size_t r, uint8_t *base, space *s) {
    size_t m = rows < cols ? rows : cols, b = block_size(m, r), at = 0;
    double **pieces[] = {&s->gram, &s->v, &s->w, &s->ritz, &s->small, &s->rotation, &s->value, &s->sum};
    size_t elems[] = {m * m, b * m, b * m, b * m, b * b, b * b, b, rows};
    for (size_t i = 0; i < sizeof elems / sizeof elems[0]; i++) {
        if (base) *pieces[i] = (double *)(void *)(base + at);
        at += elems[i] * sizeof(double);
    }
    if (base) s->turned = (float *)(void *)(base + at);
    return at + (rows > cols ? rows * cols * sizeof(float) : 0);
}

size_t ts_left_vectors_work(size_t rows, size_t cols, size_t r) {
    space s = {0};
    return cut_space(rows, cols, r, NULL, &s);
}

static void turn(const float *x, size_t rows, size_t cols, float *out) {
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) out[j * rows + i] = x[i * cols + j];
    }
}

static void make_gram(const ts_low_rank_kernels *kernels, const float *x, size_t m, size_t n, double *gram) {
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j <= i; j++) gram[i * m + j] = gram[j * m + i] = kernels->dot(x + i * n, x + j * n, n);
    }
}

/* One rotation that makes a[p][q] zero; rows of `rotation` are the vectors. */
static void rotate(double *a, double *rotation, size_t b, size_t p, size_t q) {
    double apq = a[p * b + q];
    double theta = (a[q * b + q] - a[p * b + p]) / (2 * apq);
    double t = (theta < 0 ? -1.0 : 1.0) / (fabs(theta) + sqrt(theta * theta + 1));
    double c = 1 / sqrt(t * t + 1), s = t * c;
    for (size_t k = 0; k < b; k++) {
        double x = a[k * b + p], y = a[k * b + q];
        a[k * b + p] = c * x - s * y;
        a[k * b + q] = s * x + c * y;
    }
    for (size_t k = 0; k < b; k++) {
        double x = a[p * b + k], y = a[q * b + k];
        a[p * b + k] = c * x - s * y;
        a[q * b + k] = s * x + c * y;
        double u = rotation[p * b + k], v = rotation[q * b + k];
        rotation[p * b + k] = c * u - s * v;
        rotation[q * b + k] = s * u + c * v;
    }
    a[p * b + q] = a[q * b + p] = 0;
}

/* Eigenvalues (descending) and vectors (rows of `rotation`) of the symmetric a, which is used up. */
static void solve_small(double *a, size_t b, double *rotation, double *value) {
    memset(rotation, 0, b * b * sizeof *rotation);
    for (size_t i = 0; i < b; i++) rotation[i * b + i] = 1;
    for (int sweep = 0; sweep < ROTATION_SWEEPS; sweep++) {
        bool turned = false;
        for (size_t p = 0; p + 1 < b; p++) {
            for (size_t q = p + 1; q < b; q++) {
                double small = DBL_EPSILON * sqrt(fabs(a[p * b + p])) * sqrt(fabs(a[q * b + q]));
                if (fabs(a[p * b + q]) <= small || fabs(a[p * b + q]) < DBL_MIN) continue;
                rotate(a, rotation, b, p, q);
                turned = true;
            }
        }
        if (!turned) break;
    }
    for (size_t i = 0; i < b; i++) {
        size_t best = i;
        for (size_t j = i; j < b; j++) best = a[j * b + j] > a[best * b + best] ? j : best;
        value[i] = a[best * b + best];
        a[best * b + best] = a[i * b + i];
        for (size_t k = 0; k < b && best != i; k++) {
            double x = rotation[i * b + k];
            rotation[i * b + k] = rotation[best * b + k];
            rotation[best * b + k] = x;
        }
    }
}

static void orthonormalise(const ts_low_rank_kernels *kernels, double *v, size_t b, size_t m) {
    for (size_t a = 0; a < b; a++) {
        double *one = v + a * m, before = sqrt(kernels->dot_double(one, one, m));
        for (int pass = 0; pass < 2; pass++) {
            for (const double *other = v; other < one; other += m) {
                double along = kernels->dot_double(one, other, m);
                for (size_t i = 0; i < m; i++) one[i] -= along * other[i];
            }
            double norm = sqrt(kernels->dot_double(one, one, m));
            bool dependent = !(norm > EMPTY * before);
            for (size_t i = 0; i < m; i++) one[i] = dependent ? 0 : one[i] / norm;
            before = 0;
        }
    }
}

/* out = rotation · in, for b vectors of m. */
static void combine(const double *rotation, const double *in, size_t b, size_t m, double *out) {
    memset(out, 0, b * m * sizeof *out);
    for (size_t a = 0; a < b; a++) {
        for (size_t c = 0; c < b; c++) {
            double weight = rotation[a * b + c];
            for (size_t i = 0; i < m; i++) out[a * m + i] += weight * in[c * m + i];
        }
    }
}

/* Whether |w - λ v| is small for the first r; w = G v. */
static bool converged(const double *v, const double *w, const double *value, size_t r, size_t m) {
    for (size_t a = 0; a < r; a++) {
        double off = 0;
        for (size_t i = 0; i < m; i++) {
            double d = w[a * m + i] - value[a] * v[a * m + i];
            off += d * d;
        }
        if (sqrt(off) > CONVERGED * value[0]) return false;
    }
    return true;
}

/* The leading eigenvectors of s->gram: the first r rows of what is returned. */
static const double *iterate(const ts_low_rank_kernels *kernels, const space *s, size_t m, size_t r) {
    size_t b = block_size(m, r);
    ts_random random = ts_random_start(PURPOSE_START);
    if (b == m) {
        memcpy(s->small, s->gram, m * m * sizeof(double));
        solve_small(s->small, m, s->v, s->value);
        return s->v;
    }
    for (size_t i = 0; i < b * m; i++) s->v[i] = (double)ts_random_normal(&random);
    for (int round = 0; round < ITERATIONS; round++) {
        orthonormalise(kernels, s->v, b, m);
        for (size_t a = 0; a < b; a++) {
            for (size_t i = 0; i < m; i++) s->w[a * m + i] = kernels->dot_double(s->gram + i * m, s->v + a * m, m);
        }
        for (size_t a = 0; a < b; a++) {
            for (size_t c = 0; c <= a; c++) {
                s->small[a * b + c] = s->small[c * b + a] = kernels->dot_double(s->w + a * m, s->v + c * m, m);
            }
        }
        solve_small(s->small, b, s->rotation, s->value);
        combine(s->rotation, s->v, b, m, s->ritz);
        combine(s->rotation, s->w, b, m, s->v);
        if (converged(s->ritz, s->v, s->value, r, m)) break;
    }
    return s->ritz;
}

/* X v, of length 1. */
static void to_left(const ts_low_rank_kernels *kernels, const float *turned, size_t rows, size_t cols, const double *v,
                    double *sum, float *out) {
    memset(sum, 0, rows * sizeof *sum);
    for (size_t j = 0; j < cols; j++) {
        for (size_t i = 0; i < rows; i++) sum[i] += v[j] * (double)turned[j * rows + i];
    }
    double norm = sqrt(kernels->dot_double(sum, sum, rows));
    for (size_t i = 0; i < rows; i++) out[i] = norm > 0 ? (float)(sum[i] / norm) : 0.0f;
}

void ts_left_vectors(const ts_low_rank_kernels *kernels, const float *x, size_t rows, size_t cols, size_t r, void *work,
                     float *vectors) {
    space s = {0};
    bool tall = rows > cols;
    size_t m = tall ? cols : rows;
    (void)cut_space(rows, cols, r, work, &s);
    if (tall) turn(x, rows, cols, s.turned);
    make_gram(kernels, tall ? s.turned : x, m, tall ? rows : cols, s.gram);
    const double *found = iterate(kernels, &s, m, r);
    for (size_t a = 0; a < r; a++) {
        float *out = vectors + a * rows;
        if (!(s.value[a] > EMPTY * s.value[0])) {
            memset(out, 0, rows * sizeof *out);
        } else if (tall) {
            to_left(kernels, s.turned, rows, cols, found + a * m, s.sum, out);
        } else {
            for (size_t i = 0; i < m; i++) out[i] = (float)found[a * m + i];
        }
    }
}
