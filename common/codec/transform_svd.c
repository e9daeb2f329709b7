/* SPDX-License-Identifier: Apache-2.0 */
/*
 * svd:R. P holds the R leading left singular vectors of the matrix, Q = Pᵀ M their shares: the best approximation of
 * that rank (Eckart and Young 1936), to what STAGES.md says. Nothing stays between steps. Some ten times slower than
 * powersgd, since a residual's leading singular values are close to each other: the largest is what is sent.
 */
#include "common/codec/spectral.h"
#include "common/codec/stage_list.h"
#include "common/codec/transform.h"

static size_t svd_work(const ts_transform_view *v) { return ts_left_vectors_work(ts_mode_matrix(v->rows, v->cols), v->rank); }

static void svd_analyse(ts_transform_step *step) {
    const ts_transform_view *v = step->view;
    float *p = step->factors, *q = p + v->part[0];
    float max_abs = ts_bits_float(step->kernels->sweep(step->sweep, 0, v->rows * v->cols));
    step->sweep->gradient = NULL; /* taken in */
    if (step->sweep->bad_count > 0 && step->sweep->policy != TS_NONFINITE_ZERO) return;
    ts_left_vectors(step->low_rank, step->sweep->residual, ts_mode_matrix(v->rows, v->cols), v->rank, step->work, p);
    ts_transform_orthonormalise(step->low_rank, p, v->rank, v->rows);
    ts_transform_project(step, step->sweep->residual, max_abs, p, q);
}

const ts_transform_stage ts_transform_svd = {
    .info = {.name = "svd",
             .args = "R",
             .summary = "the R leading singular vectors; the matrix is the first dimension by the rest",
             .formula = "M = U S V^T; sent are U_R and (S V^T)_R",
             .source = "Eckart and Young 1936; Wang et al. 2018 (ATOMO)",
             .min_args = 1,
             .max_args = 1,
             .low = {1},
             .high = {64},
             .integral = {true}},
    .plan = ts_transform_plan_matrix,
    .work = svd_work,
    .analyse = svd_analyse,
};
