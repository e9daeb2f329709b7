/* SPDX-License-Identifier: Apache-2.0 */
/* Variants of error feedback: what decays, what is rounded away, and the memory behind it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "tests/unit/codec_support.h"
#include "worker/client/feedback.h"

#define N 5000

static double sum_of(const float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i];
    return sum;
}

/* sent + residual + what was let go == what entered, over the sums of all elements. */
START_TEST(a_decaying_residual_counts_what_it_lets_go) {
    static const char *const pipelines[] = {"topk:0.01 | int8", "int8", "randomk:0.05", "powersgd:2 | fp16", "delta:4 | fp32"};
    static const int64_t shape[2] = {100, 50};
    float g[N], sum[N];
    for (size_t p = 0; p < sizeof pipelines / sizeof pipelines[0]; p++) {
        ts_unit_tensor t;
        double entered = 0, sent = 0, let_go = 0, size = 0;
        ts_unit_tensor_open(&t, pipelines[p], N, N, ts_cpu_simd());
        t.spec.shape = shape;
        t.spec.ndim = 2;
        ts_encoder_destroy(t.encoder);
        ck_assert_ok(ts_encoder_create(&t.spec, &t.encoder));
        ts_decode_state *state = NULL;
        if (ts_pipeline_is_stateful(&t.pipeline)) ck_assert_ok(ts_decode_state_create(&t.spec, 0, &state));
        t.input.decay = 0.75f;
        for (uint64_t step = 0; step < 40; step++) {
            ts_unit_input(7, g, N, step);
            for (size_t i = 0; i < N; i++) size += fabs((double)g[i]);
            entered += sum_of(g, N);
            ts_unit_encode(&t, g, step, TERSE_OK);
            memset(sum, 0, sizeof sum);
            ck_assert_ok(ts_decode_add(t.scratch, &t.spec, state, 0, step, t.packet[0], t.len[0], sum));
            sent += sum_of(sum, N);
            let_go += t.report.let_go;
        }
        double off = fabs(sent + sum_of(t.residual, N) + let_go - entered);
        ck_assert_msg(off < 1e-7 * size, "%s: %g of %g is missing", pipelines[p], off, size);
        if (t.pipeline.select) ck_assert_double_gt(fabs(let_go), 1e-3);
        t.input.decay = 0;
        ts_unit_encode(&t, g, 40, TERSE_OK);
        ck_assert(t.report.let_go == 0);
        ts_decode_state_destroy(state);
        ts_unit_tensor_close(&t);
    }
}
END_TEST

/* Without a decay a residual keeps what it has; with one, what never travels fades. */
START_TEST(what_never_travels_fades) {
    float g[4] = {100, 8, 0, 0}, zero[4] = {0};
    ts_unit_tensor t;
    ts_unit_tensor_open(&t, "topk:0.25 | fp32", 4, 4, ts_cpu_simd());
    t.input.decay = 0.5f;
    ts_unit_encode(&t, g, 0, TERSE_OK);
    ck_assert(t.residual[0] == 0 && t.residual[1] == 8);
    zero[0] = 100;
    for (uint64_t step = 1; step <= 3; step++) ts_unit_encode(&t, zero, step, TERSE_OK);
    ck_assert(t.residual[1] == 1);
    for (uint64_t step = 4; step < 200; step++) ts_unit_encode(&t, zero, step, TERSE_OK);
    ck_assert(t.residual[1] == 0); /* never a denormal */
    ts_unit_encode(&t, NULL, 200, TERSE_OK);
    ck_assert(t.report.let_go == 0);
    ts_unit_tensor_close(&t);
}
END_TEST

START_TEST(brief_residuals_come_back_rounded) {
    float x[1000], kept[1000], back[1000];
    ts_feedback feedback = {0};
    ts_feedback_needs needs = {.brief = true, .velocity = true};
    ck_assert_ok(ts_feedback_create(&ts_feedback_heap, "w", 1000, &needs, &feedback));
    ck_assert(!feedback.residual && feedback.brief && feedback.velocity && !feedback.estimate);
    ts_feedback_read_brief(&feedback, back);
    for (size_t i = 0; i < 1000; i++) ck_assert(back[i] == 0);
    ts_unit_input(7, x, 1000, 3);
    memcpy(kept, x, sizeof x);
    double lost = ts_feedback_write_brief(&feedback, x), missing = 0;
    ts_feedback_read_brief(&feedback, back);
    for (size_t i = 0; i < 1000; i++) {
        missing += (double)kept[i] - (double)back[i];
        if (fabs((double)kept[i] - (double)back[i]) > 0x1p-8 * fabs((double)kept[i])) ck_abort_msg("element %zu", i);
    }
    ck_assert_double_eq_tol(lost, missing, 1e-9);
    ck_assert_double_gt(fabs(lost), 0);
    ts_feedback_destroy(&feedback);
    ck_assert_ptr_null(feedback.brief);
}
END_TEST

START_TEST(ef21_starts_from_the_estimate) {
    ts_feedback feedback = {0};
    ts_feedback_needs needs = {.estimate = true};
    ck_assert_ok(ts_feedback_create(&ts_feedback_heap, "w", 3, &needs, &feedback));
    for (int i = 0; i < 3; i++) feedback.estimate[i] = (float)i;
    ts_feedback_start_difference(&feedback);
    for (int i = 0; i < 3; i++) ck_assert(feedback.residual[i] == -(float)i);
    ts_feedback_destroy(&feedback);
}
END_TEST

START_TEST(want_of_memory_leaves_nothing_behind) {
    ts_feedback_needs needs = {.velocity = true, .estimate = true};
    for (int64_t allowed = 0; allowed < 3; allowed++) {
        ts_feedback feedback = {0};
        ts_mem_fail_after(allowed);
        terse_status status = ts_feedback_create(&ts_feedback_heap, "w", 100, &needs, &feedback);
        ts_mem_fail_after(-1);
        ck_assert_status(status, TERSE_ENOMEM);
        ck_assert_ptr_null(feedback.memory);
    }
}
END_TEST

TCase *test_feedback(void);
TCase *test_feedback(void) {
    TCase *tests = tcase_create("feedback");
    tcase_add_test(tests, a_decaying_residual_counts_what_it_lets_go);
    tcase_add_test(tests, what_never_travels_fades);
    tcase_add_test(tests, brief_residuals_come_back_rounded);
    tcase_add_test(tests, ef21_starts_from_the_estimate);
    tcase_add_test(tests, want_of_memory_leaves_nothing_behind);
    return tests;
}
