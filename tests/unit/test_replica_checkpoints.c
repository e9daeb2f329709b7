/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Servers with replicas that write checkpoints, and die at any moment of it: whole clusters, seed by seed. The job goes on
 * with the bits of the undisturbed run, and so does whoever goes on from any checkpoint that is complete. One seed:
 *   TERSE_SIM_SEED=N build/unit-tests replica_checkpoints
 * and TERSE_SIM_SEEDS=N for N of them (TERSE_SIM_FIRST=M: from the M-th on).
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/ckpt/ckpt_manifest.h"
#include "tests/sim/cluster.h"
#include "tests/unit/unit.h"

#define SECOND 1000000u
#define SEEDS 40
#define STEPS 12
#define SETTINGS 10

static char folder[64];

static void make(void) {
    strcpy(folder, "/dev/shm/terse-replica-XXXXXX"); /* where nothing waits for a disk */
    if (mkdtemp(folder)) return;
    strcpy(folder, "/tmp/terse-replica-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void unmake(void) {
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static void empty(void) {
    unmake();
    make();
}

typedef struct {
    char text[SETTINGS][192];
    const char *all[SETTINGS];
} settings;

/* Checkpoints every `every` steps into folder/name, and after the last. */
static void run(ts_cluster_spec spec, const char *name, unsigned every, unsigned keep, const char *resume, ts_cluster_result *out) {
    settings s;
    unsigned n = 0;
    snprintf(s.text[n++], sizeof s.text[0], "servers.replicas=1");
    snprintf(s.text[n++], sizeof s.text[0], "consistency.deadline_s=10");
    snprintf(s.text[n++], sizeof s.text[0], "checkpoint.dir=%s/%s", folder, name);
    snprintf(s.text[n++], sizeof s.text[0], "checkpoint.every_steps=%u", every);
    snprintf(s.text[n++], sizeof s.text[0], "checkpoint.keep=%u", keep);
    snprintf(s.text[n++], sizeof s.text[0], "checkpoint.resume=%s", resume);
    for (unsigned i = 0; i < spec.override_count; i++) snprintf(s.text[n++], sizeof s.text[0], "%s", spec.overrides[i]);
    for (unsigned i = 0; i < n; i++) s.all[i] = s.text[i];
    spec.overrides = s.all;
    spec.override_count = n;
    terse_status status = ts_cluster_run(&spec, out);
    ck_assert_msg(status == TERSE_OK, "%s: %s", terse_status_name(status), out->message);
}

static ts_cluster_spec spec_of(uint64_t seed) {
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 70));
    ts_cluster_spec spec = {.network = {.seed = seed, .servers = 2 + ts_random_below(&random, 3), .workers = 1 + ts_random_below(&random, 3),
                                        .delay_min_us = 10, .delay_max_us = 10 + ts_random_below(&random, 100000),
                                        .frame_limit_bytes = 1 << 20},
                            .total_steps = STEPS,
                            .limit_us = 900ull * SECOND};
    if (ts_random_below(&random, 2)) {
        spec.network.reorder = true;
        spec.network.drop = 0.05 * (double)ts_random_unit(ts_random_u32(&random));
        spec.network.duplicate = 0.1 * (double)ts_random_unit(ts_random_u32(&random));
        spec.network.corrupt = 0.03 * (double)ts_random_unit(ts_random_u32(&random));
    }
    if (ts_random_below(&random, 2)) { /* disks take their time; else a server that dies lets go of its files at once */
        spec.pool_threads = 1 + ts_random_below(&random, 4);
        spec.work_most_us = 1 + ts_random_below(&random, 200000);
    }
    ts_cluster_vary(&spec, seed);
    for (uint32_t w = 0; w < spec.network.workers; w++) {
        spec.steps[w] = STEPS;
        spec.think_us[w] = ts_random_below(&random, 300000);
    }
    return spec;
}

static void same(uint64_t seed, const char *what, const ts_cluster_result *a, const ts_cluster_result *b, uint32_t workers) {
    ck_assert_msg(strcmp(a->xxh3, b->xxh3) == 0, "seed %llu, %s: parameters %s and %s", (unsigned long long)seed, what, a->xxh3, b->xxh3);
    for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++) {
        size_t bytes = ts_cluster_tensors[t].n * sizeof(float);
        for (uint32_t w = 0; w < workers; w++) {
            ck_assert_msg(memcmp(a->replica[w][t], b->replica[w][t], bytes) == 0, "seed %llu, %s: replica %u of worker %u",
                          (unsigned long long)seed, what, t, w);
            ck_assert_msg(memcmp(a->residual[w][t], b->residual[w][t], bytes) == 0, "seed %llu, %s: residual %u of worker %u",
                          (unsigned long long)seed, what, t, w);
        }
    }
}

static void must_finish(uint64_t seed, const char *what, const ts_cluster_spec *spec, const ts_cluster_result *got) {
    ck_assert_msg(got->finished, "seed %llu, %s (%u servers, %u workers, server %u dies at %.3f s): not finished after %.1f s: %s",
                  (unsigned long long)seed, what, spec->network.servers, spec->network.workers, spec->kill_peer,
                  (double)spec->kill_at_us * 1e-6, (double)got->took_us * 1e-6, got->message);
}

/* Every part is there and whole. */
static void is_sound(uint64_t seed, const char *dir, const char *name, const ts_cluster_spec *spec) {
    ts_ckpt_manifest m = {0};
    ts_error error = {""};
    char path[192];
    snprintf(path, sizeof path, "%s/%s/manifest.json", dir, name);
    ck_assert_ok(ts_ckpt_manifest_read(path, &m, &error));
    ck_assert_uint_eq(m.servers, spec->network.servers);
    for (uint32_t i = 0; i < m.servers + m.workers; i++) {
        bool worker = i >= m.servers;
        uint32_t index = worker ? i - m.servers : i;
        ts_ckpt_reader *reader = NULL;
        ck_assert_msg(ts_ckpt_manifest_part(&m, worker, index)->bytes > 0, "seed %llu, %s: %u has no part", (unsigned long long)seed, name, i);
        terse_status status = ts_ckpt_manifest_open(&m, dir, name, worker, index, &reader, &error);
        ck_assert_msg(status == TERSE_OK, "seed %llu, %s: %s", (unsigned long long)seed, name, error.text);
        ts_ckpt_reader_close(reader);
    }
    ts_ckpt_manifest_free(&m);
}

typedef struct {
    unsigned complete;
    unsigned left_over;       /* folders that were begun and not completed, before the last that was */
    bool last;                /* the one after the last step is there */
} counts;

/* Goes on from each checkpoint of a run, and looks what else lies in its folder. */
static counts go_on_from_each(uint64_t seed, const char *name, const ts_cluster_spec *spec, const ts_cluster_result *want) {
    ts_ckpt_found *list = NULL;
    size_t count = 0;
    counts found = {0};
    char dir[96], path[192];
    ts_cluster_spec undisturbed = *spec;
    undisturbed.kill_at_us = undisturbed.kills[0].at_us = undisturbed.stop.at_us = undisturbed.drain.at_us = undisturbed.act.at_us = 0;
    snprintf(dir, sizeof dir, "%s/%s", folder, name);
    ck_assert_ok(ts_ckpt_scan(dir, &list, &count, NULL));
    for (size_t i = 0; i < count; i++) {
        bool newer = false;
        for (size_t j = i + 1; j < count; j++) newer = newer || list[j].committed;
        found.left_over += !list[i].committed && newer;
        if (!list[i].committed) continue;
        is_sound(seed, dir, list[i].name, spec);
        found.complete++;
        found.last = found.last || list[i].version == STEPS;
        if (list[i].version == STEPS) continue;
        ts_cluster_result rest;
        snprintf(path, sizeof path, "%s/%s", dir, list[i].name);
        run(undisturbed, "rest", 5, 1, path, &rest);
        must_finish(seed, list[i].name, &undisturbed, &rest);
        same(seed, list[i].name, &rest, want, spec->network.workers);
        ts_cluster_result_free(&rest);
        char command[128];
        snprintf(command, sizeof command, "rm -rf %s/rest", folder);
        ck_assert_int_eq(system(command), 0);
    }
    ts_mem_free(list);
    return found;
}

typedef struct {
    uint64_t first, count;
} range;

static range seeds_of(uint64_t first, uint64_t count) {
    const char *only = getenv("TERSE_SIM_SEED"), *from = getenv("TERSE_SIM_FIRST"), *many = getenv("TERSE_SIM_SEEDS");
    if (only) return (range){strtoull(only, NULL, 10), 1};
    return (range){first + (from ? strtoull(from, NULL, 10) : 0), many ? strtoull(many, NULL, 10) * count / SEEDS : count};
}

START_TEST(a_server_dies_while_checkpoints_are_written) {
    range seeds = seeds_of(60000, SEEDS);
    unsigned complete = 0, runs = 0, early = 0;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        ts_cluster_spec spec = spec_of(seed);
        ts_cluster_result calm, got;
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 71));
        run(spec, "calm", 2, 100, "never", &calm);
        must_finish(seed, "calm", &spec, &calm);
        ck_assert(go_on_from_each(seed, "calm", &spec, &calm).last);
        spec.kill_at_us = 1 + (uint64_t)((double)ts_random_unit(ts_random_u32(&random)) * (double)calm.took_us);
        spec.kill_peer = ts_random_below(&random, ts_random_below(&random, 2) ? 1 : spec.network.servers);
        run(spec, "struck", 2, 100, "never", &got);
        if (!got.finished && strstr(got.message, "had not said yet what the job goes on from")) { /* nothing had begun */
            ck_assert_uint_lt(spec.kill_at_us, SECOND);
            early++;
            ts_cluster_result_free(&got);
            spec.kill_at_us = 0;
            run(spec, "struck", 2, 100, "never", &got);
        }
        must_finish(seed, "struck", &spec, &got);
        same(seed, "struck", &got, &calm, spec.network.workers);
        counts found = go_on_from_each(seed, "struck", &spec, &calm);
        complete += found.complete;
        runs++;
        ck_assert_msg(found.last, "seed %llu: none after the last step", (unsigned long long)seed);
        /* Where the dead server has not let go of the folder what was under way stays. */
        ck_assert_msg(found.left_over <= (spec.pool_threads && spec.kill_peer == 0), "seed %llu: %u folders are left over",
                      (unsigned long long)seed, found.left_over);
        ts_cluster_result_free(&calm);
        ts_cluster_result_free(&got);
        empty();
    }
    ck_assert_uint_ge(complete, 3 * runs);
    ck_assert_uint_le(10 * early, runs + 9);
}
END_TEST

/* It wakes up in the middle of what it was doing, when the others have gone on: whatever is complete then is whole. */
START_TEST(a_stopped_server_wakes_up_and_spoils_no_checkpoint) {
    range seeds = seeds_of(61000, SEEDS / 2 + 1);
    for (uint64_t i = 0; i < seeds.count; i++) {
        /* At last one in which a worker speaks to it before it has heard of that death. */
        uint64_t seed = i + 1 == seeds.count && seeds.count > 1 ? 66552 : seeds.first + i;
        ts_cluster_spec spec = spec_of(seed);
        ts_cluster_result calm, got;
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 72));
        for (uint32_t w = 0; w < spec.network.workers; w++) spec.think_us[w] = 2000000; /* they still train then */
        run(spec, "calm", 1, 100, "never", &calm);
        must_finish(seed, "calm", &spec, &calm);
        /* Not while they still attach: without server 0 no start is made within start_s. */
        spec.stop.at_us = 6 * SECOND + (uint64_t)(0.6 * (double)ts_random_unit(ts_random_u32(&random)) * (double)(calm.took_us - 6 * SECOND));
        spec.stop.until_us = spec.stop.at_us + (10 + ts_random_below(&random, 10)) * SECOND;
        spec.stop.a = ts_random_below(&random, ts_random_below(&random, 3) ? 1 : spec.network.servers);
        run(spec, "stopped", 1, seed % 2 ? 1 : 100, "never", &got);
        ck_assert_msg(got.ended && got.job[0].done, "seed %llu: %s; %s", (unsigned long long)seed, got.message, got.job[0].message);
        same(seed, "stopped", &got, &calm, spec.network.workers);
        ck_assert(go_on_from_each(seed, "stopped", &spec, &calm).complete > 0);
        ts_cluster_result_free(&calm);
        ts_cluster_result_free(&got);
        empty();
    }
}
END_TEST

/* The same command goes on from the last checkpoint, without the dead and with as many servers as before. */
static void goes_on_by_itself(uint64_t seed, ts_cluster_spec spec, const ts_cluster_result *want) {
    ts_cluster_result rest;
    spec.kill_at_us = spec.kills[0].at_us = spec.drain.at_us = 0;
    run(spec, "run", 2, 2, "auto", &rest);
    must_finish(seed, "the same command again", &spec, &rest);
    same(seed, "the same command again", &rest, want, spec.network.workers);
    ts_cluster_result_free(&rest);
}

START_TEST(a_second_death_ends_the_job_and_the_same_command_goes_on) {
    range seeds = seeds_of(62000, SEEDS / 2);
    unsigned ended = 0, after = 0;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        ts_cluster_spec spec = spec_of(seed);
        ts_cluster_result calm, got;
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 73));
        spec.network.servers = 3 + ts_random_below(&random, 2); /* of two nobody would be left to say it */
        for (uint32_t w = 0; w < spec.network.workers; w++) spec.think_us[w] = 2000000;
        run(spec, "calm", 2, 2, "never", &calm);
        must_finish(seed, "calm", &spec, &calm);
        spec.kill_peer = ts_random_below(&random, spec.network.servers);
        spec.kill_at_us = 1 + (uint64_t)(0.5 * (double)ts_random_unit(ts_random_u32(&random)) * (double)calm.took_us);
        spec.kills[0].peer = (spec.kill_peer + 1) % spec.network.servers;
        spec.kills[0].at_us = spec.kill_at_us + ts_random_below(&random, 30) * SECOND;
        run(spec, "run", 2, 2, "never", &got);
        ck_assert_msg(got.ended, "seed %llu: still running: %s", (unsigned long long)seed, got.message);
        if (!got.finished) { /* else the training was over first */
            char both[48];
            snprintf(both, sizeof both, "server %u and server %u", spec.kill_peer, spec.kills[0].peer);
            /* Where all were done before, no server says so, but a worker that still wanted something. */
            ck_assert_msg(strstr(got.message, both) || strstr(got.message, "has been silent"), "seed %llu: %s",
                          (unsigned long long)seed, got.message);
            ended++;
            after += spec.kills[0].at_us > spec.kill_at_us + 15 * SECOND;
        }
        goes_on_by_itself(seed, spec, &calm);
        ts_cluster_result_free(&calm);
        ts_cluster_result_free(&got);
        empty();
    }
    if (seeds.count > 1) ck_assert(ended > 0 && after > 0);
}
END_TEST

START_TEST(who_is_told_to_stop_does_whoever_leads) {
    range seeds = seeds_of(63000, SEEDS / 2);
    unsigned stopped = 0;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        ts_cluster_spec spec = spec_of(seed);
        ts_cluster_result calm, got;
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 74));
        for (uint32_t w = 0; w < spec.network.workers; w++) spec.think_us[w] = 2000000;
        run(spec, "calm", 2, 2, "never", &calm);
        must_finish(seed, "calm", &spec, &calm);
        spec.kill_peer = 0;
        spec.kill_at_us = 2 * SECOND + (uint64_t)(0.4 * (double)ts_random_unit(ts_random_u32(&random)) * (double)calm.took_us);
        spec.drain.at_us = spec.kill_at_us - SECOND + ts_random_below(&random, 3 * SECOND); /* before it, and after */
        spec.drain.servers = seed % 2 ? 2 : ~0u; /* server 1, who takes its place, or all */
        run(spec, "run", 0, 2, "never", &got);
        ck_assert_msg(got.ended, "seed %llu: still running: %s", (unsigned long long)seed, got.message);
        if (!got.finished) {
            ck_assert_msg(strstr(got.message, "stopped by SIGTERM") || strstr(got.message, "was told to stop: SIGTERM"), "seed %llu: %s",
                          (unsigned long long)seed, got.message);
            stopped += strstr(got.message, "is complete; the same command goes on") != NULL;
        }
        goes_on_by_itself(seed, spec, &calm);
        ts_cluster_result_free(&calm);
        ts_cluster_result_free(&got);
        empty();
    }
    if (seeds.count > 1) ck_assert_uint_gt(2 * stopped, seeds.count);
}
END_TEST

/* The wish of one alone, which server 0 takes with it, or never heard of. */
START_TEST(who_asks_for_the_end_gets_it_whoever_leads) {
    range seeds = seeds_of(64000, SEEDS / 2);
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        ts_cluster_spec spec = spec_of(seed);
        ts_cluster_result got;
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 75));
        for (uint32_t w = 0; w < spec.network.workers; w++) spec.think_us[w] = 2000000;
        uint64_t at_us = 6 * SECOND + ts_random_below(&random, 2 * SECOND); /* all train by then, whatever the network loses */
        spec.drain.at_us = at_us + 1;
        spec.drain.by_worker = seed % 4 != 3;
        spec.drain.servers = seed % 4 != 3 ? 0 : 2;
        if (seed % 2) { /* nothing passes between the two when it is said */
            spec.cut.at_us = at_us;
            spec.cut.until_us = at_us + SECOND;
            spec.cut.b = spec.drain.by_worker ? spec.network.servers : 1;
        } else {
            spec.kill_at_us = at_us + ts_random_below(&random, SECOND / 5);
        }
        run(spec, "run", 0, 2, "never", &got);
        ck_assert_msg(got.ended && !got.finished && strstr(got.message, "stopped by SIGTERM") &&
                          strstr(got.message, "is complete; the same command goes on"),
                      "seed %llu: %s", (unsigned long long)seed, got.message);
        ts_cluster_result_free(&got);
        empty();
    }
}
END_TEST

/*
 * Told to stop around the last step, server 0 dies: the checkpoint after that step is made, or the job stops at one that is
 * complete. Returns whether it finished.
 */
static bool stop_at_the_end(uint64_t seed) {
    ts_cluster_spec spec = spec_of(seed);
    ts_cluster_result calm, got;
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 76));
    spec.pool_threads = 1;
    spec.work_most_us = 200000; /* long enough to be met, and not so long that workers lose patience */
    run(spec, "calm", 0, 2, "never", &calm);
    must_finish(seed, "calm", &spec, &calm);
    /* Around the last step, after which all wait for a while; a wish that comes after the death is heard by who leads then. */
    spec.kill_at_us = calm.took_us - 8 * SECOND - ts_random_below(&random, 5 * SECOND);
    spec.drain.at_us = spec.kill_at_us - ts_random_below(&random, SECOND) + (seed % 4 ? 0 : 8 * SECOND);
    spec.drain.servers = ~1u;
    run(spec, "run", 0, 2, "never", &got);
    ck_assert_msg(got.ended, "seed %llu: still running: %s", (unsigned long long)seed, got.message);
    counts found = go_on_from_each(seed, "run", &spec, &calm);
    bool stopped = strstr(got.message, "stopped by SIGTERM") && strstr(got.message, "is complete; the same command goes on");
    ck_assert_msg(found.last || (stopped && found.complete > 0), "seed %llu: %s; %u complete", (unsigned long long)seed, got.message,
                  found.complete);
    bool finished = got.finished;
    ts_cluster_result_free(&calm);
    ts_cluster_result_free(&got);
    empty();
    return finished;
}

/* At the end there is nothing to be stopped any more: the checkpoint after the last step is made, whoever leads. */
START_TEST(who_is_told_to_stop_at_the_end_leaves_the_last_checkpoint) {
    range seeds = seeds_of(65000, 2 * SEEDS);
    unsigned finished = 0;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) finished += stop_at_the_end(seed);
    if (seeds.count > 1) ck_assert(finished > 0 && finished < seeds.count);
}
END_TEST

/* Where a worker had pushed its last long before the death, and had only the others' patience left. */
START_TEST(who_is_done_waits_for_who_leads_then) { (void)stop_at_the_end(70035); }
END_TEST

/* Where the last step was over for some slices and not for others when another server took the lead. */
START_TEST(the_last_step_is_waited_for_when_some_slices_are_through) { (void)stop_at_the_end(68671); }
END_TEST

/* Where the folder's lock was. */
static void spoil_the_lock(void *context) {
    char command[192];
    snprintf(command, sizeof command, "rm %s/run/lock && mkdir %s/run/lock", (const char *)context, (const char *)context);
    ck_assert_int_eq(system(command), 0);
}

/* Who takes the lead over and can make no checkpoints says so to whoever asks for the end, and ends the job. */
START_TEST(who_is_told_to_stop_where_there_are_no_checkpoints_any_more_stops) {
    for (unsigned who = 0; who < 4; who++) { /* a worker, server 1, who leads then, server 2, all */
        for (uint64_t seed = 66000; seed < 66004; seed++) {
            ts_cluster_spec spec = spec_of(seed);
            ts_cluster_result got;
            spec.network.servers = 3;
            spec.total_steps = 60;
            spec.network.drop = seed % 2 ? 0.2 : 0;
            for (uint32_t w = 0; w < spec.network.workers; w++) {
                spec.steps[w] = 60;
                spec.think_us[w] = 2000000;
            }
            spec.act.at_us = 19 * SECOND; /* all train, whatever the network loses */
            spec.act.act = spoil_the_lock;
            spec.act.context = folder;
            spec.kill_at_us = 20 * SECOND;
            spec.drain.at_us = seed & 2 ? 50 * SECOND : spec.kill_at_us + SECOND; /* long after, and before it is known */
            spec.drain.by_worker = who == 0;
            spec.drain.servers = who < 3 ? 1u << who & ~1u : ~0u;
            run(spec, "run", 0, 2, "never", &got);
            ck_assert_msg(got.ended && !got.finished, "%u, seed %llu: %s", who, (unsigned long long)seed, got.message);
            ck_assert_msg((strstr(got.message, "stopped by SIGTERM") && strstr(got.message, "run/lock: Is a directory")) ||
                              strstr(got.message, "server 1 was told to stop: SIGTERM"),
                          "%u, seed %llu: %s", who, (unsigned long long)seed, got.message);
            ts_cluster_result_free(&got);
            empty();
        }
    }
}
END_TEST

/* All are done and wait for the last checkpoint when two servers die, and a part with them: there is none, and nobody waits for it. */
START_TEST(a_part_that_nobody_has_any_more_is_not_waited_for) {
    range seeds = seeds_of(67000, SEEDS);
    unsigned given_up = 0;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        ts_cluster_spec spec = spec_of(seed);
        ts_cluster_result calm, got;
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 77));
        spec.away_us = spec.large = 0; /* the deaths come at moments that were chosen */
        spec.network.servers = 3;
        spec.pool_threads = 1;
        spec.work_most_us = 400000;
        run(spec, "calm", 0, 2, "never", &calm);
        must_finish(seed, "calm", &spec, &calm);
        spec.kill_at_us = spec.kills[0].at_us = calm.took_us - ts_random_below(&random, 15 * SECOND);
        spec.kill_peer = 1;
        spec.kills[0].peer = 2;
        run(spec, "run", 0, 2, "never", &got);
        ck_assert_msg(got.ended, "seed %llu: still running: %s", (unsigned long long)seed, got.message);
        if (got.finished && !go_on_from_each(seed, "run", &spec, &calm).last) {
            given_up++; /* when the deaths are known and the others have been waited for; before workers lose patience */
            ck_assert_msg(got.took_us < spec.kill_at_us + 28 * SECOND, "seed %llu: %.1f s after the deaths", (unsigned long long)seed,
                          (double)(got.took_us - spec.kill_at_us) * 1e-6);
        }
        ts_cluster_result_free(&calm);
        ts_cluster_result_free(&got);
        empty();
    }
    if (seeds.first == 67000 && seeds.count >= SEEDS) ck_assert_uint_gt(given_up, 0);
}
END_TEST

static void remove_a_part(void *context) {
    char command[192]; /* where there is no manifest yet */
    snprintf(command, sizeof command, "for d in %s/run/ckpt-*; do test -e $d/manifest.json || rm -f $d/server-1-of-*.safetensors; done",
             (const char *)context);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(no_manifest_is_written_without_the_servers_parts) {
    range seeds = seeds_of(68000, SEEDS / 2);
    unsigned missing = 0;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        ts_cluster_spec spec = spec_of(seed);
        ts_cluster_result calm, got;
        ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 78));
        spec.pool_threads = 1;
        spec.work_most_us = 400000;
        run(spec, "calm", 0, 2, "never", &calm);
        must_finish(seed, "calm", &spec, &calm);
        spec.act.at_us = calm.took_us - ts_random_below(&random, 15 * SECOND);
        spec.act.act = remove_a_part;
        spec.act.context = folder;
        run(spec, "run", 0, 2, "never", &got);
        must_finish(seed, "run", &spec, &got);
        missing += !go_on_from_each(seed, "run", &spec, &calm).last;
        ts_cluster_result_free(&calm);
        ts_cluster_result_free(&got);
        empty();
    }
    if (seeds.first == 68000 && seeds.count >= SEEDS / 2) ck_assert_uint_gt(missing, 0);
}
END_TEST

/* The newest complete one before the last step. Returns whether there is one. */
static bool newest_before(const char *name, uint64_t last, char *path, size_t capacity) {
    ts_ckpt_found *list = NULL;
    size_t count = 0, at = 0;
    char dir[96];
    snprintf(dir, sizeof dir, "%s/%s", folder, name);
    ck_assert_ok(ts_ckpt_scan(dir, &list, &count, NULL));
    for (size_t i = 0; i < count; i++)
        if (list[i].committed && list[i].version < last) at = i + 1;
    if (at > 0) snprintf(path, capacity, "%s/%s", dir, list[at - 1].name);
    ts_mem_free(list);
    return at > 0;
}

/* A worker is given up and comes back, and a server dies: what is written after that holds who is back, and goes on with the same bits. */
static bool hold_who_is_back(uint64_t seed) {
    enum { LONG = 40 };
    ts_cluster_spec spec = spec_of(seed);
    ts_cluster_result got, rest;
    ts_random random = ts_random_start(ts_random_key(seed, 0, 0, 0, 79));
    char path[192];
    if (spec.network.workers < 2) spec.network.workers = 2;
    spec.total_steps = LONG;
    for (uint32_t w = 0; w < spec.network.workers; w++) {
        spec.steps[w] = LONG;
        spec.think_us[w] += 800000;
    }
    spec.sleep_after[1] = 3;
    spec.sleep_us[1] = 12 * SECOND;
    spec.kill_at_us = 1 * SECOND + ts_random_below(&random, 30 * SECOND);
    spec.kill_peer = ts_random_below(&random, ts_random_below(&random, 2) ? 1 : spec.network.servers);
    run(spec, "run", 4, 100, "never", &got);
    must_finish(seed, "run", &spec, &got);
    bool back = got.returns > 0 && !got.missed[1] && newest_before("run", LONG, path, sizeof path);
    if (back) {
        ts_cluster_spec undisturbed = spec;
        undisturbed.kill_at_us = undisturbed.sleep_after[1] = 0;
        run(undisturbed, "rest", 4, 1, path, &rest);
        must_finish(seed, path, &undisturbed, &rest);
        same(seed, path, &rest, &got, spec.network.workers);
        ts_cluster_result_free(&rest);
    }
    ts_cluster_result_free(&got);
    empty();
    return back;
}

START_TEST(checkpoints_hold_workers_that_have_come_back) {
    range seeds = seeds_of(72000, SEEDS / 2);
    unsigned back = 0;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) back += hold_who_is_back(seed);
    if (seeds.count > 1) ck_assert_uint_gt(2 * back, seeds.count);
}
END_TEST

/* Nothing can be written: the reason is that, and not another folder. */
START_TEST(a_lock_that_cannot_be_signed_says_why) {
    struct rlimit before, none;
    ts_cluster_spec spec = spec_of(69000);
    ts_cluster_result got;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
    run(spec, "run", 2, 2, "never", &got);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    ck_assert_msg(!got.finished && strstr(got.message, "run/lock: File too large"), "%s", got.message);
    ts_cluster_result_free(&got);
}
END_TEST

TCase *test_replica_checkpoints(void);
TCase *test_replica_checkpoints(void) {
    TCase *tests = tcase_create("replica_checkpoints");
    const char *count = getenv("TERSE_SIM_SEEDS");
    tcase_set_timeout(tests, 120 * fmax(1, (count ? strtod(count, NULL) : SEEDS) / SEEDS));
    tcase_add_checked_fixture(tests, make, unmake);
    tcase_add_test(tests, a_server_dies_while_checkpoints_are_written);
    tcase_add_test(tests, a_stopped_server_wakes_up_and_spoils_no_checkpoint);
    tcase_add_test(tests, a_second_death_ends_the_job_and_the_same_command_goes_on);
    tcase_add_test(tests, who_is_told_to_stop_does_whoever_leads);
    tcase_add_test(tests, who_asks_for_the_end_gets_it_whoever_leads);
    tcase_add_test(tests, who_is_told_to_stop_at_the_end_leaves_the_last_checkpoint);
    tcase_add_test(tests, who_is_done_waits_for_who_leads_then);
    tcase_add_test(tests, the_last_step_is_waited_for_when_some_slices_are_through);
    tcase_add_test(tests, a_part_that_nobody_has_any_more_is_not_waited_for);
    tcase_add_test(tests, no_manifest_is_written_without_the_servers_parts);
    tcase_add_test(tests, checkpoints_hold_workers_that_have_come_back);
    tcase_add_test(tests, a_lock_that_cannot_be_signed_says_why);
    tcase_add_test(tests, who_is_told_to_stop_where_there_are_no_checkpoints_any_more_stops);
    return tests;
}
