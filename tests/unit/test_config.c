/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/config/config.h"
#include "common/config/config_shapes.h"
#include "tests/unit/config_cases/expected.h"
#include "tests/unit/unit.h"

#define CASES "tests/unit/config_cases/"

static const struct {
    const char *file, *text;
} bad_configs[] = {
#define X(file, text) {file, text},
    TS_BAD_CONFIGS(X)
#undef X
};

/* Loads text as a file of its own; *path is where it lay. */
static terse_status load_text(const char *text, const char *const *overrides, unsigned count, ts_config **out,
                              ts_error *error) {
    char path[] = "/tmp/terse-unit-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    terse_status status = ts_config_load(path, overrides, count, out, error);
    unlink(path);
    return status;
}

static ts_config *must_load(const char *text, const char *const *overrides, unsigned count) {
    ts_config *config = NULL;
    ts_error error = {{0}};
    terse_status status = load_text(text, overrides, count, &config, &error);
    ck_assert_msg(status == TERSE_OK, "%s", error.text);
    return config;
}

START_TEST(bad_files_are_refused_with_line_key_and_what_is_allowed) {
    char path[256], wanted[1024];
    ts_config *untouched = (ts_config *)&path, *config = untouched;
    ts_error error = {{0}};
    snprintf(path, sizeof path, CASES "%s", bad_configs[_i].file);
    snprintf(wanted, sizeof wanted, "%s%s", path, bad_configs[_i].text);
    ck_assert_status(ts_config_load(path, NULL, 0, &config, &error), TERSE_ECONFIG);
    ck_assert_msg(strncmp(error.text, wanted, strlen(wanted)) == 0, "said  %s\nnot   %s", error.text, wanted);
    ck_assert_ptr_eq(config, untouched);
}
END_TEST

START_TEST(files_that_cannot_be_read_are_named) {
    ts_config *config = NULL;
    ts_error error = {{0}};
    ck_assert_status(ts_config_load("no/such.yaml", NULL, 0, &config, &error), TERSE_EIO);
    ck_assert_str_eq(error.text, "no/such.yaml: No such file or directory");
    ck_assert_status(ts_config_load("configs", NULL, 0, &config, &error), TERSE_EIO);
    ck_assert_str_eq(error.text, "configs: a folder; allowed: a YAML file");
    ck_assert_ptr_null(config);
}
END_TEST

START_TEST(an_empty_mapping_gives_every_default) {
    ts_config *c = must_load("{}", NULL, 0);
    ck_assert_str_eq(c->training.model, "mlp");
    ck_assert_str_eq(c->training.data, "fashion-mnist");
    ck_assert_str_eq(c->training.data_dir, "/usr/share/datasets/fashion-mnist");
    ck_assert_ptr_null(c->training.shapes);
    ck_assert_ptr_null(c->worker.plugin);
    ck_assert_uint_eq(c->training.epochs, 8);
    ck_assert_uint_eq(c->training.batch, 64);
    ck_assert_uint_eq(c->training.seed, 1);
    ck_assert_uint_eq(c->training.threads, 1);
    ck_assert_uint_eq(c->servers.slice_elems, 262144);
    ck_assert_uint_eq(c->servers.history, 16);
    ck_assert_int_eq(c->consistency.mode, TS_MODE_BSP);
    ck_assert_double_eq(c->consistency.deadline_s, 30);
    ck_assert_int_eq(c->optimizer.name, TS_OPTIMIZER_SGD);
    ck_assert_double_eq(c->optimizer.lr, 0.05);
    ck_assert_double_eq(c->optimizer.momentum, 0.9);
    ck_assert(!c->optimizer.nesterov);
    ck_assert_int_eq(c->optimizer.schedule.name, TS_SCHEDULE_CONSTANT);
    ck_assert(c->error_feedback.enabled && c->error_feedback.masking);
    ck_assert_double_eq(c->error_feedback.momentum_correction, 0);
    ck_assert_int_eq(c->error_feedback.nonfinite, TS_NONFINITE_ERROR);
    ck_assert_double_eq(c->error_feedback.warmup.from, 0.25);
    ck_assert_str_eq(c->push.default_pipeline, "dense");
    ck_assert_str_eq(c->push.parsed.text, "fp32");
    ck_assert_uint_eq(c->push.rules_count, 0);
    ck_assert_uint_eq(c->limits.frame_bytes, 67108864);
    ck_assert_uint_eq(c->limits.tensors, 65536);
    ck_assert_str_eq(c->log.level, "info");
    ts_config_free(c);
}
END_TEST

START_TEST(every_section_is_read) {
    ts_config *c = must_load("training: {epochs: 3, seed: 18446744073709551615, data: none}\n"
                             "optimizer:\n  lr: 1e-3\n  schedule: {name: step, every_steps: 10, gamma: 0.5}\n"
                             "error_feedback: {masking: off, nonfinite: zero, warmup: {steps: 7, from: 0.5}}\n"
                             "push:\n  default: topk:0.01 | int8 | rice\n"
                             "  rules:\n"
                             "    - {match: \"*.bias\", pipeline: int8}\n"
                             "    - {max_elems: 100, min_rank: 2, max_rank: 3, min_elems: 5, pipeline: fp16}\n"
                             "pull: {default: fp16, rules: []}\n"
                             "log: {level: warn}\n",
                             NULL, 0);
    ck_assert_uint_eq(c->training.epochs, 3);
    ck_assert_uint_eq(c->training.seed, UINT64_MAX);
    ck_assert_double_eq(c->optimizer.lr, 1e-3);
    ck_assert_int_eq(c->optimizer.schedule.name, TS_SCHEDULE_STEP);
    ck_assert_double_eq(c->optimizer.schedule.gamma, 0.5);
    ck_assert(!c->error_feedback.masking);
    ck_assert_int_eq(c->error_feedback.nonfinite, TS_NONFINITE_ZERO);
    ck_assert_uint_eq(c->error_feedback.warmup.steps, 7);
    ck_assert_uint_eq(c->push.rules_count, 2);
    ck_assert_str_eq(c->push.rules[0].match, "*.bias");
    ck_assert_str_eq(c->push.rules[0].parsed.text, "int8");
    ck_assert_ptr_null(c->push.rules[1].match);
    ck_assert_uint_eq(c->push.rules[1].min_elems, 5);
    ck_assert_uint_eq(c->push.rules[1].max_elems, 100);
    ck_assert_uint_eq(c->push.rules[1].min_rank, 2);
    ck_assert_uint_eq(c->push.rules[1].max_rank, 3);
    ck_assert_uint_eq(c->pull.rules_count, 0);
    ck_assert_str_eq(c->log.level, "warn");
    ts_config_free(c);
}
END_TEST

START_TEST(overrides_win_over_the_file_in_order) {
    const char *const overrides[] = {
        "training.epochs=2", "training.epochs=5", "push.default=topk:0.1 | int8", "optimizer.schedule={name: cosine}",
        "push.rules=[{match: \"*.w\", pipeline: fp16}, {match: \"*\", pipeline: int8}]", "training.data=none"};
    ts_config *c = must_load("training: {epochs: 9}\npush: {rules: [{match: a, pipeline: dense}]}\n", overrides, 6);
    ck_assert_uint_eq(c->training.epochs, 5);
    ck_assert_str_eq(c->push.default_pipeline, "topk:0.1 | int8");
    ck_assert_int_eq(c->optimizer.schedule.name, TS_SCHEDULE_COSINE);
    ck_assert_uint_eq(c->push.rules_count, 2);
    ck_assert_str_eq(c->push.rules[0].match, "*.w");
    ts_config_free(c);
}
END_TEST

START_TEST(bad_overrides_are_named) {
    static const struct {
        const char *override, *text;
    } cases[] = {
        {"training.epochs", "--set training.epochs: not KEY=VALUE, as training.epochs=2"},
        {"=3", "--set =3: not KEY=VALUE"},
        {"training.epochs=0", "--set training.epochs=0: training.epochs: \"0\": allowed: a whole number from 1"},
        {"training.epochs=", "--set training.epochs=: training.epochs: the value is missing"},
        {"training.epoch=3", "--set training.epoch=3: training.epoch: unknown key; did you mean training.epochs?"},
        {"tr.epochs=3", "--set tr.epochs=3: tr.epochs: unknown key; did you mean training.epochs?"},
        {"push.rules=[", "--set push.rules=[: not valid YAML: "},
        {"push.rules=int8", "--set push.rules=int8: push.rules: a single value is not allowed here"},
        {"push.rules=[{match: a}]", "--set push.rules=[{match: a}]: push.rules[0]: the rule has no pipeline"},
        {"push=", "--set push=: push: the value is missing"},
        {"consistency.staleness=3", "--set consistency.staleness=3: consistency.staleness: \"3\": only with mode ssp"},
        {"error_feedback.momentum_correction=0.9\n", "--set error_feedback.momentum_correction=0.9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ts_config *config = NULL;
        ts_error error = {{0}};
        ck_assert_status(load_text("{}", &cases[i].override, 1, &config, &error), TERSE_ECONFIG);
        ck_assert_msg(strncmp(error.text, cases[i].text, strlen(cases[i].text)) == 0, "said %s", error.text);
        ck_assert_ptr_null(config);
    }
}
END_TEST

START_TEST(paths_of_a_file_count_from_its_folder) {
    const char *const relative[] = {"training.shapes=" CASES "good.shapes"};
    ts_config *c = NULL;
    ts_error error = {{0}};
    terse_status status = ts_config_load(CASES "good_synthetic.yaml", NULL, 0, &c, &error);
    ck_assert_msg(status == TERSE_OK, "%s", error.text);
    ck_assert_str_eq(c->training.shapes, CASES "good.shapes");
    ts_config_free(c);
    status = ts_config_load(CASES "good_synthetic.yaml", relative, 1, &c, &error);
    ck_assert_msg(status == TERSE_OK, "%s", error.text);
    ck_assert_str_eq(c->training.shapes, CASES "good.shapes");
    ts_config_free(c);
    const char *const bare[] = {"worker.plugin=Makefile"};
    c = must_load("{}", bare, 1);
    ck_assert_str_eq(c->worker.plugin, "./Makefile");
    ts_config_free(c);
}
END_TEST

START_TEST(shapes_are_read_with_comments_scalars_and_extents) {
    ts_shapes shapes;
    ck_assert_ok(ts_shapes_read(CASES "good.shapes", 10, &shapes, NULL));
    ck_assert_uint_eq(shapes.count, 3);
    ck_assert_str_eq(shapes.tensors[0].name, "fc.weight");
    ck_assert_uint_eq(shapes.tensors[0].ndim, 2);
    ck_assert_int_eq(shapes.tensors[0].shape[1], 7);
    ck_assert_uint_eq(shapes.tensors[2].ndim, 0);
    ck_assert_uint_eq(shapes.parameters, 21 + 3 + 1);
    ts_shapes_clear(&shapes);
    ck_assert_status(ts_shapes_read(CASES "good.shapes", 2, &shapes, NULL), TERSE_ECONFIG);
    ck_assert_ok(ts_shapes_read("configs/resnet50.shapes", 1000, &shapes, NULL));
    ck_assert_uint_eq(shapes.count, 161);
    ck_assert_uint_eq(shapes.parameters, 25557032);
    ts_shapes_clear(&shapes);
}
END_TEST

START_TEST(faults_of_shapes_are_named_by_line) {
    const struct {
        const char *text, *words;
    } bad[] = {{"a -1\n", ":1: a: extent \"-1\""},
               {"a 3\nb 3x\n", ":2: b: extent \"3x\""},
               {"a 65536 65536\n", ":1: a: extent \"65536\""},
               {"a 1 1 1 1 1 1 1 1 1\n", ":1: a: more than 8 extents"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char path[] = "/tmp/terse-shapes-XXXXXX";
        ts_shapes shapes;
        ts_error error;
        int fd = mkstemp(path);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(write(fd, bad[i].text, strlen(bad[i].text)), (ssize_t)strlen(bad[i].text));
        close(fd);
        terse_status status = ts_shapes_read(path, 10, &shapes, &error);
        unlink(path);
        ck_assert_status(status, TERSE_ECONFIG);
        ck_assert_msg(strstr(error.text, bad[i].words) && strstr(error.text, path), "%s", error.text);
    }
}
END_TEST

START_TEST(the_first_rule_that_matches_counts) {
    ts_config *c = must_load("push:\n  default: topk:0.001 | int8\n  rules:\n"
                             "    - {match: \"*.bias\", pipeline: int8}\n"
                             "    - {max_elems: 100, pipeline: fp16}\n"
                             "    - {min_rank: 4, pipeline: topk:0.1}\n",
                             NULL, 0);
    const int64_t small[] = {10, 10}, large[] = {10, 11}, kernel[] = {64, 3, 7, 7};
    ck_assert_str_eq(ts_config_pipeline(&c->push, "fc.bias", large, 2)->text, "int8");
    ck_assert_str_eq(ts_config_pipeline(&c->push, "fc.weight", small, 2)->text, "fp16");
    ck_assert_ptr_eq(ts_config_pipeline(&c->push, "fc.weight", large, 2), &c->push.parsed);
    ck_assert_ptr_eq(ts_config_pipeline(&c->push, "conv", kernel, 4), &c->push.rules[2].parsed);
    ck_assert_str_eq(ts_config_pipeline(&c->push, "scalar", NULL, 0)->text, "fp16");
    ts_config_free(c);
}
END_TEST

static ts_config_tensor one_of_two(const void *list, size_t i) {
    return (ts_config_tensor){((const char *const *)list)[i], NULL, 0};
}

static void remember(void *context, const char *text) {
    strcat(context, text);
    strcat(context, "\n");
}

START_TEST(rules_of_no_tensor_are_told) {
    ts_config *c = must_load("push:\n  rules:\n"
                             "    - {match: \"fc.*\", pipeline: int8}\n"
                             "    - {match: \"*.bias\", pipeline: fp16}\n"
                             "    - {match: \"fc.bias\", pipeline: int8}\n"
                             "pull:\n  rules:\n    - {min_elems: 100, pipeline: fp16}\n",
                             NULL, 0);
    const char *const names[] = {"fc.bias", "conv.bias"};
    char said[1024] = "";
    ts_config_unused_rules(c, one_of_two, names, 2, remember, said);
    ck_assert_str_eq(said, "push.rules[2] (match fc.bias, pipeline int8) is the rule of none of the 2 tensors\n"
                           "pull.rules[0] (no match, pipeline fp16) is the rule of none of the 2 tensors\n");
    ts_config_free(c);
}
END_TEST

START_TEST(momentum_is_the_workers_only_for_sparse_pushes_with_sgd) {
    const char *const off[] = {"error_feedback.enabled=false"};
    const char *text = "push: {default: topk:0.001, rules: [{match: b, pipeline: int8}]}\n"
                       "error_feedback: {momentum_correction: 0.9}\n";
    ts_config *c = must_load(text, NULL, 0);
    ck_assert(ts_config_worker_momentum(c, &c->push.parsed));
    ck_assert(!ts_config_worker_momentum(c, &c->push.rules[0].parsed));
    ts_config_free(c);
    c = must_load(text, off, 1);
    ck_assert(!ts_config_worker_momentum(c, &c->push.parsed));
    ts_config_free(c);
}
END_TEST

START_TEST(learning_rates_follow_their_schedules) {
    ts_config *c = must_load("optimizer: {lr: 0.4, schedule: {name: cosine, warmup_steps: 4, min_lr: 0.1}}", NULL, 0);
    ck_assert_double_eq_tol(ts_config_lr(c, 0, 104), 0.1, 1e-15);
    ck_assert_double_eq_tol(ts_config_lr(c, 3, 104), 0.4, 1e-15);
    ck_assert_double_eq_tol(ts_config_lr(c, 4, 104), 0.4, 1e-15);
    ck_assert_double_eq_tol(ts_config_lr(c, 54, 104), 0.25, 1e-15);
    ck_assert_double_eq_tol(ts_config_lr(c, 104, 104), 0.1, 1e-15);
    ck_assert_double_eq_tol(ts_config_lr(c, 1000, 104), 0.1, 1e-15);
    ck_assert_double_eq_tol(ts_config_lr(c, 1000, 0), 0.4, 1e-15);
    ck_assert_double_eq_tol(ts_config_lr(c, 4, 4), 0.4, 1e-15);
    ts_config_free(c);
    c = must_load("optimizer: {lr: 0.4, schedule: {name: step, every_steps: 10, gamma: 0.5}}", NULL, 0);
    ck_assert_double_eq_tol(ts_config_lr(c, 9, 0), 0.4, 1e-15);
    ck_assert_double_eq_tol(ts_config_lr(c, 10, 0), 0.2, 1e-15);
    ck_assert_double_eq_tol(ts_config_lr(c, 39, 0), 0.05, 1e-15);
    ts_config_free(c);
}
END_TEST

START_TEST(warm_up_goes_down_to_the_pipelines_own_ratio) {
    ts_config *c = must_load("push: {default: topk:0.01, rules: [{match: a, pipeline: int8}, {match: b, pipeline: "
                             "topk:0.5}]}\nerror_feedback: {warmup: {steps: 100, from: 0.25}}",
                             NULL, 0);
    const ts_pipeline *p = &c->push.parsed;
    ck_assert_double_eq_tol(ts_config_warmup_ratio(c, p, 0), 0.25, 1e-15);
    ck_assert_double_eq_tol(ts_config_warmup_ratio(c, p, 50), 0.05, 1e-12);
    for (uint64_t step = 1; step < 100; step++) {
        ck_assert_double_lt(ts_config_warmup_ratio(c, p, step), ts_config_warmup_ratio(c, p, step - 1));
        ck_assert_double_gt(ts_config_warmup_ratio(c, p, step), 0.01);
    }
    ck_assert_double_eq(ts_config_warmup_ratio(c, p, 100), 0);
    ck_assert_double_eq(ts_config_warmup_ratio(c, &c->push.rules[0].parsed, 0), 0);
    ck_assert_double_eq(ts_config_warmup_ratio(c, &c->push.rules[1].parsed, 0), 0);
    ts_config_free(c);
}
END_TEST

START_TEST(texts_for_the_contract_name_every_hyper_parameter) {
    ts_config *c = must_load("optimizer: {lr: 0.1, schedule: {name: cosine}}", NULL, 0);
    char text[512];
    ts_config_optimizer_text(c, text, sizeof text);
    ck_assert_str_eq(text, "name=sgd lr=0.1 momentum=0.9 weight_decay=0 nesterov=false schedule=cosine warmup_steps=0 "
                           "every_steps=0 gamma=0.1 min_lr=0");
    ts_config_feedback_text(c, text, sizeof text);
    ck_assert_str_eq(text, "enabled=true momentum_correction=0 masking=true clip_norm=0 nonfinite=error warmup_steps=0 "
                           "warmup_from=0.25");
    const char *decayed[] = {"error_feedback.variant=decayed", "error_feedback.beta=0.5", "error_feedback.residual=bf16"};
    ts_config *d = must_load("{}", decayed, 3);
    ts_config_feedback_text(d, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "warmup_from=0.25 variant=decayed beta=0.5 residual=bf16"));
    ts_config_free(d);
    char small[8];
    ts_config_optimizer_text(c, small, sizeof small);
    ck_assert_str_eq(small, "name=sg");
    ts_config_free(c);
}
END_TEST

/* What a worker puts into a contract, a server reads as the same settings. */
START_TEST(settings_come_through_a_contract) {
    static const char *const files[] = {
        "{}",
        "optimizer: {lr: 0.1, nesterov: true, weight_decay: 0.001, decoupled_weight_decay: true, clip_value: 3}\n",
        "optimizer: {name: adam, beta1: 0.8, eps: 1e-6, schedule: {name: cosine, min_lr: 0.0001, warmup_steps: 7}}\n",
        "optimizer: {name: lamb}\naggregation: {robust: clip, clip_norm: 2}\nservers: {slice_elems: 1000}\n",
        "optimizer: {name: rmsprop, momentum: 0.5, alpha: 0.9, centered: true}\naggregation: {robust: trimmed, trim: 0.2}\n",
        "optimizer: {name: none}\naggregation: {mode: samples}\nservers: {history: 3}\njob: {memory_bytes: 123456789}\n",
        "consistency: {mode: ssp, staleness: 3}\nerror_feedback: {variant: decayed, beta: 0.5, residual: bf16}\n",
        "consistency: {stragglers: proceed, quorum: 2, straggler_s: 0.25, late: apply}\ntraining: {seed: 9}\n",
        "consistency: {stragglers: backup, quorum: 3}\nerror_feedback: {variant: ef21, nonfinite: zero}\n",
        "error_feedback: {momentum_correction: 0.8, masking: false, clip_norm: 1, warmup: {steps: 10, from: 0.5}}\n",
        "error_feedback: {enabled: false, nonfinite: skip}\noptimizer: {schedule: {name: step, every_steps: 5, gamma: 0.5}}\n",
    };
    const char *const small[] = {"servers.slice_elems=1000"};
    ts_config *own = must_load("limits: {frame_bytes: 4000000, job_bytes: 5}\nconsistency: {deadline_s: 7}\n", small, 1);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        ts_config *said = must_load(files[i], NULL, 0), *read = NULL;
        ts_contract *contract, *again;
        ts_error error = {""}, difference = {""};
        ck_assert_ok(ts_config_contract(said, &contract));
        terse_status status = ts_config_of_contract(contract, own, &read, &error);
        ck_assert_msg(status == TERSE_OK, "%zu: %s", i, error.text);
        ck_assert_ok(ts_config_contract(read, &again));
        ck_assert_msg(!ts_contract_difference(contract, "worker", again, "server", &difference), "%zu: %s", i, difference.text);
        ck_assert_uint_eq(read->limits.frame_bytes, 4000000);
        ck_assert_uint_eq(read->limits.job_bytes, 5);
        ck_assert_double_eq(read->consistency.deadline_s, 7);
        ck_assert_uint_eq(read->servers.history, said->servers.history);
        ck_assert_uint_eq(read->job.memory_bytes, said->job.memory_bytes);
        ck_assert_mem_eq(&read->optimizer, &said->optimizer, sizeof read->optimizer);
        ck_assert_mem_eq(&read->aggregation, &said->aggregation, sizeof read->aggregation);
        ck_assert_mem_eq(&read->error_feedback, &said->error_feedback, sizeof read->error_feedback);
        ck_assert_int_eq(read->consistency.mode, said->consistency.mode);
        ck_assert_int_eq(read->consistency.late, said->consistency.late);
        ck_assert_double_eq(read->consistency.straggler_s, said->consistency.straggler_s);
        ts_contract_destroy(contract);
        ts_contract_destroy(again);
        ts_config_free(said);
        ts_config_free(read);
    }
    ts_config_free(own);
}
END_TEST

static void gather(void *context, const char *text) {
    char *all = context;
    strncat(all, text, 1023 - strlen(all));
    strncat(all, "\n", 1023 - strlen(all));
}

START_TEST(notes_tell_what_has_no_effect) {
    char all[1024] = "";
    ts_config *c = must_load("checkpoint: {dir: run/ckpt}\nhttp: {listen: \"127.0.0.1:8080\"}\noptimizer: {name: none}\n"
                             "push: {default: int8, rules: [{match: \"*\", pipeline: fp16}]}\n",
                             NULL, 0);
    ts_config_notes(c, gather, all);
    ck_assert_ptr_nonnull(strstr(all, "checkpoint.every_steps is 0"));
    ck_assert_ptr_nonnull(strstr(all, "checkpoints with optimizer.name none"));
    ck_assert_ptr_nonnull(strstr(all, "http: not in this version, ignored\n"));
    ck_assert_ptr_nonnull(strstr(all, "push.rules[0] matches every tensor"));
    ck_assert_ptr_nonnull(strstr(all, "optimizer.name is none"));
    ts_config_free(c);
    static const char *const unused[] = {"error_feedback: {flush: true, variant: ef21}", "error_feedback: {flush: true, enabled: false}"};
    for (int i = 0; i < 2; i++) {
        c = must_load(unused[i], NULL, 0);
        all[0] = '\0';
        ts_config_notes(c, gather, all);
        ck_assert_ptr_nonnull(strstr(all, i ? "there is no residual" : "is not used with variant ef21"));
        ck_assert_int_eq(strstr(all, "stays in the mean for good") != NULL, i == 0);
        ts_config_free(c);
    }
    c = must_load("{}", NULL, 0);
    all[0] = '\0';
    ts_config_notes(c, gather, all);
    ck_assert_str_eq(all, "");
    ts_config_free(c);
}
END_TEST

START_TEST(numbers_do_not_depend_on_the_locale) {
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8", "de_DE"};
    const char *set = NULL;
    for (size_t i = 0; !set && i < 4; i++) set = setlocale(LC_ALL, names[i]);
    ts_config *c = must_load("optimizer: {lr: 0.125}", NULL, 0);
    ck_assert_double_eq(c->optimizer.lr, 0.125);
    char text[512];
    ts_config_optimizer_text(c, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "lr=0.125 "));
    ts_config_free(c);
    setlocale(LC_ALL, "C");
}
END_TEST

/* Makes each allocation fail in turn; the file must then load, or be refused for want of memory with nothing lost. */
START_TEST(running_out_of_memory_loses_nothing) {
    const char *const overrides[] = {"push.rules=[{match: \"*.bias\", pipeline: int8}]", "optimizer.lr=0.1"};
    for (int64_t countdown = 0;; countdown++) {
        ck_assert_msg(countdown < 100000, "the load never succeeded");
        ts_config *config = NULL;
        ts_error error = {{0}};
        ts_mem_fail_after(countdown);
        terse_status status = ts_config_load(CASES "good_synthetic.yaml", overrides, 2, &config, &error);
        ts_mem_fail_after(-1);
        if (status == TERSE_OK) {
            ts_config_free(config);
            ck_assert_int_gt(countdown, 50);
            break;
        }
        ck_assert_msg(status == TERSE_ENOMEM, "countdown %lld: %s: %s", (long long)countdown, terse_status_name(status),
                      error.text);
        ck_assert_ptr_null(config);
    }
}
END_TEST

static char *read_all(FILE *file) {
    char *text = calloc(1, 1 << 16);
    ck_assert_ptr_nonnull(text);
    rewind(file);
    ck_assert_uint_lt(fread(text, 1, (1 << 16) - 1, file), (1 << 16) - 1);
    return text;
}

START_TEST(the_docs_list_every_config) {
    FILE *made = tmpfile();
    static char text[65536];
    char row[280];
    ck_assert_ok(ts_config_write_docs(made));
    rewind(made);
    text[fread(text, 1, sizeof text - 1, made)] = 0;
    fclose(made);
    DIR *folder = opendir("configs");
    ck_assert_ptr_nonnull(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        size_t len = strlen(entry->d_name);
        if (len < 5 || strcmp(entry->d_name + len - 5, ".yaml") != 0) continue;
        snprintf(row, sizeof row, "| [%s](%s) |", entry->d_name, entry->d_name);
        ck_assert_msg(strstr(text, row), "configs/README.md does not list %s", entry->d_name);
    }
    closedir(folder);
}
END_TEST

START_TEST(the_committed_docs_are_up_to_date) {
    FILE *made = tmpfile(), *committed = fopen("configs/README.md", "rb");
    ck_assert(made && committed);
    ck_assert_ok(ts_config_write_docs(made));
    char *now = read_all(made), *then = read_all(committed);
    ck_assert_msg(strcmp(now, then) == 0, "run: build/terse check --docs > configs/README.md");
    free(now);
    free(then);
    fclose(made);
    fclose(committed);
}
END_TEST

START_TEST(every_config_of_the_repository_loads) {
    static const char *const names[] = {"fashion-mnist", "fashion-mnist-dense", "fashion-mnist-uniform",
                                        "fashion-mnist-no-feedback", "cnn", "softmax", "bench-resnet50", "quadratic"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        ts_config *config = NULL;
        ts_error error = {{0}};
        snprintf(path, sizeof path, "configs/%s.yaml", names[i]);
        terse_status status = ts_config_load(path, NULL, 0, &config, &error);
        ck_assert_msg(status == TERSE_OK, "%s", error.text);
        ts_config_free(config);
    }
}
END_TEST

START_TEST(the_command_line_leaves_what_is_not_shared) {
    char *argv[] = {"terse-worker", "--summary", "out.json", "c.yaml", "--set", "a.b=c", "--set=d=e", "--log", "debug",
                    "--plugin", "m.so", "--help", NULL};
    int argc = 12;
    ts_command_line line;
    ts_error error;
    ck_assert_ok(ts_command_line_take(&argc, argv, &line, &error));
    ck_assert_int_eq(argc, 5);
    ck_assert_str_eq(argv[1], "--summary");
    ck_assert_str_eq(argv[2], "out.json");
    ck_assert_str_eq(argv[3], "--plugin");
    ck_assert_str_eq(argv[4], "m.so");
    ck_assert_ptr_null(argv[5]);
    ck_assert_str_eq(line.config, "c.yaml");
    ck_assert_uint_eq(line.override_count, 3);
    ck_assert_str_eq(line.overrides[0], "a.b=c");
    ck_assert_str_eq(line.overrides[1], "d=e");
    ck_assert_str_eq(line.overrides[2], "log.level=debug");
    ck_assert(line.help && !line.version);
}
END_TEST

START_TEST(bad_command_lines_are_refused) {
    ts_command_line line;
    ts_error error;
    char *no_value[] = {"terse", "c.yaml", "--set", NULL};
    int argc = 3;
    ck_assert_status(ts_command_line_take(&argc, no_value, &line, &error), TERSE_EINVAL);
    char *bad_level[] = {"terse", "--log", "loud", NULL};
    argc = 3;
    ck_assert_status(ts_command_line_take(&argc, bad_level, &line, &error), TERSE_EINVAL);
    ck_assert_str_eq(error.text, "--log loud: allowed: error, warn, info, debug");
    char *plain[] = {"terse", "--", "c.yaml", NULL};
    argc = 3;
    ck_assert_ok(ts_command_line_take(&argc, plain, &line, &error));
    ck_assert_ptr_null(line.config);
    ck_assert_int_eq(argc, 3);
    char *unnamed[] = {"terse", "config", NULL};
    argc = 2;
    ck_assert_ok(ts_command_line_take(&argc, unnamed, &line, &error));
    ck_assert_str_eq(line.config, "config");
}
END_TEST

TCase *test_config(void);
TCase *test_config(void) {
    TCase *t = tcase_create("config");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, bad_files_are_refused_with_line_key_and_what_is_allowed, 0,
                        (int)(sizeof bad_configs / sizeof bad_configs[0]));
    tcase_add_test(t, files_that_cannot_be_read_are_named);
    tcase_add_test(t, an_empty_mapping_gives_every_default);
    tcase_add_test(t, every_section_is_read);
    tcase_add_test(t, overrides_win_over_the_file_in_order);
    tcase_add_test(t, bad_overrides_are_named);
    tcase_add_test(t, paths_of_a_file_count_from_its_folder);
    tcase_add_test(t, shapes_are_read_with_comments_scalars_and_extents);
    tcase_add_test(t, faults_of_shapes_are_named_by_line);
    tcase_add_test(t, the_first_rule_that_matches_counts);
    tcase_add_test(t, rules_of_no_tensor_are_told);
    tcase_add_test(t, momentum_is_the_workers_only_for_sparse_pushes_with_sgd);
    tcase_add_test(t, learning_rates_follow_their_schedules);
    tcase_add_test(t, warm_up_goes_down_to_the_pipelines_own_ratio);
    tcase_add_test(t, texts_for_the_contract_name_every_hyper_parameter);
    tcase_add_test(t, settings_come_through_a_contract);
    tcase_add_test(t, notes_tell_what_has_no_effect);
    tcase_add_test(t, numbers_do_not_depend_on_the_locale);
    tcase_add_test(t, running_out_of_memory_loses_nothing);
    tcase_add_test(t, the_docs_list_every_config);
    tcase_add_test(t, the_committed_docs_are_up_to_date);
    tcase_add_test(t, every_config_of_the_repository_loads);
    tcase_add_test(t, the_command_line_leaves_what_is_not_shared);
    tcase_add_test(t, bad_command_lines_are_refused);
    return t;
}
