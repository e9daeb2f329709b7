/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RMSProp (Hinton 2012; centred: Graves 2013), as PyTorch's torch.optim.RMSprop: the root is taken before eps is
 * added, and the momentum is of the divided gradient. Unlike there, a variance that rounding made negative counts as 0.
 */
#include "server/optimizer.h"

static unsigned rmsprop_states(const ts_config *config, bool plain) {
    (void)plain;
    return 1u + (config->optimizer.centered ? 1u : 0u) + (config->optimizer.momentum > 0 ? 1u : 0u);
}

static void step_rmsprop(const ts_config *config, const ts_optimizer_input *input) {
    ts_step_rates rate = ts_optimizer_rates(config, input);
    bool centred = config->optimizer.centered, moving = config->optimizer.momentum > 0;
    float *mean = centred ? input->state[1] : NULL, *speed = moving ? input->state[centred ? 2 : 1] : NULL;
    ts_optimizer_kernels_here()->rmsprop(input->params, input->state[0], mean, speed, input->gradient, &rate, input->n);
}

extern const ts_optimizer ts_optimizer_rmsprop;
const ts_optimizer ts_optimizer_rmsprop = {
    .id = TS_OPTIMIZER_RMSPROP,
    .name = "rmsprop",
    .summary = "Gradients divided by the root of their squares' moving average, centred or not, with momentum or not.",
    .formula = "g += wd*w; s = alpha*s + (1 - alpha)*g*g; a += (1 - alpha)*(g - a); "
               "d = sqrt(centered ? s - a*a : s) + eps; v = m*v + g/d; w -= lr*v",
    .aggregates = false,
    .states = rmsprop_states,
    .step = step_rmsprop,
};
