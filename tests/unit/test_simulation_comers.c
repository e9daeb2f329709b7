/* SPDX-License-Identifier: Apache-2.0 */
/* New processes come into a running job over a way of their own, as into a daemon's: seed by seed, replayed from receipts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/random.h"
#include "tests/unit/simulation_support.h"
#include "tests/unit/unit.h"

typedef struct {
    uint64_t returns; /* of all runs */
    unsigned absent;  /* workers that were not there at the end */
} arrivals;

/* What becomes of the workers in a run of its own folder; spec: but for overrides and steps. */
static arrivals run_comers_with(uint64_t seed, ts_cluster_spec *spec, bool keeps, const char *const more[3]) {
    static const char *const modes[] = {"consistency.mode=bsp", "consistency.mode=ssp", "consistency.mode=asp",
                                        "consistency.mode=bsp"};
    char folder[] = "/dev/shm/terse-sim-XXXXXX", keep[64] = "error_feedback.keep=off";
    const char *overrides[] = {modes[seed % 4], "consistency.deadline_s=10", seed % 3 ? "pull.default=dense" : "servers.history=3",
                               keep, more[0], more[1], more[2],
                               "consistency.stragglers=proceed", "consistency.quorum=1", "consistency.straggler_s=0.3"};
    ck_assert_ptr_nonnull(mkdtemp(folder));
    if (keeps) snprintf(keep, sizeof keep, "error_feedback.keep=%s", folder);
    spec->overrides = overrides;
    spec->override_count = seed % 4 == 3 ? 10 : 7;
    spec->comes_anew = true;
    spec->forgets = !keeps;
    spec->network.spare = 2 * TS_CLUSTER_WORKERS;
    spec->limit_us = 900ull * SECOND;
    for (uint32_t w = 0; w < spec->network.workers; w++) {
        spec->steps[w] = 20;
        spec->think_us[w] += 400000; /* so that the others are not done before */
    }
    replayed told = cluster_equals_replay(seed, spec);
    clear_keep_folder(folder);
    return (arrivals){told.returns, told.absent};
}

static arrivals run_comers(uint64_t seed, ts_cluster_spec *spec, bool keeps, const char *more) {
    return run_comers_with(seed, spec, keeps, (const char *const[3]){more, "servers.slice_elems=100", "servers.slice_elems=100"});
}

/* Some are killed, and other processes take their places: named, or found by what they have kept; or with nothing of it. */
START_TEST(killed_workers_come_back_as_other_processes) {
    uint64_t first = 33000000, returns = 0;
    unsigned count = only_seed(&first) ? 1 : seed_count(100);
    for (uint64_t seed = first; seed < first + count; seed++) {
        ts_cluster_spec spec = uneven_spec_of(seed);
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 99));
        spec.barrier = seed % 2;
        spec.network.workers = 2 + ts_random_below(&random, 4);
        uint32_t present = ts_random_below(&random, spec.network.workers);
        for (uint32_t w = 0; w < spec.network.workers; w++) {
            if (w == present || ts_random_below(&random, 2)) continue;
            spec.kill_after[w] = 1 + ts_random_below(&random, 9);
            spec.restart_us[w] = 1000 + ts_random_below(&random, 14000000); /* before it is given up, or after */
        }
        returns += run_comers(seed, &spec, seed % 5, "daemon.orphan_s=60").returns;
    }
    if (count > 1) ck_assert_uint_gt(returns, count / 2);
}
END_TEST

/* Killed when they have pushed their last, so that some servers may know of it and others not; their places are free then, or not. */
static arrivals run_ending(uint64_t seed) {
    ts_cluster_spec spec = uneven_spec_of(seed);
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 102));
    spec.network.workers = 2 + ts_random_below(&random, 4);
    uint32_t present = ts_random_below(&random, spec.network.workers);
    for (uint32_t w = 0; w < spec.network.workers; w++) {
        if (w == present || ts_random_below(&random, 2)) continue;
        spec.kill_after[w] = 20;
        if (ts_random_below(&random, 2)) spec.restart_us[w] = 1000 + ts_random_below(&random, 14000000);
    }
    return run_comers(seed, &spec, seed % 5, "daemon.orphan_s=60");
}

START_TEST(who_dies_at_the_end_keeps_nobody) {
    uint64_t first = 37500000;
    unsigned count = only_seed(&first) ? 1 : seed_count(100);
    for (uint64_t seed = first; seed < first + 2 * (uint64_t)count; seed += 2) (void)run_ending(seed); /* odd ones take any place */
}
END_TEST

/* Further ones in a run of the seed. */
static void plan_comers(uint64_t seed, ts_cluster_spec *spec) {
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 100));
    uint32_t launched = 1 + ts_random_below(&random, 3);
    spec->network.late_workers = 1 + ts_random_below(&random, 3);
    spec->network.workers = launched + spec->network.late_workers;
    spec->barrier = seed % 2;
    for (uint32_t w = launched; w < spec->network.workers; w++) spec->come_us[w] = 1 + ts_random_below(&random, 6000000);
    uint32_t victim = ts_random_below(&random, spec->network.workers);
    if (launched > 1 && ts_random_below(&random, 2)) {
        spec->kill_after[victim] = 1 + ts_random_below(&random, 6);
        spec->restart_us[victim] = 1000 + ts_random_below(&random, 6000000);
    }
}

/* Further workers come into a job that runs, while others die and come back; sums, means and ledger are right. */
START_TEST(new_workers_come_into_a_running_job) {
    uint64_t first = 34000000, returns = 0;
    unsigned count = only_seed(&first) ? 1 : seed_count(100);
    for (uint64_t seed = first; seed < first + count; seed++) {
        ts_cluster_spec spec = uneven_spec_of(seed);
        plan_comers(seed, &spec);
        returns += run_comers(seed, &spec, seed % 5, "daemon.orphan_s=60").returns;
    }
    if (count > 1) ck_assert_uint_gt(returns, count);
}
END_TEST

/* With EF21 a mean is over the estimates that are in the slice's sum. */
START_TEST(with_ef21_new_workers_count_from_their_first_push) {
    static const char *const ef21[3] = {"error_feedback.variant=ef21", "error_feedback.momentum_correction=0", "daemon.orphan_s=60"};
    uint64_t first = 38000000, returns = 0;
    unsigned count = only_seed(&first) ? 1 : seed_count(60);
    for (uint64_t seed = first; seed < first + count; seed++) {
        ts_cluster_spec spec = uneven_spec_of(seed);
        plan_comers(seed, &spec);
        returns += run_comers_with(seed, &spec, seed % 5, ef21).returns;
    }
    if (count > 1) ck_assert_uint_gt(returns, count);
}
END_TEST

/* All prove a secret before they have a place. */
static uint64_t run_secret(uint64_t first, unsigned count) {
    char file[] = "/tmp/terse-sim-secret-XXXXXX", set[64];
    uint64_t returns = 0;
    int descriptor = mkstemp(file);
    ck_assert_int_eq(write(descriptor, "a secret of some length", 23), 23);
    close(descriptor);
    snprintf(set, sizeof set, "auth.secret_file=%s", file);
    for (uint64_t seed = first; seed < first + count; seed++) {
        ts_cluster_spec spec = uneven_spec_of(seed);
        plan_comers(seed, &spec);
        returns += run_comers(seed, &spec, seed % 5, set).returns;
    }
    (void)unlink(file);
    return returns;
}

START_TEST(who_comes_proves_the_secret_first) {
    uint64_t first = 39000000;
    unsigned count = only_seed(&first) ? 1 : seed_count(30);
    uint64_t returns = run_secret(first, count);
    if (count > 1) ck_assert_uint_gt(returns, count / 2);
}
END_TEST

/* Of these runs' messages so many are lost that a few attempts within consistency.start_s were not enough. */
START_TEST(who_comes_keeps_asking_over_a_bad_network) {
    ck_assert_uint_gt(run_secret(39001326, 1) + run_secret(39001788, 1), 1);
}
END_TEST

/* One gives way to another in the middle, and is then to come in earlier than another server has already agreed to. */
START_TEST(who_gave_way_comes_in_no_earlier_than_was_told) { ck_assert_uint_gt(run_secret(39007868, 1), 1); }
END_TEST

/* A new one dies between two servers' doors: of whoever is lost later all servers hear all the same, and go on. */
START_TEST(a_new_worker_that_dies_at_the_second_door_is_nobody) {
    for (uint64_t seed = 37000000; seed < 37000010; seed++) {
        ts_cluster_spec spec = uneven_spec_of(seed);
        spec.network.servers = 2 + (uint32_t)(seed % 2);
        spec.network.workers = 2 + (uint32_t)(seed % 3);
        spec.network.vain = true;
        spec.kill_after[1] = 6;
        arrivals told = run_comers(seed, &spec, false, "consistency.on_worker_loss=go_on");
        ck_assert_uint_eq(told.returns, 0);
    }
}
END_TEST

/* One comes, and dies when server 0 has let it in and others have not: of whoever is lost later all servers hear all the same. */
START_TEST(a_new_worker_that_not_all_servers_knew_hides_nobody) {
    char file[] = "/tmp/terse-sim-secret-XXXXXX", set[64];
    uint64_t first = 39100000;
    unsigned count = only_seed(&first) ? 1 : seed_count(100);
    int descriptor = mkstemp(file);
    ck_assert_int_eq(write(descriptor, "a secret of some length", 23), 23);
    close(descriptor);
    snprintf(set, sizeof set, "auth.secret_file=%s", file);
    for (uint64_t seed = first; seed < first + 4 * (uint64_t)count; seed += 4) { /* in rounds that wait for all */
        ts_cluster_spec spec = uneven_spec_of(seed);
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 103));
        spec.network.servers = 2 + (uint32_t)(seed / 4 % 2);
        spec.network.workers = 4;
        spec.network.late_workers = 1;
        spec.come_us[3] = 1 + ts_random_below(&random, 2 * SECOND);
        spec.live_us[3] = 1 + ts_random_below(&random, SECOND);
        spec.kill_after[1] = 18;
        (void)run_comers(seed, &spec, false, set);
    }
    (void)unlink(file);
}
END_TEST

/* All die, or the only one does, and come back one after the other: nothing is lost. */
static arrivals run_revived(uint64_t seed, unsigned *workers) {
    ts_cluster_spec spec = uneven_spec_of(seed);
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 101));
    spec.network.workers = 1 + ts_random_below(&random, 4);
    for (uint32_t w = 0; w < spec.network.workers; w++) {
        spec.kill_after[w] = 2;
        spec.restart_us[w] = 8000000 + ts_random_below(&random, 20000000);
    }
    arrivals told = run_comers(seed, &spec, true, "daemon.orphan_s=60");
    ck_assert_msg(told.absent == 0 || told.returns > 0, "seed %llu: nobody came back", (unsigned long long)seed);
    *workers += spec.network.workers;
    return told;
}

START_TEST(jobs_whose_workers_have_all_died_are_revived) {
    uint64_t first = 35000000, returns = 0;
    unsigned count = only_seed(&first) ? 1 : seed_count(100), all = 0;
    for (uint64_t seed = first; seed < first + count; seed++) returns += run_revived(seed, &all).returns;
    if (count > 1) ck_assert_uint_gt(returns, all * 9 / 10);
}
END_TEST

/* A round was decided, all died, and a server that had missed the word held nothing that would have made it ask. */
START_TEST(who_has_come_in_makes_servers_ask_for_rounds) {
    unsigned all = 0;
    ck_assert_uint_eq(run_revived(35001387, &all).returns, all);
}
END_TEST

/* Nobody comes: the job ends, by a sentence that says so, when its time is over and not before. */
START_TEST(a_job_that_nobody_comes_back_to_ends) {
    for (uint64_t seed = 36000000; seed < 36000010; seed++) {
        ts_cluster_spec spec = spec_of(seed);
        ts_cluster_result got;
        const char *overrides[] = {"consistency.deadline_s=10", "daemon.orphan_s=60"};
        spec.overrides = overrides;
        spec.override_count = 2;
        spec.comes_anew = true;
        spec.limit_us = 200ull * SECOND;
        for (uint32_t w = 0; w < spec.network.workers; w++) {
            spec.kill_after[w] = 2;
            spec.think_us[w] = 100000;
        }
        ck_assert_ok(ts_cluster_run(&spec, &got));
        ck_assert_msg(got.ended && strstr(got.message, "daemon.orphan_s"), "seed %llu: %s", (unsigned long long)seed, got.message);
        ck_assert_msg(got.took_us > 60ull * SECOND, "seed %llu: after %llu us", (unsigned long long)seed, (unsigned long long)got.took_us);
        ts_cluster_result_free(&got);
    }
}
END_TEST

TCase *test_simulation_comers(void);
TCase *test_simulation_comers(void) {
    TCase *tests = tcase_create("simulation_comers");
    tcase_set_timeout(tests, 120.0 * fmax(1, seed_count(100) / 100.0));
    tcase_add_test(tests, killed_workers_come_back_as_other_processes);
    tcase_add_test(tests, who_dies_at_the_end_keeps_nobody);
    tcase_add_test(tests, new_workers_come_into_a_running_job);
    tcase_add_test(tests, with_ef21_new_workers_count_from_their_first_push);
    tcase_add_test(tests, who_comes_proves_the_secret_first);
    tcase_add_test(tests, who_comes_keeps_asking_over_a_bad_network);
    tcase_add_test(tests, who_gave_way_comes_in_no_earlier_than_was_told);
    tcase_add_test(tests, a_new_worker_that_dies_at_the_second_door_is_nobody);
    tcase_add_test(tests, a_new_worker_that_not_all_servers_knew_hides_nobody);
    tcase_add_test(tests, jobs_whose_workers_have_all_died_are_revived);
    tcase_add_test(tests, who_has_come_in_makes_servers_ask_for_rounds);
    tcase_add_test(tests, a_job_that_nobody_comes_back_to_ends);
    return tests;
}
