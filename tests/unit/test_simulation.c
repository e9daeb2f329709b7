/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole clusters, seed by seed, against the sequential reference. Replay one seed with
 *   TERSE_SIM_SEED=N build/unit-tests simulation
 * and run N seeds instead of the first test's 300, and of each other consistency mode, with TERSE_SIM_SEEDS=N; with
 * TERSE_SIM_FIRST=M from the M-th on, so that many can be run in pieces.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/random.h"
#include "tests/unit/one_account.h"
#include "tests/unit/simulation_support.h"
#include "tests/unit/unit.h"

#define SEEDS 300
#define SECONDS_MOST 120

ts_cluster_spec spec_of(uint64_t seed) {
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 99));
    ts_cluster_spec spec = {.network = {.seed = seed,
                                        .servers = 1 + ts_random_below(&random, 3),
                                        .workers = 1 + ts_random_below(&random, 5),
                                        .delay_min_us = 10,
                                        .delay_max_us = 10 + ts_random_below(&random, 200000),
                                        .frame_limit_bytes = 1 << 20},
                            .limit_us = 900ull * SECOND};
    spec.network.reorder = ts_random_below(&random, 2);
    if (ts_random_below(&random, 2)) {
        spec.network.drop = 0.1 * (double)ts_random_unit(ts_random_u32(&random));
        spec.network.duplicate = 0.2 * (double)ts_random_unit(ts_random_u32(&random));
        spec.network.corrupt = 0.05 * (double)ts_random_unit(ts_random_u32(&random));
    }
    bool uneven = ts_random_below(&random, 3) == 0;
    for (uint32_t w = 0; w < spec.network.workers; w++) {
        spec.steps[w] = 8 + (uneven ? ts_random_below(&random, 6) : 0);
    }
    ts_cluster_vary(&spec, seed);
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

static void cluster_equals_reference(uint64_t seed, const ts_cluster_spec *spec) {
    ts_cluster_result got, want;
    terse_status status = ts_cluster_run(spec, &got);
    ck_assert_msg(status == TERSE_OK, "%s: %s", terse_status_name(status), got.message);
    ck_assert_msg(got.finished, "seed %llu (%u servers, %u workers): not finished after %.1f s: %s",
                  (unsigned long long)seed, spec->network.servers, spec->network.workers, (double)got.took_us * 1e-6,
                  got.message);
    ck_assert_ok(ts_oracle_run(spec, &want));
    for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++) {
        same_arrays("parameters", seed, 0, t, got.fetched[t], want.fetched[t]);
        for (uint32_t w = 0; w < spec->network.workers; w++) {
            same_arrays("replica", seed, w, t, got.replica[w][t], want.replica[w][t]);
            same_arrays("residual", seed, w, t, got.residual[w][t], want.residual[w][t]);
        }
    }
    ts_cluster_result_free(&got);
    ts_cluster_result_free(&want);
}

/* ---- without rounds in lockstep: the run's own receipts, replayed ---- */

unsigned seed_count(unsigned usual) {
    const char *wanted = getenv("TERSE_SIM_SEEDS");
    return wanted ? (unsigned)strtoul(wanted, NULL, 10) : usual;
}

static bool deaths(const ts_cluster_spec *spec) {
    for (uint32_t w = 0; w < spec->network.workers; w++)
        if (ts_cluster_is_missed(spec, w)) return true;
    return false;
}

/* Somebody died before the parameters were set: then the job ends by a sentence that names it. */
static bool ended_before_it_began(const ts_cluster_spec *spec, const ts_cluster_result *got) {
    bool early = false;
    for (uint32_t w = 0; w < spec->network.workers; w++) early = early || spec->kill_us[w];
    for (size_t i = 0; i < got->event_count; i++)
        if (got->events[i].kind == TS_CLUSTER_RECEIPT && got->events[i].receipt.kind == TS_RECEIPT_STEP) return false;
    return early && strstr(got->message, "worker");
}

/* Runs and replays; returns how far anybody was ahead of the slowest, and what came too late. */
replayed cluster_equals_replay(uint64_t seed, ts_cluster_spec *spec) {
    ts_cluster_result got, want;
    char complaint[256];
    spec->records = true;
    terse_status status = ts_cluster_run(spec, &got);
    ck_assert_msg(status == TERSE_OK, "%s: %s", terse_status_name(status), got.message);
    bool in_order = got.finished || (got.ended && ended_before_it_began(spec, &got));
    ck_assert_msg(in_order, "seed %llu (%u servers, %u workers): not finished after %.1f s: %s",
                  (unsigned long long)seed, spec->network.servers, spec->network.workers, (double)got.took_us * 1e-6,
                  got.message);
    if (!got.finished) {
        ts_cluster_result_free(&got);
        return (replayed){0};
    }
    keep_one_account(seed, &got);
    ck_assert_ok(ts_replay_run(spec, &got, &want, complaint, sizeof complaint));
    ck_assert_msg(!complaint[0], "seed %llu: %s", (unsigned long long)seed, complaint);
    for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++) {
        bool nobody = got.xxh3[0] == '\0' && deaths(spec); /* who would have fetched them died when all had left */
        if (!nobody) same_arrays("parameters", seed, 0, t, got.fetched[t], want.fetched[t]);
        for (uint32_t w = 0; w < spec->network.workers; w++) {
            if (ts_cluster_dies(spec, w) || got.absent[w]) continue;
            if (!got.missed[w]) /* else it may have had some of a snapshot */
                same_arrays("replica", seed, w, t, got.replica[w][t], want.replica[w][t]);
            if (!got.torn[w]) same_arrays("residual", seed, w, t, got.residual[w][t], want.residual[w][t]);
        }
    }
    replayed told = {got.lead, want.returned, got.returns, 0};
    for (uint32_t w = 0; w < spec->network.workers; w++) told.absent += got.absent[w];
    ts_cluster_result_free(&got);
    ts_cluster_result_free(&want);
    return told;
}

void clear_keep_folder(const char *folder) {
    for (unsigned w = 0; w < TS_CLUSTER_WORKERS; w++) {
        char file[64];
        snprintf(file, sizeof file, "%s/worker-%u.keep", folder, w);
        (void)unlink(file);
    }
    ck_assert_int_eq(rmdir(folder), 0);
}

/* A cluster whose workers compute at different speeds. */
ts_cluster_spec uneven_spec_of(uint64_t seed) {
    ts_cluster_spec spec = spec_of(seed);
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 98));
    for (uint32_t w = 0; w < spec.network.workers; w++)
        spec.think_us[w] = ts_random_below(&random, 2) ? 1 + ts_random_below(&random, 1000000) : 0;
    return spec;
}

/* The first seed of a test, or the one that is wanted alone. */
bool only_seed(uint64_t *seed) {
    const char *only = getenv("TERSE_SIM_SEED"), *from = getenv("TERSE_SIM_FIRST");
    if (from) *seed += strtoull(from, NULL, 10);
    if (only) *seed = strtoull(only, NULL, 10);
    return only != NULL;
}

/* Seeds of one mode under a bound. Returns the largest lead of all. */
static uint64_t run_uneven(uint64_t first, unsigned count, const char *mode, uint64_t bound, const char *const *more,
                           unsigned more_count) {
    const char *overrides[8] = {mode};
    char staleness[40];
    unsigned used = 1;
    uint64_t most = 0;
    snprintf(staleness, sizeof staleness, "consistency.staleness=%llu", (unsigned long long)bound);
    if (bound != UINT64_MAX) overrides[used++] = staleness;
    for (unsigned i = 0; i < more_count; i++) overrides[used++] = more[i];
    if (only_seed(&first)) count = 1;
    for (uint64_t seed = first; seed < first + count; seed++) {
        ts_cluster_spec spec = uneven_spec_of(seed);
        spec.overrides = overrides;
        spec.override_count = used;
        uint64_t lead = cluster_equals_replay(seed, &spec).lead;
        ck_assert_msg(lead <= bound, "seed %llu: %llu steps ahead, the bound is %llu", (unsigned long long)seed,
                      (unsigned long long)lead, (unsigned long long)bound);
        if (lead > most) most = lead;
    }
    return most;
}

static const char *const dense[] = {"push.default=dense", "pull.default=dense", "error_feedback.momentum_correction=0"};
static const char *const stateful[] = {"push.default=delta:5 | int8", "pull.default=svd:2 | fp16"};
static const char *const exact[] = {"push.default=topk:0.05", "pull.default=exact | rice", "pull.rules=[]", "servers.history=2"};
static const char *const adam[] = {"optimizer.name=adam", "optimizer.momentum=0",
                                   "error_feedback.momentum_correction=0"};
static const char *const ef21[] = {"error_feedback.variant=ef21", "error_feedback.momentum_correction=0"};

START_TEST(ssp_never_exceeds_its_bound_and_replays_bit_for_bit) {
    for (uint64_t bound = 0; bound < 4; bound++) {
        uint64_t lead = run_uneven(10000 + 100000 * bound, seed_count(60) / 4, "consistency.mode=ssp", bound, NULL, 0);
        if (!getenv("TERSE_SIM_SEED")) ck_assert_uint_eq(lead, bound); /* and it is used */
    }
    run_uneven(500000, 20, "consistency.mode=ssp", 2, dense, 3);
    run_uneven(510000, 20, "consistency.mode=ssp", 1, stateful, 2);
    run_uneven(520000, 20, "consistency.mode=ssp", 2, exact, 4);
}
END_TEST

START_TEST(asp_replays_bit_for_bit) {
    uint64_t lead = run_uneven(600000, seed_count(60), "consistency.mode=asp", UINT64_MAX, NULL, 0);
    if (!getenv("TERSE_SIM_SEED")) ck_assert_uint_gt(lead, 4); /* nobody waits */
    run_uneven(700000, 20, "consistency.mode=asp", UINT64_MAX, dense, 3);
    run_uneven(710000, 20, "consistency.mode=asp", UINT64_MAX, stateful, 2);
    run_uneven(720000, 20, "consistency.mode=asp", UINT64_MAX, ef21, 2);
    run_uneven(730000, 20, "consistency.mode=asp", UINT64_MAX, adam, 3);
    run_uneven(740000, 20, "consistency.mode=asp", UINT64_MAX, exact, 4);
}
END_TEST

START_TEST(chosen_tensors_are_pulled_now_and_then) {
    static const char *const modes[] = {"consistency.mode=bsp", "consistency.mode=asp", "consistency.mode=ssp"};
    for (unsigned i = 0; i < 90; i++) {
        static const char *const pulls[] = {"pull.default=dense", "servers.history=2", "pull.default=exact"};
        const char *overrides[] = {"pull.rules=[]", modes[i % 3], pulls[i / 3 % 3],
                                   i % 3 == 2 ? "consistency.staleness=2" : "servers.history=3"};
        uint64_t seed = 25000000 + i;
        ts_cluster_spec spec = uneven_spec_of(seed);
        spec.overrides = overrides;
        spec.override_count = 4;
        spec.pull_every = 3;
        uint64_t lead = cluster_equals_replay(seed, &spec).lead;
        ck_assert_uint_le(lead, i % 3 == 0 ? 0 : i % 3 == 1 ? UINT64_MAX : 2);
    }
}
END_TEST

/* Both policies, both rules. Returns how many packets came back. */
static uint64_t run_stragglers(uint64_t first, unsigned count, const char *policy, const char *late, const char *more) {
    const char *overrides[] = {policy, "consistency.quorum=2", late, more, more, more};
    uint64_t returned = 0;
    if (only_seed(&first)) count = 1;
    for (uint64_t seed = first; seed < first + count; seed++) {
        ts_cluster_spec spec = uneven_spec_of(seed);
        spec.overrides = overrides;
        spec.override_count = more ? 4 : 3;
        spec.barrier = seed % 2; /* who waits there for the slow is not waited for */
        returned += cluster_equals_replay(seed, &spec).returned;
    }
    return returned;
}

START_TEST(rounds_without_stragglers_replay_bit_for_bit) {
    const char *proceed = "consistency.stragglers=proceed", *backup = "consistency.stragglers=backup";
    const char *returns = "consistency.late=return", *applies = "consistency.late=apply";
    unsigned count = seed_count(80) / 4;
    uint64_t some = run_stragglers(20000000, count, backup, returns, NULL);
    uint64_t none = run_stragglers(21000000, count, backup, applies, NULL);
    some += run_stragglers(22000000, count, proceed, returns, "consistency.straggler_s=0.1");
    none += run_stragglers(23000000, count, proceed, applies, "consistency.straggler_s=0.1");
    some += run_stragglers(24000000, 20, backup, returns, "push.default=delta:5 | int8");
    if (!getenv("TERSE_SIM_FIRST")) { /* a refusal was heard again when its chain had begun anew */
        some += run_stragglers(24001211, 1, backup, returns, "push.default=delta:5 | int8");
        some += run_stragglers(24002255, 1, backup, returns, "push.default=delta:5 | int8");
    }
    some += run_stragglers(24100000, 20, backup, applies, "push.default=randomk:0.2 | fp16");
    some += run_stragglers(24200000, 20, backup, returns, "pull.default=dense");
    some += run_stragglers(24300000, 20, backup, returns, "pull.default=exact | rle");
    if (getenv("TERSE_SIM_SEED")) return;
    ck_assert_uint_gt(some, 100);
    ck_assert_uint_eq(none, 0);
}
END_TEST

/* Some workers die, in any state; the others finish, and every packet that was taken is used once. */
static void run_deaths(uint64_t first, unsigned count, const char *const feedback[2]) {
    static const char *const modes[] = {"consistency.mode=bsp", "consistency.mode=ssp", "consistency.mode=asp",
                                        "consistency.mode=bsp"};
    if (only_seed(&first)) count = 1;
    for (uint64_t seed = first; seed < first + count; seed++) {
        const char *overrides[] = {modes[seed % 4], "consistency.deadline_s=10", seed % 3 ? "pull.default=dense" : "servers.history=3",
                                   feedback[0], feedback[1],
                                   "consistency.stragglers=proceed", "consistency.quorum=1", "consistency.straggler_s=0.3"};
        ts_cluster_spec spec = uneven_spec_of(seed);
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 97));
        spec.overrides = overrides;
        spec.override_count = seed % 4 == 3 ? 8 : 5;
        spec.barrier = seed % 2;
        spec.network.workers = 2 + ts_random_below(&random, 4);
        uint32_t survivor = ts_random_below(&random, spec.network.workers);
        for (uint32_t w = 0; w < spec.network.workers; w++) {
            spec.steps[w] = 10;
            if (w == survivor || ts_random_below(&random, 2)) continue;
            if (ts_random_below(&random, 3)) spec.kill_after[w] = 1 + ts_random_below(&random, 10);
            else spec.kill_us[w] = 1 + ts_random_below(&random, seed % 2 ? 400000 : 8000000);
        }
        spec.limit_us = 600ull * SECOND;
        cluster_equals_replay(seed, &spec);
    }
}

static const char *const classic[2] = {"error_feedback.variant=classic", "servers.slice_elems=100"};

START_TEST(jobs_go_on_without_workers_that_die) {
    run_deaths(30000000, seed_count(100), classic);
}
END_TEST

/* It died when some servers knew that it was done and others did not, which then waited for it: once for ever. */
START_TEST(who_dies_between_two_servers_words_keeps_nobody) { run_deaths(30000634, 1, classic); }
END_TEST

/* Their last gradients stay in the mean, as its definition has it: of what each worker said last, over all workers. */
START_TEST(with_ef21_the_last_estimates_of_the_dead_stay) { run_deaths(35000000, 40, ef21); }
END_TEST

/* Between any peers, each for less than the deadline: nobody is given up, and not a bit is different. */
START_TEST(partitions_that_heal_in_time_change_nothing) {
    uint64_t first = 33000000;
    unsigned count = seed_count(60);
    if (only_seed(&first)) count = 1;
    for (uint64_t seed = first; seed < first + count; seed++) {
        ts_cluster_spec spec = spec_of(seed);
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 92));
        uint32_t all = (1u << (spec.network.servers + spec.network.workers)) - 1;
        uint64_t at = 0;
        for (unsigned p = 0; p < TS_CLUSTER_PARTS; p++) {
            at += 1 + ts_random_below(&random, 2 * SECOND);
            spec.parts[p].at_us = at;
            at += spec.parts[p].for_us = ts_random_below(&random, 8 * SECOND);
            spec.parts[p].side = ts_random_u32(&random) & all;
            spec.parts[p].other = ts_random_below(&random, 2) ? all & ~spec.parts[p].side : ts_random_u32(&random) & all;
        }
        cluster_equals_reference(seed, &spec);
    }
}
END_TEST

START_TEST(bsp_replays_bit_for_bit_at_uneven_speeds) {
    uint64_t lead = run_uneven(800000, seed_count(40), "consistency.mode=bsp", UINT64_MAX, NULL, 0);
    ck_assert_uint_eq(lead, 0);
}
END_TEST

/* Else nothing that comes at such a moment is tried. */
START_TEST(the_network_goes_on_while_workers_encode_and_decode) {
    ts_cluster_spec spec = spec_of(1);
    for (uint64_t away_us = 0; away_us <= 20000; away_us += 20000) {
        ts_cluster_result got;
        spec.away_us = away_us;
        ck_assert_ok(ts_cluster_run(&spec, &got));
        ck_assert(got.finished && (got.meanwhile > 0) == (away_us > 0));
        ts_cluster_result_free(&got);
    }
}
END_TEST

/* Of packets that go the way of large ones some are lent where nothing keeps a residual, and all have frames of their own. */
START_TEST(clusters_send_packets_the_way_of_large_ones) {
    const char *plain[] = {"error_feedback.enabled=false", "push.default=dense", "push.rules=[]"};
    for (unsigned i = 0; i < 4; i++) {
        ts_cluster_spec spec = spec_of(1);
        ts_cluster_result got;
        spec.large = i % 2;
        spec.overrides = i < 2 ? plain : NULL;
        spec.override_count = i < 2 ? 3 : 0;
        ck_assert_ok(ts_cluster_run(&spec, &got));
        ck_assert_msg(got.finished, "%s", got.message);
        ck_assert((got.lent > 0) == (i == 1));
        ck_assert_uint_eq(got.alone, spec.large ? spec.network.workers : 0); /* the biases', else */
        ts_cluster_result_free(&got);
    }
}
END_TEST

/* ---- rounds in lockstep: the sequential reference ---- */

static void run_seeds(uint64_t first, uint64_t count, const char *const *overrides, unsigned override_count) {
    if (only_seed(&first)) count = 1;
    for (uint64_t seed = first; seed < first + count; seed++) {
        ts_cluster_spec spec = spec_of(seed);
        spec.overrides = overrides;
        spec.override_count = override_count;
        cluster_equals_reference(seed, &spec);
    }
}

static uint64_t seeds_wanted(void) {
    const char *count = getenv("TERSE_SIM_SEEDS");
    return count ? strtoull(count, NULL, 10) : SEEDS;
}

START_TEST(clusters_give_the_reference_bits_whatever_the_network_does) { run_seeds(1, seeds_wanted(), NULL, 0); }
END_TEST

START_TEST(dense_clusters_give_the_reference_bits) {
    const char *overrides[] = {"push.default=dense", "pull.default=dense", "error_feedback.momentum_correction=0"};
    run_seeds(1000, 60, overrides, 3);
}
END_TEST

/* The replicas equal the parameters, in every round: gradients depend on them. Plain SGD, of which little changes. */
START_TEST(exact_clusters_give_the_bits_of_the_parameters) {
    static const char *const pulls[] = {"pull.default=exact", "pull.default=exact | rice",
                                        "pull.default=exact | bitmap | zstd:3"};
    for (unsigned i = 0; i < 3; i++) {
        const char *few[] = {pulls[i], "pull.rules=[]", "push.default=topk:0.01", "optimizer.momentum=0",
                             "error_feedback.momentum_correction=0", "servers.history=2"};
        const char *most[] = {pulls[i], "pull.rules=[]", "optimizer.name=adam", "optimizer.momentum=0",
                              "error_feedback.momentum_correction=0"};
        run_seeds(7000 + 100 * i, 30, few, 6);
        run_seeds(7500 + 100 * i, 15, most, 5);
    }
}
END_TEST

START_TEST(exact_replicas_equal_the_parameters_when_all_is_said) {
    static const char *const modes[] = {"consistency.mode=bsp", "consistency.mode=ssp"};
    for (unsigned i = 0; i < 20; i++) {
        const char *overrides[] = {"pull.default=exact", "pull.rules=[]", modes[i % 2], "push.default=topk:0.01"};
        ts_cluster_spec spec = spec_of(7900 + i);
        spec.overrides = overrides;
        spec.override_count = 4;
        spec.network.workers = 1; /* so that nobody else moves them after the last pull */
        ts_cluster_result got;
        ck_assert_ok(ts_cluster_run(&spec, &got));
        ck_assert_msg(got.finished, "%s", got.message);
        for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++)
            same_arrays("replica and parameters", 7900 + i, 0, t, got.replica[0][t], got.fetched[t]);
        ts_cluster_result_free(&got);
    }
}
END_TEST

START_TEST(randomk_and_fp16_clusters_give_the_reference_bits) {
    const char *overrides[] = {"push.default=randomk:0.2 | fp16", "pull.default=fp16"};
    run_seeds(2000, 60, overrides, 2);
}
END_TEST

START_TEST(low_rank_clusters_give_the_reference_bits) {
    const char *overrides[] = {"push.default=powersgd:2 | fp16", "pull.default=powersgd:1 | int8"};
    run_seeds(4000, 60, overrides, 2);
}
END_TEST

START_TEST(delta_clusters_give_the_reference_bits) {
    const char *overrides[] = {"push.default=delta:5 | int8", "pull.default=svd:2 | fp16"};
    run_seeds(5000, 60, overrides, 2);
}
END_TEST

START_TEST(clusters_with_other_feedback_give_the_reference_bits) {
    const char *ef21_dense[] = {"error_feedback.variant=ef21", "error_feedback.momentum_correction=0",
                                "push.default=powersgd:1 | fp16"};
    const char *decayed[] = {"error_feedback.variant=decayed", "error_feedback.beta=0.75"};
    const char *brief[] = {"error_feedback.residual=bf16"};
    run_seeds(6000, 40, ef21, 2);
    run_seeds(6100, 20, ef21_dense, 3);
    run_seeds(6200, 40, decayed, 2);
    run_seeds(6300, 40, brief, 1);
}
END_TEST

START_TEST(clusters_without_feedback_give_the_reference_bits) {
    const char *overrides[] = {"error_feedback.enabled=false", "push.default=dense", "push.rules=[]"};
    run_seeds(3000, 40, overrides, 1);
    run_seeds(3100, 20, overrides, 3);
}
END_TEST

START_TEST(server_count_does_not_change_a_bit) {
    char first[17] = "";
    for (uint32_t servers = 1; servers <= 5; servers++) {
        ts_cluster_spec spec = spec_of(77);
        spec.network.servers = servers;
        ts_cluster_result got;
        ck_assert_ok(ts_cluster_run(&spec, &got));
        ck_assert_msg(got.finished, "%u servers: %s", servers, got.message);
        if (servers == 1) memcpy(first, got.xxh3, sizeof first);
        ck_assert_str_eq(got.xxh3, first);
        ts_cluster_result_free(&got);
    }
}
END_TEST

START_TEST(a_dead_member_is_named_and_everybody_ends_in_time) {
    const char *overrides[] = {"consistency.deadline_s=5", "consistency.on_worker_loss=end"};
    for (uint32_t victim = 0; victim < 5; victim++) {
        ts_cluster_spec spec = spec_of(5);
        spec.network = (ts_sim_options){.seed = victim, .servers = 2, .workers = 3, .delay_min_us = 100,
                                        .delay_max_us = 5000, .frame_limit_bytes = 1 << 20};
        for (uint32_t w = 0; w < 3; w++) spec.steps[w] = 100000;
        spec.overrides = overrides;
        spec.override_count = 2;
        spec.kill_at_us = 2 * SECOND;
        spec.kill_peer = victim;
        spec.limit_us = 60ull * SECOND;
        ts_cluster_result got;
        ck_assert_ok(ts_cluster_run(&spec, &got));
        ck_assert_msg(got.ended && !got.finished, "victim %u: still running: %s", victim, got.message);
        ck_assert_msg(got.took_us <= 2 * SECOND + 10 * SECOND, "victim %u: took %.1f s", victim,
                      (double)got.took_us * 1e-6);
        char name[16];
        snprintf(name, sizeof name, victim < 2 ? "server %u" : "worker %u", victim < 2 ? victim : victim - 2);
        ck_assert_msg(strstr(got.message, name) != NULL, "victim %s is not named: %s", name, got.message);
        ts_cluster_result_free(&got);
    }
}
END_TEST

TCase *test_simulation(void);
TCase *test_simulation(void) {
    TCase *tests = tcase_create("simulation");
    tcase_set_timeout(tests, SECONDS_MOST * fmax(1, (double)seeds_wanted() / SEEDS));
    tcase_add_test(tests, clusters_give_the_reference_bits_whatever_the_network_does);
    tcase_add_test(tests, dense_clusters_give_the_reference_bits);
    tcase_add_test(tests, exact_clusters_give_the_bits_of_the_parameters);
    tcase_add_test(tests, exact_replicas_equal_the_parameters_when_all_is_said);
    tcase_add_test(tests, randomk_and_fp16_clusters_give_the_reference_bits);
    tcase_add_test(tests, low_rank_clusters_give_the_reference_bits);
    tcase_add_test(tests, delta_clusters_give_the_reference_bits);
    tcase_add_test(tests, clusters_with_other_feedback_give_the_reference_bits);
    tcase_add_test(tests, clusters_without_feedback_give_the_reference_bits);
    tcase_add_test(tests, server_count_does_not_change_a_bit);
    tcase_add_test(tests, ssp_never_exceeds_its_bound_and_replays_bit_for_bit);
    tcase_add_test(tests, asp_replays_bit_for_bit);
    tcase_add_test(tests, chosen_tensors_are_pulled_now_and_then);
    tcase_add_test(tests, rounds_without_stragglers_replay_bit_for_bit);
    tcase_add_test(tests, jobs_go_on_without_workers_that_die);
    tcase_add_test(tests, who_dies_between_two_servers_words_keeps_nobody);
    tcase_add_test(tests, with_ef21_the_last_estimates_of_the_dead_stay);
    tcase_add_test(tests, partitions_that_heal_in_time_change_nothing);
    tcase_add_test(tests, bsp_replays_bit_for_bit_at_uneven_speeds);
    tcase_add_test(tests, the_network_goes_on_while_workers_encode_and_decode);
    tcase_add_test(tests, clusters_send_packets_the_way_of_large_ones);
    tcase_add_test(tests, a_dead_member_is_named_and_everybody_ends_in_time);
    return tests;
}
