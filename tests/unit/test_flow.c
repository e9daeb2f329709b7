/* SPDX-License-Identifier: Apache-2.0 */
/* Flow control: workers that do not read, that flood, or that hold more than their share. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/cluster.h"
#include "tests/sim/server_rig.h"
#include "tests/unit/unit.h"

#define SLOW 0u
#define ROUNDS 100u
#define FRAME_MOST 2048u /* no frame of the rig is larger */

static size_t queued_for(const rig *r, uint32_t w) {
    const ts_transport *server = ts_sim_endpoint(r->network, 0);
    return server->ops->queued(server, 1 + w);
}

/* The number in front of or behind some words of the state dump. */
static unsigned long long dumped(const rig *r, const char *line, const char *words) {
    char *text = NULL;
    size_t len = 0;
    FILE *file = open_memstream(&text, &len);
    ck_assert_ptr_nonnull(file);
    ts_server_dump(r->server, file);
    fclose(file);
    const char *from = strstr(text, line), *at = from ? strstr(from, words) : NULL;
    ck_assert_msg(at != NULL, "no \"%s\" behind \"%s\" in:\n%s", words, line, text);
    unsigned long long value = strtoull(at + strlen(words), NULL, 10);
    free(text);
    return value;
}

/* One round in which everybody pushes and those who read get the new version. */
static void round_of_all(rig *r, uint64_t step, float replicas[RIG_WORKERS_MAX][RIG_ELEMS], uint32_t silent) {
    float gradient[RIG_ELEMS];
    for (uint32_t w = 0; w < r->workers; w++) {
        rig_gradient(w, step, gradient);
        rig_push(r, w, step, gradient);
    }
    rig_run(r, 2000);
    for (uint32_t w = 0; w < r->workers; w++) {
        if (w != silent) ck_assert_uint_eq(rig_apply(r, w, replicas[w]), step + 1);
    }
    rig_forget(r);
}

static void a_slow_reader(const char *config) {
    rig *r = rig_create(3, config);
    float params[RIG_ELEMS], replicas[RIG_WORKERS_MAX][RIG_ELEMS];
    rig_attach_all(r, params);
    for (uint32_t w = 0; w < 3; w++) memcpy(replicas[w], params, sizeof params);
    r->config->limits.traffic_bytes = 3 * 4 * 4096; /* a queue may hold 4096 */
    ts_sim_stop_reading(r->network, 1 + SLOW, true);
    for (uint64_t step = 0; step < ROUNDS; step++) {
        round_of_all(r, step, replicas, SLOW);
        for (unsigned i = 0; i < 3; i++) rig_pull(r, SLOW, 0, 0, true, i == 2); /* whatever it asks for meanwhile */
        rig_run(r, 1000);
        ck_assert_uint_le(queued_for(r, SLOW), 4096 + FRAME_MOST);
    }
    ck_assert_uint_gt(queued_for(r, SLOW), 4096 - FRAME_MOST);
    ck_assert_uint_gt(dumped(r, "worker 0:", "withheld "), ROUNDS / 2);
    ck_assert_uint_eq(dumped(r, "worker 1:", "withheld "), 0);
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_RUNNING);
    /* It begins to read, asks for what it missed, and has it all. */
    ts_sim_stop_reading(r->network, 1 + SLOW, false);
    rig_run(r, RIG_SECOND / 10);
    rig_forget(r);
    rig_pull(r, SLOW, 0, 0, true, false);
    rig_run(r, RIG_SECOND / 10);
    ck_assert_uint_eq(rig_apply(r, SLOW, replicas[SLOW]), ROUNDS);
    ck_assert_mem_eq(replicas[SLOW], replicas[1], sizeof replicas[1]);
    ck_assert_uint_eq(queued_for(r, SLOW), 0);
    rig_destroy(r);
}

START_TEST(a_worker_that_never_reads_neither_grows_the_server_nor_holds_the_others) {
    a_slow_reader(RIG_DENSE);
    a_slow_reader(RIG_SPARSE);
}
END_TEST

START_TEST(a_flood_of_pushes_is_bounded_and_others_go_on) {
    rig *r = rig_create(3, RIG_DENSE);
    float params[RIG_ELEMS], replicas[RIG_WORKERS_MAX][RIG_ELEMS], gradient[RIG_ELEMS];
    rig_attach_all(r, params);
    for (uint32_t w = 0; w < 3; w++) memcpy(replicas[w], params, sizeof params);
    r->config->limits.traffic_bytes = 3 * 4 * 4096;
    ts_sim_stop_reading(r->network, 1 + SLOW, true);
    for (uint64_t step = 0; step < 20; step++) {
        rig_gradient(SLOW, step, gradient);
        for (unsigned i = 0; i < 200; i++) rig_push(r, SLOW, i % 3 ? step : step + 1 + i % 2, gradient); /* and too early */
        rig_run(r, 500);
        for (unsigned i = 0; i < 50; i++) rig_hello(r, SLOW, r->contract, TS_PROTOCOL_VERSION);
        ck_assert_uint_le(dumped(r, "worker 0: attached", "packets held 3 ("), 2 * FRAME_MOST);
        round_of_all(r, step, replicas, SLOW);
        ck_assert_uint_le(queued_for(r, SLOW), 4096 + FRAME_MOST);
    }
    ck_assert_uint_gt(dumped(r, "worker 0:", "withheld "), 1000);
    ck_assert_mem_eq(replicas[1], replicas[2], sizeof replicas[1]);
    rig_destroy(r);
}
END_TEST

START_TEST(packets_beyond_the_share_come_again_and_one_slice_is_always_taken) {
    rig *r = rig_create(3, RIG_DENSE);
    float params[RIG_ELEMS], replicas[RIG_WORKERS_MAX][RIG_ELEMS], gradient[RIG_ELEMS];
    unsigned slices;
    uint64_t step;
    rig_attach_all(r, params);
    for (uint32_t w = 0; w < 3; w++) memcpy(replicas[w], params, sizeof params);
    r->config->limits.traffic_bytes = 3 * 2 * 250; /* less than slice 0 alone; replies fit one by one */
    for (uint32_t w = 0; w < 3; w++) {
        rig_gradient(w, 0, gradient);
        rig_push(r, w, 0, gradient);
        rig_run(r, 1000);
        ck_assert_int_eq(rig_last_ack(r, w, &slices, &step), TERSE_EAGAIN);
        ck_assert_uint_eq(slices, 6);
        ck_assert_uint_eq(step, 0);
    }
    ck_assert_uint_eq(dumped(r, "worker 2:", "no room for "), 2);
    /* Slice 0 is through; what was refused comes again. */
    for (uint32_t w = 0; w < 3; w++) {
        rig_gradient(w, 0, gradient);
        rig_send(r, w, rig_push_frame(r, w, 0, gradient, 6, true));
    }
    rig_run(r, 1000);
    for (uint32_t w = 0; w < 3; w++) rig_send(r, w, rig_push_frame(r, w, 0, gradient, 4, true));
    rig_run(r, 1000);
    for (uint32_t w = 0; w < 3; w++) rig_apply(r, w, replicas[w]);
    ck_assert_mem_eq(replicas[0], replicas[1], sizeof replicas[0]);
    float sum = 0;
    for (uint32_t w = 0; w < 3; w++) {
        rig_gradient(w, 0, gradient);
        sum += gradient[0];
    }
    ck_assert_float_eq_tol(replicas[0][0], params[0] - 0.5f * sum / 3.0f, 1e-6f);
    ck_assert_float_ne(replicas[0][99], params[99]);
    rig_destroy(r);
}
END_TEST

/* A share so small that most packets are refused at first changes no bit of the outcome. */
START_TEST(clusters_under_tiny_shares_come_to_the_same_end) {
    static const char *const settings[][3] = {{"limits.traffic_bytes=4096", "servers.slice_elems=20", "push.default=dense"},
                                              {"limits.traffic_bytes=4096", "servers.slice_elems=100", "pull.default=dense"},
                                              {"limits.traffic_bytes=4096", "servers.slice_elems=50", "push.default=fp16"}};
    for (uint64_t seed = 1; seed <= 18; seed++) {
        ts_cluster_spec spec = {.network = {.seed = seed, .servers = 1 + (uint32_t)seed % 3, .workers = 3 + (uint32_t)seed % 4,
                                            .delay_min_us = 10, .delay_max_us = 20000, .frame_limit_bytes = 1 << 20,
                                            .reorder = seed % 2, .drop = seed % 3 ? 0.02 : 0, .duplicate = 0.05},
                                .overrides = settings[seed % 3], .override_count = 3, .limit_us = 900000000u};
        for (uint32_t w = 0; w < spec.network.workers; w++) spec.steps[w] = 5;
        ts_cluster_result got, want;
        ck_assert_ok(ts_cluster_run(&spec, &got));
        ck_assert_msg(got.finished, "seed %llu: %s", (unsigned long long)seed, got.message);
        ck_assert_ok(ts_oracle_run(&spec, &want));
        for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++)
            ck_assert_mem_eq(got.fetched[t], want.fetched[t], ts_cluster_tensors[t].n * sizeof(float));
        ts_cluster_result_free(&got);
        ts_cluster_result_free(&want);
    }
}
END_TEST

/* The other consistencies too: each run ends, and its receipts give the same parameters again. */
START_TEST(every_consistency_goes_on_under_tiny_shares) {
    static const char *const modes[][2] = {{"consistency.mode=asp", "log.level=info"},
                                           {"consistency.mode=ssp", "consistency.staleness=2"},
                                           {"consistency.stragglers=backup", "consistency.quorum=2"}};
    for (uint64_t seed = 1; seed <= 12; seed++) {
        const char *overrides[] = {"limits.traffic_bytes=4096", "servers.slice_elems=20", "push.default=fp16",
                                   modes[seed % 3][0], modes[seed % 3][1]};
        ts_cluster_spec spec = {.network = {.seed = seed, .servers = 1 + (uint32_t)seed % 2, .workers = 4, .delay_min_us = 10,
                                            .delay_max_us = 20000, .frame_limit_bytes = 1 << 20},
                                .overrides = overrides, .override_count = 5, .limit_us = 900000000u, .records = true};
        for (uint32_t w = 0; w < spec.network.workers; w++) spec.steps[w] = 4;
        spec.think_us[1] = 500000;
        ts_cluster_result got, want;
        char complaint[256];
        ck_assert_ok(ts_cluster_run(&spec, &got));
        ck_assert_msg(got.finished, "seed %llu: %s", (unsigned long long)seed, got.message);
        ck_assert_ok(ts_replay_run(&spec, &got, &want, complaint, sizeof complaint));
        ck_assert_msg(!complaint[0], "seed %llu: %s", (unsigned long long)seed, complaint);
        for (uint32_t t = 0; t < TS_CLUSTER_TENSORS; t++)
            ck_assert_mem_eq(got.fetched[t], want.fetched[t], ts_cluster_tensors[t].n * sizeof(float));
        ts_cluster_result_free(&got);
        ts_cluster_result_free(&want);
    }
}
END_TEST

static bool held_back(const rig *r, uint32_t w) { return ts_sim_held_back(r->network, 0, 1 + w); }

#define FEW_BYTES (3 * 8 * 2500) /* nobody may hold 2,500 bytes more than another */

/* Slices in frames of their own, which take some 1,040 bytes each. */
static void push_slices(rig *r, uint32_t w, unsigned slices) {
    float gradient[RIG_ELEMS];
    rig_gradient(w, 0, gradient);
    for (unsigned s = 0; s < RIG_SLICES; s++)
        if (slices >> s & 1) rig_send(r, w, rig_push_frame(r, w, 0, gradient, 1u << s, true));
    rig_run(r, 1000);
}

START_TEST(who_is_ahead_of_the_last_worker_is_held_back) {
    rig *r = rig_create(3, RIG_DENSE);
    float params[RIG_ELEMS];
    rig_attach_all(r, params);
    push_slices(r, 0, 7);
    ck_assert(!held_back(r, 0)); /* of shares as large as they are by default that is nothing */
    r->config->limits.traffic_bytes = FEW_BYTES;
    push_slices(r, 1, 2);
    ck_assert(held_back(r, 0) && !held_back(r, 1) && !held_back(r, 2));
    push_slices(r, 1, 5);
    ck_assert(held_back(r, 0) && held_back(r, 1) && !held_back(r, 2));
    push_slices(r, 2, 1); /* the round of slice 0 closes, and what is left is little */
    ck_assert(!held_back(r, 0) && !held_back(r, 1) && !held_back(r, 2));
    rig_destroy(r);
}
END_TEST

/* Not for those who push no more, nor where rounds do not wait for the last; and nobody who would look dead for it. */
START_TEST(nobody_is_held_back_without_need) {
    float params[RIG_ELEMS];
    for (int waits = 0; waits < 2; waits++) {
        rig *r = rig_create(3, waits ? RIG_DENSE : RIG_DENSE RIG_BACKUP);
        rig_attach_all(r, params);
        r->config->limits.traffic_bytes = FEW_BYTES;
        push_slices(r, 0, 7);
        ck_assert_int_eq(held_back(r, 0), waits);
        rig_run(r, RIG_SECOND * 3 / 2);
        ck_assert(!held_back(r, 0)); /* not heard of since, and dead after 4 s */
        rig_heartbeat(r, 0);
        rig_run(r, 1000);
        ck_assert_int_eq(held_back(r, 0), waits);
        rig_done(r, 1, 0);
        rig_done(r, 2, 0); /* the rounds close */
        rig_run(r, 1000);
        ck_assert(!held_back(r, 0));
        rig_destroy(r);
    }
}
END_TEST

TCase *test_flow(void);
TCase *test_flow(void) {
    TCase *tests = tcase_create("flow");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_worker_that_never_reads_neither_grows_the_server_nor_holds_the_others);
    tcase_add_test(tests, a_flood_of_pushes_is_bounded_and_others_go_on);
    tcase_add_test(tests, packets_beyond_the_share_come_again_and_one_slice_is_always_taken);
    tcase_add_test(tests, who_is_ahead_of_the_last_worker_is_held_back);
    tcase_add_test(tests, nobody_is_held_back_without_need);
    tcase_add_test(tests, every_consistency_goes_on_under_tiny_shares);
    tcase_add_test(tests, clusters_under_tiny_shares_come_to_the_same_end);
    return tests;
}
