/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker counts of its own: the norm of its residual costs a look at all of it, and nothing where there is none. */
#include <math.h>
#include <sys/mman.h>

#include "tests/unit/client_stage.h"
#include "worker/client/terse_internal.h"

#define N ((size_t)1 << 16)

static float w[N], g[N];

static terse_local_stats stats_of(ts_client *core) {
    terse client = {.client = core, .mutex = PTHREAD_MUTEX_INITIALIZER};
    terse_local_stats stats;
    ck_assert_ok(terse_get_local_stats(&client, &stats));
    return stats;
}

/* The pages that hold nothing but the residual can be neither read nor written, or can again. */
static void set_access(const float *residual, int access) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)residual + page - 1) / page * page, end = (uintptr_t)(residual + N) / page * page;
    ck_assert_uint_gt(end, first);
    ck_assert_int_eq(mprotect((void *)first, end - first, access), 0);
}

START_TEST(without_error_feedback_no_residual_is_read) {
    static const char *const without[] = {"error_feedback.enabled=false", NULL};
    stage s;
    open_stage(&s, 1, 1, 0, without);
    declare(&s, "w", N, w);
    attach(&s);
    const float *residual = ts_client_residual(s.client, 0);
    ck_assert_ptr_nonnull(residual);
    set_access(residual, PROT_NONE);
    ck_assert_double_eq(stats_of(s.client).residual_norm, 0);
    set_access(residual, PROT_READ | PROT_WRITE);
    close_stage(&s);
}
END_TEST

START_TEST(with_error_feedback_the_norm_is_of_what_was_not_sent) {
    static const char *const with[] = {"push.default=topk:0.5 | fp32 | raw32", NULL};
    stage s;
    for (size_t i = 0; i < N; i++) g[i] = i < N / 2 ? 4.0f : 0.5f;
    open_stage(&s, 1, 1, 0, with);
    declare(&s, "w", N, w);
    attach(&s);
    ck_assert_double_eq(stats_of(s.client).residual_norm, 0);
    ck_assert_ok(ts_client_push(s.client, 0, g));
    ck_assert_double_eq(stats_of(s.client).residual_norm, 0.5 * sqrt((double)(N / 2)));
    close_stage(&s);
}
END_TEST

TCase *test_local_stats(void);
TCase *test_local_stats(void) {
    TCase *tests = tcase_create("local_stats");
    tcase_add_test(tests, without_error_feedback_no_residual_is_read);
    tcase_add_test(tests, with_error_feedback_the_norm_is_of_what_was_not_sent);
    return tests;
}
