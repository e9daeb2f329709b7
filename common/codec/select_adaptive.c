/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adaptive:R: a threshold from a fitted distribution instead of a rank. Stage by stage an exponential distribution is
 * fitted to the excess over the last threshold, whose quantile is the next one; each stage keeps a half of the last, so
 * that the fit at the end is a local one. The count is then brought within a tenth of k.
 */
#include <float.h>
#include <math.h>

#include "common/codec/selection.h"
#include "common/codec/stage_list.h"

#define FIRST_SHARE 0.25 /* of all elements, kept by the first threshold */
#define STAGE_SHARE 0.5
#define TOLERANCE 0.1
#define MOST_TRIES 12

static size_t adaptive_capacity(const ts_stage_args *args, size_t n) {
    (void)args;
    return n + 2 * TS_SELECT_GROUP;
}

static float magnitude(uint32_t bits) { return ts_bits_float(bits & TS_ABS_MASK); }

static size_t count_above(const ts_candidates *c, float threshold) {
    uint32_t floor = ts_float_bits(threshold);
    size_t count = 0;
    for (size_t i = 0; i < c->count; i++) count += (c->bits[i] & TS_ABS_MASK) >= floor;
    return count;
}

static double mean_excess(const ts_candidates *c, float threshold, float *most) {
    double sum = 0;
    *most = threshold;
    for (size_t i = 0; i < c->count; i++) {
        float x = magnitude(c->bits[i]);
        sum += (double)x - (double)threshold;
        if (x > *most) *most = x;
    }
    return sum / (double)c->count;
}

/* Above the first threshold; lower until at least k are. Returns the threshold. */
static float first_stage(ts_selection *s, size_t k) {
    ts_candidates *c = &s->candidates;
    double mean = s->kernels->sum_abs(s->sweep->residual, s->n) / (double)s->n;
    double share = s->args->value[0] > FIRST_SHARE ? s->args->value[0] : FIRST_SHARE, threshold = mean * log(1 / share);
    for (;;) {
        float floor = threshold >= (double)FLT_MIN && threshold <= (double)FLT_MAX ? (float)threshold : 0.0f;
        c->count = 0;
        c->floor = floor > 0 ? ts_float_bits(floor) : 1;
        (void)s->kernels->select(s->sweep, 0, s->n, c);
        if (c->count >= k || floor == 0.0f) return floor;
        threshold *= 0.5;
    }
}

static void adaptive_select(ts_selection *s) {
    ts_candidates *c = &s->candidates;
    size_t k = ts_ratio_elems(s->args->value[0], s->n);
    (void)s->kernels->sweep(s->sweep, 0, s->n);
    s->sweep->gradient = NULL;
    c->count = 0;
    if (s->sweep->bad_count > 0 && s->sweep->policy != TS_NONFINITE_ZERO) return;
    float low = first_stage(s, k), high;
    while (c->count > k) {
        double mean = mean_excess(c, low, &high), share = (double)k / (double)c->count;
        bool last = share >= STAGE_SHARE;
        double next = (double)low + mean * log(1 / (last ? share : STAGE_SHARE));
        float threshold = next < (double)high ? (float)next : high, floor = low;
        size_t least = last ? (size_t)((1 - TOLERANCE) * (double)k) : k, count = count_above(c, threshold);
        size_t most = last ? (size_t)((1 + TOLERANCE) * (double)k) : c->count - 1;
        for (int i = 0; i < MOST_TRIES && (count < least || count > most); i++) {
            if (count < least) high = threshold;
            else floor = threshold;
            threshold = (float)(((double)floor + (double)high) / 2);
            count = count_above(c, threshold);
        }
        if (count < least || count > most) {
            ts_candidates_keep(s->kernels, c, k, s->key, s->origin); /* ties: no threshold parts them */
            return;
        }
        s->kernels->keep_above(c, ts_float_bits(threshold));
        low = threshold;
        if (last) return;
    }
}

const ts_select_stage ts_select_adaptive = {
    .info = {.name = "adaptive",
             .args = "R",
             .summary = "about R n elements above a threshold that fitted exponential distributions give",
             .formula = "T_(j+1) = T_j + mean(|g| - T_j : |g| >= T_j) · log(1 / share_j)",
             .source = "Abdelmoniem et al. 2021",
             .min_args = 1,
             .max_args = 1,
             .low = {0},
             .high = {1},
             .low_open = {true}},
    .ranks = true,
    .sends_indices = true,
    .takes_ratio = true,
    .capacity = adaptive_capacity,
    .select = adaptive_select,
};
