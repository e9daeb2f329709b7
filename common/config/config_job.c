/* SPDX-License-Identifier: Apache-2.0 */
/* A job's settings on their way: from a worker's config into the contract, and from there into a server's. */
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/config/config_check.h"
#include "common/config/config_optimizer.h"
#include "common/config/config_schema.h"

#define TEXT_CHARS 512
#define PLACE "the job's settings"

/* ---- the texts ----------------------------------------------------------------------------------------------------- */

enum { OPTIMIZER, FEEDBACK, ROUNDS, TEXTS };

/* What the words of the contract's texts are in a config. */
static const struct {
    unsigned text;
    const char *word, *key;
} words[] = {
    {OPTIMIZER, "name", "optimizer.name"},
    {OPTIMIZER, "lr", "optimizer.lr"},
    {OPTIMIZER, "momentum", "optimizer.momentum"},
    {OPTIMIZER, "weight_decay", "optimizer.weight_decay"},
    {OPTIMIZER, "nesterov", "optimizer.nesterov"},
    {OPTIMIZER, "decoupled", "optimizer.decoupled_weight_decay"},
    {OPTIMIZER, "beta1", "optimizer.beta1"},
    {OPTIMIZER, "beta2", "optimizer.beta2"},
    {OPTIMIZER, "alpha", "optimizer.alpha"},
    {OPTIMIZER, "centered", "optimizer.centered"},
    {OPTIMIZER, "eps", "optimizer.eps"},
    {OPTIMIZER, "schedule", "optimizer.schedule.name"},
    {OPTIMIZER, "warmup_steps", "optimizer.schedule.warmup_steps"},
    {OPTIMIZER, "every_steps", "optimizer.schedule.every_steps"},
    {OPTIMIZER, "gamma", "optimizer.schedule.gamma"},
    {OPTIMIZER, "min_lr", "optimizer.schedule.min_lr"},
    {OPTIMIZER, "aggregation", "aggregation.mode"},
    {OPTIMIZER, "robust", "aggregation.robust"},
    {OPTIMIZER, "trim", "aggregation.trim"},
    {OPTIMIZER, "robust_norm", "aggregation.clip_norm"},
    {OPTIMIZER, "clip_value", "optimizer.clip_value"},
    {OPTIMIZER, "clip_norm", "optimizer.clip_norm"},
    {FEEDBACK, "enabled", "error_feedback.enabled"},
    {FEEDBACK, "momentum_correction", "error_feedback.momentum_correction"},
    {FEEDBACK, "masking", "error_feedback.masking"},
    {FEEDBACK, "clip_norm", "error_feedback.clip_norm"},
    {FEEDBACK, "nonfinite", "error_feedback.nonfinite"},
    {FEEDBACK, "warmup_steps", "error_feedback.warmup.steps"},
    {FEEDBACK, "warmup_from", "error_feedback.warmup.from"},
    {FEEDBACK, "variant", "error_feedback.variant"},
    {FEEDBACK, "beta", "error_feedback.beta"},
    {FEEDBACK, "residual", "error_feedback.residual"},
    {ROUNDS, "stragglers", "consistency.stragglers"},
    {ROUNDS, "quorum", "consistency.quorum"},
    {ROUNDS, "straggler_s", "consistency.straggler_s"},
    {ROUNDS, "late", "consistency.late"},
    {ROUNDS, "history", "servers.history"},
    {ROUNDS, "memory_bytes", "job.memory_bytes"},
};

static const char *key_of(unsigned text, const char *word, size_t len) {
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (words[i].text == text && strlen(words[i].word) == len && memcmp(words[i].word, word, len) == 0)
            return words[i].key;
    return NULL;
}

/* Only what differs from the defaults. */
static void rounds_text(const ts_config *config, char *text, size_t capacity) {
    static const char *const policies[] = {"wait", "proceed", "backup"};
    ts_stragglers policy = config->consistency.stragglers;
    char seconds[32];
    size_t at = 0;
    text[0] = '\0';
    if (policy != TS_STRAGGLERS_WAIT)
        at += (size_t)snprintf(text, capacity, "stragglers=%s quorum=%u late=%s", policies[policy], config->consistency.quorum,
                               config->consistency.late == TS_LATE_APPLY ? "apply" : "return");
    if (policy == TS_STRAGGLERS_PROCEED)
        at += (size_t)snprintf(text + at, capacity - at, " straggler_s=%s",
                               ts_config_spell_portable(config->consistency.straggler_s, seconds));
    if (config->servers.history != TS_CONFIG_HISTORY)
        at += (size_t)snprintf(text + at, capacity - at, "%shistory=%u", at ? " " : "", config->servers.history);
    if (config->job.memory_bytes > 0)
        (void)snprintf(text + at, capacity - at, "%smemory_bytes=%llu", at ? " " : "",
                       (unsigned long long)config->job.memory_bytes);
}

terse_status ts_config_contract(const ts_config *config, ts_contract **out) {
    char optimizer[TEXT_CHARS], feedback[TEXT_CHARS], rounds[TEXT_CHARS];
    ts_config_optimizer_text(config, optimizer, sizeof optimizer);
    ts_config_feedback_text(config, feedback, sizeof feedback);
    rounds_text(config, rounds, sizeof rounds);
    ts_contract_options options = {.slice_elems = (size_t)config->servers.slice_elems, .seed = config->training.seed,
                                   .mode = config->consistency.mode, .staleness = config->consistency.staleness,
                                   .optimizer = optimizer, .feedback = feedback, .rounds = rounds,
                                   .whole_tensors = ts_config_whole_tensors(config)};
    return ts_contract_create(&options, out);
}

/* ---- back ------------------------------------------------------------------------------------------------------------ */

/* Overrides, one string after the other; a source borrows them until it is cleared. */
typedef struct {
    char text[8 * TEXT_CHARS];
    size_t at;
} overrides;

static terse_status set(ts_config_source *source, overrides *kept, const char *key, const char *value, size_t len) {
    size_t room = sizeof kept->text - kept->at;
    int wrote = snprintf(kept->text + kept->at, room, "%s=%.*s", key, (int)len, value);
    if (wrote < 0 || (size_t)wrote >= room || len > TEXT_CHARS)
        return ts_error_set(source->error, TERSE_ELIMIT, "%s: too long", PLACE);
    const char *override = kept->text + kept->at;
    kept->at += (size_t)wrote + 1;
    return ts_config_source_override(source, override);
}

static terse_status set_number(ts_config_source *source, overrides *kept, const char *key, uint64_t number) {
    char value[32];
    int len = snprintf(value, sizeof value, "%llu", (unsigned long long)number);
    return set(source, kept, key, value, (size_t)len);
}

/* Words as "lr=0.1", a space between two. */
static terse_status set_words(ts_config_source *source, overrides *kept, unsigned which, const char *text) {
    while (*text) {
        size_t len = strcspn(text, " "), name = strcspn(text, "= ");
        const char *key = name < len ? key_of(which, text, name) : NULL;
        if (!key) return ts_error_set(source->error, TERSE_ECORRUPT, "%s: \"%.*s\" is none", PLACE, len > 100 ? 100 : (int)len, text);
        TS_TRY(set(source, kept, key, text + name + 1, len - name - 1));
        text += len;
        if (*text) text++;
    }
    return TERSE_OK;
}

static terse_status read_contract(ts_config_source *source, overrides *kept, const ts_contract *contract,
                                  const ts_config *own, ts_config **out) {
    static const char *const modes[] = {"bsp", "ssp", "asp"};
    const char *const texts[TEXTS] = {contract->optimizer, contract->feedback, contract->rounds};
    for (unsigned t = 0; t < TEXTS; t++) TS_TRY(set_words(source, kept, t, texts[t]));
    TS_TRY(set(source, kept, "consistency.mode", modes[contract->mode], strlen(modes[contract->mode])));
    if (contract->staleness > 0) TS_TRY(set_number(source, kept, "consistency.staleness", contract->staleness));
    TS_TRY(set_number(source, kept, "training.seed", contract->seed));
    TS_TRY(set_number(source, kept, "servers.slice_elems", contract->slice_elems));
    TS_TRY(set_number(source, kept, "limits.frame_bytes", own->limits.frame_bytes));
    return ts_config_from_source(source, out);
}

/* What a config's own checks would have refused in a policy. */
static terse_status check_tensors(const ts_contract *contract, const ts_config *config, ts_error *error) {
    for (uint32_t t = 0; t < contract->tensor_count; t++) {
        const ts_tensor *tensor = &contract->tensors[t];
        bool momentum = ts_config_worker_momentum(config, &tensor->push);
        const char *wrong = ts_config_estimates(config) && ts_pipeline_is_stateful(&tensor->push)
                                ? "its push pipeline is not one for ef21"
                            : tensor->worker_momentum != momentum
                                ? "whose momentum it is does not follow from the settings"
                                : NULL;
        if (wrong) return ts_error_set(error, TERSE_ECORRUPT, "tensor %.160s: %s", tensor->name, wrong);
    }
    if (contract->whole_tensors != ts_config_whole_tensors(config))
        return ts_error_set(error, TERSE_ECORRUPT, "whether tensors are cut does not follow from the settings");
    return TERSE_OK;
}

terse_status ts_config_of_contract(const ts_contract *contract, const ts_config *own, ts_config **out, ts_error *error) {
    ts_config_source source;
    ts_config *config = NULL;
    overrides *kept = ts_mem_calloc(1, sizeof *kept);
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    terse_status status = kept && c_locale ? ts_config_source_start(&source, PLACE, error) : TERSE_ENOMEM;
    if (status == TERSE_OK) {
        locale_t before = uselocale(c_locale);
        source.bare = true;
        status = read_contract(&source, kept, contract, own, &config);
        ts_config_source_clear(&source);
        uselocale(before);
    }
    if (status == TERSE_OK) status = check_tensors(contract, config, error);
    if (c_locale) freelocale(c_locale);
    ts_mem_free(kept);
    if (status != TERSE_OK) {
        ts_config_free(config);
        return status;
    }
    config->limits = own->limits;
    config->servers.replicas = own->servers.replicas;
    config->consistency.deadline_s = own->consistency.deadline_s;
    config->consistency.start_s = own->consistency.start_s;
    *out = config;
    return TERSE_OK;
}
