/* SPDX-License-Identifier: Apache-2.0 */
/* What a loaded configuration means: rules, schedules, canonical texts, notes. */
#include <fnmatch.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/config/config_keys.h"

static bool matches(const ts_config_rule *rule, const char *tensor, uint64_t elems, unsigned ndim) {
    if (rule->match && fnmatch(rule->match, tensor, 0) != 0) return false;
    if (elems < rule->min_elems || (rule->max_elems > 0 && elems > rule->max_elems)) return false;
    return ndim >= rule->min_rank && (rule->max_rank == 0 || ndim <= rule->max_rank);
}

const ts_pipeline *ts_config_pipeline(const ts_config_policy *policy, const char *tensor, const int64_t *shape,
                                      unsigned ndim) {
    uint64_t elems = 1;
    for (unsigned i = 0; i < ndim; i++) {
        if (shape[i] < 0 || __builtin_mul_overflow(elems, (uint64_t)shape[i], &elems)) elems = UINT64_MAX;
    }
    for (unsigned i = 0; i < policy->rules_count; i++) {
        if (matches(&policy->rules[i], tensor, elems, ndim)) return &policy->rules[i].parsed;
    }
    return &policy->parsed;
}

bool ts_config_worker_momentum(const ts_config *config, const ts_pipeline *push) {
    return config->error_feedback.enabled && config->error_feedback.momentum_correction > 0 &&
           config->optimizer.name == TS_OPTIMIZER_SGD && ts_pipeline_is_sparse(push);
}

const char *ts_config_spell_portable(double value, char text[32]) {
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before = c_locale ? uselocale(c_locale) : (locale_t)0;
    ts_config_spell_real(value, text);
    if (c_locale) {
        uselocale(before);
        freelocale(c_locale);
    }
    return text;
}

void ts_config_feedback_text(const ts_config *config, char *text, size_t capacity) {
    static const char *const nonfinite[] = {"error", "skip", "zero"};
    char momentum[32], clip[32], from[32];
    snprintf(text, capacity,
             "enabled=%s momentum_correction=%s masking=%s clip_norm=%s nonfinite=%s warmup_steps=%llu warmup_from=%s",
             config->error_feedback.enabled ? "true" : "false",
             ts_config_spell_portable(config->error_feedback.momentum_correction, momentum),
             config->error_feedback.masking ? "true" : "false", ts_config_spell_portable(config->error_feedback.clip_norm, clip),
             nonfinite[config->error_feedback.nonfinite], (unsigned long long)config->error_feedback.warmup.steps,
             ts_config_spell_portable(config->error_feedback.warmup.from, from));
    /* Only what differs from the classic variant, so that its digest stays what it was. */
    size_t at = strlen(text);
    char beta[32];
    if (config->error_feedback.variant == TS_FEEDBACK_EF21) (void)snprintf(text + at, capacity - at, " variant=ef21");
    if (config->error_feedback.variant == TS_FEEDBACK_DECAYED) {
        (void)snprintf(text + at, capacity - at, " variant=decayed beta=%s", ts_config_spell_portable(config->error_feedback.beta, beta));
    }
    at += strlen(text + at);
    if (config->error_feedback.residual == TS_RESIDUAL_BF16) (void)snprintf(text + at, capacity - at, " residual=bf16");
}

double ts_config_lr(const ts_config *config, uint64_t step, uint64_t total_steps) {
    double lr = config->optimizer.lr;
    uint64_t warmup = config->optimizer.schedule.warmup_steps;
    if (step < warmup) return lr * ((double)step + 1) / (double)warmup;
    uint64_t after = step - warmup;
    switch (config->optimizer.schedule.name) {
    case TS_SCHEDULE_STEP: {
        uint64_t every = config->optimizer.schedule.every_steps;
        return every == 0 ? lr : lr * pow(config->optimizer.schedule.gamma, (double)(after / every));
    }
    case TS_SCHEDULE_COSINE: {
        if (total_steps <= warmup) return lr;
        double min_lr = config->optimizer.schedule.min_lr;
        double part = (double)after / (double)(total_steps - warmup);
        if (part >= 1) return min_lr;
        return min_lr + (lr - min_lr) * 0.5 * (1 + cos(3.14159265358979323846 * part));
    }
    case TS_SCHEDULE_CONSTANT: break;
    }
    return lr;
}

double ts_config_warmup_ratio(const ts_config *config, const ts_pipeline *pipeline, uint64_t step) {
    uint64_t steps = config->error_feedback.warmup.steps;
    if (step >= steps || !pipeline->select || !pipeline->select->takes_ratio) return 0;
    double from = config->error_feedback.warmup.from, own = pipeline->select_args.value[0];
    if (!(own < from)) return 0;
    double ratio = from * pow(own / from, (double)step / (double)steps);
    return ratio > own ? ratio : 0;
}
