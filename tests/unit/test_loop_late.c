/* SPDX-License-Identifier: Apache-2.0 */
/* How late ticks are counted, with times that the test says. */
#include "server/loop_late.h"
#include "tests/unit/unit.h"

#define EVERY 50000u

START_TEST(the_latest_tick_counts_and_others_time_never_adds) {
    ts_lateness late = ts_lateness_start();
    ts_lateness_tick(&late, 1000000, EVERY); /* the first is due at no time */
    ck_assert(late.late_us == 0 && late.own_us == 0);
    ts_lateness_tick(&late, 1000000 + EVERY, EVERY);
    ck_assert_uint_eq(late.late_us, 0);
    ts_lateness_tick(&late, 1000000 + 2 * EVERY + 7000, EVERY);
    ck_assert_uint_eq(late.late_us, 7000);
    ck_assert_uint_le(late.own_us, 7000);
    ts_lateness_tick(&late, 1000000 + 3 * EVERY + 9000, EVERY); /* after the one before, not after the clock */
    ck_assert_uint_eq(late.late_us, 7000);
    ts_lateness_tick(&late, 1000000 + 3 * EVERY + 9000 + 60u * 1000000, EVERY); /* so long the test has waited for nothing */
    ck_assert_uint_eq(late.late_us, 60u * 1000000 - EVERY);
    ck_assert_uint_gt(late.own_us, 30u * 1000000);
    ts_lateness_clear(&late);
    ck_assert(late.late_us == 0 && late.own_us == 0);
    ts_lateness_end(&late);
}
END_TEST

TCase *test_loop_late(void);
TCase *test_loop_late(void) {
    TCase *tests = tcase_create("loop_late");
    tcase_add_test(tests, the_latest_tick_counts_and_others_time_never_adds);
    return tests;
}
