/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers as the configuration sees them: one row each, with defaults (those of torch.optim) and the keys they use. */
#include "common/config/config_optimizer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/config/config_keys.h"

enum { USES_MOMENTUM = 1, USES_NESTEROV = 2, USES_BETAS = 4, USES_ALPHA = 8, USES_EPS = 16, USES_DECOUPLED = 32 };

typedef struct {
    ts_optimizer_name id;
    const char *name;
    double lr, momentum, weight_decay, eps;
    unsigned uses;
} optimizer_row;

static const optimizer_row rows[] = {
    {TS_OPTIMIZER_SGD, "sgd", 0.05, 0.9, 0, 0, USES_MOMENTUM | USES_NESTEROV | USES_DECOUPLED},
    {TS_OPTIMIZER_ADAGRAD, "adagrad", 0.01, 0, 0, 1e-10, USES_EPS | USES_DECOUPLED},
    {TS_OPTIMIZER_RMSPROP, "rmsprop", 0.01, 0, 0, 1e-8, USES_MOMENTUM | USES_ALPHA | USES_EPS | USES_DECOUPLED},
    {TS_OPTIMIZER_ADAM, "adam", 0.001, 0, 0, 1e-8, USES_BETAS | USES_EPS | USES_DECOUPLED},
    {TS_OPTIMIZER_ADAMW, "adamw", 0.001, 0, 0.01, 1e-8, USES_BETAS | USES_EPS},
    {TS_OPTIMIZER_LAMB, "lamb", 0.001, 0, 0.01, 1e-6, USES_BETAS | USES_EPS},
};

/* NULL for none. */
static const optimizer_row *row_of(const ts_config *config) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].id == config->optimizer.name) return &rows[i];
    return NULL;
}

void ts_config_optimizer_defaults(const ts_config_source *source, ts_config *config) {
    const optimizer_row *row = row_of(config);
    if (!row) return;
    if (!ts_config_given(source, "optimizer.lr")) config->optimizer.lr = row->lr;
    if (!ts_config_given(source, "optimizer.momentum")) config->optimizer.momentum = row->momentum;
    if (!ts_config_given(source, "optimizer.weight_decay")) config->optimizer.weight_decay = row->weight_decay;
    if (!ts_config_given(source, "optimizer.eps")) config->optimizer.eps = row->eps;
}

bool ts_config_whole_tensors(const ts_config *config) {
    return config->optimizer.name == TS_OPTIMIZER_LAMB || config->optimizer.clip_norm > 0 ||
           config->aggregation.robust == TS_ROBUST_CLIP;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

/* A key that was set to something, although the optimizer has no use for it. */
static terse_status check_unused(const ts_config_source *source, const ts_config *config, const optimizer_row *row) {
    const struct {
        const char *key;
        unsigned use;
        bool set;
        const char *allowed;
    } keys[] = {
        {"optimizer.momentum", USES_MOMENTUM, config->optimizer.momentum > 0, "0"},
        {"optimizer.nesterov", USES_NESTEROV, config->optimizer.nesterov, "false"},
        {"optimizer.beta1", USES_BETAS, true, "none"},
        {"optimizer.beta2", USES_BETAS, true, "none"},
        {"optimizer.alpha", USES_ALPHA, true, "none"},
        {"optimizer.centered", USES_ALPHA, config->optimizer.centered, "false"},
        {"optimizer.eps", USES_EPS, true, "none"},
        {"optimizer.decoupled_weight_decay", USES_DECOUPLED, true, "none: adamw and lamb have their own"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (row->uses & keys[i].use || !keys[i].set || !ts_config_chosen(source, keys[i].key)) continue;
        return ts_config_refuse(source, keys[i].key, "not used by optimizer.name %s; allowed with it: %s", row->name,
                                keys[i].allowed);
    }
    return TERSE_OK;
}

static terse_status check_aggregation(const ts_config_source *source, const ts_config *config) {
    ts_robust_name robust = config->aggregation.robust;
    bool plain_mean = config->aggregation.mode == TS_AGGREGATE_MEAN;
    if ((robust == TS_ROBUST_MEDIAN || robust == TS_ROBUST_TRIMMED) && !plain_mean) {
        return ts_config_refuse(source, "aggregation.mode", "a median and a trimmed mean have no weights; allowed with "
                                "aggregation.robust median and trimmed: mean");
    }
    if (ts_config_chosen(source, "aggregation.trim") && robust != TS_ROBUST_TRIMMED) {
        return ts_config_refuse(source, "aggregation.trim", "only with aggregation.robust trimmed");
    }
    if (ts_config_chosen(source, "aggregation.clip_norm") && robust != TS_ROBUST_CLIP) {
        return ts_config_refuse(source, "aggregation.clip_norm", "only with aggregation.robust clip");
    }
    if (!ts_config_estimates(config)) return TERSE_OK;
    if (robust != TS_ROBUST_NONE) {
        return ts_config_refuse(source, "aggregation.robust", "error_feedback.variant ef21 pushes differences of estimates, "
                                "of which only sums have a meaning; allowed with it: none");
    }
    if (!plain_mean) {
        return ts_config_refuse(source, "aggregation.mode", "with error_feedback.variant ef21 allowed: mean");
    }
    return TERSE_OK;
}

terse_status ts_config_optimizer_check(const ts_config_source *source, const ts_config *config) {
    const optimizer_row *row = row_of(config);
    bool correction = config->error_feedback.momentum_correction > 0;
    if (correction && config->optimizer.name != TS_OPTIMIZER_SGD) {
        return ts_config_refuse(source, "error_feedback.momentum_correction",
                                "only with optimizer.name sgd; allowed here: 0");
    }
    if (row) TS_TRY(check_unused(source, config, row));
    if (config->optimizer.nesterov && !(config->optimizer.momentum > 0) && !correction) {
        return ts_config_refuse(source, "optimizer.nesterov", "needs optimizer.momentum above 0; allowed here: false");
    }
    if (correction && config->optimizer.decoupled_weight_decay && config->optimizer.weight_decay > 0) {
        return ts_config_refuse(source, "optimizer.decoupled_weight_decay",
                                "with error_feedback.momentum_correction the decay is part of the workers' gradients; "
                                "allowed here: false");
    }
    if (config->optimizer.schedule.name == TS_SCHEDULE_STEP && config->optimizer.schedule.every_steps == 0) {
        return ts_config_refuse(source, "optimizer.schedule.name",
                                "needs optimizer.schedule.every_steps, a whole number of at least 1");
    }
    if (config->optimizer.schedule.min_lr > config->optimizer.lr) {
        return ts_config_refuse(source, "optimizer.schedule.min_lr", "above optimizer.lr; allowed: 0 to %.9g",
                                config->optimizer.lr);
    }
    return check_aggregation(source, config);
}

/* ---- the contract's text ----------------------------------------------------------------------------------------- */

typedef struct {
    char *text;
    size_t capacity, len;
} text_writer;

TERSE_PRINTF(2, 3)
static void put(text_writer *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int wrote = w->len < w->capacity ? vsnprintf(w->text + w->len, w->capacity - w->len, format, args) : 0;
    va_end(args);
    if (wrote > 0) w->len += (size_t)wrote;
}

static void put_real(text_writer *w, const char *name, double value) {
    char text[32];
    put(w, " %s=%s", name, ts_config_spell_portable(value, text));
}

static void put_schedule(text_writer *w, const ts_config *config) {
    static const char *const schedules[] = {"constant", "step", "cosine"};
    put(w, " schedule=%s warmup_steps=%llu every_steps=%llu", schedules[config->optimizer.schedule.name],
        (unsigned long long)config->optimizer.schedule.warmup_steps,
        (unsigned long long)config->optimizer.schedule.every_steps);
    put_real(w, "gamma", config->optimizer.schedule.gamma);
    put_real(w, "min_lr", config->optimizer.schedule.min_lr);
}

/* Only what differs from the plain mean, so that its digest stays what it was. */
static void put_aggregation(text_writer *w, const ts_config *config) {
    static const char *const modes[] = {"mean", "samples", "sum"}, *const robusts[] = {"none", "median", "trimmed", "clip"};
    ts_robust_name robust = config->aggregation.robust;
    if (config->aggregation.mode != TS_AGGREGATE_MEAN) put(w, " aggregation=%s", modes[config->aggregation.mode]);
    if (robust != TS_ROBUST_NONE) put(w, " robust=%s", robusts[robust]);
    if (robust == TS_ROBUST_TRIMMED) put_real(w, "trim", config->aggregation.trim);
    if (robust == TS_ROBUST_CLIP) put_real(w, "robust_norm", config->aggregation.clip_norm);
    if (config->optimizer.clip_value > 0) put_real(w, "clip_value", config->optimizer.clip_value);
    if (config->optimizer.clip_norm > 0) put_real(w, "clip_norm", config->optimizer.clip_norm);
}

void ts_config_optimizer_text(const ts_config *config, char *text, size_t capacity) {
    const optimizer_row *row = row_of(config);
    text_writer w = {.text = text, .capacity = capacity};
    put(&w, "name=%s", row ? row->name : "none");
    if (row) {
        put_real(&w, "lr", config->optimizer.lr);
        if (row->uses & USES_MOMENTUM) put_real(&w, "momentum", config->optimizer.momentum);
        put_real(&w, "weight_decay", config->optimizer.weight_decay);
        if (row->uses & USES_NESTEROV) put(&w, " nesterov=%s", config->optimizer.nesterov ? "true" : "false");
        if (config->optimizer.decoupled_weight_decay) put(&w, " decoupled=true");
        if (row->uses & USES_BETAS) put_real(&w, "beta1", config->optimizer.beta1);
        if (row->uses & USES_BETAS) put_real(&w, "beta2", config->optimizer.beta2);
        if (row->uses & USES_ALPHA) put_real(&w, "alpha", config->optimizer.alpha);
        if (row->uses & USES_ALPHA) put(&w, " centered=%s", config->optimizer.centered ? "true" : "false");
        if (row->uses & USES_EPS) put_real(&w, "eps", config->optimizer.eps);
        put_schedule(&w, config);
    }
    put_aggregation(&w, config);
}
