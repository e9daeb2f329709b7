/* SPDX-License-Identifier: Apache-2.0 */
/*
 * powersgd:R. One step of power iteration that starts where the last one ended:
 *   P = M Q', orthonormal; Q = Mᵀ P; sent are P and Q, and Q (its columns by powers of two of length about 1) is the
 * next step's Q'. Each worker sends its own product; Vogels et al. sum P before they go on, in two phases.
 * The sweep that adds the gradient also makes P, row by row while a row is in the cache.
 */
#include <math.h>
#include <string.h>

#include "common/base/random.h"
#include "common/codec/stage_list.h"
#include "common/codec/transform.h"

#define SWEPT_ELEMS 4096u /* at a time: what stays in the first-level cache until it is multiplied */
#define LARGE 0x1p60f
#define PURPOSE_START 0x706F7772u /* "powr" */

static size_t powersgd_memory(const ts_transform_view *view) { return view->rank * view->cols; }

/* Draws the columns of Q' that nothing is known of: all of them at the first step. */
static void draw(const ts_transform_step *step) {
    const ts_transform_view *v = step->view;
    for (size_t a = 0; a < v->rank; a++) {
        float *column = step->memory + a * v->cols;
        if (step->kernels->max_abs(column, v->cols) != 0) continue;
        ts_random random = ts_random_start(ts_mix64(step->key ^ (PURPOSE_START + a)));
        for (size_t j = 0; j < v->cols; j++) column[j] = ts_random_normal(&random);
    }
}

/* Takes the gradient in and multiplies; returns bits of max |residual|. */
static uint32_t sweep_and_multiply(const ts_transform_step *step) {
    const ts_transform_view *v = step->view;
    size_t at_once = v->cols < SWEPT_ELEMS ? SWEPT_ELEMS / v->cols : 1;
    uint32_t top = 0;
    for (size_t i = 0; i < v->rows; i += at_once) {
        size_t some = v->rows - i < at_once ? v->rows - i : at_once;
        uint32_t bits = step->kernels->sweep(step->sweep, i * v->cols, (i + some) * v->cols);
        if (bits > top) top = bits;
        step->low_rank->multiply(step->sweep->residual + i * v->cols, some, v->cols, step->memory, v->rank,
                                 step->factors + i, v->rows);
    }
    return top;
}

/* Q as the next step's start; what came out empty is left as it was. */
static void remember(const ts_transform_step *step, const float *q) {
    const ts_transform_view *v = step->view;
    for (size_t a = 0; a < v->rank; a++) {
        const float *column = q + a * v->cols;
        float most = ts_bits_float(step->kernels->max_abs(column, v->cols));
        int exponent;
        if (!(most > 0)) continue;
        (void)frexpf(most, &exponent);
        for (size_t j = 0; j < v->cols; j++) step->memory[a * v->cols + j] = ldexpf(column[j], -exponent);
    }
}

static void powersgd_analyse(ts_transform_step *step) {
    const ts_transform_view *v = step->view;
    draw(step);
    float max_abs = ts_bits_float(sweep_and_multiply(step));
    step->sweep->gradient = NULL; /* taken in */
    if (step->sweep->bad_count > 0 && step->sweep->policy != TS_NONFINITE_ZERO) return;
    float *p = step->factors, *q = p + v->part[0];
    if (max_abs > LARGE) {
        for (size_t i = 0; i < v->rank * v->cols; i++) step->memory[i] = ldexpf(step->memory[i], -80);
        step->low_rank->multiply(step->sweep->residual, v->rows, v->cols, step->memory, v->rank, p, v->rows);
    }
    ts_transform_orthonormalise(step->low_rank, p, v->rank, v->rows);
    ts_transform_project(step, step->sweep->residual, max_abs, p, q);
    remember(step, q);
}

const ts_transform_stage ts_transform_powersgd = {
    .info = {.name = "powersgd",
             .args = "R",
             .summary = "two factors of rank R by one warm power iteration; the matrix is the first dimension by the rest",
             .formula = "P = orth(M Q'), Q = M^T P; M is sent as P Q^T",
             .source = "Vogels, Karimireddy and Jaggi 2019",
             .min_args = 1,
             .max_args = 1,
             .low = {1},
             .high = {64},
             .integral = {true}},
    .plan = ts_transform_plan_matrix,
    .memory = powersgd_memory,
    .analyse = powersgd_analyse,
};
