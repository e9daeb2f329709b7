/* SPDX-License-Identifier: Apache-2.0 */
/* threshold:T, in the sweep itself. How many there are is not known before, so there is room for all. */
#include "common/codec/selection.h"
#include "common/codec/stage_list.h"

static size_t threshold_capacity(const ts_stage_args *args, size_t n) {
    (void)args;
    return n + 2 * TS_SELECT_GROUP;
}

static void threshold_select(ts_selection *s) {
    uint32_t bits = ts_float_bits((float)s->args->value[0]);
    s->candidates.count = 0;
    s->candidates.floor = bits > 0 ? bits : 1;
    (void)s->kernels->select(s->sweep, 0, s->n, &s->candidates);
    s->sweep->gradient = NULL;
}

const ts_select_stage ts_select_threshold = {
    .info = {.name = "threshold",
             .args = "T",
             .summary = "the elements whose magnitude is at least T",
             .formula = "S = {i : |g_i| >= T}",
             .source = "Strom 2015; Dryden et al. 2016",
             .min_args = 1,
             .max_args = 1,
             .low = {0},
             .high = {1e20},
             .low_open = {true}},
    .sends_indices = true,
    .capacity = threshold_capacity,
    .select = threshold_select,
};
