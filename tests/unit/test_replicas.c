/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Servers with replicas, and servers that die: whole clusters, seed by seed, against the sequential reference, which knows
 * of no deaths. Replay one seed with
 *   TERSE_SIM_SEED=N build/unit-tests replicas
 * and run N seeds instead of the first test's 200 with TERSE_SIM_SEEDS=N (TERSE_SIM_FIRST=M: from the M-th on).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/bytes.h"
#include "common/base/random.h"
#include "common/wire/frame.h"
#include "tests/sim/cluster.h"
#include "tests/unit/one_account.h"
#include "tests/unit/unit.h"

#define SECOND 1000000u
#define SEEDS 200
#define SECONDS_MOST 120
#define DEADLINE_S 10u

static const char *const plain[] = {"servers.replicas=1", "consistency.deadline_s=10"};

static ts_cluster_spec spec_of(uint64_t seed) {
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 97));
    ts_cluster_spec spec = {.network = {.seed = seed,
                                        .servers = 2 + ts_random_below(&random, 3),
                                        .workers = 1 + ts_random_below(&random, 5),
                                        .delay_min_us = 10,
                                        .delay_max_us = 10 + ts_random_below(&random, 200000),
                                        .frame_limit_bytes = 1 << 20},
                            .overrides = plain,
                            .override_count = 2,
                            .limit_us = 900ull * SECOND};
    ts_cluster_vary(&spec, seed);
    spec.network.reorder = ts_random_below(&random, 2);
    if (ts_random_below(&random, 2)) {
        spec.network.drop = 0.1 * (double)ts_random_unit(ts_random_u32(&random));
        spec.network.duplicate = 0.2 * (double)ts_random_unit(ts_random_u32(&random));
        spec.network.corrupt = 0.05 * (double)ts_random_unit(ts_random_u32(&random));
    }
    bool uneven = ts_random_below(&random, 3) == 0;
    spec.barrier = !uneven && ts_random_below(&random, 2);
    for (uint32_t w = 0; w < spec.network.workers; w++) {
        spec.steps[w] = 18 + (uneven ? ts_random_below(&random, 6) : 0);
        spec.think_us[w] = ts_random_below(&random, 2) ? 1 + ts_random_below(&random, 300000) : 0;
    }
    if (ts_random_below(&random, 2)) { /* work takes its time, too */
        spec.pool_threads = 1 + ts_random_below(&random, 2);
        spec.work_ns_a_byte = 1 + ts_random_below(&random, 20000);
    }
    return spec;
}

static void same_arrays(const char *what, uint64_t seed, uint32_t w, uint32_t t, const float *a, const float *b) {
    size_t n = ts_cluster_tensors[t].n;
    for (size_t i = 0; i < n; i++) {
        ck_assert_msg(memcmp(&a[i], &b[i], sizeof(float)) == 0,
                      "seed %llu: %s of worker %u, tensor %u, element %zu: %.9g in the cluster, %.9g in the reference",
                      (unsigned long long)seed, what, w, t, i, (double)a[i], (double)b[i]);
    }
}

static void same_results(uint64_t seed, const ts_cluster_spec *spec, const ts_cluster_result *got, const ts_cluster_result *want) {
    for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++) {
        same_arrays("parameters", seed, 0, t, got->fetched[t], want->fetched[t]);
        for (uint32_t w = 0; w < spec->network.workers; w++) {
            same_arrays("replica", seed, w, t, got->replica[w][t], want->replica[w][t]);
            same_arrays("residual", seed, w, t, got->residual[w][t], want->residual[w][t]);
        }
    }
}

static void must_finish(uint64_t seed, const ts_cluster_spec *spec, const ts_cluster_result *got) {
    ck_assert_msg(got->finished, "seed %llu (%u servers, %u workers, server %u dies at %.3f s): not finished after %.1f s: %s",
                  (unsigned long long)seed, spec->network.servers, spec->network.workers, spec->kill_peer,
                  (double)spec->kill_at_us * 1e-6, (double)got->took_us * 1e-6, got->message);
}

/* Once without a death, once with one at a random moment of that time. Returns how long the death held things up. */
static uint64_t survives(uint64_t seed, ts_cluster_spec *spec, bool oracle) {
    ts_cluster_result calm, got, want;
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 96));
    ck_assert_ok(ts_cluster_run(spec, &calm));
    must_finish(seed, spec, &calm);
    if (oracle) ck_assert_ok(ts_oracle_run(spec, &want));
    if (oracle) same_results(seed, spec, &calm, &want);
    spec->kill_at_us = 1 + (uint64_t)((double)ts_random_unit(ts_random_u32(&random)) * (double)calm.took_us);
    spec->kill_peer = ts_random_below(&random, spec->network.servers);
    ck_assert_ok(ts_cluster_run(spec, &got));
    must_finish(seed, spec, &got);
    same_results(seed, spec, &got, &calm);
    ck_assert_str_eq(got.xxh3, calm.xxh3);
    uint64_t more = got.took_us > calm.took_us ? got.took_us - calm.took_us : 0;
    ts_cluster_result_free(&calm);
    ts_cluster_result_free(&got);
    if (oracle) ts_cluster_result_free(&want);
    return more;
}

static uint64_t seeds_wanted(void) {
    const char *count = getenv("TERSE_SIM_SEEDS");
    return count ? strtoull(count, NULL, 10) : SEEDS;
}

static void run_seeds(uint64_t first, uint64_t count, const char *const *more, unsigned more_count) {
    const char *only = getenv("TERSE_SIM_SEED"), *from = getenv("TERSE_SIM_FIRST"), *overrides[16];
    unsigned used = 0;
    for (unsigned i = 0; i < 2; i++) overrides[used++] = plain[i];
    for (unsigned i = 0; i < more_count; i++) overrides[used++] = more[i];
    if (from) first += strtoull(from, NULL, 10);
    if (only) {
        first = strtoull(only, NULL, 10);
        count = 1;
    }
    for (uint64_t seed = first; seed < first + count; seed++) {
        ts_cluster_spec spec = spec_of(seed);
        spec.overrides = overrides;
        spec.override_count = used;
        (void)survives(seed, &spec, strstr(overrides[used - 1], "optimizer.name=none") == NULL); /* which it does not know */
    }
}

START_TEST(a_server_dies_and_not_a_bit_changes) { run_seeds(1, seeds_wanted(), NULL, 0); }
END_TEST

START_TEST(sums_are_the_same_for_everybody_whoever_leads) {
    for (uint64_t seed = 5000; seed < 5150; seed++) {
        ts_cluster_spec spec = spec_of(seed);
        ts_cluster_result got;
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 95));
        spec.sum_every = 1;
        spec.network.workers = 3;
        for (uint32_t w = 0; w < 3; w++) spec.steps[w] = 12;
        spec.kill_at_us = 1 + ts_random_below(&random, 12000000);
        spec.kill_peer = 0;
        ck_assert_ok(ts_cluster_run(&spec, &got));
        must_finish(seed, &spec, &got);
        ts_cluster_result_free(&got);
    }
}
END_TEST

START_TEST(other_pipelines_and_optimizers_survive_as_well) {
    static const char *const dense[] = {"push.default=dense", "pull.default=dense", "error_feedback.momentum_correction=0"};
    static const char *const exact[] = {"push.default=topk:0.05", "pull.default=exact | rice", "pull.rules=[]", "servers.history=2"};
    static const char *const stateful[] = {"push.default=delta:5 | int8", "pull.default=svd:2 | fp16"};
    static const char *const low_rank[] = {"push.default=powersgd:2 | fp16", "pull.default=powersgd:1 | int8"};
    static const char *const adam[] = {"optimizer.name=adam", "optimizer.momentum=0", "error_feedback.momentum_correction=0"};
    static const char *const ef21[] = {"error_feedback.variant=ef21", "error_feedback.momentum_correction=0"};
    static const char *const none[] = {"push.default=randomk:0.2 | fp16", "error_feedback.momentum_correction=0", "optimizer.name=none"};
    run_seeds(11000, 30, dense, 3);
    run_seeds(12000, 30, exact, 4);
    run_seeds(13000, 30, stateful, 2);
    run_seeds(14000, 30, low_rank, 2);
    run_seeds(15000, 20, adam, 3);
    run_seeds(16000, 20, ef21, 2);
    run_seeds(17000, 20, none, 3);
}
END_TEST

/* The servers decide at once, and what they say comes to workers in the middle of a push. */
START_TEST(a_death_becomes_known_while_packets_are_encoded) {
    const char *dense[] = {plain[0], plain[1], "push.default=dense", "push.rules=[]", "error_feedback.momentum_correction=0"};
    uint64_t first = 50000, count = 100;
    if (getenv("TERSE_SIM_SEED")) first = strtoull(getenv("TERSE_SIM_SEED"), NULL, 10), count = 1;
    for (uint64_t seed = first; seed < first + count; seed++) {
        ts_cluster_spec spec = spec_of(seed);
        spec.overrides = dense;
        spec.override_count = 5;
        spec.tells = spec.large = true;
        spec.away_us = 100000;
        (void)survives(seed, &spec, true);
    }
}
END_TEST

/* Every packet in exactly one step, and from the accounts of the servers the same bits again. */
static void equals_its_replay(uint64_t seed, ts_cluster_spec *spec) {
    ts_cluster_result got, want;
    char complaint[256];
    spec->records = true;
    ck_assert_ok(ts_cluster_run(spec, &got));
    must_finish(seed, spec, &got);
    keep_one_account(seed, &got);
    ck_assert_ok(ts_replay_run(spec, &got, &want, complaint, sizeof complaint));
    ck_assert_msg(!complaint[0], "seed %llu: %s", (unsigned long long)seed, complaint);
    for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++) {
        same_arrays("parameters", seed, 0, t, got.fetched[t], want.fetched[t]);
        for (uint32_t w = 0; w < spec->network.workers; w++) {
            if (spec->kill_after[w]) continue;
            same_arrays("replica", seed, w, t, got.replica[w][t], want.replica[w][t]);
            same_arrays("residual", seed, w, t, got.residual[w][t], want.residual[w][t]);
        }
    }
    ts_cluster_result_free(&got);
    ts_cluster_result_free(&want);
}

START_TEST(every_packet_is_used_exactly_once) {
    uint64_t first = 20000, count = 60;
    if (getenv("TERSE_SIM_SEED")) first = strtoull(getenv("TERSE_SIM_SEED"), NULL, 10), count = 1;
    for (uint64_t seed = first; seed < first + count; seed++) {
        ts_cluster_spec spec = spec_of(seed);
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 94));
        spec.kill_at_us = 1 + ts_random_below(&random, 8000000);
        spec.kill_peer = ts_random_below(&random, spec.network.servers);
        equals_its_replay(seed, &spec);
    }
}
END_TEST

START_TEST(a_worker_and_a_server_die) {
    uint64_t first = 30000, count = 100;
    if (getenv("TERSE_SIM_SEED")) first = strtoull(getenv("TERSE_SIM_SEED"), NULL, 10), count = 1;
    for (uint64_t seed = first; seed < first + count; seed++) {
        ts_cluster_spec spec = spec_of(seed);
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 93));
        spec.network.workers = 3 + ts_random_below(&random, 3);
        spec.barrier = false;
        for (uint32_t w = 0; w < spec.network.workers; w++) spec.steps[w] = 18;
        spec.kill_after[1 + ts_random_below(&random, spec.network.workers - 1)] = 1 + ts_random_below(&random, 12);
        spec.kill_at_us = 1 + ts_random_below(&random, 30000000);
        spec.kill_peer = ts_random_below(&random, spec.network.servers);
        equals_its_replay(seed, &spec);
    }
}
END_TEST

/* A machine that computes wrongly: the stand-in gets other values than the owner took, once. */
typedef struct {
    bool done;
} liar;

static ts_buffer *lie(void *context, uint64_t now_us, uint32_t from, uint32_t to, ts_buffer *frame) {
    liar *state = context;
    ts_frame parsed = {0};
    (void)now_us, (void)from, (void)to;
    bool hit = !state->done && ts_frame_parse(frame, &parsed) == TERSE_OK && parsed.header->body_case == TERSE__HEADER__BODY_MIRROR &&
               parsed.header->mirror->kind == TERSE__MIRROR__KIND__PACKETS && !parsed.header->mirror->held &&
               parsed.header->mirror->step == 3;
    ts_frame_release(&parsed);
    if (!hit) return ts_buffer_ref(frame);
    ts_buffer *copy = NULL;
    ck_assert_ok(ts_buffer_create(frame->len, &copy));
    memcpy(copy->data, frame->data, frame->len);
    copy->len = frame->len;
    copy->data[copy->len - 4 - 2] ^= 0x40; /* of the last value's mantissa */
    ts_store_u32(copy->data + copy->len - 4, (uint32_t)XXH3_64bits(copy->data, copy->len - 4));
    state->done = true;
    return copy;
}

START_TEST(a_stand_in_that_comes_to_other_values_is_found_out) {
    const char *dense[] = {"servers.replicas=1", "push.default=dense", "push.rules=[]", "pull.default=dense", "pull.rules=[]",
                           "error_feedback.momentum_correction=0"};
    liar state = {false};
    ts_cluster_spec spec = {.network = {.seed = 1, .servers = 2, .workers = 2, .delay_min_us = 10, .delay_max_us = 1000,
                                        .frame_limit_bytes = 1 << 20, .meddle = lie, .meddler = &state},
                            .overrides = dense, .override_count = 6, .steps = {40, 40}, .limit_us = 60ull * SECOND};
    ts_cluster_result got;
    ck_assert_ok(ts_cluster_run(&spec, &got));
    ck_assert(state.done && got.ended && !got.finished);
    ck_assert_msg(strstr(got.message, "do not agree on version ") && strstr(got.message, "server 0") && strstr(got.message, "server 1"),
                  "%s", got.message);
    ts_cluster_result_free(&got);
}
END_TEST

START_TEST(who_loses_both_ends_and_names_both) {
    for (uint64_t seed = 40000; seed < 40030; seed++) {
        ts_cluster_spec spec = spec_of(seed);
        ts_cluster_result got;
        uint32_t servers = spec.network.servers, first = (uint32_t)(seed % servers), second = (first + 1) % servers;
        if (servers == 2) continue; /* then nobody is left to say it */
        spec.network.drop = spec.network.corrupt = 0;
        for (uint32_t w = 0; w < spec.network.workers; w++) spec.steps[w] = 100000;
        spec.kill_at_us = 3 * SECOND;
        spec.kill_peer = first;
        spec.kills[0].at_us = (seed % 2 ? 3 : 20) * SECOND; /* at once, and later */
        spec.kills[0].peer = second;
        spec.limit_us = 90ull * SECOND;
        ck_assert_ok(ts_cluster_run(&spec, &got));
        ck_assert_msg(got.ended && !got.finished, "seed %llu: still running: %s", (unsigned long long)seed, got.message);
        ck_assert_uint_le(got.took_us, spec.kills[0].at_us + (DEADLINE_S + 5) * SECOND);
        char name[32];
        snprintf(name, sizeof name, "server %u and server %u", first, second);
        ck_assert_msg(strstr(got.message, name) != NULL, "seed %llu: %s are not named: %s", (unsigned long long)seed, name, got.message);
        ts_cluster_result_free(&got);
    }
}
END_TEST

START_TEST(two_deaths_that_leave_a_holder_of_each_slice_change_nothing) {
    for (uint64_t seed = 41000; seed < 41040; seed++) {
        ts_cluster_spec spec = spec_of(seed);
        ts_cluster_result got, want;
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 92));
        spec.network.servers = 4;
        spec.kill_at_us = 1 + ts_random_below(&random, 20000000);
        spec.kill_peer = ts_random_below(&random, 4);
        spec.kills[0].at_us = 1 + ts_random_below(&random, 20000000);
        spec.kills[0].peer = (spec.kill_peer + 2) % 4;
        ck_assert_ok(ts_cluster_run(&spec, &got));
        must_finish(seed, &spec, &got);
        ck_assert_ok(ts_oracle_run(&spec, &want));
        same_results(seed, &spec, &got, &want);
        ts_cluster_result_free(&got);
        ts_cluster_result_free(&want);
    }
}
END_TEST

/* The job goes on without it; waking up it learns of that, and ends alone. */
START_TEST(a_server_that_was_stopped_for_too_long_does_no_harm) {
    for (uint64_t seed = 42000; seed < 42060; seed++) {
        ts_cluster_spec spec = spec_of(seed);
        ts_cluster_result got, want;
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 91));
        for (uint32_t w = 0; w < spec.network.workers; w++) spec.think_us[w] = 2000000; /* it is still running when it wakes up */
        spec.stop.at_us = 1 + ts_random_below(&random, 10000000);
        spec.stop.until_us = spec.stop.at_us + (DEADLINE_S + ts_random_below(&random, 10)) * SECOND;
        spec.stop.a = ts_random_below(&random, spec.network.servers);
        ck_assert_ok(ts_cluster_run(&spec, &got));
        ck_assert_msg(got.ended && got.job[0].done, "seed %llu: %s; %s", (unsigned long long)seed, got.message, got.job[0].message);
        ck_assert_ok(ts_oracle_run(&spec, &want));
        same_results(seed, &spec, &got, &want);
        ts_cluster_result_free(&got);
        ts_cluster_result_free(&want);
    }
}
END_TEST

/* Each takes the other for dead: whatever comes of it, nobody trains on with half of the workers. */
START_TEST(servers_that_do_not_hear_each_other_never_part_the_job) {
    unsigned ended = 0;
    for (uint64_t seed = 43000; seed < 43060; seed++) {
        ts_cluster_spec spec = spec_of(seed);
        ts_cluster_result got, want;
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 90));
        spec.cut.at_us = 1 + ts_random_below(&random, 10000000);
        spec.cut.until_us = spec.cut.at_us + ts_random_below(&random, 60) * SECOND;
        spec.cut.a = ts_random_below(&random, spec.network.servers);
        spec.cut.b = (spec.cut.a + 1) % spec.network.servers;
        ck_assert_ok(ts_cluster_run(&spec, &got));
        ck_assert_msg(got.ended, "seed %llu: still running: %s", (unsigned long long)seed, got.message);
        ended += !got.job[0].done;
        if (got.job[0].done) {
            ck_assert_ok(ts_oracle_run(&spec, &want));
            same_results(seed, &spec, &got, &want);
            ts_cluster_result_free(&want);
        }
        ts_cluster_result_free(&got);
    }
    ck_assert_uint_lt(ended, 60);
}
END_TEST

TCase *test_replicas(void);
TCase *test_replicas(void) {
    TCase *tests = tcase_create("replicas");
    tcase_set_timeout(tests, SECONDS_MOST * fmax(1, (double)seeds_wanted() / SEEDS));
    tcase_add_test(tests, a_server_dies_and_not_a_bit_changes);
    tcase_add_test(tests, a_death_becomes_known_while_packets_are_encoded);
    tcase_add_test(tests, every_packet_is_used_exactly_once);
    tcase_add_test(tests, a_worker_and_a_server_die);
    tcase_add_test(tests, a_stand_in_that_comes_to_other_values_is_found_out);
    tcase_add_test(tests, who_loses_both_ends_and_names_both);
    tcase_add_test(tests, two_deaths_that_leave_a_holder_of_each_slice_change_nothing);
    tcase_add_test(tests, a_server_that_was_stopped_for_too_long_does_no_harm);
    tcase_add_test(tests, servers_that_do_not_hear_each_other_never_part_the_job);
    tcase_add_test(tests, sums_are_the_same_for_everybody_whoever_leads);
    tcase_add_test(tests, other_pipelines_and_optimizers_survive_as_well);
    return tests;
}
