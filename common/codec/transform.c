/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/transform.h"

#include <math.h>
#include <string.h>

#define LARGE_INPUT 0x1p60f  /* above, sums are made of values LOWERED by so much */
#define LOWERED 0x1p-70f
#define DEPENDENT 1e-6       /* of a column's length left after projection: rounding noise */
#define PRODUCT_MOST 0x1p120 /* of any element of a product */

size_t ts_codec_cut_elems(const ts_pipeline *pipeline, const int64_t *shape, unsigned ndim, size_t n, size_t slice_elems) {
    ts_codec_spec whole = {.pipeline = pipeline, .n = n, .slice_elems = n, .shape = shape, .ndim = ndim};
    return n > 0 && ts_transform_view_of(&whole).stage ? n : slice_elems;
}

ts_transform_view ts_transform_view_of(const ts_codec_spec *spec) {
    ts_transform_view view = {0};
    const ts_transform_stage *stage = spec->pipeline->transform;
    if (!stage || !stage->plan || spec->ndim < 2 || spec->n > spec->slice_elems || spec->origin > 0) return view;
    uint64_t n = 1;
    for (unsigned d = 0; d < spec->ndim; d++) {
        if (spec->shape[d] <= 0 || (uint64_t)spec->shape[d] > spec->n / n) return view;
        n *= (uint64_t)spec->shape[d];
    }
    if (n != spec->n || !stage->plan(&spec->pipeline->transform_args, spec->shape, spec->ndim, &view)) return view;
    for (unsigned i = 0; i < view.parts; i++) view.values += view.part[i];
    if (view.values < spec->n) view.stage = stage;
    return view;
}

bool ts_transform_plan_matrix(const ts_stage_args *args, const int64_t *shape, unsigned ndim, ts_transform_view *view) {
    view->rows = (size_t)shape[0];
    view->cols = 1;
    for (unsigned d = 1; d < ndim; d++) view->cols *= (size_t)shape[d];
    view->rank = (size_t)args->value[0];
    if (view->rank > view->rows) view->rank = view->rows;
    if (view->rank > view->cols) view->rank = view->cols;
    view->parts = 2;
    view->part[0] = view->rank * view->rows;
    view->part[1] = view->rank * view->cols;
    return true;
}

size_t ts_transform_bytes(const ts_transform_view *view, const ts_block_format *format) {
    size_t bytes = 0;
    for (unsigned i = 0; i < view->parts; i++) bytes += ts_blocks_bytes(format, view->part[i]);
    return bytes;
}

void ts_transform_write(const ts_transform_view *view, const ts_block_format *format, float *factors, uint8_t *out) {
    ts_block_format blocks = *format;
    for (unsigned i = 0; i < view->parts; i++) {
        for (size_t left = view->part[i]; left > 0;) {
            size_t n = ts_block_elems(&blocks, left);
            float max_abs = blocks.stage->scales ? ts_bits_float(blocks.block.kernels->max_abs(factors, n)) : 0.0f;
            out += ts_block_write(&blocks, factors, n, max_abs, out);
            blocks.block.first += n;
            factors += n;
            left -= n;
        }
    }
}

static bool read_parts(const ts_transform_view *view, const ts_block_format *format, const uint8_t *in, float *factors) {
    ts_block_format blocks = *format;
    for (unsigned i = 0; i < view->parts; i++) {
        for (size_t left = view->part[i]; left > 0;) {
            size_t n = ts_block_elems(&blocks, left);
            if (!ts_block_valid(&blocks, in, n)) return false;
            ts_block_decode(&blocks, in, n, factors);
            in += ts_block_bytes(&blocks, n);
            blocks.block.first += n;
            factors += n;
            left -= n;
        }
    }
    return true;
}

/* Whether no element of the product, nor any sum on the way to it, can overflow. */
static bool product_bounded(const ts_scratch *scratch, const ts_transform_view *view, const ts_transform_factors *f) {
    const ts_kernels *kernels = ts_scratch_kernels(scratch);
    double most = 0;
    for (size_t a = 0; a < view->rank; a++) {
        uint32_t p = kernels->max_abs(f->p + a * view->rows, view->rows);
        uint32_t q = kernels->max_abs(f->q + a * view->cols, view->cols);
        if (p >= TS_INF_BITS || q >= TS_INF_BITS) return false;
        most += (double)ts_bits_float(p) * (double)ts_bits_float(q);
    }
    return most <= PRODUCT_MOST;
}

terse_status ts_transform_reserve(ts_scratch *scratch, const ts_transform_view *view) {
    TS_REQUIRE(ts_scratch_reserve(scratch, TS_SLOT_FACTORS, view->values * sizeof(float)), TERSE_ENOMEM);
    if (!view->stage->expand) return TERSE_OK;
    size_t elems = 2 * view->rank * view->cols;
    TS_REQUIRE(ts_scratch_reserve(scratch, TS_SLOT_EXPANDED, elems * sizeof(float)), TERSE_ENOMEM);
    return TERSE_OK;
}

terse_status ts_transform_read(ts_scratch *scratch, const ts_transform_view *view, const ts_block_format *format,
                               const uint8_t *in, size_t len, ts_transform_factors *out) {
    TS_REQUIRE(len == ts_transform_bytes(view, format), TERSE_ECORRUPT);
    TS_TRY(ts_transform_reserve(scratch, view));
    float *factors = ts_scratch_slot_data(scratch, TS_SLOT_FACTORS);
    TS_REQUIRE(read_parts(view, format, in, factors), TERSE_ECORRUPT);
    ts_transform_factors f = {.p = factors, .q = factors + view->part[0]};
    if (view->stage->expand) {
        float *room = ts_scratch_slot_data(scratch, TS_SLOT_EXPANDED);
        view->stage->expand(view, factors, room, room + view->rank * view->cols);
        f.q = room;
    }
    TS_REQUIRE(product_bounded(scratch, view, &f), TERSE_ECORRUPT);
    *out = f;
    return TERSE_OK;
}

void ts_transform_product(const ts_scratch *scratch, const ts_transform_view *view, const ts_transform_factors *factors,
                          ts_product_use use, float *to) {
    const ts_low_rank_kernels *kernels = ts_low_rank_kernels_get(ts_scratch_kernels(scratch)->level);
    kernels->product(factors->p, factors->q, view->rows, view->cols, view->rank, use, to);
}

static void scale(float *x, size_t n, float factor) {
    for (size_t i = 0; i < n; i++) x[i] *= factor;
}

void ts_transform_project(const ts_transform_step *step, const float *x, float max_abs, float *p, float *q) {
    const ts_transform_view *v = step->view;
    bool large = max_abs > LARGE_INPUT;
    size_t q_elems = v->rank * v->cols;
    if (large) scale(p, v->rank * v->rows, LOWERED);
    memset(q, 0, q_elems * sizeof *q);
    step->low_rank->project(x, v->rows, v->cols, p, v->rank, q);
    if (!large) return;
    for (size_t i = 0; i < q_elems; i++) {
        float most = TS_FACTOR_MOST * LOWERED, low = q[i] < -most ? -most : q[i] > most ? most : q[i];
        q[i] = low / LOWERED;
    }
    scale(p, v->rank * v->rows, 1.0f / LOWERED);
}

void ts_transform_orthonormalise(const ts_low_rank_kernels *kernels, float *columns, size_t r, size_t n) {
    for (size_t a = 0; a < r; a++) {
        float *column = columns + a * n;
        double before = sqrt(kernels->dot(column, column, n));
        for (int pass = 0; pass < 2; pass++) {
            for (const float *other = columns; other < column; other += n) {
                double along = kernels->dot(column, other, n);
                for (size_t i = 0; i < n; i++) column[i] = (float)((double)column[i] - along * (double)other[i]);
            }
            double norm = sqrt(kernels->dot(column, column, n));
            bool dependent = !(norm > DEPENDENT * before);
            for (size_t i = 0; i < n; i++) column[i] = dependent ? 0.0f : (float)((double)column[i] / norm);
            before = 0;
        }
    }
}
