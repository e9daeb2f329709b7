/* SPDX-License-Identifier: Apache-2.0 */
/* The server's core with work under way: in another order than submitted, and on other threads. */
#include <pthread.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/random.h"
#include "tests/sim/server_rig.h"
#include "tests/unit/unit.h"

#define ROUNDS 6
#define WORKS 4

/* An executor that keeps what is submitted until it is told to run it. */
typedef struct {
    ts_executor executor;
    struct {
        ts_executor_fn work, done;
        void *argument;
    } works[WORKS];
    uint32_t count, most;
    bool threads; /* work runs on threads of its own, and done when they are joined */
    ts_random random;
} late_executor;

static void *run_on_thread(void *argument) {
    void *const *call = argument;
    ts_executor_fn work;
    memcpy(&work, &call[0], sizeof work);
    work(call[1]);
    return NULL;
}

static terse_status submit_late(ts_executor *executor, ts_executor_fn work, ts_executor_fn done, void *argument) {
    late_executor *late = (late_executor *)executor;
    ck_assert_uint_lt(late->count, executor->threads);
    late->works[late->count].work = work;
    late->works[late->count].done = done;
    late->works[late->count++].argument = argument;
    if (late->count > late->most) late->most = late->count;
    return TERSE_OK;
}

static late_executor make_late(unsigned threads, bool real, uint64_t seed) {
    late_executor late = {.executor = {.submit = submit_late, .threads = threads}, .threads = real};
    late.random = ts_random_start(seed);
    return late;
}

/* Finishes one work, any of them. */
static void finish_one(late_executor *late) {
    uint32_t i = ts_random_below(&late->random, late->count);
    ts_executor_fn work = late->works[i].work, done = late->works[i].done;
    void *argument = late->works[i].argument;
    late->works[i] = late->works[--late->count];
    work(argument);
    done(argument);
}

/* Runs all that lies there at once, each on its thread, as libuv's pool would. */
static void finish_on_threads(late_executor *late) {
    uint32_t count = late->count;
    void *calls[WORKS][2];
    ts_executor_fn dones[WORKS];
    pthread_t threads[WORKS];
    late->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        memcpy(&calls[i][0], &late->works[i].work, sizeof calls[i][0]);
        calls[i][1] = late->works[i].argument;
        dones[i] = late->works[i].done;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_on_thread, calls[i]), 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        dones[i](calls[i][1]);
    }
}

static void finish(late_executor *late) {
    while (late->count > 0) {
        if (late->threads) finish_on_threads(late);
        else finish_one(late);
    }
}

/* A few rounds; returns the hash of worker 1's replica and the parameters. While works lie there, others go on asking. */
static uint64_t train(const char *config, late_executor *late) {
    rig *r = rig_create_on(2, config, late ? &late->executor : &ts_executor_inline);
    float values[2][RIG_ELEMS], g[RIG_ELEMS];
    Terse__StatsRequest stats = TERSE__STATS_REQUEST__INIT;
    rig_attach_all(r, values[0]);
    for (uint64_t step = 0; step < ROUNDS; step++) {
        for (uint32_t w = 0; w < 2; w++) {
            rig_gradient(w, step, g);
            for (unsigned mask = 1; mask <= 4; mask *= 2) /* slice by slice: several items */
                rig_send(r, w, rig_push_frame(r, w, step, g, w ? 4 / mask : mask, true));
        }
        rig_run(r, 1000);
        if (late && step == 2) {
            ck_assert(!ts_server_idle(r->server));
            rig_send_body(r, 0, TERSE__HEADER__BODY_STATS_REQUEST, &stats);
            rig_pull(r, 0, 0, 0, true, true);
            rig_gradient(0, step, g);
            rig_push(r, 0, step, g); /* again, while its packets are in work */
            rig_run(r, 1000);
            ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_STATS, NULL), 0);
            finish(late);
            rig_run(r, 1000);
            ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_STATS, NULL), 1);
        }
        if (late) finish(late);
        rig_run(r, 1000);
        if (late) finish(late);
        rig_run(r, 1000);
    }
    uint64_t version = rig_apply(r, 1, values[0]);
    ck_assert_uint_eq(version, ROUNDS);
    rig_forget(r);
    rig_pull(r, 1, 0, 0, true, true);
    rig_run(r, 1000);
    rig_apply(r, 1, values[1]);
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_RUNNING);
    ck_assert(ts_server_idle(r->server));
    rig_destroy(r);
    return XXH3_64bits(values, sizeof values);
}

START_TEST(any_order_of_work_gives_the_same_bits) {
    const char *configs[] = {RIG_DENSE, RIG_SPARSE, RIG_AVERAGE};
    for (size_t c = 0; c < sizeof configs / sizeof configs[0]; c++) {
        uint64_t want = train(configs[c], NULL);
        for (uint64_t seed = 0; seed < 20; seed++) {
            late_executor late = make_late(1 + (unsigned)(seed % 3), false, seed);
            ck_assert_uint_eq(train(configs[c], &late), want);
            if (late.executor.threads > 1) ck_assert_uint_ge(late.most, 2);
        }
    }
}
END_TEST

START_TEST(threads_give_the_same_bits) {
    const char *configs[] = {RIG_DENSE, RIG_SPARSE, RIG_AVERAGE};
    for (size_t c = 0; c < sizeof configs / sizeof configs[0]; c++) {
        late_executor late = make_late(WORKS, true, 0);
        ck_assert_uint_eq(train(configs[c], &late), train(configs[c], NULL));
    }
}
END_TEST

START_TEST(a_failing_job_waits_for_its_work) {
    late_executor late = make_late(2, false, 1);
    rig *r = rig_create_on(1, RIG_DENSE, &late.executor);
    float params[RIG_ELEMS], g[RIG_ELEMS];
    rig_attach_all(r, params);
    rig_gradient(0, 0, g);
    rig_push(r, 0, 0, g);
    rig_run(r, 1000);
    ts_server_stop(r->server, "a test");
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_FAILED);
    ck_assert_int_eq(ts_server_failure(r->server), TERSE_ESHUTDOWN);
    ck_assert(!ts_server_idle(r->server));
    finish(&late);
    ck_assert(ts_server_idle(r->server));
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_ABORT, NULL), 1);
    rig_destroy(r);
}
END_TEST

TCase *test_server_executor(void);
TCase *test_server_executor(void) {
    TCase *tests = tcase_create("server_executor");
    tcase_add_test(tests, any_order_of_work_gives_the_same_bits);
    tcase_add_test(tests, threads_give_the_same_bits);
    tcase_add_test(tests, a_failing_job_waits_for_its_work);
    return tests;
}
