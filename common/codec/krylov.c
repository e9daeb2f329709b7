/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/krylov.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/random.h"
#include "common/codec/eigen.h"

#define CONVERGED 1e-9    /* |G v - λ v| / λ1 */
#define DEPENDENT 1e-14   /* what is left of a vector, beside the longest G v: rounding noise */
#define FIRST_CHECK 8     /* vectors in the basis */
#define RESTARTS 200      /* more than any matrix has needed */
#define PURPOSE_START 0x73706563u /* "spec" */

/* Vectors in the basis before it is restarted, and those that are kept then. */
static size_t most_vectors(size_t r) { return 96 + 8 * r; }
static size_t kept_vectors(size_t r) { return 24 + 3 * r; }

typedef struct {
    const ts_low_rank_kernels *kernels;
    const ts_krylov_matrix *matrix;
    size_t r, most, n;    /* n: vectors whose product is in t; the next block stands behind them */
    double scale;         /* the longest product so far */
    double *basis;        /* (most + r) × length */
    double *product;      /* kept × length: r products, or vectors on their way into the basis */
    double *t;            /* most × most: basisᵀ G basis */
    double *small, *z;    /* most × most each */
    double *value;        /* most */
    double *coupling;     /* r × r: how the last products hang on the next block */
    double *along, *sum;  /* most + r each */
    double *eigen;
} space;

static size_t cut_space(size_t length, size_t r, double *base, space *s) {
    size_t most = most_vectors(r), at = 0;
    double **pieces[] = {&s->basis, &s->product, &s->t,     &s->small, &s->z,
                         &s->value, &s->coupling, &s->along, &s->sum,   &s->eigen};
    size_t elems[] = {(most + r) * length, kept_vectors(r) * length, most * most, most * most, most * most,
                      most,                r * r,                    most + r,    most + r,    ts_eigen_work(most, most)};
    for (size_t i = 0; i < sizeof elems / sizeof elems[0]; i++) {
        if (base) *pieces[i] = base + at;
        at += elems[i];
    }
    s->most = most;
    s->r = r;
    return at;
}

size_t ts_krylov_work(size_t length, size_t r) {
    space s = {0};
    return cut_space(length, r, NULL, &s);
}

/*
 * v becomes orthogonal to the first `count` vectors of the basis; s->sum holds its shares of them.
 * Projected until a pass takes less than half of it away (Daniel, Gragg, Kaufman and Stewart 1976). Returns what length
 * is left.
 */
static double project_out(const space *s, double *v, size_t count) {
    const ts_low_rank_kernels *kernels = s->kernels;
    size_t length = s->matrix->length;
    double before = sqrt(kernels->dot_double(v, v, length)), after = before;
    memset(s->sum, 0, count * sizeof *s->sum);
    for (bool again = count > 0; again; before = after) {
        kernels->dots(v, s->basis, count, length, length, s->along);
        for (size_t k = 0; k < count; k++) {
            s->sum[k] += s->along[k];
            s->along[k] = -s->along[k];
        }
        kernels->add_rows(v, s->along, s->basis, count, length, length);
        after = sqrt(kernels->dot_double(v, v, length));
        again = after < before / 2 && after > DEPENDENT * s->scale;
    }
    return after;
}

/* Puts v into the basis at `at`, of length 1; what hangs on the ones before becomes 0. Returns its length before. */
static double append(const space *s, const double *v, size_t at, double left) {
    double *to = s->basis + at * s->matrix->length;
    bool dependent = !(left > DEPENDENT * s->scale);
    for (size_t i = 0; i < s->matrix->length; i++) to[i] = dependent ? 0 : v[i] / left;
    return dependent ? 0 : left;
}

static void start(space *s) {
    ts_random random = ts_random_start(PURPOSE_START);
    for (size_t a = 0; a < s->r; a++) {
        for (size_t i = 0; i < s->matrix->length; i++) s->product[i] = (double)ts_random_normal(&random);
        (void)append(s, s->product, a, project_out(s, s->product, a));
    }
}

/* The last block's products into t, and what is new in them into the basis. Returns whether there is anything new. */
static bool extend(space *s) {
    size_t r = s->r, length = s->matrix->length, first = s->n;
    bool any = false;
    s->matrix->apply(s->matrix->context, s->basis + first * length, r, s->product);
    for (size_t a = 0; a < r; a++) {
        const double *w = s->product + a * length;
        double norm = sqrt(s->kernels->dot_double(w, w, length));
        s->scale = norm > s->scale ? norm : s->scale;
    }
    s->n += r;
    memset(s->coupling, 0, r * r * sizeof *s->coupling);
    for (size_t a = 0; a < r; a++) {
        double *w = s->product + a * length, left = project_out(s, w, s->n + a);
        for (size_t k = 0; k < s->n; k++) s->t[(first + a) * s->most + k] = s->t[k * s->most + first + a] = s->sum[k];
        memcpy(s->coupling + a * r, s->sum + s->n, a * sizeof *s->coupling);
        s->coupling[a * r + a] = append(s, w, s->n + a, left);
        any = any || s->coupling[a * r + a] > 0;
    }
    return any;
}

/* t's eigenvalues, and of its vectors the elements from `from` on into rows of z. */
static void solve(const space *s, size_t from) {
    size_t n = s->n, p = n - from;
    for (size_t i = 0; i < n; i++) memcpy(s->small + i * n, s->t + i * s->most, n * sizeof *s->small);
    memset(s->z, 0, n * p * sizeof *s->z);
    for (size_t i = 0; i < p; i++) s->z[(from + i) * p + i] = 1;
    ts_eigen(s->kernels, s->small, n, s->z, p, s->value, s->eigen);
}

/* Of the vectors that are wanted, by the elements that belong to the last block. */
static bool converged(const space *s) {
    solve(s, s->n - s->r);
    for (size_t i = 0; i < s->r; i++) {
        double off = 0;
        for (size_t c = 0; c < s->r; c++) {
            double along = 0;
            for (size_t a = c; a < s->r; a++) along += s->z[i * s->r + a] * s->coupling[a * s->r + c];
            off += along * along;
        }
        if (sqrt(off) > CONVERGED * s->value[0]) return false;
    }
    return true;
}

/* The first `count` eigenvectors, by the last solve(), into s->product. */
static void combine(const space *s, size_t count) {
    size_t length = s->matrix->length;
    memset(s->product, 0, count * length * sizeof *s->product);
    for (size_t i = 0; i < count; i++) {
        s->kernels->add_rows(s->product + i * length, s->z + i * s->n, s->basis, s->n, length, length);
    }
}

/* The basis becomes its leading eigenvectors and the next block. */
static void restart(space *s) {
    size_t kept = kept_vectors(s->r), length = s->matrix->length;
    solve(s, 0);
    combine(s, kept);
    memcpy(s->basis, s->product, kept * length * sizeof *s->basis);
    memmove(s->basis + kept * length, s->basis + s->n * length, s->r * length * sizeof *s->basis);
    memset(s->t, 0, s->most * s->most * sizeof *s->t);
    for (size_t i = 0; i < kept; i++) s->t[i * s->most + i] = s->value[i];
    s->n = kept;
}

const double *ts_krylov(const ts_low_rank_kernels *kernels, const ts_krylov_matrix *matrix, size_t r, double *work,
                        double *value) {
    space s = {.kernels = kernels, .matrix = matrix};
    size_t check = FIRST_CHECK;
    (void)cut_space(matrix->length, r, work, &s);
    memset(s.t, 0, s.most * s.most * sizeof *s.t);
    start(&s);
    for (int restarts = 0;;) {
        bool more = extend(&s), full = s.n + r > s.most;
        if (!more) break;
        if (s.n < check && !full) continue;
        if (converged(&s) || (full && restarts == RESTARTS)) break;
        check = s.n + s.n / 8;
        if (!full) continue;
        restart(&s);
        restarts++;
    }
    solve(&s, 0);
    combine(&s, r);
    memcpy(value, s.value, r * sizeof *value);
    return s.product;
}
