/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two levels of servers in one process: racks of workers, each with a relay, and the servers above, every group on a
 * network of its own with seeded faults. Gradients are small whole numbers and all means are over powers of two, so
 * that every sum is exact and ledgers can be compared bit for bit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/net/sim_transport.h"
#include "common/relay/relay.h"
#include "tests/unit/unit.h"
#include "worker/client/client.h"

#define TENSORS 3u
#define LARGEST 250u
#define RACKS 2u
#define WORKERS 2u /* a rack */
#define TICK_US 20000u

static const struct { const char *name; int64_t n; } tensors[TENSORS] = {{"a", 250}, {"b", 7}, {"c", 1}};

typedef struct {
    ts_client *client;
    uint32_t number; /* of all */
    uint64_t step;
    bool pushed, done, gone;
    float params[TENSORS][LARGEST], said[TENSORS][LARGEST]; /* said: Σ of its gradients */
    float residual[TENSORS][LARGEST];
} rack_worker;

typedef struct {
    ts_sim_network *network; /* peer 0: the relay's server, then its workers */
    ts_server *server;
    ts_relay *relay;
    rack_worker workers[WORKERS];
} rack;

typedef struct {
    const char *above[8], *below[8]; /* overrides */
    uint64_t seed, steps;
    uint32_t servers;   /* above */
    double drop;
    uint64_t cut_us;    /* from then on rack 1's relay and the servers above do not hear each other; 0: never */
    uint64_t kill_us;   /* then worker 1 of rack 0 dies; 0: never */
} scenario;

typedef struct {
    const scenario *plan;
    ts_config *above, *below;
    ts_sim_network *top; /* servers, then relays */
    ts_server *servers[2];
    rack racks[RACKS];
    bool killed;
    char message[512];   /* of the first worker that failed */
    float relay_residual[RACKS][TENSORS][LARGEST];
    char waiting[512];   /* what rack 0's server waited for, when last asked */
} tower;

/* -8 … 8 */
static float whole(uint32_t tensor, size_t i, uint32_t worker, uint64_t step) {
    return (float)((int)(ts_random_key(21, tensor, i, worker, step) % 17u) - 8);
}

static ts_config *load(const char *const *overrides) {
    const char *all[16] = {"optimizer={name: sgd, lr: 1, momentum: 0}", "error_feedback.momentum_correction=0",
                           "error_feedback.warmup.steps=0", "push.rules=[]", "pull.rules=[]", "pull.default=dense"};
    unsigned count = 6;
    for (unsigned i = 0; i < 8 && overrides[i]; i++) all[count++] = overrides[i];
    ts_config *config = NULL;
    ts_error error = {""};
    ck_assert_msg(ts_config_load("tests/sim/sim.yaml", all, count, &config, &error) == TERSE_OK, "%s", error.text);
    return config;
}

static ts_sim_network *network(const tower *t, uint64_t salt, uint32_t servers, uint32_t workers) {
    ts_sim_options options = {.seed = t->plan->seed * 100 + salt, .servers = servers, .workers = workers,
                              .delay_min_us = 100, .delay_max_us = 3000, .drop = t->plan->drop,
                              .duplicate = t->plan->drop, .reorder = t->plan->drop > 0, .frame_limit_bytes = 1 << 20};
    ts_sim_network *made = NULL;
    ck_assert_int_eq(ts_sim_network_create(&options, &made), TERSE_OK);
    return made;
}

static void start_worker(tower *t, uint32_t r, uint32_t w) {
    rack_worker *me = &t->racks[r].workers[w];
    me->number = r * WORKERS + w;
    ck_assert_int_eq(ts_client_create(t->below, ts_sim_endpoint(t->racks[r].network, 1 + w), &me->client), TERSE_OK);
    for (uint32_t n = 0; n < TENSORS; n++) {
        for (int64_t i = 0; i < tensors[n].n; i++) me->params[n][i] = (float)(i % 5) + (float)(10 * me->number);
        ck_assert_int_eq(ts_client_declare(me->client, tensors[n].name, &tensors[n].n, 1, me->params[n], NULL), TERSE_OK);
    }
    ck_assert_int_eq(ts_client_start(me->client), TERSE_OK);
}

static tower *build(const scenario *plan) {
    tower *t = ts_mem_calloc(1, sizeof *t);
    ts_error error = {""};
    t->plan = plan;
    t->above = load(plan->above);
    t->below = load(plan->below);
    t->top = network(t, 1, plan->servers, RACKS);
    for (uint32_t s = 0; s < plan->servers; s++)
        ck_assert_int_eq(ts_server_create(t->above, ts_sim_endpoint(t->top, s), &ts_executor_inline, &t->servers[s]), TERSE_OK);
    for (uint32_t r = 0; r < RACKS; r++) {
        rack *here = &t->racks[r];
        here->network = network(t, 2 + r, 1, WORKERS);
        ck_assert_int_eq(ts_server_create(t->below, ts_sim_endpoint(here->network, 0), &ts_executor_inline, &here->server),
                         TERSE_OK);
        ck_assert_int_eq(ts_relay_create(t->above, ts_sim_endpoint(t->top, plan->servers + r), &ts_executor_inline,
                                         &here->relay), TERSE_OK);
        ck_assert_msg(ts_relay_bind(here->relay, here->server, &error) == TERSE_OK, "%s", error.text);
        for (uint32_t w = 0; w < WORKERS; w++) start_worker(t, r, w);
    }
    return t;
}

static void destroy(tower *t) {
    for (uint32_t r = 0; r < RACKS; r++) {
        for (uint32_t w = 0; w < WORKERS; w++) ts_client_destroy(t->racks[r].workers[w].client);
        ts_server_destroy(t->racks[r].server);
        ts_relay_destroy(t->racks[r].relay);
        ts_sim_network_destroy(t->racks[r].network);
    }
    for (uint32_t s = 0; s < t->plan->servers; s++) ts_server_destroy(t->servers[s]);
    ts_sim_network_destroy(t->top);
    ts_config_free(t->above);
    ts_config_free(t->below);
    ts_mem_free(t);
}

/* ---- workers ------------------------------------------------------------------------------------------------------------ */

static bool step_here(tower *t, rack_worker *me) {
    float gradient[LARGEST];
    if (!me->pushed) {
        for (uint32_t n = 0; n < TENSORS; n++) {
            for (int64_t i = 0; i < tensors[n].n; i++) {
                gradient[i] = whole(n, (size_t)i, me->number, me->step);
                me->said[n][i] += gradient[i];
            }
            ck_assert_int_eq(ts_client_push(me->client, n, gradient), TERSE_OK);
            ck_assert_int_eq(ts_client_pull(me->client, n), TERSE_OK);
        }
        ts_client_flush(me->client);
        me->pushed = true;
    }
    bool all = true;
    for (uint32_t n = 0; n < TENSORS; n++) all = ts_client_pulled(me->client, n) && all;
    if (!all) return false;
    me->pushed = false;
    me->step++;
    return me->step < t->plan->steps;
}

static void drive(tower *t, uint32_t r, uint32_t w) {
    rack_worker *me = &t->racks[r].workers[w];
    if (me->gone || (t->killed && r == 0 && w == 1)) return;
    ts_client_state state = ts_client_get_state(me->client);
    if (state == TS_CLIENT_FAILED) {
        if (!t->message[0]) snprintf(t->message, sizeof t->message, "%s", ts_client_message(me->client));
        me->gone = true;
    } else if (state == TS_CLIENT_TRAINING && !me->done) {
        while (me->step < t->plan->steps && step_here(t, me)) continue;
        if (me->step < t->plan->steps) return;
        for (uint32_t n = 0; n < TENSORS; n++)
            memcpy(me->residual[n], ts_client_residual(me->client, n), (size_t)tensors[n].n * sizeof(float));
        me->done = true;
        ck_assert_int_eq(ts_client_done(me->client), TERSE_OK);
    } else if (state == TS_CLIENT_DONE) {
        ts_client_bye(me->client);
        me->gone = true;
    }
}

static void poll_all(ts_transport *endpoint) {
    while (endpoint->ops->poll(endpoint)) continue;
}

static void serve_rack(tower *t, uint32_t r) {
    ts_server_flush(t->racks[r].server);
    ts_relay_flush(t->racks[r].relay);
}

static void run_networks(tower *t, uint64_t until_us) {
    uint32_t peer, servers = t->plan->servers;
    for (uint32_t r = 0; r < RACKS; r++) {
        while (ts_sim_step(t->racks[r].network, until_us, &peer)) {
            poll_all(ts_sim_endpoint(t->racks[r].network, peer));
            if (peer == 0) serve_rack(t, r);
            else drive(t, r, peer - 1);
        }
    }
    while (ts_sim_step(t->top, until_us, &peer)) {
        poll_all(ts_sim_endpoint(t->top, peer));
        if (peer < servers) ts_server_flush(t->servers[peer]);
        else serve_rack(t, peer - servers);
    }
}

static void tick(tower *t) {
    for (uint32_t s = 0; s < t->plan->servers; s++) {
        ts_server_tick(t->servers[s]);
        ts_server_flush(t->servers[s]);
    }
    for (uint32_t r = 0; r < RACKS; r++) {
        ts_server_tick(t->racks[r].server);
        ts_relay_tick(t->racks[r].relay);
        serve_rack(t, r);
        for (uint32_t w = 0; w < WORKERS; w++) {
            if (t->racks[r].workers[w].gone || (t->killed && r == 0 && w == 1)) continue;
            ts_client_tick(t->racks[r].workers[w].client);
            drive(t, r, w);
        }
    }
}

static bool over(const tower *t) {
    for (uint32_t r = 0; r < RACKS; r++) {
        if (ts_server_get_state(t->racks[r].server) == TS_SERVER_RUNNING) return false;
        for (uint32_t w = 0; w < WORKERS; w++)
            if (!t->racks[r].workers[w].gone && !(t->killed && r == 0 && w == 1)) return false;
    }
    return true;
}

/* Runs until all racks are over, or the clock says 120 s. Returns whether they are. */
static bool run(tower *t) {
    ts_log_level level = ts_log_get_level();
    ts_log_set_level(TS_LOG_NONE);
    uint64_t now_us = TICK_US;
    bool keep = false;
    for (; now_us < 120000000u && !over(t); now_us += TICK_US) {
        run_networks(t, now_us);
        if (t->plan->cut_us && now_us >= t->plan->cut_us)
            for (uint32_t s = 0; s < t->plan->servers; s++) ts_sim_cut(t->top, s, t->plan->servers + 1, true);
        if (t->plan->kill_us && now_us >= t->plan->kill_us && !t->killed) ts_sim_kill(t->racks[0].network, 2);
        if (t->plan->kill_us && now_us >= t->plan->kill_us) t->killed = true;
        for (uint32_t r = 0; r < RACKS && !keep; r++) {
            const ts_client *client = ts_relay_client(t->racks[r].relay);
            for (uint32_t n = 0; n < TENSORS && ts_client_get_state(client) == TS_CLIENT_TRAINING; n++)
                memcpy(t->relay_residual[r][n], ts_client_residual(client, n), (size_t)tensors[n].n * sizeof(float));
        }
        tick(t);
        if (t->plan->cut_us && !t->waiting[0]) {
            char text[512];
            ts_server_waiting(t->racks[0].server, text, sizeof text);
            if (strstr(text, "above") && now_us > t->plan->cut_us + 200000) memcpy(t->waiting, text, sizeof text);
        }
    }
    ts_log_set_level(level);
    return over(t);
}

/* ---- tests ---------------------------------------------------------------------------------------------------------------- */

static void expect_finished(tower *t) {
    ck_assert_msg(run(t), "seed %llu hangs", (unsigned long long)t->plan->seed);
    ck_assert_msg(t->message[0] == 0, "seed %llu: %s", (unsigned long long)t->plan->seed, t->message);
    for (uint32_t r = 0; r < RACKS; r++)
        ck_assert_int_eq(ts_server_get_state(t->racks[r].server), TS_SERVER_FINISHED);
}

/* What the worker's element is, less what it should be: first - params == Σ over workers (said - residual) / 4 - Σ over relays residual / 2. */
static float astray(const tower *t, uint32_t r, uint32_t w, uint32_t n, int64_t i) {
    float moved = 0;
    for (uint32_t k = 0; k < RACKS * WORKERS; k++) {
        const rack_worker *from = &t->racks[k / WORKERS].workers[k % WORKERS];
        moved += (from->said[n][i] - from->residual[n][i]) / 4.0f;
    }
    for (uint32_t k = 0; k < RACKS; k++) moved -= t->relay_residual[k][n][i] / 2.0f;
    float first = (float)(i % 5); /* worker 0's, of the relay that is worker 0 above */
    return t->racks[r].workers[w].params[n][i] - (first - moved);
}

/* Bit for bit, at every worker. */
static void expect_ledger(const tower *t) {
    for (uint32_t r = 0; r < RACKS; r++)
        for (uint32_t w = 0; w < WORKERS; w++)
            for (uint32_t n = 0; n < TENSORS; n++)
                for (int64_t i = 0; i < tensors[n].n; i++)
                    ck_assert_msg(astray(t, r, w, n, i) == 0, "seed %llu rack %u worker %u %s[%lld]: %g, is off by %g",
                                  (unsigned long long)t->plan->seed, r, w, tensors[n].name, (long long)i,
                                  (double)t->racks[r].workers[w].params[n][i], (double)astray(t, r, w, n, i));
}

/* Without rounds above a rack's last pull may be older than the other's last push, but of each tensor one rack has all. */
static void expect_ledger_at_the_last(const tower *t) {
    for (uint32_t n = 0; n < TENSORS; n++) {
        for (int64_t i = 0; i < tensors[n].n; i++) {
            bool all = false;
            for (uint32_t r = 0; r < RACKS; r++) all = all || astray(t, r, 0, n, i) == 0;
            ck_assert_msg(all, "seed %llu %s[%lld]: off by %g and %g", (unsigned long long)t->plan->seed, tensors[n].name,
                          (long long)i, (double)astray(t, 0, 0, n, i), (double)astray(t, 1, 0, n, i));
        }
    }
}

START_TEST(two_levels_train_as_one) {
    scenario plan = {.above = {"push.default=dense"}, .below = {"push.default=dense"}, .seed = 1, .steps = 12, .servers = 1};
    tower *t = build(&plan);
    expect_finished(t);
    expect_ledger(t); /* nothing is lossy here: every residual is 0, so this is what one level would have done */
    for (uint32_t n = 0; n < TENSORS; n++)
        for (int64_t i = 0; i < tensors[n].n; i++) ck_assert(t->relay_residual[0][n][i] == 0);
    destroy(t);
}
END_TEST

START_TEST(both_residuals_keep_what_was_not_said) {
    for (uint64_t seed = 1; seed <= 40; seed++) {
        scenario plan = {.above = {"push.default=topk:0.02 | fp32 | rice"}, .below = {"push.default=topk:0.1 | fp32 | rice"},
                         .seed = seed, .steps = 9, .servers = 1 + (uint32_t)(seed % 2), .drop = seed > 10 ? 0.03 : 0};
        tower *t = build(&plan);
        expect_finished(t);
        expect_ledger(t);
        destroy(t);
    }
}
END_TEST

START_TEST(servers_above_may_have_any_consistency) {
    static const char *const modes[][3] = {{"consistency.mode=asp", NULL, NULL},
                                           {"consistency.mode=ssp", "consistency.staleness=2", NULL},
                                           {"consistency.stragglers=backup", "consistency.quorum=1", "consistency.late=apply"}};
    for (uint64_t seed = 1; seed <= 30; seed++) {
        const char *const *mode = modes[seed % 3];
        scenario plan = {.above = {"push.default=dense", mode[0], mode[1], mode[2]}, .below = {"push.default=dense"}, .seed = seed,
                         .steps = 9, .servers = 1 + (uint32_t)(seed % 2), .drop = seed > 10 ? 0.03 : 0};
        tower *t = build(&plan);
        expect_finished(t);
        if (seed % 3 < 2) expect_ledger_at_the_last(t); /* of rounds with some of the racks the means have other weights */
        destroy(t);
    }
}
END_TEST

START_TEST(lossy_pulls_reach_the_workers) {
    scenario plan = {.above = {"push.default=topk:0.1 | int8 | rice", "pull.default=topk:0.1 | int8 | rice"},
                     .below = {"push.default=topk:0.2 | int8 | rice", "pull.default=topk:0.2 | int8 | rice"},
                     .seed = 5, .steps = 12, .servers = 2, .drop = 0.02};
    tower *t = build(&plan);
    expect_finished(t);
    for (uint32_t r = 0; r < RACKS; r++)
        for (uint32_t n = 0; n < TENSORS; n++)
            ck_assert_mem_eq(t->racks[r].workers[0].params[n], t->racks[r].workers[1].params[n],
                             (size_t)tensors[n].n * sizeof(float));
    destroy(t);
}
END_TEST

START_TEST(a_cut_above_ends_all_and_says_whom_it_waited_for) {
    scenario plan = {.above = {"push.default=dense", "consistency.deadline_s=5", "consistency.on_worker_loss=end"}, .below = {"push.default=dense"}, .seed = 3,
                     .steps = 100000, .servers = 1, .cut_us = 1000000};
    tower *t = build(&plan);
    ck_assert(run(t));
    ck_assert_msg(strstr(t->message, "the servers above") != NULL, "%s", t->message);
    ck_assert_msg(strstr(t->waiting, "the servers above") != NULL, "%s", t->waiting);
    for (uint32_t r = 0; r < RACKS; r++) ck_assert_int_eq(ts_server_get_state(t->racks[r].server), TS_SERVER_FAILED);
    destroy(t);
}
END_TEST

START_TEST(a_death_below_is_told_above) {
    scenario plan = {.above = {"push.default=dense"},
                     .below = {"push.default=dense", "consistency.deadline_s=5", "consistency.on_worker_loss=end"},
                     .seed = 4, .steps = 100000, .servers = 1, .kill_us = 1000000};
    tower *t = build(&plan);
    ck_assert(run(t));
    ck_assert_msg(strstr(t->message, "worker 1") != NULL, "%s", t->message);
    ck_assert_int_eq(ts_server_get_state(t->servers[0]), TS_SERVER_FAILED);
    ck_assert_int_eq(ts_server_get_state(t->racks[1].server), TS_SERVER_FAILED);
    destroy(t);
}
END_TEST

/* Its mean is then over those who are left, and the servers above do not notice. */
START_TEST(a_rack_goes_on_without_a_worker) {
    scenario plan = {.above = {"push.default=dense"}, .below = {"push.default=dense", "consistency.deadline_s=5"}, .seed = 5,
                     .steps = 600, .servers = 2, .kill_us = 1000000};
    tower *t = build(&plan);
    ck_assert(run(t));
    ck_assert_msg(!t->message[0], "%s", t->message);
    for (uint32_t r = 0; r < RACKS; r++) {
        ck_assert_int_eq(ts_server_get_state(t->racks[r].server), TS_SERVER_FINISHED);
        ck_assert_uint_eq(t->racks[r].workers[0].step, plan.steps);
    }
    for (uint32_t s = 0; s < plan.servers; s++) ck_assert_int_ne(ts_server_get_state(t->servers[s]), TS_SERVER_FAILED);
    destroy(t);
}
END_TEST

START_TEST(what_a_relay_cannot_do_is_refused) {
    scenario plan = {.above = {0}, .below = {"consistency.mode=asp"}, .seed = 1, .steps = 1, .servers = 1};
    ts_error error = {""};
    ts_config *above = load(plan.above), *below = load(plan.below), *bsp = load(plan.above);
    tower t = {.plan = &plan};
    for (uint32_t servers = 1; servers <= 2; servers++) {
        ts_sim_network *top = network(&t, 1, 1, 1), *group = network(&t, 2, servers, 1);
        ts_server *server = NULL;
        ts_relay *relay = NULL;
        ck_assert_int_eq(ts_server_create(servers == 1 ? below : bsp, ts_sim_endpoint(group, 0), &ts_executor_inline, &server), TERSE_OK);
        ck_assert_int_eq(ts_relay_create(above, ts_sim_endpoint(top, 1), &ts_executor_inline, &relay), TERSE_OK);
        ck_assert_int_eq(ts_relay_bind(relay, server, &error), TERSE_EUNSUPPORTED);
        ck_assert_msg(strstr(error.text, servers == 1 ? "bsp" : "2 servers") != NULL, "%s", error.text);
        ts_server_destroy(server);
        ts_relay_destroy(relay);
        ts_sim_network_destroy(top);
        ts_sim_network_destroy(group);
    }
    ts_config_free(above);
    ts_config_free(below);
    ts_config_free(bsp);
}
END_TEST

/* Nobody writes for the workers below: who went on from such a checkpoint would train on with half of the job. */
START_TEST(servers_that_write_checkpoints_refuse_relays) {
    char folder[] = "/tmp/terse-unit-XXXXXX", setting[64], lock[64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(setting, sizeof setting, "checkpoint.dir=%s", folder);
    snprintf(lock, sizeof lock, "%s/lock", folder);
    scenario plan = {.above = {"push.default=dense", setting}, .below = {"push.default=dense"}, .seed = 1, .steps = 3, .servers = 1};
    tower *t = build(&plan);
    for (uint32_t r = 0; r < RACKS; r++) { /* as the roll call has it */
        ts_peer *peers = (ts_peer *)(uintptr_t)ts_sim_endpoint(t->top, 0)->peers;
        peers[1 + r].relay = true;
    }
    ck_assert(run(t));
    ck_assert_int_eq(ts_server_get_state(t->servers[0]), TS_SERVER_FAILED);
    ck_assert_msg(strstr(t->message, "checkpoint.dir of server 0 is set") != NULL, "%s", t->message);
    destroy(t);
    unlink(lock);
    ck_assert_int_eq(rmdir(folder), 0); /* nothing else was written there */
}
END_TEST

TCase *test_relay(void);
TCase *test_relay(void) {
    TCase *tests = tcase_create("relay");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, two_levels_train_as_one);
    tcase_add_test(tests, both_residuals_keep_what_was_not_said);
    tcase_add_test(tests, servers_above_may_have_any_consistency);
    tcase_add_test(tests, lossy_pulls_reach_the_workers);
    tcase_add_test(tests, a_cut_above_ends_all_and_says_whom_it_waited_for);
    tcase_add_test(tests, a_death_below_is_told_above);
    tcase_add_test(tests, a_rack_goes_on_without_a_worker);
    tcase_add_test(tests, what_a_relay_cannot_do_is_refused);
    tcase_add_test(tests, servers_that_write_checkpoints_refuse_relays);
    return tests;
}
