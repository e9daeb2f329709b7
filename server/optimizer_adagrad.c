/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AdaGrad (Duchi, Hazan and Singer 2011), as PyTorch's torch.optim.Adagrad without a decay of the rate of its own (the
 * schedule has that): s = s + g² ; w = w - lr*g / (√s + eps). Where g is 0 nothing changes, so sparse steps are exact.
 */
#include <math.h>

#include "server/optimizer.h"
#include "server/slice_math.h"

static unsigned adagrad_states(const ts_config *config, bool plain) {
    (void)config;
    (void)plain;
    return 1;
}

/* The kernel's arithmetic, on what was touched; no weight decay. */
static void step_touched(const ts_optimizer_input *input, const ts_step_rates *rate) {
    float *w = input->params, *s = input->state[0];
    for (size_t word = 0; word < ts_bitmap_words(input->n); word++) {
        for (uint64_t bits = input->touched[word]; bits; bits &= bits - 1) {
            size_t i = word * 64 + (size_t)__builtin_ctzll(bits);
            float g = input->gradient[i];
            s[i] = ts_flush(s[i] + g * g);
            w[i] -= rate->lr * g / (sqrtf(s[i]) + rate->eps);
        }
    }
}

static void step_adagrad(const ts_config *config, const ts_optimizer_input *input) {
    ts_step_rates rate = ts_optimizer_rates(config, input);
    if (input->touched && !(config->optimizer.weight_decay > 0)) step_touched(input, &rate);
    else ts_optimizer_kernels_here()->adagrad(input->params, input->state[0], input->gradient, &rate, input->n);
}

extern const ts_optimizer ts_optimizer_adagrad;
const ts_optimizer ts_optimizer_adagrad = {
    .id = TS_OPTIMIZER_ADAGRAD,
    .name = "adagrad",
    .summary = "Rates that fall with the sum of the squared gradients of each element, as PyTorch computes them.",
    .formula = "g += wd*w; s += g*g; w -= lr*g/(sqrt(s) + eps)",
    .aggregates = false,
    .states = adagrad_states,
    .step = step_adagrad,
};
