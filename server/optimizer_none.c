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
    if (input->touched) ts_touched_add(input->params, input->gradient, input->touched, input->n);
    else ts_slice_kernels()->add(input->params, input->gradient, input->n);
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
