/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that leaves: what it had not sent is pushed before, or said in numbers, and sent + residual stays what entered. */
#include <math.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "tests/unit/client_stage.h"

#define ELEMS 3000

typedef struct {
    const char *pipeline, *more;
    double left;       /* of what there was, at most */
    unsigned pushes;   /* at most */
} leave_case;

static const leave_case cases[] = {
    {"topk:0.01 | fp32", NULL, 0, 1},
    {"topk:0.01 | int8 | rice", NULL, 1e-4, 4},
    {"randomk:0.05 | fp16", NULL, 1e-4, 4},
    {"int4", NULL, 1e-4, 16},
    {"topk:0.02 | fp32", "error_feedback.residual=bf16", 0, 1},
    {"topk:0.02 | int8", "error_feedback.momentum_correction=0.5", 1e-4, 4},
    {"topk:0.02 | int8", "error_feedback.clip_norm=1", 1e-4, 4},
    {"sign", NULL, 1, 16}, /* says little at a time */
};
#define CASES (sizeof cases / sizeof cases[0])

/* The played server takes the push, and gives the parameters back as they are. */
static void serve(stage *s, uint64_t step, float *param, double *sum) {
    float *said = ts_mem_aligned(ELEMS, sizeof *said);
    const ts_contract *contract = ts_client_contract(s->client);
    for (unsigned f = 0; f < s->received[0].count; f++)
        if (s->received[0].frame[f].header->body_case == TERSE__HEADER__BODY_PUSH) add_push(s, &s->received[0].frame[f], 0, said);
    for (size_t i = 0; i < ELEMS; i++) sum[i] += (double)said[i];
    empty_inbox(&s->received[0]);
    for (uint32_t i = 0; i < contract->slice_count; i++)
        say_data(s, 0, step + 1, true, false, contract->slices[i].local, param + contract->slices[i].first,
                 contract->slices[i].n * sizeof *param);
    ts_mem_free(said);
}

static void one_pull(stage *s, uint64_t step, float *param, double *sum) {
    run_stage(s, 1);
    ck_assert_ok(ts_client_pull(s->client, 0));
    serve(s, step, param, sum);
    ck_assert(ts_client_pulled(s->client, 0));
}

static double l1_of(stage *s, double *squares, uint64_t *nonzero) {
    const float *residual = ts_client_residual(s->client, 0);
    double l1 = 0;
    *squares = 0;
    *nonzero = 0;
    for (size_t i = 0; i < ELEMS; i++) {
        l1 += fabs((double)residual[i]);
        *squares += (double)residual[i] * (double)residual[i];
        *nonzero += residual[i] != 0;
    }
    return l1;
}

/* Five steps, and then it leaves. Returns how many pushes that took. */
static unsigned leave(stage *s, const leave_case *c, bool flush, uint64_t total, double *before, double *left) {
    const char *overrides[6] = {"servers.slice_elems=1000", flush ? "error_feedback.flush=true" : "error_feedback.flush=false", NULL};
    char push[64];
    float param[ELEMS] = {0}, gradient[ELEMS];
    double *sum = ts_mem_calloc(ELEMS, sizeof *sum), squares;
    uint64_t nonzero, step = 0;
    unsigned pushes = 0;
    snprintf(push, sizeof push, "push.default=%s", c->pipeline);
    overrides[2] = push;
    overrides[3] = c->more;
    open_stage(s, 1, 1, 0, overrides);
    (void)declare(s, "w", ELEMS, param);
    ck_assert_ok(ts_client_set_total_steps(s->client, total));
    attach(s);
    for (; step < 5; step++) {
        for (size_t i = 0; i < ELEMS; i++) gradient[i] = (float)((int)(ts_random_key(4, i, step, 0, 0) % 2001) - 1000) / 256;
        ck_assert_ok(ts_client_push(s->client, 0, gradient));
        one_pull(s, step, param, sum);
    }
    for (size_t i = 0; i < ELEMS; i++) sum[i] = (double)ts_client_residual(s->client, 0)[i] * -1;
    *before = l1_of(s, &squares, &nonzero);
    for (; ts_client_rest_due(s->client); step++, pushes++) {
        ck_assert_uint_lt(pushes, 100);
        ck_assert_ok(ts_client_push_rest(s->client, 0));
        one_pull(s, step, param, sum);
    }
    *left = l1_of(s, &squares, &nonzero);
    /* What was pushed since, and what is left, is what there was. */
    double worst = 0;
    for (size_t i = 0; i < ELEMS; i++) worst = fmax(worst, fabs(sum[i] + (double)ts_client_residual(s->client, 0)[i]));
    ck_assert_msg(worst <= 2e-5, "%s: %g is gone", c->pipeline, worst);
    ck_assert_ok(ts_client_done(s->client));
    run_stage(s, 1);
    const Terse__Done *done = last_heard(s, 0, TERSE__HEADER__BODY_DONE)->header->done;
    ck_assert_uint_eq(done->steps, step);
    ck_assert_double_eq_tol(done->unsent_l1, *left, 1e-5 * (*left + 1e-9));
    ck_assert_double_eq_tol(done->unsent_squares, squares, 1e-5 * (squares + 1e-9));
    ck_assert_uint_eq(done->unsent_nonzero, nonzero);
    ts_mem_free(sum);
    return pushes;
}

START_TEST(what_is_left_is_pushed_before_a_worker_leaves) {
    stage s;
    double before, left;
    const leave_case *c = &cases[_i];
    unsigned pushes = leave(&s, c, true, 100, &before, &left);
    ck_assert_double_gt(before, 0);
    ck_assert_uint_ge(pushes, 1);
    ck_assert_msg(pushes <= c->pushes, "%s: %u pushes", c->pipeline, pushes);
    ck_assert_msg(left <= c->left * before, "%s: %g of %g are left", c->pipeline, left, before);
    if (c->left == 1) ck_assert_double_lt(left, before);
    close_stage(&s);
}
END_TEST

START_TEST(without_it_or_at_the_end_it_is_told_only) {
    stage s;
    double before, left;
    ck_assert_uint_eq(leave(&s, &cases[0], false, 100, &before, &left), 0);
    ck_assert_double_eq(before, left);
    close_stage(&s);
    ck_assert_uint_eq(leave(&s, &cases[0], true, 5, &before, &left), 0); /* all end together */
    ck_assert_double_gt(left, 0);
    close_stage(&s);
    ck_assert_uint_eq(leave(&s, &cases[3], true, 7, &before, &left), 2); /* as far as the steps go */
    close_stage(&s);
}
END_TEST

START_TEST(ef21_has_nothing_to_push) {
    stage s;
    const char *overrides[] = {"error_feedback.flush=true", "push.default=topk:0.02 | fp32", "error_feedback.variant=ef21", NULL};
    float param[ELEMS] = {0}, gradient[ELEMS] = {1, 2, 3};
    open_stage(&s, 1, 1, 0, overrides);
    (void)declare(&s, "w", ELEMS, param);
    attach(&s);
    ck_assert_ok(ts_client_push(s.client, 0, gradient));
    double *sum = ts_mem_calloc(ELEMS, sizeof *sum);
    one_pull(&s, 0, param, sum);
    ck_assert(!ts_client_rest_due(s.client));
    ck_assert_double_eq(ts_client_measure_unsent(s.client).l1, 0);
    ts_mem_free(sum);
    close_stage(&s);
}
END_TEST

START_TEST(a_leaving_worker_says_so_before_it_waits) {
    stage s;
    const char *overrides[] = {"error_feedback.flush=true", "push.default=topk:0.02 | fp32", NULL};
    float param[ELEMS] = {0}, gradient[ELEMS] = {1, 2, 3};
    double *sum = ts_mem_calloc(ELEMS, sizeof *sum);
    for (size_t i = 0; i < ELEMS; i++) gradient[i] = (float)(i + 1);
    open_stage(&s, 1, 1, 0, overrides);
    (void)declare(&s, "w", ELEMS, param);
    attach(&s);
    ck_assert_ok(ts_client_push(s.client, 0, gradient));
    one_pull(&s, 0, param, sum);
    ck_assert(ts_client_rest_due(s.client));
    run_stage(&s, 1);
    ck_assert(last_heard(&s, 0, TERSE__HEADER__BODY_HEARTBEAT)->header->heartbeat->leaving);
    ck_assert_ok(ts_client_push_rest(s.client, 0));
    empty_inbox(&s.received[0]);
    uint32_t first = 0;
    say_ack(&s, 0, 1, TERSE_OK, &first, 1);
    run_stage(&s, 2000000); /* the round stays open: it says so again */
    ck_assert(last_heard(&s, 0, TERSE__HEADER__BODY_HEARTBEAT)->header->heartbeat->leaving);
    ts_mem_free(sum);
    close_stage(&s);
}
END_TEST

TCase *test_leave(void);
TCase *test_leave(void) {
    TCase *tests = tcase_create("leave");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, what_is_left_is_pushed_before_a_worker_leaves, 0, (int)CASES);
    tcase_add_test(tests, without_it_or_at_the_end_it_is_told_only);
    tcase_add_test(tests, ef21_has_nothing_to_push);
    tcase_add_test(tests, a_leaving_worker_says_so_before_it_waits);
    return tests;
}
