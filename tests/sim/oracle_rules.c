/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/oracle_rules.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "common/codec/kernels.h"

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

float ts_oracle_combine(const ts_config *config, float *value, const float *weight, uint32_t count, float total) {
    float sum = 0;
    ts_robust_name robust = config->aggregation.robust;
    if (robust == TS_ROBUST_MEDIAN || robust == TS_ROBUST_TRIMMED) {
        uint32_t cut = (count - 1) / 2, wished = (uint32_t)(config->aggregation.trim * count + 1e-9);
        if (robust == TS_ROBUST_TRIMMED && wished < cut) cut = wished;
        qsort(value, count, sizeof *value, ascending);
        for (uint32_t c = cut; c < count - cut; c++) sum += value[c];
        return sum * (1.0f / (float)(count - 2 * cut));
    }
    for (uint32_t c = 0; c < count; c++) sum += weight[c] * value[c];
    return config->aggregation.mode == TS_AGGREGATE_SUM ? sum : sum * (1.0f / total);
}

static float flushed(float x) { return fabsf(x) < FLT_MIN ? 0.0f : x; }

static void clip(const ts_config *config, bool sparse, size_t n, float *g) {
    float limit = (float)config->optimizer.clip_value;
    double norm = config->optimizer.clip_norm, squares = 0;
    for (size_t i = 0; i < n; i++) {
        if (limit > 0) g[i] = fminf(fmaxf(g[i], -limit), limit);
        squares += (double)g[i] * (double)g[i];
    }
    if (!sparse) squares = ts_kernels_scalar.sum_squares(g, n);
    double share = norm / (sqrt(squares) + 1e-6);
    for (size_t i = 0; i < n && norm > 0 && share < 1; i++) g[i] *= (float)share;
}

typedef struct {
    const ts_config *config;
    double lr, wd; /* of this step; no decay where the worker has it */
    float momentum;
    double bias1, bias2;
} rules;

static float root_part(const rules *r, float squares) {
    return sqrtf(squares) / (float)sqrt(r->bias2) + (float)r->config->optimizer.eps;
}

/* Adam's moments of one element. */
static void moments(const rules *r, float g, float *m, float *s) {
    float less1 = (float)(1 - r->config->optimizer.beta1), less2 = (float)(1 - r->config->optimizer.beta2);
    *m = flushed(*m + less1 * (g - *m));
    *s = flushed((float)r->config->optimizer.beta2 * *s + less2 * g * g);
}

static float rmsprop(const rules *r, float g, float *s, float *second, float *third) {
    float alpha = (float)r->config->optimizer.alpha, less = (float)(1 - r->config->optimizer.alpha), lr = (float)r->lr;
    float *v = r->config->optimizer.centered ? third : second;
    *s = flushed(alpha * *s + less * g * g);
    float spread = *s;
    if (r->config->optimizer.centered) {
        *second = flushed(*second + less * (g - *second));
        spread = fmaxf(*s - *second * *second, 0.0f);
    }
    float divisor = sqrtf(spread) + (float)r->config->optimizer.eps;
    if (!(r->momentum > 0)) return lr * g / divisor;
    *v = flushed(r->momentum * *v + g / divisor);
    return lr * *v;
}

/* What a parameter is lowered by. */
static float change(const rules *r, float g, float *a, float *b, float *c) {
    float lr = (float)r->lr;
    switch (r->config->optimizer.name) {
    case TS_OPTIMIZER_ADAGRAD:
        *a = flushed(*a + g * g);
        return lr * g / (sqrtf(*a) + (float)r->config->optimizer.eps);
    case TS_OPTIMIZER_RMSPROP: return rmsprop(r, g, a, b, c);
    case TS_OPTIMIZER_ADAM:
    case TS_OPTIMIZER_ADAMW:
        moments(r, g, a, b);
        return (float)(r->lr / r->bias1) * *a / root_part(r, *b);
    default:
        if (!(r->momentum > 0)) return lr * g;
        *a = flushed(r->momentum * *a + g);
        return lr * (r->config->optimizer.nesterov ? g + r->momentum * *a : *a);
    }
}

/* Tensors here have at most 512 elements: one block of the norms' sums. */
static void lamb(const rules *r, size_t n, float *w, float *m, float *s, const float *g) {
    float u[512], gain = (float)(sqrt(r->bias2) / r->bias1);
    float eps = (float)(r->config->optimizer.eps * sqrt(r->bias2));
    for (size_t i = 0; i < n; i++) {
        moments(r, g[i], &m[i], &s[i]);
        u[i] = m[i] * gain / (sqrtf(s[i]) + eps) + (float)r->wd * w[i];
    }
    double weights = ts_kernels_scalar.sum_squares(w, n), direction = ts_kernels_scalar.sum_squares(u, n);
    double trust = weights > 0 && direction > 0 ? sqrt(weights) / sqrt(direction) : 1;
    for (size_t i = 0; i < n; i++) w[i] -= (float)(r->lr * trust) * u[i];
}

/* As ts_optimizer_bias says: by squaring. */
static double bias(double beta, uint64_t step) {
    double power = 1;
    for (unsigned bit = 0; bit < 64; bit++, beta *= beta)
        if ((step + 1) >> bit & 1) power *= beta;
    return 1 - power;
}

void ts_oracle_step(const ts_config *config, uint64_t step, double lr, bool plain, bool sparse, size_t n, float *w,
                    float (*state)[512], float *g) {
    bool decoupled = config->optimizer.decoupled_weight_decay || config->optimizer.name == TS_OPTIMIZER_ADAMW;
    rules r = {.config = config,
               .lr = lr,
               .wd = plain ? 0 : config->optimizer.weight_decay,
               .momentum = plain ? 0.0f : (float)config->optimizer.momentum,
               .bias1 = bias(config->optimizer.beta1, step),
               .bias2 = bias(config->optimizer.beta2, step)};
    clip(config, sparse, n, g);
    if (config->optimizer.name == TS_OPTIMIZER_LAMB) {
        lamb(&r, n, w, state[0], state[1], g);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        float given = decoupled || !(r.wd > 0) ? g[i] : g[i] + (float)r.wd * w[i];
        float kept = decoupled && r.wd > 0 ? w[i] * (float)(1 - r.lr * r.wd) : w[i];
        w[i] = kept - change(&r, given, &state[0][i], &state[1][i], &state[2][i]);
    }
}
