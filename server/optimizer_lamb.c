/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LAMB (You et al. 2020, algorithm 2, phi the identity, norms over the whole tensor, bias correction):
 *   m, s as Adam's ; u = (m / c1) / (√s / √c2 + eps) + wd*w ; w -= lr * |w| / |u| * u
 * The ratio is 1 when either norm is 0. Tensors are not cut (ts_config_whole_tensors), so a slice's norms are the
 * tensor's, whatever the number of servers. Norms are summed in double by blocks, in order.
 */
#include <math.h>

#include "server/optimizer.h"
#include "server/slice_math.h"

#define BLOCK_ELEMS 1024u /* of the direction, which is made twice and never kept */

static unsigned lamb_states(const ts_config *config, bool plain) {
    (void)config;
    (void)plain;
    return 2;
}

typedef struct {
    const ts_optimizer_kernels *kernels;
    const ts_kernels *sums;
    ts_step_rates rate;
} lamb;

/* Moves the moments on; returns the ratio of the norms. */
static double trust_ratio(const lamb *l, const ts_optimizer_input *input) {
    double weights = 0, direction = 0;
    float u[BLOCK_ELEMS];
    for (size_t at = 0; at < input->n; at += BLOCK_ELEMS) {
        size_t n = input->n - at < BLOCK_ELEMS ? input->n - at : BLOCK_ELEMS;
        const float *w = input->params + at;
        float *m = input->state[0] + at, *s = input->state[1] + at;
        l->kernels->moments(u, w, m, s, input->gradient + at, &l->rate, n);
        weights += l->sums->sum_squares(w, n);
        direction += l->sums->sum_squares(u, n);
    }
    return weights > 0 && direction > 0 ? sqrt(weights) / sqrt(direction) : 1;
}

static void step_lamb(const ts_config *config, const ts_optimizer_input *input) {
    lamb l = {.kernels = ts_optimizer_kernels_here(),
              .sums = ts_slice_kernels(),
              .rate = ts_optimizer_rates(config, input)};
    double root2 = sqrt(ts_optimizer_bias(config->optimizer.beta2, input->step));
    /* One division an element instead of three. */
    l.rate.gain = (float)(root2 / ts_optimizer_bias(config->optimizer.beta1, input->step));
    l.rate.eps = (float)(config->optimizer.eps * root2);
    float u[BLOCK_ELEMS], rate = (float)(input->lr * trust_ratio(&l, input));
    for (size_t at = 0; at < input->n; at += BLOCK_ELEMS) {
        size_t n = input->n - at < BLOCK_ELEMS ? input->n - at : BLOCK_ELEMS;
        l.kernels->direction(u, input->params + at, input->state[0] + at, input->state[1] + at, &l.rate, n);
        l.sums->descend(input->params + at, u, rate, n);
    }
}

extern const ts_optimizer ts_optimizer_lamb;
const ts_optimizer ts_optimizer_lamb = {
    .id = TS_OPTIMIZER_LAMB,
    .name = "lamb",
    .summary = "Adam's direction with weight decay, as long as the tensor's parameters: for large batches.",
    .formula = "m, s as adam; u = m/c1/(sqrt(s)/sqrt(c2) + eps) + wd*w; w -= lr*|w|/|u|*u",
    .whole = true,
    .aggregates = false,
    .states = lamb_states,
    .step = step_lamb,
};
