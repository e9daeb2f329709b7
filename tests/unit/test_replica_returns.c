/* SPDX-License-Identifier: Apache-2.0 */
/*
 * With replicas: workers that were given up come back while servers live and die. Seed by seed; owner and stand-in must tell
 * the same of each slice, every packet is used once or given back, and from the receipts the run is done again bit for bit.
 * TERSE_SIM_SEED, TERSE_SIM_FIRST and TERSE_SIM_SEEDS as in test_simulation.c.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/random.h"
#include "common/wire/frame.h"
#include "tests/unit/simulation_support.h"
#include "tests/unit/unit.h"

#define SEEDS 60
#define STEPS 24
#define SETS_MOST 12

/* What all runs have; the last says where what is not sent is kept. */
typedef struct {
    char keep[64], folder[32];
    const char *sets[SETS_MOST];
    unsigned count;
} settings;

static void add(settings *set, const char *one) {
    ck_assert_uint_lt(set->count, SETS_MOST);
    set->sets[set->count++] = one;
}

static void begin(settings *set, uint64_t seed, bool keeps, const char *const *more) {
    memset(set, 0, sizeof *set);
    snprintf(set->folder, sizeof set->folder, "/dev/shm/terse-sim-XXXXXX");
    snprintf(set->keep, sizeof set->keep, "error_feedback.keep=off");
    if (keeps) ck_assert_ptr_nonnull(mkdtemp(set->folder));
    if (keeps) snprintf(set->keep, sizeof set->keep, "error_feedback.keep=%s", set->folder);
    add(set, "servers.replicas=1");
    add(set, "consistency.deadline_s=10");
    add(set, seed % 5 ? "pull.default=dense" : "servers.history=3");
    add(set, "daemon.orphan_s=60");
    for (; more && *more; more++) add(set, *more);
    add(set, set->keep);
}

/* Runs and replays in a folder of its own. */
static replayed play(uint64_t seed, ts_cluster_spec spec, bool keeps, const char *const *more) {
    settings set;
    begin(&set, seed, keeps, more);
    spec.overrides = set.sets;
    spec.override_count = set.count;
    replayed told = cluster_equals_replay(seed, &spec);
    if (keeps) clear_keep_folder(set.folder);
    return told;
}

static uint64_t first_return(uint64_t seed, ts_cluster_spec spec, bool keeps, const char *const *more) {
    settings set;
    ts_cluster_result calm;
    begin(&set, seed, keeps, more);
    spec.overrides = set.sets;
    spec.override_count = set.count;
    ck_assert_ok(ts_cluster_run(&spec, &calm));
    uint64_t at_us = calm.first_return_us;
    ts_cluster_result_free(&calm);
    if (keeps) clear_keep_folder(set.folder);
    return at_us;
}

/* Of four runs one without a server's death, one with one at any time, and two with one while a worker comes back. */
static replayed strike(uint64_t seed, ts_cluster_spec *spec, bool keeps, const char *const *more) {
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 87));
    uint64_t at_us = seed % 4 < 2 ? 0 : first_return(seed, *spec, keeps, more);
    if (seed % 4 == 1) at_us = 1 + ts_random_below(&random, 30 * SECOND);
    if (seed % 4 >= 2 && at_us > 0) at_us -= ts_random_below(&random, (uint32_t)(at_us < 2 * SECOND ? at_us : 2 * SECOND));
    spec->kill_at_us = at_us;
    spec->kill_peer = seed % 8 == 3 ? 0 : ts_random_below(&random, spec->network.servers); /* who leads, often */
    return play(seed, *spec, keeps, more);
}

static ts_cluster_spec spec_with_replicas(uint64_t seed) {
    ts_cluster_spec spec = uneven_spec_of(seed);
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 86));
    spec.network.servers = 2 + ts_random_below(&random, 3);
    spec.network.workers = 2 + ts_random_below(&random, 3);
    spec.barrier = seed % 2;
    if (ts_random_below(&random, 3) == 0) { /* work takes its time, too */
        spec.pool_threads = 1 + ts_random_below(&random, 2);
        spec.work_most_us = 1 + ts_random_below(&random, 200000);
    }
    spec.limit_us = 900ull * SECOND;
    for (uint32_t w = 0; w < spec.network.workers; w++) {
        spec.steps[w] = STEPS;
        spec.think_us[w] += 500000; /* so that the others are not done before */
    }
    return spec;
}

typedef enum { STOPPED, CUT_OFF, KILLED, REPLACED } trouble;

/* Some of the workers, not all, are missed for longer than the deadline, or nearly so. */
static void plan_trouble(uint64_t seed, ts_cluster_spec *spec, trouble what) {
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 85));
    uint32_t servers = spec->network.servers, present = ts_random_below(&random, spec->network.workers);
    for (uint32_t w = 0, p = 0; w < spec->network.workers; w++) {
        if (w == present || (w != (present + 1) % spec->network.workers && ts_random_below(&random, 2))) continue;
        uint64_t after = 1 + ts_random_below(&random, 9);
        if (what == STOPPED) {
            spec->sleep_after[w] = after;
            spec->sleep_us[w] = 9 * SECOND + ts_random_below(&random, 8 * SECOND);
        } else if (what == CUT_OFF && p < TS_CLUSTER_PARTS) {
            uint32_t some = ts_random_u32(&random) & ((1u << servers) - 1);
            spec->parts[p].at_us = 3 * SECOND + ts_random_below(&random, 8 * SECOND);
            spec->parts[p].for_us = ts_random_below(&random, 20 * SECOND);
            spec->parts[p].attached = true;
            spec->parts[p].side = 1u << (servers + w);
            spec->parts[p++].other = some && ts_random_below(&random, 2) ? some : (1u << servers) - 1;
        } else if (what == KILLED || what == REPLACED) {
            spec->kill_after[w] = after;
            spec->restart_us[w] = 1000 + ts_random_below(&random, 14 * SECOND); /* before it is given up, or after */
        }
    }
}

/* Returns how often somebody came back. */
static uint64_t run_trouble(uint64_t first, unsigned count, trouble what, const char *const *more) {
    static const char *const patient[] = {"consistency.deadline_s=60"};
    uint64_t returns = 0;
    if (only_seed(&first)) count = 1;
    for (uint64_t seed = first; seed < first + count; seed++) {
        ts_cluster_spec spec = spec_with_replicas(seed);
        bool keeps = what == KILLED || (what == REPLACED && seed % 5);
        plan_trouble(seed, &spec, what);
        spec.comes_anew = what == REPLACED;
        spec.forgets = what == REPLACED && !keeps;
        if (what == REPLACED) spec.network.spare = 2 * TS_CLUSTER_WORKERS;
        if (what == CUT_OFF) spec.job[0].overrides = patient; /* else it would itself give the servers up */
        if (what == CUT_OFF) spec.job[0].override_count = 1;
        returns += strike(seed, &spec, keeps, more).returns;
    }
    if (count > 1) ck_assert_uint_gt(returns, count / 3);
    return returns;
}

START_TEST(who_was_stopped_comes_back_whoever_leads) { run_trouble(41000000, seed_count(SEEDS), STOPPED, NULL); }
END_TEST

START_TEST(who_was_cut_off_comes_back_whoever_leads) { run_trouble(42000000, seed_count(SEEDS), CUT_OFF, NULL); }
END_TEST

START_TEST(who_was_killed_goes_on_from_what_it_kept_whoever_leads) {
    run_trouble(43000000, seed_count(SEEDS), KILLED, NULL);
    run_trouble(43001091, 1, KILLED, NULL); /* server 0 dies when it has told some, and the worker asks server 1, too */
}
END_TEST

START_TEST(other_processes_take_the_places_of_the_killed_whoever_leads) { run_trouble(44000000, seed_count(SEEDS), REPLACED, NULL); }
END_TEST

START_TEST(other_pipelines_come_back_whoever_leads) {
    static const char *const delta[] = {"push.default=delta:5 | int8", NULL};
    static const char *const ef21[] = {"error_feedback.variant=ef21", "error_feedback.momentum_correction=0", NULL};
    static const char *const exact[] = {"push.default=topk:0.05", "pull.rules=[]", "servers.history=2", NULL};
    run_trouble(45000000, seed_count(SEEDS) / 3, STOPPED, delta);
    run_trouble(45100000, seed_count(SEEDS) / 3, STOPPED, ef21);
    run_trouble(45200000, seed_count(SEEDS) / 3, REPLACED, exact);
}
END_TEST

/*
 * A network that loses most of what a stand-in hears of who comes in, or most of what it says to hold; all of ALIVE to server 1;
 * most of what servers hear of who is done, or of each other about who comes in.
 */
typedef struct {
    bool words, answers, alive, dones, joins;
    uint32_t victim;      /* a server that hears and says nothing any more when a step that it has agreed to is moved; 0: none */
    uint64_t from;        /* of the last plan */
    bool agreed;
    uint64_t moved_us;    /* when it was moved; 0: not yet */
    uint64_t seen;
} thief;

/* Whether the victim is cut off by now. servers come first among the peers. */
static bool is_cut_off(thief *state, uint64_t now_us, uint32_t from, uint32_t to, const Terse__Join *join) {
    if (state->victim == 0) return false;
    if (join && from == 0 && join->from != state->from) {
        if (!state->moved_us && state->agreed && join->from > state->from) state->moved_us = now_us;
        state->agreed = false;
        state->from = join->from;
    }
    if (join && from == state->victim && to == 0 && !join->passed && join->from == state->from) state->agreed = true;
    return state->moved_us && (from == state->victim || to == state->victim);
}

static ts_buffer *steal(void *context, uint64_t now_us, uint32_t from, uint32_t to, ts_buffer *frame) {
    thief *state = context;
    ts_frame parsed = {0};
    bool hit = ts_frame_parse(frame, &parsed) == TERSE_OK && parsed.header->body_case == TERSE__HEADER__BODY_MIRROR;
    const Terse__Mirror *mirror = hit ? parsed.header->mirror : NULL;
    bool lead = state->alive && from == 0 && to == 1 && mirror && mirror->kind == TERSE__MIRROR__KIND__ALIVE;
    hit = mirror && ((state->words && mirror->kind == TERSE__MIRROR__KIND__JOINED && !mirror->held) ||
                     (state->answers && mirror->kind == TERSE__MIRROR__KIND__PACKETS && mirror->held));
    Terse__Header__BodyCase kind = parsed.header ? parsed.header->body_case : TERSE__HEADER__BODY__NOT_SET;
    bool cut = is_cut_off(state, now_us, from, to, kind == TERSE__HEADER__BODY_JOIN ? parsed.header->join : NULL);
    hit = hit || (state->dones && kind == TERSE__HEADER__BODY_DONE) || (state->joins && kind == TERSE__HEADER__BODY_JOIN);
    ts_frame_release(&parsed);
    bool lost = hit && ts_random_key(state->seen++, 0, 0, 0, 79) % 4 > 0; /* in no rhythm, or the same server's would be, always */
    return lead || lost || cut ? NULL : ts_buffer_ref(frame);
}

/* Nobody is told an epoch that only server 0 knows: what is kept of it could not be gone on from when it dies. */
START_TEST(who_was_killed_goes_on_where_server_0_was_never_heard_of) {
    uint64_t first = 48000000, returns = 0;
    unsigned count = only_seed(&first) ? 1 : seed_count(SEEDS);
    for (uint64_t seed = first; seed < first + count; seed++) {
        ts_cluster_spec spec = spec_with_replicas(seed);
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 82));
        thief state = {.alive = true};
        plan_trouble(seed, &spec, KILLED);
        spec.network.servers = 2 + ts_random_below(&random, 2); /* a third has heard of it, and tells server 1 */
        spec.network.meddle = steal;
        spec.network.meddler = &state;
        spec.kill_at_us = 1 + ts_random_below(&random, 8 * SECOND); /* it is not missed before */
        returns += play(seed, spec, true, NULL).returns;
    }
    if (count > 1) ck_assert_uint_gt(returns, count / 3);
}
END_TEST

START_TEST(nobody_waits_for_the_next_word_to_server_1) {
    static const char *const patient[] = {"servers.replicas=1", "consistency.deadline_s=60"};
    ts_cluster_spec spec = {.network = {.seed = 48200000, .servers = 2, .workers = 2, .delay_min_us = 10, .delay_max_us = 1000,
                                        .frame_limit_bytes = 1 << 20},
                            .overrides = patient, .override_count = 2, .steps = {1, 1}, .limit_us = 90ull * SECOND};
    ts_cluster_result got;
    ck_assert_ok(ts_cluster_run(&spec, &got));
    ck_assert_msg(got.finished, "%s", got.message);
    ck_assert_uint_lt(got.took_us, 61 * SECOND); /* of fake time: it ends by the workers' silence, and ALIVE is said each second */
    ts_cluster_result_free(&got);
}
END_TEST

/* Part of a job up to a time when some of it is not sent; server 0 dies before it says a word. */
static void begin_and_stop(uint64_t seed, const settings *set, uint64_t limit_us, ts_cluster_result *got) {
    ts_cluster_spec spec = spec_with_replicas(seed);
    spec.overrides = set->sets;
    spec.override_count = set->count;
    spec.network.spare = 2 * TS_CLUSTER_WORKERS;
    spec.comes_anew = true; /* so that somebody could go on from what is kept */
    spec.kill_at_us = 1;
    spec.limit_us = limit_us;
    for (uint32_t w = 0; w < spec.network.workers; w++) spec.steps[w] = 1000;
    ck_assert_ok(ts_cluster_run(&spec, got));
    ck_assert(!got->finished);
}

START_TEST(what_is_kept_of_another_start_is_refused_whoever_leads) {
    for (uint64_t seed = 48100000; seed < 48100008; seed++) {
        settings set;
        ts_cluster_result got;
        begin(&set, seed, true, NULL);
        begin_and_stop(seed, &set, 40ull * SECOND, &got);
        ts_cluster_result_free(&got);
        begin_and_stop(seed, &set, 40ull * SECOND, &got);
        const char *was = strstr(got.message, "epoch "), *is = was ? strstr(was + 1, "epoch ") : NULL;
        ck_assert_msg(got.ended && is && strstr(got.message, " had not sent after step "), "seed %llu: %s", (unsigned long long)seed,
                      got.message);
        ck_assert_msg(strncmp(was, is, 6 + 16) != 0 && strncmp(is, "epoch 0000000000000000", 6 + 16) != 0, "%s", got.message);
        ts_cluster_result_free(&got);
        clear_keep_folder(set.folder);
    }
}
END_TEST

/* However late it hears: it closes no round without whom the owner waits for in it. */
START_TEST(a_stand_in_that_hears_late_of_who_comes_in_closes_the_same_rounds) {
    uint64_t first = 47000000, returns = 0;
    unsigned count = only_seed(&first) ? 1 : seed_count(SEEDS);
    for (uint64_t seed = first; seed < first + count; seed++) {
        ts_cluster_spec spec = spec_with_replicas(seed);
        thief state = {.words = seed % 2, .answers = seed % 2 == 0};
        plan_trouble(seed, &spec, STOPPED);
        spec.network.meddle = steal;
        spec.network.meddler = &state;
        returns += play(seed, spec, false, NULL).returns;
    }
    if (count > 1) ck_assert_uint_gt(returns, count / 3);
}
END_TEST

/* One is missed and comes back, or is replaced, while another is done, of which servers hear late and not all at once. */
static ts_cluster_spec plan_late_news(uint64_t seed, thief *state) {
    ts_cluster_spec spec = spec_with_replicas(seed);
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 81));
    uint32_t missed = ts_random_below(&random, 3), done = (missed + 1 + ts_random_below(&random, 2)) % 3;
    spec.network.workers = 3;
    spec.barrier = false; /* who is done before the others does not wait for them */
    for (uint32_t w = 0; w < 3; w++) spec.steps[w] = STEPS;
    spec.steps[done] = 3 + ts_random_below(&random, 10);
    uint64_t after = spec.steps[done] - ts_random_below(&random, 3);
    if (seed % 2) {
        spec.sleep_after[missed] = after;
        spec.sleep_us[missed] = 9 * SECOND + ts_random_below(&random, 8 * SECOND);
    } else {
        spec.kill_after[missed] = after;
        spec.restart_us[missed] = 1000 + ts_random_below(&random, SECOND);
        spec.comes_anew = spec.forgets = true;
        spec.network.spare = 2 * TS_CLUSTER_WORKERS;
    }
    *state = (thief){.dones = true, .joins = ts_random_below(&random, 2)};
    spec.network.meddle = steal;
    spec.network.meddler = state;
    return spec;
}

START_TEST(whoever_hears_late_of_who_is_done_closes_the_same_rounds) {
    uint64_t first = 49000000, returns = 0;
    unsigned count = only_seed(&first) ? 1 : seed_count(SEEDS);
    for (uint64_t seed = first; seed < first + count; seed++) {
        thief state;
        ts_cluster_spec spec = plan_late_news(seed, &state);
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 80));
        uint64_t at_us = seed % 3 ? first_return(seed, spec, false, NULL) : 0;
        if (at_us > 0) at_us -= ts_random_below(&random, (uint32_t)(at_us < 2 * SECOND ? at_us : 2 * SECOND));
        spec.kill_at_us = at_us;
        spec.kill_peer = ts_random_below(&random, spec.network.servers);
        state.seen = 0;
        returns += play(seed, spec, false, NULL).returns;
    }
    if (count > 1) ck_assert_uint_gt(returns, count / 3);
}
END_TEST

/*
 * The step at which one comes in is moved, since another server is past it, and a server that has agreed to it dies before it has
 * heard of the later one: who takes its part over has to know that the later one holds. Returns whether it was so.
 */
static bool move_and_die(uint64_t seed) {
    thief state = {.joins = true};
    ts_cluster_spec spec = spec_with_replicas(seed);
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 78));
    spec.network.servers = 3 + ts_random_below(&random, 2);
    spec.network.workers = 3;
    for (uint32_t w = 0; w < 3; w++) {
        spec.steps[w] = STEPS;
        spec.think_us[w] = 200000;
    }
    spec.sleep_after[2] = 2 + ts_random_below(&random, 4);
    spec.sleep_us[2] = 12 * SECOND;
    spec.network.meddle = steal;
    spec.network.meddler = &state;
    spec.kill_peer = state.victim = 1 + ts_random_below(&random, spec.network.servers - 1);
    (void)first_return(seed, spec, false, NULL); /* for the time */
    if (state.moved_us == 0) return false;
    spec.kill_at_us = state.moved_us + SECOND; /* when it is cut off, and is not missed yet */
    state = (thief){.joins = true, .victim = spec.kill_peer};
    (void)play(seed, spec, false, NULL);
    return true;
}

START_TEST(of_two_steps_of_one_life_the_later_holds) {
    uint64_t first = 49500000;
    unsigned moved = 0, count = only_seed(&first) ? 1 : seed_count(SEEDS);
    for (uint64_t seed = first; seed < first + count; seed++) moved += move_and_die(seed);
    if (count > 1) ck_assert_uint_gt(moved, 0);
}
END_TEST

/*
 * A server whose death is told at once, while its stand-in is a work behind it: the workers are ahead of who takes over, and one
 * of them dies at the same time and is back at once, with what waited there for the work's end.
 */
START_TEST(workers_wait_for_a_stand_in_that_is_a_work_behind) {
    uint64_t first = 49700000, returns = 0;
    unsigned count = only_seed(&first) ? 1 : seed_count(SEEDS);
    for (uint64_t seed = first; seed < first + count; seed++) {
        ts_cluster_spec spec = spec_with_replicas(seed);
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 77));
        spec.network.workers = 3;
        spec.network.delay_max_us = 10 + ts_random_below(&random, 2000);
        spec.network.drop = 0;
        for (uint32_t w = 0; w < 3; w++) {
            spec.steps[w] = STEPS;
            spec.think_us[w] = 10000;
        }
        spec.pool_threads = 1;
        spec.work_most_us = 1000000;
        spec.tells = spec.comes_anew = true;
        spec.network.spare = 2 * TS_CLUSTER_WORKERS;
        spec.kill_at_us = 2 * SECOND + ts_random_below(&random, 8 * SECOND);
        spec.kill_peer = ts_random_below(&random, spec.network.servers);
        spec.kill_us[2] = spec.kill_at_us + ts_random_below(&random, 40000);
        spec.restart_us[2] = 1000 + ts_random_below(&random, 500);
        returns += play(seed, spec, true, NULL).returns;
    }
    if (count > 1) ck_assert_uint_gt(returns, count / 3);
}
END_TEST

/* So many workers from the start and so many later, all of them slow enough for others to come in. */
static void plan_comers(ts_cluster_spec *spec, uint32_t launched, uint32_t late) {
    spec->network.late_workers = late;
    spec->network.workers = launched + late;
    spec->network.spare = 2 * TS_CLUSTER_WORKERS;
    spec->comes_anew = true;
    for (uint32_t w = 0; w < spec->network.workers; w++) {
        spec->steps[w] = STEPS;
        if (spec->think_us[w] < 500000) spec->think_us[w] += 500000;
    }
}

/* Further workers come while a server, and perhaps a worker, dies. keeps: what a worker has not sent outlives it, mostly. */
static uint64_t run_comers(uint64_t first, unsigned count, bool keeps, const char *const *more) {
    uint64_t returns = 0;
    if (only_seed(&first)) count = 1;
    for (uint64_t seed = first; seed < first + count; seed++) {
        ts_cluster_spec spec = spec_with_replicas(seed);
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 84));
        uint32_t launched = 1 + ts_random_below(&random, 3), victim = ts_random_below(&random, launched);
        plan_comers(&spec, launched, 1 + ts_random_below(&random, 3));
        for (uint32_t w = launched; w < spec.network.workers; w++) spec.come_us[w] = 1 + ts_random_below(&random, 10 * SECOND);
        if (launched > 1 && ts_random_below(&random, 2)) {
            spec.kill_after[victim] = 1 + ts_random_below(&random, 6);
            spec.restart_us[victim] = 1000 + ts_random_below(&random, 12 * SECOND);
        }
        spec.forgets = !keeps || seed % 5 == 0;
        returns += strike(seed, &spec, !spec.forgets, more).returns;
    }
    if (count > 1) ck_assert_uint_gt(returns, count);
    return returns;
}

START_TEST(further_workers_come_in_whoever_leads) { run_comers(46000000, seed_count(SEEDS), true, NULL); }
END_TEST

/* What each packet of a worker is the difference to is at the owner and at the stand-in, also of one that was not there before. */
START_TEST(further_workers_come_in_with_delta_whoever_leads) {
    static const char *const dense[] = {"push.default=delta:5 | int8", NULL};
    static const char *const long_chains[] = {"push.default=delta:100 | fp16", "error_feedback.momentum_correction=0", NULL};
    run_comers(46500000, seed_count(SEEDS), false, dense);
    run_comers(46600000, seed_count(SEEDS), false, long_chains);
}
END_TEST

/* Further workers that die while they come, so that a stand-in may never have heard of one that its owner has let in. */
static uint64_t run_short_lived(uint64_t first, unsigned count, const char *const *more) {
    uint64_t returns = 0;
    if (only_seed(&first)) count = 1;
    for (uint64_t seed = first; seed < first + count; seed++) {
        ts_cluster_spec spec = spec_with_replicas(seed);
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 83));
        plan_comers(&spec, 2, 1 + ts_random_below(&random, 2));
        spec.forgets = true;
        for (uint32_t w = 2; w < spec.network.workers; w++) {
            spec.come_us[w] = 1 + ts_random_below(&random, 5 * SECOND);
            spec.live_us[w] = 1 + ts_random_below(&random, SECOND);
            if (w == 2) spec.restart_us[w] = 8 * SECOND + ts_random_below(&random, 4 * SECOND);
        }
        returns += strike(seed, &spec, false, more).returns;
    }
    return returns;
}

static void with_secret(void (*run)(const char *const *more)) {
    char file[] = "/tmp/terse-sim-secret-XXXXXX", set[64];
    const char *const more[] = {set, NULL};
    int descriptor = mkstemp(file);
    ck_assert_int_eq(write(descriptor, "a secret of some length", 23), 23);
    close(descriptor);
    snprintf(set, sizeof set, "auth.secret_file=%s", file);
    run(more);
    (void)unlink(file);
}

static void comes_and_returns(const char *const *more) {
    run_comers(46200000, seed_count(SEEDS) / 2, true, more);
    run_trouble(46300000, seed_count(SEEDS) / 2, REPLACED, more);
}

START_TEST(who_comes_proves_the_secret_whoever_leads) { with_secret(comes_and_returns); }
END_TEST

static void comes_in_vain(const char *const *more) { run_short_lived(46400000, seed_count(SEEDS), more); }

START_TEST(who_dies_before_the_stand_in_knows_holds_nobody) { with_secret(comes_in_vain); }
END_TEST

/* Also where a life was let in at some servers only when one died. */
START_TEST(with_ef21_a_mean_is_over_those_in_the_sum_whoever_leads) {
    static const char *const ef21[] = {"error_feedback.variant=ef21", "error_feedback.momentum_correction=0", NULL};
    run_comers(46100000, seed_count(SEEDS), true, ef21);
    run_short_lived(46700000, seed_count(SEEDS), ef21);
}
END_TEST

TCase *test_replica_returns(void);
TCase *test_replica_returns(void) {
    TCase *tests = tcase_create("replica_returns");
    tcase_set_timeout(tests, 240.0 * fmax(1, seed_count(SEEDS) / (double)SEEDS));
    tcase_add_test(tests, who_was_stopped_comes_back_whoever_leads);
    tcase_add_test(tests, who_was_cut_off_comes_back_whoever_leads);
    tcase_add_test(tests, who_was_killed_goes_on_from_what_it_kept_whoever_leads);
    tcase_add_test(tests, other_processes_take_the_places_of_the_killed_whoever_leads);
    tcase_add_test(tests, other_pipelines_come_back_whoever_leads);
    tcase_add_test(tests, a_stand_in_that_hears_late_of_who_comes_in_closes_the_same_rounds);
    tcase_add_test(tests, whoever_hears_late_of_who_is_done_closes_the_same_rounds);
    tcase_add_test(tests, of_two_steps_of_one_life_the_later_holds);
    tcase_add_test(tests, workers_wait_for_a_stand_in_that_is_a_work_behind);
    tcase_add_test(tests, who_was_killed_goes_on_where_server_0_was_never_heard_of);
    tcase_add_test(tests, nobody_waits_for_the_next_word_to_server_1);
    tcase_add_test(tests, what_is_kept_of_another_start_is_refused_whoever_leads);
    tcase_add_test(tests, further_workers_come_in_whoever_leads);
    tcase_add_test(tests, further_workers_come_in_with_delta_whoever_leads);
    tcase_add_test(tests, with_ef21_a_mean_is_over_those_in_the_sum_whoever_leads);
    tcase_add_test(tests, who_comes_proves_the_secret_whoever_leads);
    tcase_add_test(tests, who_dies_before_the_stand_in_knows_holds_nobody);
    return tests;
}
