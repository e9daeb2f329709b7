/* SPDX-License-Identifier: Apache-2.0 */
/* bernoulli:P: each element by a coin of its own. */
#include <float.h>
#include <math.h>

#include "common/base/random.h"
#include "common/codec/selection.h"
#include "common/codec/stage_list.h"

/* Ten standard deviations above the mean; what does not fit, once in 10^22 steps, waits for the next step. */
static size_t bernoulli_capacity(const ts_stage_args *args, size_t n) {
    double mean = args->value[0] * (double)n, most = mean + 10 * sqrt(mean) + 64;
    return most < (double)n ? (size_t)most : n;
}

static void bernoulli_select(ts_selection *s) {
    ts_candidates *c = &s->candidates;
    const float *residual = s->sweep->residual;
    uint64_t limit = (uint64_t)(s->args->value[0] * 0x1p32);
    float gain = s->unbiased ? (float)fmin(1 / s->args->value[0], (double)FLT_MAX) : 1.0f;
    (void)s->kernels->sweep(s->sweep, 0, s->n);
    s->sweep->gradient = NULL;
    c->count = 0;
    for (size_t i = 0; i < s->n && c->count < c->capacity; i++) {
        if (ts_mix64(s->key ^ (s->origin + i)) >> 32 >= limit) continue;
        c->index[c->count] = (uint32_t)i;
        c->bits[c->count++] = ts_float_bits(ts_scaled_up(residual[i], gain));
    }
}

const ts_select_stage ts_select_bernoulli = {
    .info = {.name = "bernoulli",
             .args = "P",
             .summary = "each element with probability P",
             .formula = "P(i in S) = P",
             .source = "Khirirat, Feyzmahdavian and Johansson 2018",
             .min_args = 1,
             .max_args = 1,
             .low = {0},
             .high = {1},
             .low_open = {true}},
    .sends_indices = true,
    .takes_ratio = true,
    .capacity = bernoulli_capacity,
    .select = bernoulli_select,
};
