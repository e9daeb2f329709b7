/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that are missed for a time and come back, and those that leave: seed by seed, replayed from receipts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/random.h"
#include "tests/unit/simulation_support.h"
#include "tests/unit/unit.h"

/* Some are stopped for longer than the deadline, or killed and replaced by a new process that finds what they have kept. */
static uint64_t run_absent(uint64_t first, unsigned count, const char *keep, const char *push) {
    static const char *const modes[] = {"consistency.mode=bsp", "consistency.mode=ssp", "consistency.mode=asp",
                                        "consistency.mode=bsp"};
    uint64_t returns = 0;
    for (uint64_t seed = first; seed < first + count; seed++) {
        const char *overrides[] = {modes[seed % 4], "consistency.deadline_s=10", seed % 3 ? "pull.default=dense" : "servers.history=3",
                                   keep, push ? push : keep, "consistency.stragglers=proceed", "consistency.quorum=1", "consistency.straggler_s=0.3"};
        ts_cluster_spec spec = uneven_spec_of(seed);
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 98));
        spec.overrides = overrides;
        spec.override_count = seed % 4 == 3 ? 8 : 5;
        spec.barrier = seed % 2;
        spec.network.workers = 2 + ts_random_below(&random, 4);
        uint32_t present = ts_random_below(&random, spec.network.workers);
        for (uint32_t w = 0; w < spec.network.workers; w++) {
            spec.steps[w] = 20;
            spec.think_us[w] += 400000; /* so that the others are not done before */
            if (w == present || ts_random_below(&random, 2)) continue;
            uint64_t after = 1 + ts_random_below(&random, 9);
            if (strstr(keep, "off")) spec.sleep_after[w] = after;
            else spec.kill_after[w] = after;
            if (strstr(keep, "off")) spec.sleep_us[w] = 9000000 + ts_random_below(&random, 8000000);
            else spec.restart_us[w] = 1000 + ts_random_below(&random, 14000000); /* before it is given up, or after */
        }
        spec.limit_us = 900ull * SECOND;
        returns += cluster_equals_replay(seed, &spec).returns;
    }
    return returns;
}

START_TEST(workers_that_were_stopped_come_back) {
    uint64_t first = 31000000;
    unsigned count = only_seed(&first) ? 1 : seed_count(20);
    uint64_t returns = run_absent(first, count, "error_feedback.keep=off", NULL);
    if (count > 1) ck_assert_uint_gt(returns, count / 4);
}
END_TEST

/* `delta` begins anew with whoever comes back. */
START_TEST(workers_that_were_stopped_come_back_with_delta) {
    uint64_t first = 31500000;
    unsigned count = only_seed(&first) ? 1 : seed_count(20);
    uint64_t returns = run_absent(first, count, "error_feedback.keep=off", "push.default=delta:5 | int8");
    if (count > 1) ck_assert_uint_gt(returns, count / 4);
}
END_TEST

/* Who leaves says what is left of its residual, in rounds of its own or others', and nothing of it is lost or said twice. */
START_TEST(who_leaves_says_the_rest) {
    static const char *const modes[] = {"consistency.mode=bsp", "consistency.mode=ssp", "consistency.mode=asp"};
    uint64_t first = 26000000;
    unsigned count = only_seed(&first) ? 1 : seed_count(60);
    for (uint64_t seed = first; seed < first + count; seed++) {
        const char *overrides[] = {modes[seed % 3], "error_feedback.flush=true", seed % 2 ? "push.default=topk:0.05 | int8" : "push.default=topk:0.1 | fp16"};
        ts_cluster_spec spec = uneven_spec_of(seed);
        spec.overrides = overrides;
        spec.override_count = 3;
        spec.barrier = seed % 3 == 2 && seed / 2 % 2; /* where nobody waits for who stands there */
        (void)cluster_equals_replay(seed, &spec);
    }
}
END_TEST

static uint64_t run_restarted(uint64_t seed) {
    char folder[] = "/dev/shm/terse-sim-XXXXXX", keep[64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(keep, sizeof keep, "error_feedback.keep=%s", folder);
    uint64_t returns = run_absent(seed, 1, keep, NULL);
    clear_keep_folder(folder);
    return returns;
}

START_TEST(new_processes_go_on_from_what_the_killed_have_kept) {
    uint64_t first = 32000000, returns = 0;
    unsigned count = only_seed(&first) ? 1 : seed_count(20);
    for (uint64_t seed = first; seed < first + count; seed++) returns += run_restarted(seed);
    if (count > 1) ck_assert_uint_gt(returns, count / 4);
}
END_TEST

/* A worker that no server hears, or not all: it is given up, comes back when it can, and nothing it had is lost or used twice. */
static uint64_t run_cut_off(uint64_t seed) {
    static const char *const modes[] = {"consistency.mode=bsp", "consistency.mode=ssp", "consistency.mode=asp",
                                        "consistency.mode=bsp"};
    static const char *const patient[] = {"consistency.deadline_s=600"};
    const char *overrides[] = {modes[seed % 4], "consistency.deadline_s=10", seed % 3 ? "pull.default=dense" : "servers.history=3",
                               "consistency.stragglers=proceed", "consistency.quorum=1", "consistency.straggler_s=0.3"};
    ts_cluster_spec spec = uneven_spec_of(seed);
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 91));
    spec.overrides = overrides;
    spec.override_count = seed % 4 == 3 ? 6 : 3;
    spec.job[0].overrides = patient; /* else it would itself give the servers up */
    spec.job[0].override_count = 1;
    spec.barrier = seed % 2;
    spec.network.workers = 2 + ts_random_below(&random, 4);
    uint32_t servers = spec.network.servers, present = ts_random_below(&random, spec.network.workers);
    for (uint32_t w = 0, p = 0; w < spec.network.workers; w++) {
        spec.steps[w] = 20;
        spec.think_us[w] += 400000;
        if (w == present || ts_random_below(&random, 2) || p == TS_CLUSTER_PARTS) continue;
        uint32_t some = ts_random_u32(&random) & ((1u << servers) - 1);
        spec.parts[p].at_us = 3 * SECOND + ts_random_below(&random, 8 * SECOND);
        spec.parts[p].for_us = ts_random_below(&random, 20 * SECOND);
        spec.parts[p].attached = true;
        spec.parts[p].side = 1u << (servers + w);
        spec.parts[p++].other = some && ts_random_below(&random, 2) ? some : (1u << servers) - 1;
    }
    spec.limit_us = 900ull * SECOND;
    return cluster_equals_replay(seed, &spec).returns;
}

START_TEST(workers_that_were_cut_off_come_back) {
    uint64_t first = 34000000, returns = 0;
    unsigned count = seed_count(60);
    if (only_seed(&first)) count = 1;
    for (uint64_t seed = first; seed < first + count; seed++) returns += run_cut_off(seed);
    if (count > 1) ck_assert_uint_gt(returns, count / 8);
}
END_TEST

/*
 * Runs that once did not end well: an answer to a former life was heard on the way back, or a sum was under way; or a worker
 * was cut off when it was done, and before it had heard so, or the servers had heard it.
 */
START_TEST(returns_that_once_hung_end) {
    static const uint64_t stopped[] = {31001287, 31002437}, restarted[] = {32001259, 32002323},
                          cut_off[] = {34001435, 34002435, 34000309, 34001810, 34005818, 34005970, 34009706};
    uint64_t returns = 0;
    for (unsigned i = 0; i < 2; i++) {
        returns += run_absent(stopped[i], 1, "error_feedback.keep=off", NULL);
        returns += run_restarted(restarted[i]);
    }
    for (unsigned i = 0; i < 7; i++) returns += run_cut_off(cut_off[i]);
    ck_assert_uint_ge(returns, 6);
}
END_TEST

TCase *test_simulation_returns(void);
TCase *test_simulation_returns(void) {
    TCase *tests = tcase_create("simulation_returns");
    tcase_set_timeout(tests, 120.0 * fmax(1, seed_count(60) / 60.0));
    tcase_add_test(tests, workers_that_were_stopped_come_back);
    tcase_add_test(tests, workers_that_were_stopped_come_back_with_delta);
    tcase_add_test(tests, who_leaves_says_the_rest);
    tcase_add_test(tests, new_processes_go_on_from_what_the_killed_have_kept);
    tcase_add_test(tests, workers_that_were_cut_off_come_back);
    tcase_add_test(tests, returns_that_once_hung_end);
    return tests;
}
