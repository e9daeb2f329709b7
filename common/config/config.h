/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration: YAML by schema (libcyaml), overridden by --set a.b=c,
 * checked before MPI starts. Every refusal names file, line, key, value and
 * what is allowed. The schema's table is the one source of keys, defaults,
 * ranges and docs (configs/README.md is generated from it).
 */
#ifndef TS_CONFIG_H
#define TS_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/status.h"
#include "common/codec/pipeline.h"
#include "common/contract/contract.h"

typedef enum {
    TS_OPTIMIZER_NONE,
    TS_OPTIMIZER_SGD,
    TS_OPTIMIZER_ADAGRAD,
    TS_OPTIMIZER_RMSPROP,
    TS_OPTIMIZER_ADAM,
    TS_OPTIMIZER_ADAMW,
    TS_OPTIMIZER_LAMB
} ts_optimizer_name; /* append */
typedef enum { TS_STRAGGLERS_WAIT, TS_STRAGGLERS_PROCEED, TS_STRAGGLERS_BACKUP } ts_stragglers;
typedef enum { TS_WHEN_EMPTY_WAIT, TS_WHEN_EMPTY_EXIT } ts_when_empty;
typedef enum { TS_LATE_RETURN, TS_LATE_APPLY } ts_late;
typedef enum { TS_LOSS_GO_ON, TS_LOSS_END } ts_loss;
typedef enum { TS_AGGREGATE_MEAN, TS_AGGREGATE_SAMPLES, TS_AGGREGATE_SUM } ts_aggregate_mode;
typedef enum { TS_ROBUST_NONE, TS_ROBUST_MEDIAN, TS_ROBUST_TRIMMED, TS_ROBUST_CLIP } ts_robust_name;
typedef enum { TS_FEEDBACK_CLASSIC, TS_FEEDBACK_DECAYED, TS_FEEDBACK_EF21 } ts_feedback_variant;
typedef enum { TS_RESIDUAL_FP32, TS_RESIDUAL_BF16 } ts_residual_format;
typedef enum { TS_SCHEDULE_CONSTANT, TS_SCHEDULE_STEP, TS_SCHEDULE_COSINE } ts_schedule_name;

/* First match wins: every condition that is given must hold. */
typedef struct {
    char *match;          /* glob on the tensor name, or NULL */
    uint64_t min_elems;   /* 0 for none */
    uint64_t max_elems;   /* elements <= this; 0 for none */
    uint32_t min_rank;    /* number of extents >= this; 0 for none */
    uint32_t max_rank;    /* <= this; 0 for none */
    char *pipeline;
    ts_pipeline parsed;
} ts_config_rule;

typedef struct {
    char *default_pipeline;   /* "default" in YAML */
    ts_pipeline parsed;
    ts_config_rule *rules;
    unsigned rules_count;
} ts_config_policy;

typedef struct {
    struct {
        char *model;          /* softmax | mlp | cnn | synthetic, or the plug-in's name */
        char *data;           /* fashion-mnist | none */
        char *data_dir;       /* where the .gz files are */
        char *shapes;         /* synthetic: file with one "name extent extent …" a line, relative to the config file */
        uint32_t epochs;
        uint32_t batch;       /* per worker */
        uint64_t seed;
        uint64_t max_steps;   /* 0: as many as the epochs give */
        uint32_t threads;     /* of OpenBLAS, a worker */
        uint32_t first_worker, all_workers; /* of all that share the data, when this job has a part of them; 0: it has all */
    } training;
    struct {
        char *plugin;         /* path of a model's .so, or NULL */
        char *id;             /* "new": of a job of its own launch; "any", or numbers: of one that runs (ts_config_worker_id) */
    } worker;
    struct {
        char *name;
        uint64_t memory_bytes; /* of a server, at most, for this job; 0: as much as limits.job_bytes lets it have */
    } job;
    struct {
        char *group;          /* who belongs together, with relays */
        uint64_t slice_elems;
        uint32_t replicas;    /* 1: the next server holds each slice, too */
        uint32_t history;     /* packets of each slice kept for workers that are behind */
    } servers;
    struct {
        ts_mode mode;
        uint32_t staleness;
        double deadline_s;
        double start_s;             /* the same at the start; see ts_config_start_us */
        ts_stragglers stragglers;
        uint32_t quorum;            /* workers that are enough, with stragglers other than wait */
        double straggler_s;         /* proceed: how long the others are waited for */
        ts_late late;
        ts_loss on_worker_loss;
    } consistency;
    struct {
        ts_optimizer_name name;
        double lr, momentum, weight_decay;
        bool decoupled_weight_decay; /* always with adamw and lamb */
        bool nesterov;
        double beta1, beta2;        /* adam, adamw, lamb */
        double alpha;               /* rmsprop */
        bool centered;              /* rmsprop */
        double eps;
        double clip_value, clip_norm; /* of the aggregate, per tensor; 0: off */
        struct {
            ts_schedule_name name;
            uint64_t warmup_steps;  /* linear up to lr */
            uint64_t every_steps;   /* step: multiply by gamma each so many steps */
            double gamma;
            double min_lr;          /* cosine: where it ends */
        } schedule;
    } optimizer;
    struct {
        ts_aggregate_mode mode;
        ts_robust_name robust;
        double trim;                /* trimmed: the part that is left out at each end */
        double clip_norm;           /* clip: of one worker's gradient of one tensor */
    } aggregation;
    struct {
        bool enabled;
        ts_feedback_variant variant;
        double beta;                /* decayed: what the residual is multiplied by before a gradient is added */
        ts_residual_format residual;
        double momentum_correction; /* 0: off */
        bool masking;
        double clip_norm;           /* 0: off; the global norm, scaled by 1/sqrt(workers) at each worker */
        ts_nonfinite nonfinite;     /* error | skip | zero */
        struct {
            uint64_t steps;         /* 0: none */
            double from;            /* ratio at step 0, exponentially down to each pipeline's own */
        } warmup;
    } error_feedback;
    bool flush; /* error_feedback.flush: what is left is pushed before a worker leaves. A matter of each worker */
    char *keep; /* error_feedback.keep: a folder for what must outlive the process; "off", "auto". A matter of each host */
    struct {
        char *secret_file;    /* that servers and workers share, or NULL */
    } auth;
    struct {
        char *config;         /* a relay: the file that says how it talks to the servers above, or NULL */
    } upstream;
    ts_config_policy push, pull;
    struct {
        uint64_t frame_bytes;       /* largest frame */
        uint64_t window_bytes;      /* credits a peer */
        uint64_t traffic_bytes;     /* of messages that a server holds for all its workers */
        uint64_t tensors;           /* largest number of tensors */
        uint32_t workers;           /* of a job that others join */
        uint32_t jobs;              /* that run at the same time */
        uint64_t job_bytes;         /* a server's memory for one job; 0: no limit */
    } limits;
    struct {
        char *dir;                  /* or NULL: ts_config_run_dir says which then */
        ts_when_empty when_empty;
        double drain_s;
        double orphan_s;            /* a job whose workers have all died is kept so long */
    } daemon;
    struct {
        char *dir;
        uint64_t every_steps;
        uint32_t keep;
        char *resume;               /* "auto", "never", or the folder of one checkpoint */
        bool at_end;
    } checkpoint;                   /* off without dir */
    struct {
        char *listen;
    } http;                         /* accepted, warned about: not in this version */
    struct {
        char *level;                /* error | warn | info | debug */
    } log;
} ts_config;

/*
 * Loads and checks a file, and the files that it names (data, only where `training` asks for it; shapes; plug-in).
 * path: the YAML file. overrides: "a.b=c" strings, applied in order; a list or section is YAML (push.rules=[...]).
 * Relative paths in the file count from its folder, those of overrides from the current one. out: [own],
 * ts_config_free.
 * error: [out] "file:line: what is wrong, what is allowed" (or "--set a.b=c: …").
 * Returns TERSE_OK, TERSE_ECONFIG, TERSE_EIO, TERSE_ENOMEM.
 */
terse_status ts_config_load(const char *path, const char *const *overrides, unsigned override_count, ts_config **out,
                            ts_error *error) TERSE_NODISCARD;
/*
 * As load, for a launch in mind: refuses also folders (checkpoint.dir, error_feedback.keep) that could not be made or written
 * to on this host. Makes none.
 */
terse_status ts_config_examine(const char *path, const char *const *overrides, unsigned override_count, ts_config **out,
                               ts_error *error) TERSE_NODISCARD;
/*
 * The file that config.upstream.config names, as a relay reads it: its side of the link to the servers above. config: of
 * `path`, the relay's own. Refuses what a relay cannot do there as well: checkpoints, error_feedback.flush, a group that
 * is its own. out: [own], ts_config_free. Returns as ts_config_load; TERSE_ECONFIG also when no file is named.
 */
terse_status ts_config_load_above(const ts_config *config, const char *path, ts_config **out, ts_error *error) TERSE_NODISCARD;
void ts_config_free(ts_config *config);

/*
 * The run directory of a daemon with this config: daemon.dir, else run/NAME. path: the config file's. dir: [out]
 * `capacity` bytes. Returns TERSE_OK, TERSE_ELIMIT.
 */
terse_status ts_config_run_dir(const ts_config *config, const char *path, char *dir, size_t capacity) TERSE_NODISCARD;

/* Whether the worker comes into a job that runs (worker.id). */
bool ts_config_joins(const ts_config *config);
/* Which worker the launch's rank `rank` would be there; UINT32_MAX: whichever. */
uint32_t ts_config_worker_id(const ts_config *config, uint32_t rank);

/* Calls say(context, text) for everything accepted but worth telling ("http: not in this version, ignored"). */
void ts_config_notes(const ts_config *config, void (*say)(void *context, const char *text), void *context);

/* The pipeline of a tensor by the policy's rules. Returns: [borrow] from the config. */
const ts_pipeline *ts_config_pipeline(const ts_config_policy *policy, const char *tensor, const int64_t *shape,
                                      unsigned ndim);

/* One of a model's tensors, as rules see it. */
typedef struct {
    const char *name;     /* [borrow] */
    const int64_t *shape; /* [borrow] ndim extents */
    unsigned ndim;
} ts_config_tensor;

/*
 * Calls say(context, text) for each rule that is the rule of none of a model's tensors: mistyped, or behind one that
 * takes them all. tensor(list, i) gives the i-th of `count`.
 */
void ts_config_unused_rules(const ts_config *config, ts_config_tensor (*tensor)(const void *list, size_t i),
                            const void *list, size_t count, void (*say)(void *context, const char *text), void *context);

/* Whether momentum and weight decay of this tensor are the worker's: error feedback and momentum correction are on, the
 * optimizer is sgd and its push pipeline is sparse. */
bool ts_config_worker_momentum(const ts_config *config, const ts_pipeline *push);

/* Whether checkpoints are written, or the job may go on from one. */
static inline bool ts_config_checkpoints(const ts_config *config) { return config->checkpoint.dir != NULL; }

/* One worker's share of limits.traffic_bytes. */
static inline uint64_t ts_config_traffic_share(const ts_config *config, uint32_t workers) {
    return config->limits.traffic_bytes / (workers > 0 ? workers : 1);
}

/* Whether error_feedback.keep names a folder, and there is something to keep. Pure. */
bool ts_config_keeps(const ts_config *config);

/* How long somebody is waited for at the start: consistency.start_s, never less than the deadline. Pure. */
static inline uint64_t ts_config_start_us(const ts_config *config) {
    double start_s = config->consistency.start_s, deadline_s = config->consistency.deadline_s;
    return (uint64_t)((start_s > deadline_s ? start_s : deadline_s) * 1e6);
}

/* Whether servers need norms of whole tensors, so that none is cut (lamb, clipping by norm). */
bool ts_config_whole_tensors(const ts_config *config);

/* Canonical text of hyper-parameters, for the contract. text: [out] of `capacity` bytes. */
void ts_config_optimizer_text(const ts_config *config, char *text, size_t capacity);
/* Whether workers push differences to an estimate that the servers keep, too (EF21). */
static inline bool ts_config_estimates(const ts_config *config) {
    return config->error_feedback.enabled && config->error_feedback.variant == TS_FEEDBACK_EF21;
}
void ts_config_feedback_text(const ts_config *config, char *text, size_t capacity);

#define TS_CONFIG_JOB_CHARS 32 /* of a job's name, the end included: TS_JOB_NAME_CHARS of the transport */
#define TS_CONFIG_HISTORY 16u /* default of servers.history */

/*
 * A contract without tensors, with all that servers must know of the job: what they need comes from there, never from
 * a file of theirs. out: [own], ts_contract_destroy. Returns as ts_contract_create.
 */
terse_status ts_config_contract(const ts_config *config, ts_contract **out) TERSE_NODISCARD;
/*
 * Under which config a server runs the job of a contract: the job's settings, checked as those of a file are, with the
 * limits and the deadline of the server's own config. Pipelines are the contract's, so push and pull are defaults here.
 * out: [own], ts_config_free. Returns TERSE_OK, TERSE_ECONFIG, TERSE_ECORRUPT, TERSE_ELIMIT (all with a sentence),
 * TERSE_ENOMEM.
 */
terse_status ts_config_of_contract(const ts_contract *contract, const ts_config *own, ts_config **out, ts_error *error)
    TERSE_NODISCARD;

/* Learning rate at a version. Warm-up gives lr * (step + 1) / warmup_steps, so that no step is lost.
 * total_steps: 0 when unknown (cosine then stays constant). Pure. */
double ts_config_lr(const ts_config *config, uint64_t step, uint64_t total_steps);
/* The selector's ratio at a step of the warm-up, or 0 to keep the pipeline's. Pure. */
double ts_config_warmup_ratio(const ts_config *config, const ts_pipeline *pipeline, uint64_t step);

/* configs/README.md, from the schema. */
terse_status ts_config_write_docs(FILE *out) TERSE_NODISCARD;

/* What every program's command line shares: CONFIG, --set, --help, --version, --log. */
typedef struct {
    const char *config;
    const char *overrides[64];
    unsigned override_count;
    bool help, version;
} ts_command_line;

/*
 * Takes the shared options out of argv; what it does not know stays in order (argc, argv updated). CONFIG is the first
 * argument that ends in .yaml or .yml, else the first that neither is an option nor follows an unknown one. Nothing
 * behind "--" is taken.
 * Returns TERSE_OK or TERSE_EINVAL with a sentence (the order of argv is lost then).
 */
terse_status ts_command_line_take(int *argc, char **argv, ts_command_line *out, ts_error *error) TERSE_NODISCARD;

/* Tells what is wrong, and returns the code. */
typedef int ts_decline(const char *what, int code);
/*
 * The same for a program that takes CONFIG and nothing else: answers --help and --version, refuses the rest.
 * out: [out]. Returns -1 to go on with; else the exit code.
 */
int ts_command_line_begin(int argc, char **argv, const char *program, const char *usage, ts_decline *decline, ts_command_line *out);

/* Exit codes of all programs; documented in README, stable. */
enum { TS_EXIT_OK = 0, TS_EXIT_FAILED = 1, TS_EXIT_CONFIG = 2, TS_EXIT_PEER = 3, TS_EXIT_DEADLINE = 4 };
/* The exit code of a worker whose last status this is. Thread: any. Returns: TS_EXIT_…. */
int ts_exit_code(terse_status status);
/*
 * The end of a program that wrote to standard output: writes out what stdio holds. Returns: `code`; TS_EXIT_FAILED when
 * that was TS_EXIT_OK and the output could not be written, now or before (a sentence on standard error says so).
 */
int ts_exit_flush(const char *program, int code);
#define TS_VERSION "0.1.0"

#endif
