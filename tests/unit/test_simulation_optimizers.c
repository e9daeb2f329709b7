/* SPDX-License-Identifier: Apache-2.0 */
/* Whole clusters with every optimizer and every aggregation against the sequential reference, bit for bit. */
#include <string.h>

#include "common/base/random.h"
#include "tests/sim/cluster.h"
#include "tests/unit/unit.h"

#define SECOND 1000000u
#define SEEDS 8

static ts_cluster_spec spec_of(uint64_t seed, const char *const *overrides, unsigned count) {
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 98));
    ts_cluster_spec spec = {.network = {.seed = seed,
                                        .servers = 1 + ts_random_below(&random, 3),
                                        .workers = 1 + ts_random_below(&random, 6),
                                        .delay_min_us = 10,
                                        .delay_max_us = 10 + ts_random_below(&random, 100000),
                                        .reorder = true,
                                        .drop = 0.05,
                                        .duplicate = 0.1,
                                        .frame_limit_bytes = 1 << 20},
                            .overrides = overrides,
                            .override_count = count,
                            .limit_us = 900ull * SECOND};
    ts_cluster_vary(&spec, seed);
    for (uint32_t w = 0; w < spec.network.workers; w++) {
        spec.steps[w] = 6 + ts_random_below(&random, 3);
        spec.samples[w] = seed % 3 ? 1 + ts_random_below(&random, 100) : 32;
    }
    return spec;
}

static void same(const char *what, uint64_t seed, const char *setting, uint32_t t, const float *a, const float *b) {
    for (size_t i = 0; i < ts_cluster_tensors[t].n; i++)
        ck_assert_msg(memcmp(&a[i], &b[i], sizeof *a) == 0,
                      "%s, seed %llu: %s, tensor %u, element %zu: %.9g in the cluster, %.9g in the reference", setting,
                      (unsigned long long)seed, what, t, i, (double)a[i], (double)b[i]);
}

static void equals_reference(uint64_t seed, const ts_cluster_spec *spec) {
    ts_cluster_result got, want;
    const char *setting = spec->overrides[spec->override_count - 1];
    ck_assert_ok(ts_cluster_run(spec, &got));
    ck_assert_msg(got.finished, "%s, seed %llu: %s", setting, (unsigned long long)seed, got.message);
    ck_assert_ok(ts_oracle_run(spec, &want));
    for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++) {
        same("parameters", seed, setting, t, got.fetched[t], want.fetched[t]);
        for (uint32_t w = 0; w < spec->network.workers; w++) {
            same("replica", seed, setting, t, got.replica[w][t], want.replica[w][t]);
            same("residual", seed, setting, t, got.residual[w][t], want.residual[w][t]);
        }
    }
    ts_cluster_result_free(&got);
    ts_cluster_result_free(&want);
}

#define OVERRIDES 5
#define BASE "training.seed=7", "error_feedback.momentum_correction=0"

/* The last one is what a failure names. */
static const char *const settings[][OVERRIDES] = {
    {BASE, "optimizer.momentum=0", "optimizer.lr=0.05", "optimizer.name=adagrad"},
    {BASE, "optimizer.momentum=0", "optimizer.weight_decay=0.01", "optimizer.name=rmsprop"},
    {BASE, "optimizer.momentum=0.5", "optimizer.centered=true", "optimizer.name=rmsprop"},
    {BASE, "optimizer.momentum=0", "optimizer.weight_decay=0.01", "optimizer.name=adam"},
    {BASE, "optimizer.momentum=0", "pull.default=dense", "optimizer.name=adamw"},
    {BASE, "optimizer.momentum=0", "optimizer.lr=0.02", "optimizer.name=lamb"},
    {BASE, "optimizer.weight_decay=0.1", "push.default=fp16", "optimizer.decoupled_weight_decay=true"},
    {BASE, "optimizer.nesterov=true", "optimizer.clip_value=0.02", "optimizer.clip_norm=0.05"},
    {BASE, "push.default=int8", "optimizer.clip_value=0.5", "optimizer.clip_norm=0.05"},
    {BASE, "optimizer.momentum=0.5", "push.default=int8", "aggregation.mode=samples"},
    {BASE, "optimizer.momentum=0.5", "push.default=topk:0.2 | fp16", "aggregation.mode=samples"},
    {BASE, "optimizer.lr=0.001", "push.default=delta:5 | int8", "aggregation.mode=sum"},
    {BASE, "push.default=dense", "pull.default=dense", "aggregation.robust=median"},
    {BASE, "push.default=topk:0.3 | int8", "aggregation.trim=0.2", "aggregation.robust=trimmed"},
    {BASE, "push.default=topk:0.3 | int8", "aggregation.clip_norm=0.1", "aggregation.robust=clip"},
    {BASE, "aggregation.robust=clip", "push.default=powersgd:1 | fp16", "aggregation.mode=samples"},
    {"optimizer.weight_decay=0.01", "optimizer.nesterov=true", "aggregation.clip_norm=0.2", "aggregation.robust=clip",
     "error_feedback.momentum_correction=0.9"},
};

START_TEST(every_optimizer_and_aggregation_gives_the_reference_bits) {
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        ts_cluster_spec spec = spec_of(seed, settings[_i], OVERRIDES);
        equals_reference(seed, &spec);
    }
}
END_TEST

START_TEST(server_count_changes_no_bit_of_what_needs_whole_tensors) {
    for (size_t which = 0; which < sizeof settings / sizeof settings[0]; which++) {
        char first[17] = "";
        for (uint32_t servers = 1; servers <= 4; servers++) {
            ts_cluster_spec spec = spec_of(3, settings[which], OVERRIDES);
            spec.network.servers = servers;
            ts_cluster_result got;
            ck_assert_ok(ts_cluster_run(&spec, &got));
            ck_assert_msg(got.finished, "%s, %u servers: %s", settings[which][OVERRIDES - 1], servers, got.message);
            if (servers == 1) memcpy(first, got.xxh3, sizeof first);
            ck_assert_str_eq(got.xxh3, first);
            ts_cluster_result_free(&got);
        }
    }
}
END_TEST

TCase *test_simulation_optimizers(void);
TCase *test_simulation_optimizers(void) {
    TCase *tests = tcase_create("simulation_optimizers");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, every_optimizer_and_aggregation_gives_the_reference_bits, 0,
                        (int)(sizeof settings / sizeof settings[0]));
    tcase_add_test(tests, server_count_changes_no_bit_of_what_needs_whole_tensors);
    return tests;
}
