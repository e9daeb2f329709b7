/* SPDX-License-Identifier: Apache-2.0 */
#include "server/optimizer.h"
#include "server/slice_math.h"

static unsigned no_states(const ts_config *config, bool plain) {
    (void)config;
    (void)plain;
    return 0;
}

static void step_none(const ts_config *config, const ts_optimizer_input *input) {
    (void)config;
    if (!input->touched) {
        ts_sweep_add(input->params, input->gradient, input->n);
        return;
    }
    for (size_t word = 0; word < ts_bitmap_words(input->n); word++) {
        for (uint64_t bits = input->touched[word]; bits; bits &= bits - 1) {
            size_t i = word * 64 + (size_t)__builtin_ctzll(bits);
            input->params[i] += input->gradient[i];
        }
    }
}

extern const ts_optimizer ts_optimizer_none;
const ts_optimizer ts_optimizer_none = {
    .id = TS_OPTIMIZER_NONE,
    .name = "none",
    .summary = "The pull carries the averaged gradient; the optimizer stays in the worker's code.",
    .formula = "sum += g",
    .aggregates = true,
    .states = no_states,
    .step = step_none,
};
