/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stochastic gradient descent with momentum (Polyak 1964), Nesterov's variant (Sutskever et al. 2013) and weight
 * decay, in the form and order of PyTorch's torch.optim.SGD without dampening:
 *   g = g + wd*w ; v = m*v + g ; u = nesterov ? g + m*v : v ; w = w - lr*u
 * A velocity that starts at 0 makes v = g at the first step, as there.
 */
#include "server/optimizer.h"
#include "server/slice_math.h"

static unsigned sgd_states(const ts_config *config, bool plain) {
    return !plain && config->optimizer.momentum > 0 ? 1 : 0;
}

static void step_sgd(const ts_config *config, const ts_optimizer_input *input) {
    const ts_optimizer_kernels *kernels = ts_optimizer_kernels_here();
    ts_step_rates rate = ts_optimizer_rates(config, input);
    bool momentum = !input->plain && config->optimizer.momentum > 0;
    bool decay = !input->plain && config->optimizer.weight_decay > 0;
    if (momentum && config->optimizer.nesterov) {
        kernels->nesterov(input->params, input->state[0], input->gradient, &rate, input->n);
    } else if (momentum) {
        kernels->momentum(input->params, input->state[0], input->gradient, &rate, input->n);
    } else if (decay) {
        kernels->decayed(input->params, input->gradient, &rate, input->n);
    } else if (input->touched) {
        ts_touched_descend(input->params, input->gradient, rate.lr, input->touched, input->n);
    } else {
        ts_slice_kernels()->descend(input->params, input->gradient, rate.lr, input->n);
    }
}

extern const ts_optimizer ts_optimizer_sgd;
const ts_optimizer ts_optimizer_sgd = {
    .id = TS_OPTIMIZER_SGD,
    .name = "sgd",
    .summary = "Stochastic gradient descent with momentum, Nesterov's variant and weight decay, as PyTorch computes it.",
    .formula = "g += wd*w; v = m*v + g; w -= lr*(nesterov ? g + m*v : v)",
    .aggregates = false,
    .states = sgd_states,
    .step = step_sgd,
};
