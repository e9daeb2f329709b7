/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stochastic gradient descent with momentum (Polyak 1964), Nesterov's variant (Sutskever et al. 2013) and weight
 * decay, in the form and order of PyTorch's torch.optim.SGD without dampening:
 *   g = g + wd*w ; v = m*v + g ; u = nesterov ? g + m*v : v ; w = w - lr*u
 * A velocity that starts at 0 makes v = g at the first step, as there.
 */
#include "server/optimizer.h"
#include "server/slice_math.h"

/* Sweeps go by blocks of this constant length: gcc vectorises such loops at -O2, others only at -O3. */
#define BLOCK_ELEMS 64u

typedef struct {
    float lr, momentum, weight_decay;
} sgd_rates;

static unsigned sgd_states(const ts_config *config, bool plain) {
    return !plain && config->optimizer.momentum > 0 ? 1 : 0;
}

static inline void decay_block(float *restrict w, const float *restrict g, sgd_rates rate, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float decayed = g[i] + rate.weight_decay * w[i];
        w[i] -= rate.lr * decayed;
    }
}

static inline void momentum_block(float *restrict w, float *restrict v, const float *restrict g, sgd_rates rate,
                                  size_t n) {
    for (size_t i = 0; i < n; i++) {
        float decayed = g[i] + rate.weight_decay * w[i];
        v[i] = ts_flush(rate.momentum * v[i] + decayed);
        w[i] -= rate.lr * v[i];
    }
}

static inline void nesterov_block(float *restrict w, float *restrict v, const float *restrict g, sgd_rates rate,
                                  size_t n) {
    for (size_t i = 0; i < n; i++) {
        float decayed = g[i] + rate.weight_decay * w[i];
        v[i] = ts_flush(rate.momentum * v[i] + decayed);
        w[i] -= rate.lr * (decayed + rate.momentum * v[i]);
    }
}

typedef enum { SGD_DECAY, SGD_MOMENTUM, SGD_NESTEROV } sgd_rule;

static inline void block(sgd_rule rule, const ts_optimizer_input *input, sgd_rates rate, size_t first, size_t n) {
    float *w = input->params + first;
    const float *g = input->gradient + first;
    if (rule == SGD_DECAY) decay_block(w, g, rate, n);
    else if (rule == SGD_MOMENTUM) momentum_block(w, input->state[0] + first, g, rate, n);
    else nesterov_block(w, input->state[0] + first, g, rate, n);
}

static void step_sgd(const ts_config *config, const ts_optimizer_input *input) {
    float lr = (float)input->lr;
    sgd_rates rate = {lr, (float)config->optimizer.momentum, (float)config->optimizer.weight_decay};
    bool momentum = !input->plain && config->optimizer.momentum > 0;
    bool decay = !input->plain && config->optimizer.weight_decay > 0;
    if (!momentum && !decay) {
        if (input->touched) ts_touched_descend(input->params, input->gradient, lr, input->touched, input->n);
        else ts_slice_kernels()->descend(input->params, input->gradient, lr, input->n);
        return;
    }
    sgd_rule rule = !momentum ? SGD_DECAY : config->optimizer.nesterov ? SGD_NESTEROV : SGD_MOMENTUM;
    size_t i = 0;
    for (; i + BLOCK_ELEMS <= input->n; i += BLOCK_ELEMS) block(rule, input, rate, i, BLOCK_ELEMS);
    block(rule, input, rate, i, input->n - i);
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
