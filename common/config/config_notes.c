/* SPDX-License-Identifier: Apache-2.0 */
/* What is accepted but worth telling. */
#include <stdio.h>
#include <string.h>

#include "common/config/config.h"

typedef void (*say_fn)(void *context, const char *text);

static bool has_sparse(const ts_config_policy *policy, bool with_ratio) {
    for (unsigned i = 0; i <= policy->rules_count; i++) {
        const ts_pipeline *p = i < policy->rules_count ? &policy->rules[i].parsed : &policy->parsed;
        if (with_ratio ? p->select && p->select->takes_ratio : ts_pipeline_is_sparse(p)) return true;
    }
    return false;
}

static bool all_lossless(const ts_config_policy *policy) {
    for (unsigned i = 0; i <= policy->rules_count; i++) {
        if (!ts_pipeline_is_lossless(i < policy->rules_count ? &policy->rules[i].parsed : &policy->parsed)) return false;
    }
    return true;
}

static bool matches_all(const ts_config_rule *rule) {
    return (!rule->match || strcmp(rule->match, "*") == 0) && rule->min_elems <= 1 && rule->max_elems == 0 &&
           rule->min_rank == 0 && (rule->max_rank == 0 || rule->max_rank >= TS_TENSOR_DIMS);
}

/* Rules behind one that matches everything never count. */
static void note_unreachable(const ts_config_policy *policy, const char *name, say_fn say, void *context) {
    char text[160];
    for (unsigned i = 0; i < policy->rules_count; i++) {
        if (!matches_all(&policy->rules[i])) continue;
        snprintf(text, sizeof text, "%s.rules[%u] matches every tensor: what follows it, default included, is never used",
                 name, i);
        say(context, text);
        return;
    }
}

static void note_later_versions(const ts_config *config, say_fn say, void *context) {
    if (config->http.listen) say(context, "http: not in this version, ignored");
}

static void note_feedback(const ts_config *config, say_fn say, void *context) {
    bool enabled = config->error_feedback.enabled, correction = config->error_feedback.momentum_correction > 0;
    if (!enabled && !all_lossless(&config->push)) {
        say(context, "error_feedback.enabled is false: what a push leaves out is lost");
    }
    if (ts_config_estimates(config) && config->consistency.on_worker_loss == TS_LOSS_GO_ON) {
        say(context, "error_feedback.variant ef21 with consistency.on_worker_loss go_on: the last gradient of a worker that is lost "
                     "stays in the mean for good; end is safer");
    }
    if (!enabled && correction) {
        say(context, "error_feedback.momentum_correction is off with error_feedback.enabled false: the servers apply "
                     "optimizer.momentum to every tensor");
    }
    if (enabled && correction && !has_sparse(&config->push, false)) {
        say(context, "error_feedback.momentum_correction concerns no tensor: no push pipeline selects");
    }
    if (enabled && !correction && config->optimizer.name == TS_OPTIMIZER_SGD && config->optimizer.momentum > 0 &&
        has_sparse(&config->push, false)) {
        say(context, "sparse pushes with momentum at the servers only: error_feedback.momentum_correction usually "
                     "gives better accuracy");
    }
    if (config->flush && (!enabled || ts_config_estimates(config))) {
        say(context, enabled ? "error_feedback.flush is not used with variant ef21: its residual is no sum that could be sent"
                             : "error_feedback.flush is not used with error_feedback.enabled false: there is no residual");
    }
    if (config->error_feedback.warmup.steps > 0 && !has_sparse(&config->push, true)) {
        say(context, "error_feedback.warmup concerns no tensor: no push pipeline has a ratio");
    }
}

/* A sparse packet says 0 of what it leaves out. */
static void note_robust(const ts_config *config, say_fn say, void *context) {
    ts_robust_name robust = config->aggregation.robust;
    if (!has_sparse(&config->push, false)) return;
    if (robust == TS_ROBUST_MEDIAN)
        say(context, "aggregation.robust median with sparse pushes: the median of an element that fewer than half of the workers "
                     "send is 0, and what they sent of it is gone; push densely, or by randomk, which selects alike everywhere");
    if (robust == TS_ROBUST_TRIMMED)
        say(context, "aggregation.robust trimmed with sparse pushes: of an element that few workers send the values may be those "
                     "left out, and are gone then; push densely, or by randomk, which selects alike everywhere");
}

static void note_checkpoint(const ts_config *config, say_fn say, void *context) {
    if (!ts_config_checkpoints(config)) return;
    if (config->checkpoint.every_steps == 0) {
        say(context, "checkpoint.every_steps is 0: checkpoints are written when asked (SIGUSR1, SIGTERM) and at the end only");
    }
    if (config->optimizer.name == TS_OPTIMIZER_NONE) {
        say(context, "checkpoints with optimizer.name none hold what Terse keeps; parameters and optimizer are your program's "
                     "to save and load");
    }
}

void ts_config_notes(const ts_config *config, void (*say)(void *context, const char *text), void *context) {
    note_later_versions(config, say, context);
    note_feedback(config, say, context);
    note_checkpoint(config, say, context);
    if (config->optimizer.name == TS_OPTIMIZER_NONE) {
        say(context, "optimizer.name is none: lr, momentum, weight_decay and schedule are not used");
    }
    note_robust(config, say, context);
    if (ts_config_whole_tensors(config)) {
        say(context, "lamb and clipping by norm keep every tensor whole on one server: servers.slice_elems is not used, and "
                     "limits.frame_bytes must hold 8 bytes an element of the largest tensor");
    }
    note_unreachable(&config->push, "push", say, context);
    note_unreachable(&config->pull, "pull", say, context);
}
