/* SPDX-License-Identifier: Apache-2.0 */
#include "common/config/config_check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/text.h"
#include "common/config/config_optimizer.h"
#include "common/config/config_places.h"
#include "common/config/config_shapes.h"
#include "common/wire/secret.h"

/* What a frame needs beside the packets of a slice. */
#define FRAME_HEAD_BYTES 65536u
/* No packet of n elements is larger than this times n: an index and a value. */
#define GROUP_CHARS 31 /* TS_GROUP_CHARS of the transport, without the end */
#define ELEMENT_BYTES 8u

static bool is_built_in(const char *model) {
    static const char *const names[] = {"softmax", "mlp", "cnn", "synthetic"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(model, names[i]) == 0) return true;
    }
    return false;
}

/* A stand-in comes to the same rounds as the owner because they are functions of the packets in them. */
static terse_status check_replicas(const ts_config_source *source, const ts_config *config) {
    if (config->servers.replicas == 0) return TERSE_OK;
    if (config->consistency.mode != TS_MODE_BSP)
        return ts_config_refuse(source, "servers.replicas", "without rounds (consistency.mode ssp, asp) the order in which packets "
                                "came decides what comes of them, and a second server has another; allowed here: 0");
    if (config->consistency.stragglers != TS_STRAGGLERS_WAIT)
        return ts_config_refuse(source, "servers.replicas", "with consistency.stragglers proceed or backup a round depends on who "
                                "came first, and a second server may see another; allowed here: 0");
    if (config->upstream.config)
        return ts_config_refuse(source, "servers.replicas", "not below a relay (upstream.config); allowed here: 0");
    return TERSE_OK;
}

static terse_status check_consistency(const ts_config_source *source, const ts_config *config) {
    TS_TRY(check_replicas(source, config));
    if (config->consistency.mode != TS_MODE_BSP && config->optimizer.name == TS_OPTIMIZER_NONE) {
        return ts_config_refuse(source, "consistency.mode",
                                "with optimizer.name none a pull carries a round's average; allowed here: bsp");
    }
    bool robust = config->aggregation.robust == TS_ROBUST_MEDIAN || config->aggregation.robust == TS_ROBUST_TRIMMED;
    if (config->consistency.mode != TS_MODE_BSP && (robust || config->aggregation.mode == TS_AGGREGATE_SAMPLES)) {
        return ts_config_refuse(source, "consistency.mode", "each push is a step of its own, so that there is nothing to "
                                "weigh it against (aggregation.%s); allowed here: bsp", robust ? "robust" : "mode");
    }
    if (config->consistency.stragglers != TS_STRAGGLERS_WAIT && config->consistency.mode != TS_MODE_BSP) {
        return ts_config_refuse(source, "consistency.stragglers", "only bsp waits for stragglers; allowed here: wait");
    }
    if (config->consistency.stragglers != TS_STRAGGLERS_WAIT && config->consistency.quorum == 0) {
        return ts_config_refuse(source, "consistency.stragglers",
                                "needs consistency.quorum, how many workers are enough; at least 1");
    }
    static const char *const of_stragglers[] = {"consistency.quorum", "consistency.straggler_s", "consistency.late"};
    for (size_t i = 0; i < 3 && config->consistency.stragglers == TS_STRAGGLERS_WAIT; i++) {
        if (ts_config_chosen(source, of_stragglers[i]))
            return ts_config_refuse(source, of_stragglers[i], "only with consistency.stragglers proceed or backup");
    }
    if (config->consistency.staleness != 0 && config->consistency.mode != TS_MODE_SSP) {
        return ts_config_refuse(source, "consistency.staleness", "only with mode ssp; allowed here: 0");
    }
    return TERSE_OK;
}

static terse_status check_feedback(const ts_config_source *source, const ts_config *config) {
    bool ef21 = config->error_feedback.variant == TS_FEEDBACK_EF21;
    if (config->error_feedback.variant != TS_FEEDBACK_CLASSIC && !config->error_feedback.enabled) {
        return ts_config_refuse(source, "error_feedback.variant", "needs error_feedback.enabled true; allowed here: classic");
    }
    if (ts_config_chosen(source, "error_feedback.beta") && config->error_feedback.variant != TS_FEEDBACK_DECAYED) {
        return ts_config_refuse(source, "error_feedback.beta", "only with error_feedback.variant decayed");
    }
    if (!ef21) return TERSE_OK;
    bool stateful = ts_pipeline_is_stateful(&config->push.parsed);
    for (unsigned i = 0; i < config->push.rules_count; i++) {
        stateful = stateful || ts_pipeline_is_stateful(&config->push.rules[i].parsed);
    }
    if (stateful) {
        return ts_config_refuse(source, "error_feedback.variant", "ef21 sends differences already; allowed with a push "
                                "pipeline that begins with delta: classic, decayed");
    }
    if (config->error_feedback.momentum_correction > 0) {
        return ts_config_refuse(source, "error_feedback.momentum_correction",
                                "variant ef21 keeps an estimate and no sum that momentum could enter; allowed here: 0");
    }
    if (config->error_feedback.nonfinite == TS_NONFINITE_SKIP) {
        return ts_config_refuse(source, "error_feedback.nonfinite",
                                "with variant ef21 a gradient left out would read as zero; allowed here: error, zero");
    }
    if (config->error_feedback.residual != TS_RESIDUAL_FP32) {
        return ts_config_refuse(source, "error_feedback.residual", "variant ef21 stores an estimate; allowed here: fp32");
    }
    return TERSE_OK;
}

static terse_status check_limits(const ts_config_source *source, const ts_config *config) {
    uint64_t need = config->servers.slice_elems * ELEMENT_BYTES + FRAME_HEAD_BYTES;
    if (config->limits.frame_bytes >= need) return TERSE_OK;
    if (ts_config_given(source, "limits.frame_bytes")) {
        return ts_config_refuse(source, "limits.frame_bytes", "a slice of %llu elements does not fit; allowed: at least %llu",
                                (unsigned long long)config->servers.slice_elems, (unsigned long long)need);
    }
    return ts_config_refuse(source, "servers.slice_elems", "a slice does not fit limits.frame_bytes; allowed: at most %llu",
                            (unsigned long long)((config->limits.frame_bytes - FRAME_HEAD_BYTES) / ELEMENT_BYTES));
}

static terse_status check_checkpoint(const ts_config_source *source, const ts_config *config) {
    static const char *const wanting[] = {"checkpoint.every_steps", "checkpoint.keep", "checkpoint.at_end", "checkpoint.resume"};
    for (size_t i = 0; i < sizeof wanting / sizeof wanting[0] && !ts_config_checkpoints(config); i++) {
        if (ts_config_chosen(source, wanting[i])) return ts_config_refuse(source, wanting[i], "needs checkpoint.dir");
    }
    if (!ts_config_checkpoints(config)) return TERSE_OK;
    if (config->checkpoint.dir[0] == '\0') return ts_config_refuse(source, "checkpoint.dir", "allowed: a path");
    if (config->upstream.config) {
        return ts_config_refuse(source, "checkpoint.dir", "parameters and optimizer are above (upstream.config), and with relays "
                                "there are no checkpoints in this version; allowed: no checkpoint.dir");
    }
    if (config->consistency.stragglers != TS_STRAGGLERS_WAIT) {
        return ts_config_refuse(source, "checkpoint.dir", "rounds that do not wait leave packets under way at every step; "
                                "allowed with consistency.stragglers wait");
    }
    return TERSE_OK;
}

static terse_status check_rules(const ts_config_source *source, const char *name, const ts_config_policy *policy) {
    const ts_config_entry *entry = &source->entries[ts_config_key_index(ts_config_key_find(name))];
    for (unsigned i = 0; i < policy->rules_count; i++) {
        const ts_config_rule *rule = &policy->rules[i];
        char label[64];
        snprintf(label, sizeof label, "%s[%u]", name, i);
        if (rule->max_elems > 0 && rule->min_elems > rule->max_elems) {
            return ts_config_refuse_at(source, entry->rules[i].origin, label, NULL,
                                       "min_elems %llu is above max_elems %llu: no tensor can match",
                                       (unsigned long long)rule->min_elems, (unsigned long long)rule->max_elems);
        }
        if (rule->max_rank > 0 && rule->min_rank > rule->max_rank) {
            return ts_config_refuse_at(source, entry->rules[i].origin, label, NULL,
                                       "min_rank %u is above max_rank %u: no tensor can match", rule->min_rank,
                                       rule->max_rank);
        }
    }
    return TERSE_OK;
}

/* Refuses the first pipeline of push or pull of which `unfit` says so; side: "push" or "pull". */
static terse_status refuse_pipelines(const ts_config_source *source, const char *side, const ts_config_policy *policy,
                                     bool (*unfit)(const ts_pipeline *pipeline), const char *why) {
    char name[32], label[64];
    snprintf(name, sizeof name, "%s.default", side);
    if (unfit(&policy->parsed)) return ts_config_refuse(source, name, "%s", why);
    snprintf(name, sizeof name, "%s.rules", side);
    const ts_config_entry *entry = &source->entries[ts_config_key_index(ts_config_key_find(name))];
    for (unsigned i = 0; i < policy->rules_count; i++) {
        if (!unfit(&policy->rules[i].parsed)) continue;
        snprintf(label, sizeof label, "%s[%u]", name, i);
        return ts_config_refuse_at(source, entry->rules[i].origin, label, NULL, "%s: %s", policy->rules[i].parsed.text, why);
    }
    return TERSE_OK;
}

static terse_status check_directions(const ts_config_source *source, const ts_config *config) {
    /* Both ends of a pull may miss packets of the other (snapshots), so none can refer to the one before. */
    TS_TRY(refuse_pipelines(source, "pull", &config->pull, ts_pipeline_is_stateful,
                            "a pull sends differences already, and its receivers may start from a snapshot; allowed in push"));
    TS_TRY(refuse_pipelines(source, "push", &config->push, ts_pipeline_replaces,
                            "exact compares with what the receiver holds, and a push has no such reference; allowed in pull; "
                            "a push without loss is dense, or dense | zstd:1"));
    if (config->optimizer.name != TS_OPTIMIZER_NONE) return TERSE_OK;
    return refuse_pipelines(source, "pull", &config->pull, ts_pipeline_replaces,
                            "with optimizer.name none a pull carries a round's average, and there is nothing to compare it "
                            "with; allowed: dense, which is exact, and all others");
}

static terse_status check_data_files(const ts_config_source *source, const ts_config *config) {
    static const char *const files[] = {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
                                        "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[4600];
        snprintf(path, sizeof path, "%s/%s", config->training.data_dir, files[i]);
        if (access(path, R_OK) == 0) continue;
        const char *reason = strerror(errno);
        return ts_config_refuse(source, "training.data_dir", "%s: %s; install Debian's package dataset-fashion-mnist, or "
                                "name the folder that has its four .gz files", path, reason);
    }
    return TERSE_OK;
}

static terse_status check_shapes(const ts_config_source *source, const ts_config *config) {
    ts_shapes shapes;
    ts_error reason = {{0}};
    terse_status status = ts_shapes_read(config->training.shapes, config->limits.tensors, &shapes, &reason);
    if (status == TERSE_ENOMEM) return ts_error_set(source->error, status, "%s", reason.text);
    if (status != TERSE_OK) return ts_config_refuse(source, "training.shapes", "%s", reason.text);
    ts_shapes_clear(&shapes);
    return TERSE_OK;
}

/*
 * The files of the built-in trainer. A file that says nothing about training belongs to a program with data of its
 * own, and so it is not asked for Fashion-MNIST.
 */
static terse_status check_training(const ts_config_source *source, const ts_config *config) {
    const char *model = config->training.model;
    bool synthetic = strcmp(model, "synthetic") == 0, plugin = config->worker.plugin != NULL;
    bool data_none = strcmp(config->training.data, "none") == 0;
    if (plugin && access(config->worker.plugin, R_OK) != 0) {
        return ts_config_refuse(source, "worker.plugin", "%s: %s", config->worker.plugin, strerror(errno));
    }
    if (!plugin && !is_built_in(model)) {
        return ts_config_refuse(source, "training.model",
                                "allowed: softmax, mlp, cnn, synthetic, or any name together with worker.plugin");
    }
    if (synthetic && !plugin && !config->training.shapes) {
        return ts_config_refuse(source, "training.model", "needs training.shapes, a file with a tensor a line");
    }
    if (config->training.shapes) TS_TRY(check_shapes(source, config));
    bool model_given = ts_config_given(source, "training.model") && !plugin && !synthetic;
    if (model_given && data_none) {
        return ts_config_refuse(source, "training.data", "model %s trains on data; allowed: fashion-mnist", model);
    }
    bool data_given = ts_config_given(source, "training.data") || ts_config_given(source, "training.data_dir");
    if (!data_none && (model_given || data_given)) TS_TRY(check_data_files(source, config));
    return TERSE_OK;
}

/* A job's name stands in messages, logs and the roll call. */
static terse_status check_job(const ts_config_source *source, const ts_config *config) {
    if (ts_text_is_label(config->job.name, TS_CONFIG_JOB_CHARS)) return TERSE_OK;
    return ts_config_refuse(source, "job.name", "allowed: 1 to %d letters, digits, '.', '_' and '-', no '.' first", TS_CONFIG_JOB_CHARS - 1);
}

/* Whether a number is in a list of them before `end`. */
static bool given_before(const char *list, const char *end, unsigned long number) {
    for (const char *at = list; at < end; at += strcspn(at, ",") + 1)
        if (strtoul(at, NULL, 10) == number) return true;
    return false;
}

/* "new", "any", or numbers with commas between. */
static terse_status check_worker_id(const ts_config_source *source, const ts_config *config) {
    const char *at = config->worker.id;
    if (strcmp(at, "new") == 0 || strcmp(at, "any") == 0) return TERSE_OK;
    for (;;) {
        size_t digits = strspn(at, "0123456789");
        if (digits < 1 || digits > 6) break;
        unsigned long number = strtoul(at, NULL, 10);
        if (given_before(config->worker.id, at, number))
            return ts_config_refuse(source, "worker.id", "worker %lu is there twice; allowed: each number once", number);
        at += digits;
        if (!*at) return TERSE_OK;
        if (*at++ != ',') break;
    }
    return ts_config_refuse(source, "worker.id", "allowed: new, any, or numbers of workers, as 1 or 1,3");
}

/* A word alone is a slip: it would become a folder of that name. */
static terse_status check_keep(const ts_config_source *source, const ts_config *config) {
    if (!ts_config_keeps(config) || strchr(config->keep, '/')) return TERSE_OK;
    return ts_config_refuse(source, "error_feedback.keep", "allowed: off, auto, or a folder with a '/' in it, as /dev/shm/NAME");
}

static terse_status check_secret(const ts_config_source *source, const ts_config *config) {
    ts_error reason;
    if (!config->auth.secret_file || ts_secret_check(config->auth.secret_file, &reason) == TERSE_OK) return TERSE_OK;
    return ts_config_refuse(source, "auth.secret_file", "%s", reason.text);
}

/* What a relay reads as a worker of the servers above. */
static terse_status check_above(const ts_config_source *source, const ts_config *config) {
    if (ts_config_checkpoints(config))
        return ts_config_refuse(source, "checkpoint.dir", "upstream.config names this file, and a relay stands for workers whose "
                                "residuals and place in the data would be in no checkpoint; allowed: no checkpoint.dir");
    if (config->flush)
        return ts_config_refuse(source, "error_feedback.flush", "upstream.config names this file, and a relay leaves when its last "
                                "worker has; allowed: false");
    return TERSE_OK;
}

static terse_status check_groups(const ts_config_source *source, const ts_config *config) {
    uint32_t first = config->training.first_worker, all = config->training.all_workers;
    size_t len = strlen(config->servers.group);
    if (len == 0 || len > GROUP_CHARS)
        return ts_config_refuse(source, "servers.group", "allowed: 1 to %d characters", GROUP_CHARS);
    if (first > 0 && first >= all)
        return ts_config_refuse(source, "training.first_worker", "allowed: below training.all_workers, which is %u", all);
    if (source->above) TS_TRY(check_above(source, config));
    if (config->upstream.config && access(config->upstream.config, R_OK) != 0)
        return ts_config_refuse(source, "upstream.config", "%s: %s", config->upstream.config, strerror(errno));
    if (config->upstream.config && config->consistency.mode != TS_MODE_BSP)
        return ts_config_refuse(source, "consistency.mode", "below a relay (upstream.config) rounds are needed; allowed: bsp; "
                                "the servers above may have another");
    return TERSE_OK;
}

terse_status ts_config_check(const ts_config_source *source, const ts_config *config) {
    TS_TRY(check_job(source, config));
    TS_TRY(check_consistency(source, config));
    TS_TRY(ts_config_optimizer_check(source, config));
    TS_TRY(check_feedback(source, config));
    TS_TRY(check_limits(source, config));
    TS_TRY(check_groups(source, config));
    TS_TRY(check_checkpoint(source, config));
    TS_TRY(check_secret(source, config));
    TS_TRY(check_worker_id(source, config));
    TS_TRY(check_keep(source, config));
    TS_TRY(check_rules(source, "push.rules", &config->push));
    TS_TRY(check_rules(source, "pull.rules", &config->pull));
    TS_TRY(check_directions(source, config));
    if (source->places) TS_TRY(ts_config_check_places(source, config));
    return check_training(source, config);
}
