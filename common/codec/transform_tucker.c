/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tucker:R. Truncated higher-order SVD of tensors of three and four dimensions: for each dimension the leading left
 * singular vectors of the tensor's unfolding along it, at most R, and a core of what is left when the tensor is
 * projected on all of them. Sent are U1 (which is P), the core, and U2 … ; Q is the core times U2 ….
 */
#include <string.h>

#include "common/codec/spectral.h"
#include "common/codec/stage_list.h"
#include "common/codec/transform.h"

static bool tucker_plan(const ts_stage_args *args, const int64_t *shape, unsigned ndim, ts_transform_view *v) {
    if (ndim < 3 || ndim > TS_TRANSFORM_DIMS) return false;
    size_t core = 1, most = (size_t)args->value[0];
    v->dims = ndim;
    v->rows = (size_t)shape[0];
    v->cols = 1;
    for (unsigned d = 0; d < ndim; d++) {
        v->extent[d] = (size_t)shape[d];
        if (d > 0) v->cols *= v->extent[d];
    }
    size_t n = v->rows * v->cols;
    for (unsigned d = 0; d < ndim; d++) {
        size_t rest = n / v->extent[d], least = v->extent[d] < rest ? v->extent[d] : rest;
        v->mode_rank[d] = most < least ? most : least;
        core *= v->mode_rank[d];
    }
    v->rank = v->mode_rank[0];
    v->parts = ndim + 1;
    v->part[0] = v->rank * v->rows;
    v->part[1] = core;
    for (unsigned d = 1; d < ndim; d++) v->part[d + 1] = v->mode_rank[d] * v->extent[d];
    return true;
}

/* to[o][a][i] = sum over e of u[a · out_stride + e · in_stride] · from[o][e][i]. */
static void multiply_mode(const float *from, size_t outer, size_t in_extent, size_t inner, const float *u,
                          size_t out_stride, size_t in_stride, size_t out_extent, float *to) {
    memset(to, 0, outer * out_extent * inner * sizeof *to);
    for (size_t o = 0; o < outer; o++) {
        for (size_t e = 0; e < in_extent; e++) {
            const float *x = from + (o * in_extent + e) * inner;
            for (size_t a = 0; a < out_extent; a++) {
                float weight = u[a * out_stride + e * in_stride], *y = to + (o * out_extent + a) * inner;
                for (size_t i = 0; i < inner; i++) y[i] += weight * x[i];
            }
        }
    }
}

/* Where U of dimension d > 0 begins among the factors. */
static size_t mode_at(const ts_transform_view *v, unsigned d) {
    size_t at = v->part[0] + v->part[1];
    for (unsigned i = 1; i < d; i++) at += v->part[i + 1];
    return at;
}

/* The core grows by one dimension after the other, from the last to the second; the last result is put into `q`. */
static void tucker_expand(const ts_transform_view *v, const float *factors, float *q, float *spare) {
    const float *from = factors + v->part[0];
    size_t inner = 1;
    for (unsigned d = v->dims - 1; d > 0; d--) {
        size_t outer = 1;
        for (unsigned i = 0; i < d; i++) outer *= v->mode_rank[i];
        float *to = d % 2 ? q : spare;
        multiply_mode(from, outer, v->mode_rank[d], inner, factors + mode_at(v, d), 1, v->extent[d], v->extent[d], to);
        inner *= v->extent[d];
        from = to;
    }
}

static ts_mode mode_of(const ts_transform_view *v, unsigned d) {
    ts_mode mode = {.outer = 1, .extent = v->extent[d], .inner = 1};
    for (unsigned i = 0; i < d; i++) mode.outer *= v->extent[i];
    for (unsigned i = d + 1; i < v->dims; i++) mode.inner *= v->extent[i];
    return mode;
}

/* Bytes of: what one dimension's vectors take, and two arrays of rank × cols on the way to the core. */
static size_t tucker_work(const ts_transform_view *v) {
    size_t most = 2 * v->rank * v->cols * sizeof(float);
    for (unsigned d = 0; d < v->dims; d++) {
        size_t bytes = ts_left_vectors_work(mode_of(v, d), v->mode_rank[d]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* The projection on all other dimensions' vectors of what U1 has left of the tensor. */
static void make_core(const ts_transform_view *v, float *factors, float *projected, float *spare) {
    const float *from = projected;
    size_t outer = v->rank, inner = v->cols;
    for (unsigned d = 1; d < v->dims; d++) {
        inner /= v->extent[d];
        float *to = d + 1 == v->dims ? factors + v->part[0] : d % 2 ? spare : projected;
        multiply_mode(from, outer, v->extent[d], inner, factors + mode_at(v, d), v->extent[d], 1, v->mode_rank[d], to);
        outer *= v->mode_rank[d];
        from = to;
    }
}

static void tucker_analyse(ts_transform_step *step) {
    const ts_transform_view *v = step->view;
    const float *x = step->sweep->residual;
    float max_abs = ts_bits_float(step->kernels->sweep(step->sweep, 0, v->rows * v->cols));
    step->sweep->gradient = NULL; /* taken in */
    if (step->sweep->bad_count > 0 && step->sweep->policy != TS_NONFINITE_ZERO) return;
    for (unsigned d = 0; d < v->dims; d++) {
        float *u = d == 0 ? step->factors : step->factors + mode_at(v, d);
        ts_left_vectors(step->low_rank, x, mode_of(v, d), v->mode_rank[d], step->work, u);
        ts_transform_orthonormalise(step->low_rank, u, v->mode_rank[d], v->extent[d]);
    }
    float *projected = step->work, *spare = projected + v->rank * v->cols;
    ts_transform_project(step, x, max_abs, step->factors, projected);
    make_core(v, step->factors, projected, spare);
}

const ts_transform_stage ts_transform_tucker = {
    .info = {.name = "tucker",
             .args = "R",
             .summary = "a core and a factor of rank at most R for each dimension; for 3 and 4 dimensions",
             .formula = "core = X x1 U1^T x2 U2^T ..., U_d the leading singular vectors of the unfolding along d",
             .source = "De Lathauwer, De Moor and Vandewalle 2000",
             .min_args = 1,
             .max_args = 1,
             .low = {1},
             .high = {32},
             .integral = {true}},
    .plan = tucker_plan,
    .work = tucker_work,
    .analyse = tucker_analyse,
    .expand = tucker_expand,
};
