/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several jobs on one set of servers: each comes to the bits that it comes to alone, ends alone, and makes progress beside
 * heavier ones. Replay one seed of the simulated clusters with TERSE_SIM_SEED=N build/unit-tests jobs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/random.h"
#include "server/flow.h"
#include "tests/sim/cluster.h"
#include "tests/sim/server_rig.h"
#include "tests/unit/unit.h"

#define SECOND 1000000u
#define SEEDS 60u
#define JOBS 3u

/* A sparse one with momentum, a dense one with another model and optimizer, one without rounds. */
static const char *const settings[JOBS][6] = {
    {"job.name=sparse"},
    {"job.name=dense", "optimizer.name=adam", "optimizer.momentum=0", "error_feedback.momentum_correction=0", "push.default=fp16",
     "push.rules=[]"},
    {"job.name=alone", "consistency.mode=asp", "optimizer.lr=0.02", "pull.default=dense", "push.default=qsgd:4"},
};
static const unsigned settings_count[JOBS] = {1, 6, 5};
static const uint32_t job_workers[JOBS] = {2, 3, 1}, first_tensor[JOBS] = {0, 1, 2}, job_steps[JOBS] = {9, 12, 15};

static ts_cluster_spec empty_spec(uint64_t seed) {
    ts_random random = ts_random_start(ts_random_key(seed, 1, 0, 0, 99));
    ts_cluster_spec spec = {.network = {.seed = seed,
                                        .servers = 1 + ts_random_below(&random, 3),
                                        .delay_min_us = 10,
                                        .delay_max_us = 10 + ts_random_below(&random, 100000),
                                        .frame_limit_bytes = 1 << 20},
                            .limit_us = 900ull * SECOND};
    ts_cluster_vary(&spec, seed);
    spec.network.reorder = ts_random_below(&random, 2);
    if (ts_random_below(&random, 2)) {
        spec.network.drop = 0.1 * (double)ts_random_unit(ts_random_u32(&random));
        spec.network.duplicate = 0.2 * (double)ts_random_unit(ts_random_u32(&random));
        spec.network.corrupt = 0.05 * (double)ts_random_unit(ts_random_u32(&random));
    }
    return spec;
}

static void add_job(ts_cluster_spec *spec, uint32_t number, uint32_t what) {
    spec->network.job_workers[number] = job_workers[what];
    spec->job[number].overrides = settings[what];
    spec->job[number].override_count = settings_count[what];
    spec->job[number].first_tensor = first_tensor[what];
    for (uint32_t w = 0; w < job_workers[what]; w++) spec->steps[spec->network.workers++] = job_steps[what];
}

static ts_cluster_spec spec_of(uint64_t seed, uint32_t jobs) {
    ts_cluster_spec spec = empty_spec(seed);
    for (uint32_t j = 0; j < jobs; j++) add_job(&spec, j, j);
    return spec;
}

static void run(const ts_cluster_spec *spec, ts_cluster_result *result) {
    terse_status status = ts_cluster_run(spec, result);
    ck_assert_msg(status == TERSE_OK, "%s", result->message);
}

/* The hash of each job's parameters when it runs alone, over a network without faults. */
static void run_alone(char (*xxh3)[17]) {
    for (uint32_t j = 0; j < JOBS; j++) {
        ts_cluster_spec spec = {.network = {.seed = 1, .servers = 1, .delay_min_us = 10, .delay_max_us = 10,
                                            .frame_limit_bytes = 1 << 20},
                                .limit_us = 900ull * SECOND};
        ts_cluster_result result;
        add_job(&spec, 0, j);
        run(&spec, &result);
        ck_assert_msg(result.finished, "%s", result.message);
        memcpy(xxh3[j], result.xxh3, sizeof xxh3[j]);
        ts_cluster_result_free(&result);
        for (uint32_t k = 0; k < j; k++) ck_assert_str_ne(xxh3[j], xxh3[k]);
    }
}

static unsigned seeds_wanted(uint64_t *first) {
    const char *one = getenv("TERSE_SIM_SEED"), *count = getenv("TERSE_SIM_SEEDS");
    *first = one ? strtoull(one, NULL, 10) : 1;
    return one ? 1 : count ? (unsigned)strtoul(count, NULL, 10) / 5 : SEEDS;
}

START_TEST(jobs_beside_each_other_give_the_bits_they_give_alone) {
    char xxh3[JOBS][17];
    uint64_t first;
    unsigned seeds = seeds_wanted(&first);
    run_alone(xxh3);
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        ts_cluster_spec spec = spec_of(seed, 2 + (uint32_t)(seed % 2));
        ts_cluster_result result;
        run(&spec, &result);
        ck_assert_msg(result.finished, "seed %llu: %s", (unsigned long long)seed, result.message);
        for (uint32_t j = 0; j < 2 + (uint32_t)(seed % 2); j++)
            ck_assert_msg(strcmp(result.job[j].xxh3, xxh3[j]) == 0, "seed %llu: job %u has %s, alone %s",
                          (unsigned long long)seed, j, result.job[j].xxh3, xxh3[j]);
        ts_cluster_result_free(&result);
    }
}
END_TEST

START_TEST(a_job_that_dies_disturbs_no_other) {
    char xxh3[JOBS][17];
    uint64_t first;
    unsigned seeds = seeds_wanted(&first);
    run_alone(xxh3);
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        ts_random random = ts_random_start(ts_random_key(seed, 2, 0, 0, 99));
        ts_cluster_spec spec = spec_of(seed, JOBS);
        ts_cluster_result result;
        static const char *const ends[] = {"consistency.on_worker_loss=end"};
        spec.overrides = ends;
        spec.override_count = 1;
        spec.kill_peer = spec.network.servers + 2 + ts_random_below(&random, 3); /* of the second job */
        spec.kill_at_us = 1 + ts_random_below(&random, 300000);
        spec.steps[2] = spec.steps[3] = spec.steps[4] = 100000; /* it would run for ever */
        run(&spec, &result);
        ck_assert_msg(result.ended, "seed %llu: %s", (unsigned long long)seed, result.message);
        ck_assert(!result.finished && !result.job[1].done);
        ck_assert_msg(strstr(result.job[1].message, "of job1") != NULL, "seed %llu: %s", (unsigned long long)seed,
                      result.job[1].message);
        for (uint32_t j = 0; j < JOBS; j += 2) {
            ck_assert_msg(result.job[j].done, "seed %llu: job %u: %s", (unsigned long long)seed, j, result.job[j].message);
            ck_assert_str_eq(result.job[j].xxh3, xxh3[j]);
        }
        ts_cluster_result_free(&result);
    }
}
END_TEST

START_TEST(jobs_may_come_while_others_run_and_after_they_have_ended) {
    char xxh3[JOBS][17];
    run_alone(xxh3);
    for (uint64_t seed = 1; seed <= 20; seed++) {
        ts_cluster_spec spec = spec_of(seed, JOBS);
        ts_cluster_result result;
        spec.network.late_jobs = 2;
        spec.join_every_us = 40000 * (1 + seed % 5);
        spec.network.delay_min_us = 1000; /* so that the first one has not ended before */
        spec.network.delay_max_us = 100000;
        spec.steps[0] = spec.steps[1] = 30;
        run(&spec, &result);
        ck_assert_msg(result.finished, "seed %llu: %s", (unsigned long long)seed, result.message);
        ck_assert_str_eq(result.job[1].xxh3, xxh3[1]);
        ck_assert_str_eq(result.job[2].xxh3, xxh3[2]);
        ts_cluster_result_free(&result);
    }
}
END_TEST

/* The sparse job and the dense one, on servers with replicas, the dense one late; a server dies before, or in a while. */
static ts_cluster_spec spec_with_a_death(uint64_t seed, const char *const *more) {
    ts_random random = ts_random_start(ts_random_key(seed, 3, 0, 0, 99));
    ts_cluster_spec spec = empty_spec(seed);
    spec.overrides = more;
    spec.override_count = 2 + seed % 2; /* the last one is a secret */
    spec.network.servers = 2 + ts_random_below(&random, 3);
    spec.network.late_jobs = 1;
    spec.begins_at_join = true;
    for (uint32_t j = 0; j < 2; j++) add_job(&spec, j, j);
    for (uint32_t w = 0; w < job_workers[0]; w++) spec.think_us[w] = 4 * SECOND; /* the servers are there when the second comes */
    spec.kill_peer = ts_random_below(&random, spec.network.servers);
    spec.kill_at_us = 1 + ts_random_below(&random, 8 * SECOND);
    spec.join_every_us = 1 + ts_random_below(&random, 24 * SECOND);
    return spec;
}

START_TEST(a_job_may_begin_when_a_server_is_dead_or_about_to_be) {
    char xxh3[JOBS][17], file[] = "/tmp/terse-sim-secret-XXXXXX", secret[64];
    const char *const replicas[] = {"servers.replicas=1", "consistency.deadline_s=10", secret};
    int descriptor = mkstemp(file);
    uint64_t first;
    unsigned seeds = seeds_wanted(&first), later = 0;
    ck_assert_int_eq(write(descriptor, "a secret of some length", 23), 23);
    close(descriptor);
    snprintf(secret, sizeof secret, "auth.secret_file=%s", file);
    run_alone(xxh3);
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        ts_cluster_spec spec = spec_with_a_death(seed, replicas);
        ts_cluster_result result;
        run(&spec, &result);
        ck_assert_msg(result.finished, "seed %llu (server %u of %u dies at %.3f s, the job comes at %.3f s): %s", (unsigned long long)seed,
                      spec.kill_peer, spec.network.servers, (double)spec.kill_at_us * 1e-6, (double)spec.join_every_us * 1e-6, result.message);
        for (uint32_t j = 0; j < 2; j++)
            ck_assert_msg(strcmp(result.job[j].xxh3, xxh3[j]) == 0, "seed %llu (server %u of %u dies at %.3f s, the job comes at %.3f s): job %u "
                          "has %s, alone %s", (unsigned long long)seed, spec.kill_peer, spec.network.servers, (double)spec.kill_at_us * 1e-6,
                          (double)spec.join_every_us * 1e-6, j, result.job[j].xxh3, xxh3[j]);
        later += spec.join_every_us > spec.kill_at_us + 10 * SECOND;
        ts_cluster_result_free(&result);
    }
    (void)unlink(file);
    if (seeds > 1) ck_assert_uint_gt(later, seeds / 5);
}
END_TEST

START_TEST(one_job_too_many_is_refused_by_name) {
    static const char *const limit[] = {"limits.jobs=2"};
    char xxh3[JOBS][17];
    run_alone(xxh3);
    ts_cluster_spec spec = spec_of(4, JOBS);
    ts_cluster_result result;
    spec.overrides = limit;
    spec.override_count = 1;
    spec.network.drop = spec.network.corrupt = 0;
    run(&spec, &result);
    ck_assert(result.ended && !result.job[2].done);
    ck_assert_msg(strstr(result.job[2].message, "limits.jobs of server") != NULL, "%s", result.job[2].message);
    for (uint32_t j = 0; j < 2; j++) ck_assert_str_eq(result.job[j].xxh3, xxh3[j]);
    ts_cluster_result_free(&result);
}
END_TEST

START_TEST(a_job_that_needs_more_memory_than_it_may_have_is_refused_by_name) {
    static const char *const limit[] = {"limits.job_bytes=5000"}; /* the sparse model needs more, the others do not */
    char xxh3[JOBS][17];
    run_alone(xxh3);
    ts_cluster_spec spec = spec_of(4, JOBS);
    ts_cluster_result result;
    spec.overrides = limit;
    spec.override_count = 1;
    spec.network.servers = 1;
    run(&spec, &result);
    ck_assert(result.ended && !result.job[0].done);
    ck_assert_msg(strstr(result.job[0].message, "limits.job_bytes of the server allows 5000") != NULL, "%s",
                  result.job[0].message);
    ck_assert_msg(strstr(result.job[0].message, "parameters 2332, reference ") != NULL, "%s", result.job[0].message);
    for (uint32_t j = 1; j < JOBS; j++) ck_assert_str_eq(result.job[j].xxh3, xxh3[j]);
    ts_cluster_result_free(&result);
}
END_TEST

START_TEST(jobs_share_traffic_alike_and_so_do_a_jobs_workers) {
    ts_sim_options options = {.seed = 1, .servers = 1, .job_workers = {1, 3}, .frame_limit_bytes = 1 << 20};
    ts_config *config = rig_config("limits: {traffic_bytes: 24000000}\n");
    ts_sim_network *network;
    ts_server *server;
    ck_assert_ok(ts_sim_network_create(&options, &network));
    ck_assert_ok(ts_server_create(config, ts_sim_endpoint(network, 0), &ts_executor_inline, &server));
    ck_assert_uint_eq(ts_flow_held_limit(server, 1), 6000000); /* a half of a half */
    for (uint32_t w = 0; w < 3; w++) ck_assert_uint_eq(ts_flow_held_limit(server, 2 + w), 2000000);
    ts_server_destroy(server);
    ts_sim_network_destroy(network);
    ts_config_free(config);
}
END_TEST

/* ---- fair progress: a server's threads in fake time ------------------------------------------------------------------------ */

#define WORK_NS_A_BYTE 20000u /* so much that computing is all that counts: 10 ms for a work of some hundred bytes */

static const char *const heavy[] = {"optimizer.name=adam", "optimizer.momentum=0", "error_feedback.momentum_correction=0", "push.default=dense",
                                    "push.rules=[]", "pull.default=dense", "pull.rules=[]"};
static const char *const coarse[] = {"optimizer.name=adam", "optimizer.momentum=0", "error_feedback.momentum_correction=0", "push.default=dense",
                                     "push.rules=[]", "pull.default=dense", "pull.rules=[]", "servers.slice_elems=600"};

static ts_cluster_spec timed_spec(unsigned threads) {
    return (ts_cluster_spec){.network = {.seed = 3, .servers = 1, .delay_min_us = 50, .delay_max_us = 50,
                                         .frame_limit_bytes = 1 << 20},
                             .limit_us = 900ull * SECOND, .pool_threads = threads, .work_ns_a_byte = WORK_NS_A_BYTE};
}

static void add_timed(ts_cluster_spec *spec, uint32_t number, uint32_t workers, uint32_t tensor, uint64_t steps,
                      const char *const *overrides, unsigned count) {
    spec->network.job_workers[number] = workers;
    spec->job[number].first_tensor = tensor;
    spec->job[number].overrides = overrides;
    spec->job[number].override_count = count;
    for (uint32_t w = 0; w < workers; w++) spec->steps[spec->network.workers++] = steps;
}

/* Fake microseconds of a round of a job of one element, beside so many heavy ones. */
static uint64_t light_round_us(unsigned threads, uint32_t heavies, uint64_t *longest_us) {
    const uint64_t steps = 200;
    ts_cluster_spec spec = timed_spec(threads);
    ts_cluster_result result;
    add_timed(&spec, 0, 1, 3, steps, heavy, 7);
    for (uint32_t j = 1; j <= heavies; j++) add_timed(&spec, j, 2, 0, 60, heavy, 7);
    run(&spec, &result);
    ck_assert_msg(result.finished, "%s", result.message);
    for (uint32_t j = 1; j <= heavies; j++) ck_assert_uint_gt(result.job[j].took_us, result.job[0].took_us);
    *longest_us = result.longest_work_us;
    uint64_t round_us = result.job[0].took_us / steps;
    ts_cluster_result_free(&result);
    return round_us;
}

START_TEST(a_light_job_waits_for_one_work_of_heavy_ones_at_most) {
    for (unsigned threads = 1; threads <= 2; threads++) {
        uint64_t longest_us, alone_us = light_round_us(threads, 0, &longest_us);
        for (uint32_t heavies = 1; heavies <= 3; heavies++) {
            uint64_t round_us = light_round_us(threads, heavies, &longest_us);
            ck_assert_uint_gt(longest_us, 10 * alone_us);
            ck_assert_msg(round_us <= alone_us + longest_us, "%u threads, %u heavy jobs: a round takes %llu us, alone %llu us, the "
                          "longest work %llu us", threads, heavies, (unsigned long long)round_us,
                          (unsigned long long)alone_us, (unsigned long long)longest_us);
        }
    }
}
END_TEST

START_TEST(jobs_share_the_threads_by_bytes_of_work) {
    ts_cluster_spec spec = timed_spec(1);
    ts_cluster_result result;
    add_timed(&spec, 0, 2, 0, 100, heavy, 7);  /* works of a sixth of the model, */
    add_timed(&spec, 1, 2, 0, 100, coarse, 8); /* and of the whole of it */
    run(&spec, &result);
    ck_assert_msg(result.finished, "%s", result.message);
    double ratio = (double)result.job[0].took_us / (double)result.job[1].took_us;
    ck_assert_msg(ratio > 0.8 && ratio < 1.25, "one takes %.2f times as long as the other", ratio);
    ts_cluster_result_free(&result);
}
END_TEST

TCase *test_jobs(void);
TCase *test_jobs(void) {
    TCase *tests = tcase_create("jobs");
    uint64_t first;
    unsigned seeds = seeds_wanted(&first);
    tcase_set_timeout(tests, seeds > SEEDS ? 120.0 * seeds / SEEDS : 120.0);
    tcase_add_test(tests, jobs_beside_each_other_give_the_bits_they_give_alone);
    tcase_add_test(tests, a_job_that_dies_disturbs_no_other);
    tcase_add_test(tests, jobs_may_come_while_others_run_and_after_they_have_ended);
    tcase_add_test(tests, a_job_may_begin_when_a_server_is_dead_or_about_to_be);
    tcase_add_test(tests, one_job_too_many_is_refused_by_name);
    tcase_add_test(tests, a_job_that_needs_more_memory_than_it_may_have_is_refused_by_name);
    tcase_add_test(tests, jobs_share_traffic_alike_and_so_do_a_jobs_workers);
    tcase_add_test(tests, a_light_job_waits_for_one_work_of_heavy_ones_at_most);
    tcase_add_test(tests, jobs_share_the_threads_by_bytes_of_work);
    return tests;
}
