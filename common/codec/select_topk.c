/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topk:R, exactly, in one sweep over memory.
 *
 * The sweep that adds the gradient also stores the elements at or above a floor. The floor comes from a sample of a few
 * thousand lines of the tensor, taken in ahead and thrown away: the magnitude that about 1.4 k elements reach. A floor
 * that is too low costs nothing but candidates: when the buffer is full, the k best of it become its content and the
 * k-th of them the new floor, which no element below can pass any more; so even without a sample about k·(1 + ln(n/k))
 * elements are stored and the sweep stays one sweep. Only a floor that was too high (one step in a thousand, more often
 * where large values come in clusters) costs another pass, over the residual alone.
 * What is chosen never depends on the sample: order is by magnitude, then by the keyed hash of the index.
 */
#include <float.h>

#include "common/codec/selection.h"
#include "common/codec/stage_list.h"

static size_t topk_expected(const ts_stage_args *args, size_t n) { return ts_ratio_elems(args->value[0], n); }

static size_t topk_capacity(const ts_stage_args *args, size_t n) {
    return ts_candidates_room(ts_ratio_elems(args->value[0], n), n);
}

static void topk_select(ts_selection *s) {
    ts_candidates *c = &s->candidates;
    size_t k = ts_ratio_elems(s->args->value[0], s->n);
    uint32_t floor = ts_sample_floor(s, k);
    (void)ts_select_largest(s, k, floor);
    s->sweep->gradient = NULL; /* taken in */
    if (s->sweep->bad_count > 0 && s->sweep->policy != TS_NONFINITE_ZERO) return;
    if (c->count < k && floor > 1) {
        float lower = ts_bits_float(floor) * 0.5f;
        (void)ts_select_largest(s, k, lower >= FLT_MIN ? ts_float_bits(lower) : 1);
        if (c->count < k) (void)ts_select_largest(s, k, 1);
    }
    if (c->count < k) (void)ts_select_largest(s, k, 0);
    ts_candidates_keep(s->kernels, c, k, s->key, s->origin);
}

const ts_select_stage ts_select_topk = {
    .info = {.name = "topk",
             .args = "R",
             .summary = "the k elements of largest magnitude, exactly; k = max(1, ceil(R n))",
             .formula = "S = arg max_{|S| = k} sum |g_i|",
             .source = "Aji and Heafield 2017; Lin et al. 2018",
             .min_args = 1,
             .max_args = 1,
             .low = {0},
             .high = {1},
             .low_open = {true}},
    .ranks = true,
    .sends_indices = true,
    .takes_ratio = true,
    .expected = topk_expected,
    .capacity = topk_capacity,
    .select = topk_select,
};
