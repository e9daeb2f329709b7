/* SPDX-License-Identifier: Apache-2.0 */
/* Servers that are dead when somebody comes: who speaks for them from the first word on, and who leads. */
#include "common/base/log.h"
#include "server/server.h"
#include "tests/unit/client_stage.h"

/* Greetings that a played server has heard for a part, as the header says it. */
static unsigned hellos(const stage *s, uint32_t server, uint32_t part) {
    unsigned count = 0;
    for (unsigned i = 0; i < s->received[server].count; i++) {
        const Terse__Header *header = s->received[server].frame[i].header;
        count += header->body_case == TERSE__HEADER__BODY_HELLO && header->part == part;
    }
    return count;
}

static void open_without(stage *s, uint32_t dead, uint32_t worker) {
    ts_dead_set absent = {0};
    ts_dead_set_add(&absent, dead);
    ts_log_set_level(TS_LOG_NONE);
    open_stage_without(s, 2, 2, worker, NULL, &absent);
}

static void close_without(stage *s) {
    close_stage(s);
    ts_log_set_level(TS_LOG_WARN);
}

START_TEST(the_stand_in_is_spoken_with_from_the_first_word_on) {
    for (uint32_t dead = 0; dead < 2; dead++) {
        stage s;
        float w[3] = {0};
        uint32_t other = 1 - dead;
        open_without(&s, dead, 1);
        declare(&s, "w", 3, w);
        ck_assert_ok(ts_client_start(s.client));
        run_stage(&s, 1);
        ck_assert_uint_eq(s.received[dead].count, 0);
        ck_assert_uint_eq(hellos(&s, other, 0), 1);
        ck_assert_uint_eq(hellos(&s, other, dead + 1), 1);
        run_stage(&s, 3000000);
        ck_assert_uint_eq(s.received[dead].count, 0);
        close_without(&s);
    }
}
END_TEST

/* It does not know the part before it has the contract: whoever waits for the timer then loses a second. */
START_TEST(a_stand_in_that_has_let_us_in_is_greeted_for_the_dead_at_once) {
    stage s;
    float w[3] = {0};
    open_without(&s, 0, 1);
    declare(&s, "w", 3, w);
    ck_assert_ok(ts_client_start(s.client));
    run_stage(&s, 1);
    say_welcome(&s, 1, TERSE__WELCOME__VERDICT__ACCEPTED, TERSE_OK);
    ck_assert_uint_eq(hellos(&s, 1, 1), 2);
    ck_assert_uint_eq(hellos(&s, 1, 0), 1);
    close_without(&s);
}
END_TEST

START_TEST(a_set_of_the_dead_counts_each_once) {
    ts_dead_set set = {0};
    ck_assert(!ts_dead_set_has(&set, 0));
    for (int twice = 0; twice < 2; twice++) {
        ts_dead_set_add(&set, 0);
        ts_dead_set_add(&set, 9);
        ts_dead_set_add(&set, TS_DEAD_SERVERS_MOST - 1);
        ts_dead_set_add(&set, TS_DEAD_SERVERS_MOST); /* no daemon has it */
    }
    ck_assert_uint_eq(set.count, 3);
    ck_assert(ts_dead_set_has(&set, 0) && ts_dead_set_has(&set, 9) && ts_dead_set_has(&set, TS_DEAD_SERVERS_MOST - 1));
    ck_assert(!ts_dead_set_has(&set, 1) && !ts_dead_set_has(&set, 8) && !ts_dead_set_has(&set, TS_DEAD_SERVERS_MOST));
}
END_TEST

TCase *test_absent(void);
TCase *test_absent(void) {
    TCase *tests = tcase_create("absent");
    tcase_add_test(tests, the_stand_in_is_spoken_with_from_the_first_word_on);
    tcase_add_test(tests, a_stand_in_that_has_let_us_in_is_greeted_for_the_dead_at_once);
    tcase_add_test(tests, a_set_of_the_dead_counts_each_once);
    return tests;
}
