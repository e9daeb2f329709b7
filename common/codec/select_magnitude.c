/* SPDX-License-Identifier: Apache-2.0 */
/*
 * magnitude:R: an element is kept with probability p_i = min(1, a |g_i|), a such that sum p_i = k. The factor is found
 * by leaving out the elements whose probability is cut to 1 and sharing the rest anew, until none is added (algorithm 3
 * of the source); as |g| > 1 / a holds for less than k elements, only those are ever listed.
 */
#include <float.h>
#include <math.h>

#include "common/base/random.h"
#include "common/codec/selection.h"
#include "common/codec/stage_list.h"

#define MOST_ROUNDS 8

/* The listed elements are at most k, the drawn ones k and ten standard deviations; the rest would wait a step. */
static size_t magnitude_capacity(const ts_stage_args *args, size_t n) {
    double k = (double)ts_ratio_elems(args->value[0], n), most = k + 10 * sqrt(k) + 64 + 2 * TS_SELECT_GROUP;
    return most < (double)n + 2 * TS_SELECT_GROUP ? (size_t)most : n + 2 * TS_SELECT_GROUP;
}

/* The factor a, or 0 when all is zero. */
static double find_factor(ts_selection *s, size_t k) {
    ts_candidates *c = &s->candidates;
    double total = s->kernels->sum_abs(s->sweep->residual, s->n), factor = total > 0 ? (double)k / total : 0;
    size_t certain = 0;
    for (int round = 0; round < MOST_ROUNDS && factor > 0; round++) {
        double border = 1 / factor, sum = 0;
        if (!(border >= (double)FLT_MIN && border < (double)FLT_MAX)) break;
        c->count = 0;
        c->floor = ts_float_bits((float)border) + 1;
        if (s->kernels->select(s->sweep, 0, s->n, c) < s->n) break;
        if (c->count == certain || c->count >= k) break;
        certain = c->count;
        for (size_t i = 0; i < certain; i++) sum += (double)ts_bits_float(c->bits[i] & TS_ABS_MASK);
        if (!(total - sum > 0)) break;
        factor = (double)(k - certain) / (total - sum);
    }
    return factor;
}

static void magnitude_select(ts_selection *s) {
    ts_candidates *c = &s->candidates;
    size_t k = ts_ratio_elems(s->args->value[0], s->n);
    const float *residual = s->sweep->residual;
    (void)s->kernels->sweep(s->sweep, 0, s->n);
    s->sweep->gradient = NULL;
    c->count = 0;
    if (s->sweep->bad_count > 0 && s->sweep->policy != TS_NONFINITE_ZERO) return;
    double factor = find_factor(s, k);
    c->count = 0;
    for (size_t i = 0; i < s->n && c->count < c->capacity; i++) {
        double p = factor * fabs((double)residual[i]);
        double u = (double)(ts_mix64(s->key ^ (s->origin + i)) >> 11) * 0x1p-53;
        if (u >= p) continue;
        float value = residual[i];
        if (s->unbiased && p < 1) value = (float)fmax(-(double)FLT_MAX, fmin((double)FLT_MAX, (double)value / p));
        c->index[c->count] = (uint32_t)i;
        c->bits[c->count++] = ts_float_bits(value);
    }
}

const ts_select_stage ts_select_magnitude = {
    .info = {.name = "magnitude",
             .args = "R",
             .summary = "each element with a probability in proportion to its magnitude, R n of them on average",
             .formula = "P(i in S) = p_i = min(1, a |g_i|), sum p_i = R n; g_i / p_i is sent without error feedback",
             .source = "Wangni et al. 2018",
             .min_args = 1,
             .max_args = 1,
             .low = {0},
             .high = {1},
             .low_open = {true}},
    .sends_indices = true,
    .takes_ratio = true,
    .capacity = magnitude_capacity,
    .select = magnitude_select,
};
