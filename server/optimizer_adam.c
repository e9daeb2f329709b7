/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019), in the form and order of PyTorch's
 * torch.optim.Adam and AdamW without amsgrad: bias corrections go into the rate and the divisor,
 *   m += (1 - b1)*(g - m) ; s = b2*s + (1 - b2)*g² ; w -= (lr / c1)*m / (√s / √c2 + eps) ; c = 1 - b^t
 * AdamW shrinks w by lr*wd first; Adam adds wd*w to g. t counts the rounds of the slice from 1.
 */
#include <math.h>

#include "server/optimizer.h"

static unsigned adam_states(const ts_config *config, bool plain) {
    (void)config;
    (void)plain;
    return 2;
}

static void step_adam(const ts_config *config, const ts_optimizer_input *input) {
    ts_step_rates rate = ts_optimizer_rates(config, input);
    rate.lr = (float)(input->lr / ts_optimizer_bias(config->optimizer.beta1, input->step));
    rate.root2 = (float)sqrt(ts_optimizer_bias(config->optimizer.beta2, input->step));
    ts_optimizer_kernels_here()->adam(input->params, input->state[0], input->state[1], input->gradient, &rate,
                                      input->n);
}

extern const ts_optimizer ts_optimizer_adam, ts_optimizer_adamw;
const ts_optimizer ts_optimizer_adam = {
    .id = TS_OPTIMIZER_ADAM,
    .name = "adam",
    .summary = "Moving averages of the gradient and its square, bias corrected, as PyTorch computes them.",
    .formula = "g += wd*w; m += (1 - b1)*(g - m); s = b2*s + (1 - b2)*g*g; w -= lr/c1*m/(sqrt(s)/sqrt(c2) + eps)",
    .aggregates = false,
    .states = adam_states,
    .step = step_adam,
};
const ts_optimizer ts_optimizer_adamw = {
    .id = TS_OPTIMIZER_ADAMW,
    .name = "adamw",
    .summary = "Adam with weight decay beside the gradient, as PyTorch computes it.",
    .formula = "w *= 1 - lr*wd; m += (1 - b1)*(g - m); s = b2*s + (1 - b2)*g*g; w -= lr/c1*m/(sqrt(s)/sqrt(c2) + eps)",
    .aggregates = false,
    .states = adam_states,
    .step = step_adam,
};
