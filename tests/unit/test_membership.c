/* SPDX-License-Identifier: Apache-2.0 */
/* Who the workers of a job are: further ones, and how many have been in by a round. */
#include "server/membership.h"
#include "tests/unit/unit.h"

START_TEST(further_workers_are_places_until_somebody_comes) {
    ts_membership of;
    ck_assert_ok(ts_membership_create(&of, 2));
    for (uint32_t w = 0; w < 2; w++) ts_membership_attach(&of, w);
    ck_assert_ok(ts_membership_grow(&of, 4, 0));
    ck_assert_ok(ts_membership_grow(&of, 3, 0)); /* there is room already */
    ck_assert_uint_eq(of.count, 4);
    ck_assert_uint_eq(of.launched, 2);
    ck_assert_uint_eq(ts_membership_missed(&of), 0);
    ck_assert(ts_membership_workers(&of) == 2 && ts_membership_away(&of) == 0 && of.attached == 2);
    ck_assert_uint_eq(ts_membership_weight(&of), 2);
    ts_membership_lose(&of, 0);
    ts_membership_lose(&of, 1);
    ck_assert(ts_membership_orphaned(&of));
    ck_assert_uint_eq(ts_membership_missed(&of), 2);
    ts_membership_return(&of, 3, 1, 7);
    ck_assert(ts_membership_workers(&of) == 3 && ts_membership_away(&of) == 2 && of.attached == 3);
    ck_assert(!ts_membership_orphaned(&of));
    ck_assert_uint_eq(ts_membership_weight(&of), 1);
    /* Somebody has been worker 3 now: when it is lost it is missed. */
    ck_assert(!of.members[3].unborn);
    ck_assert_uint_eq(of.unborn, 1);
    ts_membership_lose(&of, 3);
    ck_assert_uint_eq(ts_membership_missed(&of), 3);
    ck_assert(ts_membership_orphaned(&of));
    ts_membership_return(&of, 3, 2, 9); /* and again, whom no place is made for twice */
    ck_assert(ts_membership_workers(&of) == 3 && of.attached == 3);
    ck_assert_uint_eq(of.unborn, 1);
    ck_assert_uint_eq(ts_membership_missed(&of), 2);
    ts_membership_free(&of);
}
END_TEST

/* Another server has not all of it, so it is lost at all of them: nobody waits for what it said that it would push. */
START_TEST(who_had_gone_in_order_can_still_be_lost) {
    ts_membership of;
    ck_assert_ok(ts_membership_create(&of, 2));
    for (uint32_t w = 0; w < 2; w++) ts_membership_attach(&of, w);
    ts_membership_done(&of, 1, 8);
    ts_membership_gone(&of, 1);
    ck_assert_uint_eq(ts_membership_weight(&of), 2);
    ck_assert(ts_membership_expects(&of, 1, 7));
    ts_membership_lose(&of, 1);
    ts_membership_lose(&of, 1); /* a second time changes nothing */
    ck_assert_uint_eq(ts_membership_missed(&of), 1);
    ck_assert_uint_eq(of.gone, 1);
    ck_assert_uint_eq(of.done, 1);
    ck_assert_uint_eq(ts_membership_weight(&of), 1);
    ck_assert(!ts_membership_expects(&of, 1, 7));
    ck_assert(!ts_membership_heard(&of, 1));
    ts_membership_return(&of, 1, 2, 9);
    ck_assert_uint_eq(of.gone, 0);
    ts_membership_free(&of);
}
END_TEST

TCase *test_membership(void);
TCase *test_membership(void) {
    TCase *tests = tcase_create("membership");
    tcase_add_test(tests, further_workers_are_places_until_somebody_comes);
    tcase_add_test(tests, who_had_gone_in_order_can_still_be_lost);
    return tests;
}
