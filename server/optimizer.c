/* SPDX-License-Identifier: Apache-2.0 */
#include "server/optimizer.h"

#include "server/optimizer_list.h"

#define TS_OPTIMIZER_DECLARE(symbol) extern const ts_optimizer symbol;
TS_OPTIMIZER_LIST(TS_OPTIMIZER_DECLARE)
#undef TS_OPTIMIZER_DECLARE

const ts_optimizer *ts_optimizer_find(ts_optimizer_name id) {
#define TS_OPTIMIZER_ENTRY(symbol) &symbol,
    static const ts_optimizer *const all[] = {TS_OPTIMIZER_LIST(TS_OPTIMIZER_ENTRY)};
#undef TS_OPTIMIZER_ENTRY
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i]->id == id) return all[i];
    return NULL;
}

ts_step_rates ts_optimizer_rates(const ts_config *config, const ts_optimizer_input *input) {
    double decay = input->plain ? 0 : config->optimizer.weight_decay;
    bool decoupled = config->optimizer.decoupled_weight_decay || config->optimizer.name == TS_OPTIMIZER_ADAMW;
    bool squares = config->optimizer.name == TS_OPTIMIZER_RMSPROP;
    double beta2 = squares ? config->optimizer.alpha : config->optimizer.beta2;
    return (ts_step_rates){
        .lr = (float)input->lr,
        .decay = decoupled ? 0.0f : (float)decay,
        .keep = decoupled ? (float)(1.0 - input->lr * decay) : 1.0f,
        .momentum = input->plain ? 0.0f : (float)config->optimizer.momentum,
        .beta1 = (float)config->optimizer.beta1,
        .less1 = (float)(1.0 - config->optimizer.beta1),
        .beta2 = (float)beta2,
        .less2 = (float)(1.0 - beta2),
        .root2 = 1.0f,
        .gain = 1.0f,
        .eps = (float)config->optimizer.eps,
    };
}

double ts_optimizer_bias(double beta, uint64_t step) {
    double power = 1, square = beta; /* by squaring: the C library's pow may differ between machines */
    for (uint64_t n = step + 1; n > 0; n >>= 1) {
        if (n & 1) power *= square;
        square *= square;
    }
    return 1 - power;
}
