/* SPDX-License-Identifier: Apache-2.0 */
/* Bells between processes, here between several in one. */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "common/net/bell.h"
#include "tests/unit/unit.h"

#define BELLS 3

typedef struct {
    ts_bell *bell[BELLS];
    ts_bell_address address[BELLS];
} tower;

static tower open_tower(void) {
    tower t;
    for (int i = 0; i < BELLS; i++) {
        ck_assert_ok(ts_bell_create(&t.bell[i]));
        ts_bell_own_address(t.bell[i], &t.address[i]);
    }
    return t;
}

static void meet(tower *t, uint32_t who) {
    ck_assert_ok(ts_bell_meet(t->bell[who], t->address, BELLS, who));
}

static void close_tower(tower *t) {
    for (int i = 0; i < BELLS; i++) ts_bell_destroy(t->bell[i]);
}

static bool readable(const ts_bell *bell) {
    struct pollfd waits = {.fd = ts_bell_fd(bell), .events = POLLIN};
    return poll(&waits, 1, 200) == 1;
}

static bool silent(const ts_bell *bell) {
    struct pollfd waits = {.fd = ts_bell_fd(bell), .events = POLLIN};
    return poll(&waits, 1, 20) == 0;
}

static void clear_all(tower *t) {
    for (int round = 0; round < 3; round++) { /* greetings, answers, answers to those */
        for (int i = 0; i < BELLS; i++) {
            if (readable(t->bell[i])) ts_bell_clear(t->bell[i], 1);
        }
    }
}

START_TEST(who_has_been_greeted_by_all_knows_it) {
    tower t = open_tower();
    meet(&t, 0);
    meet(&t, 1);
    clear_all(&t);
    ck_assert(!ts_bell_complete(t.bell[0], 1)); /* the third has not met anybody */
    meet(&t, 2);
    clear_all(&t);
    for (int i = 0; i < BELLS; i++) ck_assert(ts_bell_complete(t.bell[i], 2));
    close_tower(&t);
}
END_TEST

START_TEST(a_ring_makes_one_descriptor_readable_until_it_is_cleared) {
    tower t = open_tower();
    for (uint32_t i = 0; i < BELLS; i++) meet(&t, i);
    clear_all(&t);
    ck_assert(silent(t.bell[1]));
    ck_assert(ts_bell_ring(t.bell[0], 1));
    ck_assert(readable(t.bell[1]));
    ck_assert(silent(t.bell[2]));
    ts_bell_clear(t.bell[1], 1);
    ck_assert(silent(t.bell[1]));
    ck_assert(!ts_bell_ring(t.bell[0], BELLS));
    close_tower(&t);
}
END_TEST

START_TEST(greetings_with_another_cookie_do_not_count) {
    tower t = open_tower();
    ts_bell_address forged[BELLS];
    memcpy(forged, t.address, sizeof forged);
    forged[0].cookie++;
    for (uint32_t i = 1; i < BELLS; i++) ck_assert_ok(ts_bell_meet(t.bell[i], forged, BELLS, i));
    meet(&t, 0);
    clear_all(&t);
    ck_assert(!ts_bell_complete(t.bell[0], 1));
    ck_assert(ts_bell_complete(t.bell[1], 1));
    close_tower(&t);
}
END_TEST

START_TEST(a_lost_greeting_is_asked_for_again) {
    tower t = open_tower();
    for (uint32_t i = 0; i < BELLS; i++) meet(&t, i);
    char lost[64];
    while (readable(t.bell[0])) ck_assert_int_ge((int)recv(ts_bell_fd(t.bell[0]), lost, sizeof lost, 0), 1);
    ck_assert(!ts_bell_complete(t.bell[0], 300000));
    clear_all(&t);
    ck_assert(ts_bell_complete(t.bell[0], 300001));
    close_tower(&t);
}
END_TEST

START_TEST(one_host_is_known_by_its_kernel_and_namespace) {
    tower t = open_tower();
    ck_assert(ts_bell_same_host(&t.address[0], &t.address[1]));
    t.address[1].host[TS_BELL_HOST_BYTES - 1] ^= 1;
    ck_assert(!ts_bell_same_host(&t.address[0], &t.address[1]));
    close_tower(&t);
}
END_TEST

TCase *test_bell(void);
TCase *test_bell(void) {
    TCase *tests = tcase_create("bell");
    tcase_add_test(tests, who_has_been_greeted_by_all_knows_it);
    tcase_add_test(tests, a_ring_makes_one_descriptor_readable_until_it_is_cleared);
    tcase_add_test(tests, greetings_with_another_cookie_do_not_count);
    tcase_add_test(tests, a_lost_greeting_is_asked_for_again);
    tcase_add_test(tests, one_host_is_known_by_its_kernel_and_namespace);
    return tests;
}
