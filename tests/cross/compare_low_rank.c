/* SPDX-License-Identifier: Apache-2.0 */
/* The low-rank transforms' loops. */
#include <string.h>

#include "common/codec/low_rank_kernels.h"
#include "tests/cross/compare.h"

typedef struct { size_t rows, cols, rank; } shape;

static void matrices(cross *c, const ts_low_rank_kernels *want, const ts_low_rank_kernels *got, const shape *s,
                     unsigned kind) {
    size_t n = s->rows * s->cols, p = s->rank * s->rows, q = s->rank * s->cols, detail = s->rank * 10 + kind;
    cross_input(c, kind, c->input, n);
    cross_input(c, 2, c->gradient, q);
    cross_input(c, 2, c->params, p);
    memset(&c->x, 0, sizeof c->x);
    want->multiply(c->input, s->rows, s->cols, c->gradient, s->rank, c->x.want, s->rows);
    got->multiply(c->input, s->rows, s->cols, c->gradient, s->rank, c->x.got, s->rows);
    cross_expect(c, cross_same(c->x.want, c->x.got, sizeof c->x.want), "multiply", n, detail);
    memset(&c->x, 0, sizeof c->x);
    want->project(c->input, s->rows, s->cols, c->params, s->rank, c->x.want);
    got->project(c->input, s->rows, s->cols, c->params, s->rank, c->x.got);
    cross_expect(c, cross_same(c->x.want, c->x.got, sizeof c->x.want), "project", n, detail);
    for (unsigned use = 0; use < 3; use++) {
        memset(&c->x, 0, sizeof c->x);
        memcpy(c->x.want, c->input, n * sizeof(float));
        memcpy(c->x.got, c->input, n * sizeof(float));
        want->product(c->params, c->gradient, s->rows, s->cols, s->rank, (ts_product_use)use, c->x.want);
        got->product(c->params, c->gradient, s->rows, s->cols, s->rank, (ts_product_use)use, c->x.got);
        cross_expect(c, cross_same(c->x.want, c->x.got, sizeof c->x.want), "product", n, detail + use);
    }
}

static void dots(cross *c, const ts_low_rank_kernels *want, const ts_low_rank_kernels *got, size_t n) {
    double wide[2][300];
    cross_input(c, 2, c->input, n);
    cross_input(c, 2, c->gradient, n);
    for (size_t i = 0; i < n; i++) {
        wide[0][i] = (double)c->input[i] / 3;
        wide[1][i] = (double)c->gradient[i] / 7;
    }
    double a = want->dot(c->input, c->gradient, n), b = got->dot(c->input, c->gradient, n);
    cross_expect(c, cross_same(&a, &b, sizeof a), "dot", n, 0);
    a = want->dot_double(wide[0], wide[1], n);
    b = got->dot_double(wide[0], wide[1], n);
    cross_expect(c, cross_same(&a, &b, sizeof a), "dot_double", n, 0);
}

void cross_low_rank(cross *c) {
    static const shape shapes[] = {{1, 1, 1},    {3, 5, 1},   {4, 16, 2}, {9, 33, 3},
                                   {17, 100, 4}, {30, 64, 5}, {5, 400, 2}};
    const ts_low_rank_kernels *want = ts_low_rank_kernels_get(TS_SIMD_SCALAR);
    const ts_low_rank_kernels *got = ts_low_rank_kernels_get(c->kernels->level);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (unsigned kind = 0; kind < CROSS_FINITE; kind++) {
            if (kind != 4 && kind != 7) matrices(c, want, got, &shapes[i], kind);
        }
    }
    for (size_t n = 0; n < 300; n += n < 40 ? 1 : 37) dots(c, want, got, n);
}
