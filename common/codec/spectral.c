/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/spectral.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/codec/eigen.h"
#include "common/codec/krylov.h"

#define EMPTY 1e-14       /* an eigenvalue below that of the largest is rounding noise */
#define ALL_MOST 64       /* the longest shorter side of which all eigenvectors are taken */
#define ALL_SHARE 10      /* and so where r is that part of it: iterating would span it all */
#define GRAM_MOST 4096    /* the longest shorter side of which a Gram matrix is made: 128 MiB */
#define GRAM_SHARE 320    /* and for r vectors r + 1 times that: above, multiplying by X takes less time */
#define PACKED 8          /* columns of a panel at a time: what one cache line holds */

/* How it is done; a function of the shape alone. */
typedef struct {
    ts_mode mode;        /* as it lies in memory, or in the copy */
    size_t rest, n, m, r; /* m: the eigenvectors' length */
    bool unfolded;       /* a copy is made first */
    bool gram, all;
    bool right;          /* right singular vectors are found first */
} plan;

static plan make_plan(ts_mode mode, size_t r) {
    size_t rest = mode.outer * mode.inner, least = mode.extent < rest ? mode.extent : rest;
    plan p = {.mode = mode, .rest = rest, .n = mode.extent * rest, .r = r};
    p.all = least <= ALL_MOST || least <= ALL_SHARE * r;
    p.gram = p.all || (least <= GRAM_MOST && least <= GRAM_SHARE * (1 + r));
    if (p.gram) p.right = rest < mode.extent;
    else p.right = mode.inner > 1;
    p.unfolded = p.right && mode.outer > 1;
    p.m = p.right ? rest : mode.extent;
    if (p.unfolded) p.mode = ts_mode_matrix(mode.extent, rest);
    return p;
}

/* Pieces of the work space. */
typedef struct {
    double *gram;   /* m × m */
    double *panel;  /* TS_GRAM_ROWS(m) × TS_GRAM_STRIDE */
    double *vector; /* m × m, all */
    double *value;  /* m */
    double *work;   /* of ts_eigen() or ts_krylov() */
    double *left;   /* extent */
    float *copy;    /* n, unfolded */
} space;

static size_t cut_space(const plan *p, uint8_t *base, space *s) {
    size_t m = p->m, at = 0;
    double **pieces[] = {&s->panel, &s->gram, &s->vector, &s->value, &s->work, &s->left};
    size_t elems[] = {p->gram ? TS_GRAM_ROWS(m) * TS_GRAM_STRIDE : 0, /* first, whole cache lines */
                      p->gram ? m * m : 0,
                      p->all ? m * m : 0,
                      m,
                      p->all ? ts_eigen_work(m, m) : ts_krylov_work(m, p->r),
                      p->mode.extent};
    for (size_t i = 0; i < sizeof elems / sizeof elems[0]; i++) {
        if (base) *pieces[i] = (double *)(void *)(base + at);
        at += elems[i] * sizeof(double);
    }
    if (base) s->copy = (float *)(void *)(base + at);
    return at + (p->unfolded ? p->n * sizeof(float) : 0);
}

size_t ts_left_vectors_work(ts_mode mode, size_t r) {
    plan p = make_plan(mode, r);
    space s = {0};
    return cut_space(&p, NULL, &s);
}

static void unfold(const float *x, ts_mode mode, float *out) {
    for (size_t e = 0; e < mode.extent; e++) {
        for (size_t o = 0; o < mode.outer; o++, out += mode.inner) {
            memcpy(out, x + (o * mode.extent + e) * mode.inner, mode.inner * sizeof *out);
        }
    }
}

/* Columns first … first + n - 1 of the matrix whose rows' Gram matrix is made; where its columns are x's rows. */
static void pack_across(const float *x, size_t m, size_t first, size_t n, double *panel) {
    for (size_t at = 0; at < n; at += PACKED) {
        size_t some = n - at < PACKED ? n - at : PACKED;
        const float *from = x + (first + at) * m;
        double *to = panel + at;
        for (size_t i = 0; i < m; i++, to += TS_GRAM_STRIDE) {
            for (size_t k = 0; k < some; k++) to[k] = (double)from[k * m + i];
        }
    }
}

/* The same where its rows are x's, or runs of `inner` from each of x's outer parts. */
static void pack_along(const float *x, ts_mode mode, size_t first, size_t n, double *panel) {
    for (size_t e = 0; e < mode.extent; e++) {
        double *to = panel + e * TS_GRAM_STRIDE, *end = to + n;
        size_t o = first / mode.inner, i = first % mode.inner;
        for (; to < end; o++, i = 0) {
            const float *from = x + (o * mode.extent + e) * mode.inner + i;
            size_t left = (size_t)(end - to), some = left < mode.inner - i ? left : mode.inner - i;
            for (size_t k = 0; k < some; k++) to[k] = (double)from[k];
            to += some;
        }
    }
}

static void make_gram(const ts_low_rank_kernels *kernels, const plan *p, const float *x, const space *s) {
    size_t m = p->m, cols = p->n / m;
    memset(s->gram, 0, m * m * sizeof *s->gram);
    memset(s->panel, 0, TS_GRAM_ROWS(m) * TS_GRAM_STRIDE * sizeof *s->panel);
    for (size_t first = 0; first < cols; first += TS_GRAM_COLS) {
        size_t n = cols - first < TS_GRAM_COLS ? cols - first : TS_GRAM_COLS, whole = (n + 7) / 8 * 8;
        if (p->right || p->mode.inner == 1) pack_across(x, m, first, n, s->panel);
        else pack_along(x, p->mode, first, n, s->panel);
        for (size_t i = 0; i < m; i++) {
            for (size_t k = n; k < whole; k++) s->panel[i * TS_GRAM_STRIDE + k] = 0;
        }
        kernels->gram(s->panel, m, whole, s->gram);
    }
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < i; j++) s->gram[j * m + i] = s->gram[i * m + j];
    }
}

/* What ts_krylov() multiplies by. */
typedef struct {
    const ts_low_rank_kernels *kernels;
    const float *x; /* rows × cols */
    size_t rows, cols;
    const double *gram; /* cols × cols */
} product;

static void by_gram(const void *context, const double *v, size_t b, double *w) {
    const product *g = context;
    for (size_t a = 0; a < b; a++) {
        g->kernels->dots(v + a * g->cols, g->gram, g->cols, g->cols, g->cols, w + a * g->cols);
    }
}

static void by_matrix(const void *context, const double *v, size_t b, double *w) {
    const product *g = context;
    memset(w, 0, b * g->cols * sizeof *w);
    g->kernels->apply(g->x, g->rows, g->cols, v, b, w);
}

/* Of X Xᵀ or Xᵀ X, as planned; the values are in s->value. */
static const double *eigenvectors(const ts_low_rank_kernels *kernels, const plan *p, const float *x, const space *s) {
    product g = {.kernels = kernels, .x = x, .rows = p->n / p->m, .cols = p->m, .gram = s->gram};
    ts_krylov_matrix matrix = {.length = p->m, .apply = p->gram ? by_gram : by_matrix, .context = &g};
    if (p->gram) make_gram(kernels, p, x, s);
    if (!p->all) return ts_krylov(kernels, &matrix, p->r, s->work, s->value);
    memset(s->vector, 0, p->m * p->m * sizeof *s->vector);
    for (size_t i = 0; i < p->m; i++) s->vector[i * p->m + i] = 1;
    ts_eigen(kernels, s->gram, p->m, s->vector, p->m, s->value, s->work);
    return s->vector;
}

/* Of length 1, rounded, the largest element positive. */
static void put(const ts_low_rank_kernels *kernels, const double *v, size_t n, float *out) {
    double norm = sqrt(kernels->dot_double(v, v, n));
    float most = 0;
    for (size_t i = 0; i < n; i++) {
        out[i] = norm > 0 ? (float)(v[i] / norm) : 0.0f;
        most = fabsf(out[i]) > fabsf(most) ? out[i] : most;
    }
    for (size_t i = 0; i < n && most < 0; i++) out[i] = -out[i];
}

void ts_left_vectors(const ts_low_rank_kernels *kernels, const float *x, ts_mode mode, size_t r, void *work,
                     float *vectors) {
    plan p = make_plan(mode, r);
    space s = {0};
    if (mode.extent == 1) {
        vectors[0] = 1;
        return;
    }
    (void)cut_space(&p, work, &s);
    if (p.unfolded) {
        unfold(x, mode, s.copy);
        x = s.copy;
    }
    const double *found = eigenvectors(kernels, &p, x, &s);
    for (size_t a = 0; a < r; a++, vectors += mode.extent) {
        const double *v = found + a * p.m;
        if (!(s.value[a] > EMPTY * s.value[0])) {
            memset(vectors, 0, mode.extent * sizeof *vectors);
            continue;
        }
        if (p.right) kernels->times(x, mode.extent, p.rest, v, 1, s.left);
        put(kernels, p.right ? s.left : v, mode.extent, vectors);
    }
}
