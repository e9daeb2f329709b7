/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole clusters that go on from checkpoints: the same bits as never having stopped, for everything that keeps state;
 * and what must not be gone on from is refused by name.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/ckpt/ckpt_manifest.h"
#include "tests/sim/cluster.h"
#include "tests/unit/unit.h"

#define SECOND 1000000u
#define STEPS 12
#define MOST 16

static char folder[64];

static void make(void) {
    strcpy(folder, "/tmp/terse-resume-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void unmake(void) {
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static void remove_folder(const char *name) {
    char command[160];
    snprintf(command, sizeof command, "rm -rf %s/%s", folder, name);
    ck_assert_int_eq(system(command), 0);
}

typedef struct {
    const char *overrides[MOST];
    unsigned count;
    char text[4][160];
} settings;

/* Checkpoints every `every` steps into folder/name; resume: NULL for auto. The variant's settings end with NULL. */
static settings settings_of(const char *name, unsigned every, const char *resume, const char *const *variant) {
    settings s = {.count = 0};
    snprintf(s.text[0], sizeof s.text[0], "checkpoint.dir=%s/%s", folder, name);
    snprintf(s.text[1], sizeof s.text[1], "checkpoint.every_steps=%u", every);
    snprintf(s.text[2], sizeof s.text[2], "checkpoint.keep=100");
    snprintf(s.text[3], sizeof s.text[3], "checkpoint.resume=%s", resume ? resume : "auto");
    s.count = 4;
    for (; variant && *variant; variant++) s.overrides[s.count++] = *variant;
    return s;
}

static void run(const ts_cluster_spec *like, settings *s, ts_cluster_result *out) {
    ts_cluster_spec spec = *like;
    for (unsigned i = 0; i < 4; i++) s->overrides[i] = s->text[i];
    spec.overrides = s->overrides;
    spec.override_count = s->count;
    terse_status status = ts_cluster_run(&spec, out);
    ck_assert_msg(status == TERSE_OK, "%s: %s", terse_status_name(status), out->message);
}

static ts_cluster_spec spec_of(uint64_t seed, uint32_t servers, uint32_t workers) {
    ts_cluster_spec spec = {.network = {.seed = seed, .servers = servers, .workers = workers, .delay_min_us = 10,
                                        .delay_max_us = 30000, .frame_limit_bytes = 1 << 20},
                            .limit_us = 900ull * SECOND};
    ts_cluster_vary(&spec, seed);
    for (uint32_t w = 0; w < workers; w++) spec.steps[w] = STEPS;
    return spec;
}

static void same(const char *what, const ts_cluster_result *a, const ts_cluster_result *b, uint32_t workers) {
    ck_assert_msg(strcmp(a->xxh3, b->xxh3) == 0, "%s: parameters %s and %s", what, a->xxh3, b->xxh3);
    for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++) {
        size_t bytes = ts_cluster_tensors[t].n * sizeof(float);
        for (uint32_t w = 0; w < workers; w++) {
            ck_assert_msg(memcmp(a->replica[w][t], b->replica[w][t], bytes) == 0, "%s: replica %u of worker %u", what, t, w);
            ck_assert_msg(memcmp(a->residual[w][t], b->residual[w][t], bytes) == 0, "%s: residual %u of worker %u", what, t, w);
        }
    }
}

/* Goes on from one of a run's checkpoints, at step `cut`, and compares. */
typedef void (*go_on)(const char *what, const ts_cluster_spec *spec, const char *path, uint64_t cut,
                      const ts_cluster_result *whole, const char *const *variant);

static void has_the_same_bits(const char *what, const ts_cluster_spec *spec, const char *path, uint64_t cut,
                              const ts_cluster_result *whole, const char *const *variant) {
    ts_cluster_result rest;
    settings s = settings_of("rest", 0, path, variant);
    run(spec, &s, &rest);
    ck_assert_msg(rest.finished, "%s from step %llu: %s", what, (unsigned long long)cut, rest.message);
    same(what, whole, &rest, spec->network.workers);
    ts_cluster_result_free(&rest);
}

/* Goes on from each of the run's checkpoints in turn. Returns how many there were before the end. */
static unsigned from_each(const char *what, const ts_cluster_spec *spec, const char *const *variant, go_on goes_on) {
    settings s = settings_of("whole", 3, NULL, variant);
    ts_cluster_result whole;
    ts_ckpt_found *list = NULL;
    size_t count = 0;
    unsigned tried = 0;
    char dir[96];
    run(spec, &s, &whole);
    ck_assert_msg(whole.finished, "%s: %s", what, whole.message);
    snprintf(dir, sizeof dir, "%s/whole", folder);
    ck_assert_ok(ts_ckpt_scan(dir, &list, &count, NULL));
    for (size_t i = 0; i < count; i++) {
        char path[192];
        if (!list[i].committed || list[i].version >= STEPS) continue;
        snprintf(path, sizeof path, "%s/%s", dir, list[i].name);
        goes_on(what, spec, path, list[i].version, &whole, variant);
        remove_folder("rest");
        tried++;
    }
    ts_mem_free(list);
    ts_cluster_result_free(&whole);
    unmake();
    make();
    return tried;
}

#define VARIANT(...) (const char *const[]){__VA_ARGS__, NULL}
#define NO_RULES "push.rules=[]", "pull.rules=[]"
#define PLAIN_FEEDBACK "error_feedback.momentum_correction=0"

/* X(name, settings): everything that keeps something from one step to the next. */
static const struct {
    const char *name;
    const char *const *settings;
} variants[] = {
    {"topk, int8, momentum correction, masking, warm-up", VARIANT("training.seed=7")},
    {"randomk", VARIANT("push.default=randomk:0.1 | int8", "pull.default=randomk:0.2 | fp32")},
    {"qsgd", VARIANT("push.default=topk:0.2 | qsgd:4", "pull.default=topk:0.2 | qsgd:6")},
    {"bernoulli, magnitude", VARIANT("push.default=bernoulli:0.2 | fp16", "pull.default=magnitude:0.3 | fp16")},
    {"adam", VARIANT("optimizer.name=adam", "optimizer.momentum=0", PLAIN_FEEDBACK)},
    {"adamw, dense pull", VARIANT("optimizer.name=adamw", "optimizer.momentum=0", PLAIN_FEEDBACK, "pull.default=dense", "pull.rules=[]")},
    {"lamb", VARIANT("optimizer.name=lamb", "optimizer.momentum=0", PLAIN_FEEDBACK)},
    {"rmsprop, centered, momentum", VARIANT("optimizer.name=rmsprop", "optimizer.centered=true", "optimizer.momentum=0.5",
                                            PLAIN_FEEDBACK)},
    {"adagrad", VARIANT("optimizer.name=adagrad", "optimizer.momentum=0", PLAIN_FEEDBACK)},
    {"step schedule, nesterov at the servers", VARIANT("optimizer.schedule.name=step", "optimizer.schedule.every_steps=4",
                                                       "optimizer.schedule.warmup_steps=5", "optimizer.nesterov=true",
                                                       PLAIN_FEEDBACK)},
    {"weight decay at the workers", VARIANT("optimizer.weight_decay=0.01", "optimizer.nesterov=true")},
    {"delta", VARIANT("push.default=delta:5 | linear:4", NO_RULES, PLAIN_FEEDBACK)},
    {"ef21", VARIANT("error_feedback.variant=ef21", PLAIN_FEEDBACK)},
    {"decayed", VARIANT("error_feedback.variant=decayed", "error_feedback.beta=0.9")},
    {"bf16 residual", VARIANT("error_feedback.residual=bf16")},
    {"clipped gradients", VARIANT("error_feedback.clip_norm=2")},
    {"powersgd both ways", VARIANT("push.default=powersgd:2 | fp16", "pull.default=powersgd:2 | fp32", PLAIN_FEEDBACK)},
    {"no error feedback", VARIANT("error_feedback.enabled=false", "error_feedback.momentum_correction=0")},
    {"sign, ternary", VARIANT("push.default=sign", "pull.default=ternary", PLAIN_FEEDBACK)},
};

START_TEST(resumed_runs_have_the_bits_of_uninterrupted_ones) {
    ts_cluster_spec spec = spec_of(5, 2, 3);
    unsigned tried = from_each(variants[_i].name, &spec, variants[_i].settings, has_the_same_bits);
    ck_assert_msg(tried >= 2, "%s: %u checkpoints", variants[_i].name, tried);
}
END_TEST

START_TEST(other_numbers_of_servers_and_workers_resume_alike) {
    static const uint32_t numbers[][2] = {{1, 1}, {1, 4}, {3, 2}, {5, 5}};
    unsigned tried = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        ts_cluster_spec spec = spec_of(30 + i, numbers[i][0], numbers[i][1]);
        tried += from_each("numbers", &spec, NULL, has_the_same_bits);
    }
    ck_assert_uint_ge(tried, 6);
}
END_TEST

/* Messages of checkpoints are lost, repeated and damaged like all others. */
START_TEST(checkpoints_over_a_bad_network_are_whole) {
    unsigned tried = 0;
    for (uint64_t seed = 100; seed < 130; seed++) {
        ts_cluster_spec spec = spec_of(seed, 2, 3);
        spec.network.reorder = true;
        spec.network.drop = 0.08;
        spec.network.duplicate = 0.1;
        spec.network.corrupt = 0.03;
        tried += from_each("a bad network", &spec, NULL, has_the_same_bits);
    }
    ck_assert_uint_ge(tried, 30);
}
END_TEST

START_TEST(auto_goes_on_by_itself_and_again) {
    ts_cluster_spec spec = spec_of(9, 2, 3), first = spec;
    ts_cluster_result whole, part, rest, again;
    settings s = settings_of("whole", 0, "never", NULL);
    run(&spec, &s, &whole);
    for (uint32_t w = 0; w < 3; w++) first.steps[w] = 8;
    s = settings_of("run", 4, NULL, NULL);
    run(&first, &s, &part); /* steps are not part of the contract here: this is a run that was stopped */
    ck_assert_msg(part.finished, "%s", part.message);
    s = settings_of("run", 2, NULL, NULL);
    run(&spec, &s, &rest);
    ck_assert_msg(rest.finished, "%s", rest.message);
    same("auto", &whole, &rest, 3);
    run(&spec, &s, &again); /* from the last one that the second start wrote */
    same("auto again", &whole, &again, 3);
    ts_cluster_result_free(&whole);
    ts_cluster_result_free(&part);
    ts_cluster_result_free(&rest);
    ts_cluster_result_free(&again);
}
END_TEST

/* ---- without rounds ------------------------------------------------------------------------------------------------------ */

/* Two runs, the second from a checkpoint of the first: done again from their receipts as one run, bit for bit. */
static void replayed(const char *what, const ts_cluster_spec *spec, const char *path, uint64_t cut,
                     const ts_cluster_result *first, const char *const *variant) {
    ts_cluster_result second, again;
    char complaint[256];
    settings s = settings_of("rest", 0, path, variant);
    run(spec, &s, &second);
    ck_assert_msg(second.finished, "%s from step %llu: %s", what, (unsigned long long)cut, second.message);
    ts_cluster_spec like = *spec;
    like.overrides = s.overrides;
    like.override_count = s.count;
    ck_assert_ok(ts_replay_resumed(&like, first, cut, &second, &again, complaint, sizeof complaint));
    ck_assert_msg(complaint[0] == '\0', "%s from step %llu: %s", what, (unsigned long long)cut, complaint);
    for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++) {
        size_t bytes = ts_cluster_tensors[t].n * sizeof(float);
        ck_assert_msg(memcmp(second.fetched[t], again.fetched[t], bytes) == 0, "%s: parameters of tensor %u", what, t);
        for (uint32_t w = 0; w < spec->network.workers; w++)
            ck_assert_msg(memcmp(second.residual[w][t], again.residual[w][t], bytes) == 0, "%s: residual %u of worker %u",
                          what, t, w);
    }
    ts_cluster_result_free(&second);
    ts_cluster_result_free(&again);
}

static const struct {
    const char *name;
    const char *const *settings;
} modes[] = {
    {"ssp", VARIANT("consistency.mode=ssp", "consistency.staleness=2")},
    {"ssp 0", VARIANT("consistency.mode=ssp", "consistency.staleness=0")},
    {"asp", VARIANT("consistency.mode=asp")},
    {"asp, adam", VARIANT("consistency.mode=asp", "optimizer.name=adam", "optimizer.momentum=0", PLAIN_FEEDBACK)},
    {"asp, schedule, dense pull", VARIANT("consistency.mode=asp", "optimizer.schedule.name=step", "optimizer.schedule.every_steps=4",
                                          "pull.default=dense", "pull.rules=[]")},
    {"ssp, ef21", VARIANT("consistency.mode=ssp", "consistency.staleness=3", "error_feedback.variant=ef21", PLAIN_FEEDBACK)},
    {"asp, delta", VARIANT("consistency.mode=asp", "push.default=delta:5 | linear:4", NO_RULES, PLAIN_FEEDBACK)},
};

START_TEST(without_rounds_resumed_runs_are_replayed_from_receipts) {
    unsigned tried = 0;
    for (uint64_t seed = 0; seed < 8; seed++) {
        ts_cluster_spec spec = spec_of(500 + seed, 1 + (uint32_t)seed % 3, 2 + (uint32_t)seed % 4);
        spec.records = true;
        for (uint32_t w = 0; w < spec.network.workers; w++) spec.think_us[w] = w % 2 ? 400000 : 60000;
        if (seed % 2) {
            spec.network.reorder = true;
            spec.network.drop = 0.05;
            spec.network.duplicate = 0.1;
            spec.network.corrupt = 0.02;
        }
        tried += from_each(modes[_i].name, &spec, modes[_i].settings, replayed);
    }
    ck_assert_msg(tried >= 8, "%s: %u checkpoints", modes[_i].name, tried);
}
END_TEST

/* ---- what is refused ------------------------------------------------------------------------------------------------------ */

/* A run that leaves a checkpoint at step 4 behind; its path. */
static void leave_one(char path[192]) {
    ts_cluster_spec spec = spec_of(9, 2, 3);
    ts_cluster_result result;
    ts_ckpt_found *list = NULL;
    size_t count = 0;
    char dir[96];
    settings s = settings_of("run", 4, NULL, NULL);
    for (uint32_t w = 0; w < 3; w++) spec.steps[w] = 5;
    run(&spec, &s, &result);
    ts_cluster_result_free(&result);
    snprintf(dir, sizeof dir, "%s/run", folder);
    ck_assert_ok(ts_ckpt_scan(dir, &list, &count, NULL));
    ck_assert(count == 1 && list[0].committed && list[0].version == 4);
    snprintf(path, 192, "%s/%s", dir, list[0].name);
    ts_mem_free(list);
}

/* The same job four steps further, with a newer checkpoint beside that one. */
static void go_on_from_it(ts_cluster_spec *spec) {
    ts_cluster_result result;
    settings s = settings_of("run", 4, NULL, NULL);
    for (uint32_t w = 0; w < 3; w++) spec->steps[w] = 9;
    run(spec, &s, &result);
    ck_assert_msg(result.finished, "%s", result.message);
    ts_cluster_result_free(&result);
}

/* Goes on from it, and must end with a message that holds all of the words. */
static void refused(const ts_cluster_spec *spec, const char *const *variant, const char *const *words) {
    ts_cluster_result result;
    settings s = settings_of("run", 4, NULL, variant);
    run(spec, &s, &result);
    ck_assert(!result.finished);
    ck_assert_msg(result.ended, "hung: %s", result.message);
    for (; *words; words++) ck_assert_msg(strstr(result.message, *words), "%s: not in: %s", *words, result.message);
    ts_cluster_result_free(&result);
}

START_TEST(another_contract_is_refused_by_what_differs) {
    char path[192];
    ts_cluster_spec spec = spec_of(9, 2, 3);
    leave_one(path);
    refused(&spec, VARIANT("optimizer.lr=0.07"), VARIANT("lr=0.07", "the checkpoint", "checkpoint.resume=never"));
    refused(&spec, VARIANT("push.default=topk:0.05 | int4"), VARIANT("a.weight", "int4"));
    refused(&spec, VARIANT("training.seed=8"), VARIANT("seed"));
}
END_TEST

static void damage(const char *path, const char *file, long at) {
    char name[256];
    snprintf(name, sizeof name, "%s/%s", path, file);
    FILE *f = fopen(name, "r+b");
    ck_assert_msg(f != NULL, "%s", name);
    ck_assert_int_eq(fseek(f, at, SEEK_END), 0);
    int c = fgetc(f);
    ck_assert_int_eq(fseek(f, at, SEEK_END), 0);
    ck_assert_int_ne(fputc(c ^ 4, f), EOF);
    fclose(f);
}

START_TEST(damaged_missing_and_foreign_files_are_named) {
    char path[192], from[256], to[256];
    ts_cluster_spec spec = spec_of(9, 2, 3);
    leave_one(path);
    damage(path, "server-1-of-2.safetensors", -3);
    refused(&spec, NULL, VARIANT("server-1-of-2.safetensors", "checksum"));
    damage(path, "server-1-of-2.safetensors", -3);
    damage(path, "worker-2-of-3.safetensors", -3);
    refused(&spec, NULL, VARIANT("worker-2-of-3.safetensors", "checksum"));
    damage(path, "worker-2-of-3.safetensors", -3);
    snprintf(from, sizeof from, "%s/worker-1-of-3.safetensors", path);
    snprintf(to, sizeof to, "%s/worker-2-of-3.safetensors", path);
    ck_assert_int_eq(rename(from, to), 0);
    refused(&spec, NULL, VARIANT("worker")); /* whichever is found first: missing, or another worker's */
    snprintf(to, sizeof to, "%s/manifest.json", path);
    ck_assert_int_eq(unlink(to), 0); /* half a checkpoint is none: the run begins anew */
    ts_cluster_result result;
    settings s = settings_of("run", 4, NULL, NULL);
    run(&spec, &s, &result);
    ck_assert_msg(result.finished, "%s", result.message);
    ts_cluster_result_free(&result);
}
END_TEST

/* It cannot go on from the newest checkpoint, and server 0's log says `words`. */
static void advises(const ts_cluster_spec *spec, const char *words) {
    char *said = NULL;
    size_t len = 0;
    FILE *log = open_memstream(&said, &len);
    ts_log_level level = ts_log_get_level();
    ck_assert_ptr_nonnull(log);
    ck_assert_int_eq(setenv("TERSE_SIM_LOG", "1", 1), 0);
    ts_log_set_level(TS_LOG_WARN);
    ts_log_set_stream(log);
    refused(spec, NULL, VARIANT("cannot go on from the checkpoint"));
    ts_log_set_stream(NULL);
    ts_log_set_level(level);
    unsetenv("TERSE_SIM_LOG");
    fclose(log);
    ck_assert_msg(strstr(said, words), "%s: not in: %s", words, said);
    free(said);
}

START_TEST(the_advice_is_another_checkpoint_than_the_damaged_one) {
    char dir[96], older[192], newer[192], file[256], words[256];
    ts_cluster_spec spec = spec_of(9, 2, 3);
    ts_ckpt_found *list = NULL;
    size_t count = 0;
    leave_one(older);
    go_on_from_it(&spec);
    snprintf(dir, sizeof dir, "%s/run", folder);
    ck_assert_ok(ts_ckpt_scan(dir, &list, &count, NULL));
    ck_assert(count >= 2 && list[count - 1].committed);
    uint64_t newest = list[count - 1].version;
    for (size_t i = 1; i + 1 < count; i++) ts_ckpt_remove(dir, list[i].name, NULL);
    snprintf(newer, sizeof newer, "%s/%s", dir, list[count - 1].name);
    ts_mem_free(list);
    ck_assert_uint_gt(newest, 4);
    snprintf(words, sizeof words, "add=\"--set checkpoint.resume=%s\"", older);
    static const char *const parts[] = {"server-0-of-2.safetensors", "server-1-of-2.safetensors", "worker-2-of-3.safetensors"};
    for (size_t i = 0; i < 3; i++) {
        damage(newer, parts[i], -3);
        advises(&spec, words);
        damage(newer, parts[i], -3);
    }
    snprintf(file, sizeof file, "%s/worker-2-of-3.safetensors", newer);
    ck_assert_int_eq(unlink(file), 0);
    advises(&spec, words);
    snprintf(file, sizeof file, "%s/worker-1-of-3.safetensors", older); /* which is seen without reading its values */
    ck_assert_int_eq(truncate(file, 100), 0);
    advises(&spec, "there is no whole one before it; checkpoint.resume=never begins anew");
}
END_TEST

START_TEST(an_older_residual_never_meets_newer_parameters) {
    char first[192], second[192], from[256], to[256], command[600];
    ts_cluster_spec spec = spec_of(9, 2, 3);
    leave_one(first);
    go_on_from_it(&spec);
    snprintf(second, sizeof second, "%s/run/ckpt-000003-step-8", folder);
    snprintf(from, sizeof from, "%s/worker-0-of-3.safetensors", first);
    snprintf(to, sizeof to, "%s/worker-0-of-3.safetensors", second);
    if (access(to, F_OK) != 0) { /* serials depend on how many plans there were */
        snprintf(command, sizeof command, "cp %s $(ls -d %s/run/*step-8)/", from, folder);
    } else {
        snprintf(command, sizeof command, "cp %s %s", from, to);
    }
    ck_assert_int_eq(system(command), 0);
    refused(&spec, NULL, VARIANT("worker-0-of-3.safetensors", "epoch", "never meet"));
}
END_TEST

/* What the servers' parts say of a lost worker's packets. Returns how many slices say it. */
static uint32_t check_ledger(const char *dir, const ts_ckpt_manifest *m, const char *name, uint64_t low, uint64_t high) {
    uint32_t found = 0;
    for (uint32_t s = 0; s < m->servers; s++) {
        ts_ckpt_reader *reader = NULL;
        ts_error error = {""};
        terse_status status = ts_ckpt_manifest_open(m, dir, name, false, s, &reader, &error);
        ck_assert_msg(status == TERSE_OK, "%s", error.text);
        const ts_safetensors *header = ts_ckpt_reader_header(reader);
        for (uint32_t e = 0; e < header->count; e++) {
            const char *what = strstr(header->entries[e].name, "#next.");
            uint64_t next = UINT64_MAX;
            if (!what) continue;
            ck_assert_str_eq(what, "#next.2"); /* of nobody else */
            ck_assert_ok(ts_ckpt_reader_get(reader, header->entries[e].name, TS_DTYPE_U64, &next, sizeof next, &error));
            ck_assert_msg(next >= low && next <= high, "%s: %llu", header->entries[e].name, (unsigned long long)next);
            found++;
        }
        ts_ckpt_reader_close(reader);
    }
    return found;
}

START_TEST(a_lost_worker_leaves_word_of_its_packets) {
    ts_cluster_spec spec = spec_of(12, 2, 3);
    ts_cluster_result whole;
    ts_ckpt_found *list = NULL;
    size_t count = 0;
    unsigned without = 0; /* checkpoints without its part; the first may have been begun before it was given up */
    uint64_t lost_at = 0;
    char dir[96], path[192];
    for (uint32_t w = 0; w < 3; w++) spec.steps[w] = 40;
    spec.kill_after[2] = 3;
    settings s = settings_of("whole", 1, NULL, NULL);
    run(&spec, &s, &whole);
    ck_assert_msg(whole.finished, "%s", whole.message);
    ts_cluster_result_free(&whole);
    snprintf(dir, sizeof dir, "%s/whole", folder);
    ck_assert_ok(ts_ckpt_scan(dir, &list, &count, NULL));
    for (size_t i = 0; i < count; i++) {
        ts_ckpt_manifest m = {0};
        ts_error error = {""};
        if (!list[i].committed) continue;
        snprintf(path, sizeof path, "%s/%s/manifest.json", dir, list[i].name);
        terse_status status = ts_ckpt_manifest_read(path, &m, &error);
        ck_assert_msg(status == TERSE_OK, "%s", error.text);
        bool has_part = ts_ckpt_manifest_part(&m, true, 2)->bytes > 0;
        if (!has_part && without == 0) lost_at = m.version;
        uint32_t words = check_ledger(dir, &m, list[i].name, 3, lost_at); /* what it had pushed at its death, or nearly */
        ts_contract *contract = NULL;
        ck_assert_ok(ts_ckpt_manifest_contract(&m, m.servers, &contract, &error));
        if (has_part) ck_assert_uint_eq(words, 0);
        else if (without > 0) ck_assert_uint_eq(words, contract->slice_count);
        without += !has_part;
        ts_contract_destroy(contract);
        ts_ckpt_manifest_free(&m);
    }
    ck_assert_uint_gt(without, 2);
    ts_mem_free(list);
}
END_TEST

START_TEST(other_numbers_are_refused_with_the_way_out) {
    char path[192];
    ts_cluster_spec spec = spec_of(9, 2, 3);
    leave_one(path);
    spec.network.servers = 3;
    refused(&spec, NULL, VARIANT("is of 2 servers, this job has 3", "terse ckpt reshard"));
    spec.network.servers = 2;
    spec.network.workers = 2;
    refused(&spec, NULL, VARIANT("is of 3 workers, this job has 2", "terse ckpt reshard"));
}
END_TEST

START_TEST(a_folder_that_cannot_be_written_costs_checkpoints_only) {
    ts_cluster_spec spec = spec_of(9, 2, 3);
    ts_cluster_result with, without;
    char path[192], file[256];
    settings s = settings_of("run", 4, NULL, NULL), t = settings_of("other", 0, NULL, NULL);
    run(&spec, &t, &without);
    /* The first folder's name is taken by a file. */
    snprintf(path, sizeof path, "%s/run", folder);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    for (int serial = 1; serial < 40; serial++) {
        for (int step = 4; step <= 12; step += 4) {
            snprintf(file, sizeof file, "%s/ckpt-%06d-step-%d", path, serial, step);
            FILE *f = fopen(file, "w");
            ck_assert_ptr_nonnull(f);
            fclose(f);
        }
    }
    run(&spec, &s, &with);
    ck_assert_msg(with.finished, "%s", with.message);
    same("with and without", &with, &without, 3);
    ts_cluster_result_free(&with);
    ts_cluster_result_free(&without);
}
END_TEST

TCase *test_resume(void);
TCase *test_resume(void) {
    TCase *tests = tcase_create("resume");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, make, unmake);
    tcase_add_loop_test(tests, resumed_runs_have_the_bits_of_uninterrupted_ones, 0,
                        (int)(sizeof variants / sizeof variants[0]));
    tcase_add_loop_test(tests, without_rounds_resumed_runs_are_replayed_from_receipts, 0,
                        (int)(sizeof modes / sizeof modes[0]));
    tcase_add_test(tests, other_numbers_of_servers_and_workers_resume_alike);
    tcase_add_test(tests, checkpoints_over_a_bad_network_are_whole);
    tcase_add_test(tests, auto_goes_on_by_itself_and_again);
    tcase_add_test(tests, another_contract_is_refused_by_what_differs);
    tcase_add_test(tests, damaged_missing_and_foreign_files_are_named);
    tcase_add_test(tests, the_advice_is_another_checkpoint_than_the_damaged_one);
    tcase_add_test(tests, an_older_residual_never_meets_newer_parameters);
    tcase_add_test(tests, a_lost_worker_leaves_word_of_its_packets);
    tcase_add_test(tests, other_numbers_are_refused_with_the_way_out);
    tcase_add_test(tests, a_folder_that_cannot_be_written_costs_checkpoints_only);
    return tests;
}
