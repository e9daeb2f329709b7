/* SPDX-License-Identifier: Apache-2.0 */
/* Levels of threads that the test makes, with the rights that it has. */
#include "server/loop_precedence.h"

#include <pthread.h>
#include <sys/resource.h>

#include "tests/unit/unit.h"

#define CHOSEN 19 /* as low as it gets: this much everybody may */

static int level(void) { return getpriority(PRIO_PROCESS, 0); }
static bool set_level(int to) { return setpriority(PRIO_PROCESS, 0, to) == 0; }

static void *take_and_give_back(void *context) {
    bool *worked = context;
    ts_precedence precedence = {0};
    bool may = set_level(TS_PRECEDENCE_NICE) && set_level(0);
    int before = level();
    ts_precedence_set(&precedence, true);
    *worked = precedence.taken == may && level() == (may ? TS_PRECEDENCE_NICE : before);
    *worked = *worked && precedence.refused == (!may && before == 0);
    ts_precedence_set(&precedence, true);
    ts_precedence_set(&precedence, false);
    *worked = *worked && !precedence.taken && level() == before;
    return NULL;
}

static void *keep_what_others_chose(void *context) {
    bool *worked = context;
    ts_precedence precedence = {0};
    *worked = set_level(CHOSEN);
    ts_precedence_set(&precedence, true);
    *worked = *worked && !precedence.taken && !precedence.refused && level() == CHOSEN;
    precedence.taken = true; /* and was given another level since */
    ts_precedence_set(&precedence, false);
    *worked = *worked && level() == CHOSEN;
    return NULL;
}

static bool in_a_thread(void *(*run)(void *context)) {
    pthread_t thread;
    bool worked = false;
    ck_assert_int_eq(pthread_create(&thread, NULL, run, &worked), 0);
    pthread_join(thread, NULL);
    return worked;
}

START_TEST(precedence_is_taken_where_it_is_allowed_and_given_back) { ck_assert(in_a_thread(take_and_give_back)); }
END_TEST

START_TEST(a_level_that_others_chose_stays) { ck_assert(in_a_thread(keep_what_others_chose)); }
END_TEST

TCase *test_loop_precedence(void);
TCase *test_loop_precedence(void) {
    TCase *tests = tcase_create("loop_precedence");
    tcase_add_test(tests, precedence_is_taken_where_it_is_allowed_and_given_back);
    tcase_add_test(tests, a_level_that_others_chose_stays);
    return tests;
}
