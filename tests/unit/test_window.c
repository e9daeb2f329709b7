/* SPDX-License-Identifier: Apache-2.0 */
/* Windows over paths of a given speed: a sender with always more to send, a receiver that credits, in fake time. */
#include "common/net/window.h"

#include "common/base/random.h"
#include "tests/unit/unit.h"

#define PLAIN_BYTES ((size_t)4 << 20)
#define SMALL_BYTES ((size_t)60 << 10)
#define LARGE_BYTES ((size_t)2 << 20)
#define MOST_UNDER_WAY 512u

/* One direction. A message arrives when those before it have passed the link, and a credit delay_us after that. */
typedef struct {
    ts_send_window send;
    ts_receive_window receive;
    uint64_t now_us, delay_us, link_free_us;
    double bytes_per_us;
    struct { uint64_t at_us; size_t bytes; } way[MOST_UNDER_WAY];
    struct { uint64_t at_us; uint64_t told; } credit[MOST_UNDER_WAY];
    unsigned way_first, way_count, credit_first, credit_count;
    size_t largest; /* message */
} path;

static void open_path(path *p, bool paced, size_t most, double megabytes_s, uint64_t delay_us) {
    *p = (path){.bytes_per_us = megabytes_s, .delay_us = delay_us};
    ts_window_open(&p->send, &p->receive, paced, most);
}

static void send_all_it_may(path *p, size_t message) {
    for (;;) {
        size_t most = ts_send_window_message_bytes(&p->send, PLAIN_BYTES, SMALL_BYTES, LARGE_BYTES);
        size_t bytes = message && message < most ? message : most;
        if (!ts_send_window_fits(&p->send, bytes)) return;
        ck_assert_uint_lt(p->way_count, MOST_UNDER_WAY);
        uint64_t begins = p->link_free_us > p->now_us ? p->link_free_us : p->now_us;
        p->link_free_us = begins + (uint64_t)((double)bytes / p->bytes_per_us);
        unsigned place = (p->way_first + p->way_count++) % MOST_UNDER_WAY;
        p->way[place].at_us = p->link_free_us + p->delay_us;
        p->way[place].bytes = bytes;
        ts_send_window_note(&p->send, bytes, p->now_us);
        if (bytes > p->largest) p->largest = bytes;
        ck_assert_uint_le(p->send.sent - p->send.credited, p->send.bytes);
    }
}

static void arrive(path *p) {
    ts_receive_window_note(&p->receive, p->way[p->way_first].bytes);
    p->way_first = (p->way_first + 1) % MOST_UNDER_WAY;
    p->way_count--;
    if (!ts_receive_window_owes(&p->receive)) return;
    ck_assert_uint_lt(p->credit_count, MOST_UNDER_WAY);
    unsigned place = (p->credit_first + p->credit_count++) % MOST_UNDER_WAY;
    p->credit[place].at_us = p->now_us + p->delay_us;
    p->credit[place].told = p->receive.returned = p->receive.taken;
}

static void take_credit(path *p) {
    ck_assert(ts_send_window_credit(&p->send, p->credit[p->credit_first].told, true, p->now_us));
    p->credit_first = (p->credit_first + 1) % MOST_UNDER_WAY;
    p->credit_count--;
}

/* message: 0 for the largest that may be. Whoever can do nothing any more has a deadlock. */
static void run_path(path *p, size_t message, unsigned events) {
    while (events-- > 0) {
        send_all_it_may(p, message);
        ts_receive_window_learn(&p->receive, p->send.bytes);
        ck_assert_msg(p->way_count || p->credit_count, "all has come, %zu of %zu are free, and nothing may go",
                      p->send.bytes - (size_t)(p->send.sent - p->send.credited), p->send.bytes);
        bool arrives = p->way_count && (!p->credit_count || p->way[p->way_first].at_us <= p->credit[p->credit_first].at_us);
        uint64_t at_us = arrives ? p->way[p->way_first].at_us : p->credit[p->credit_first].at_us;
        if (at_us > p->now_us) p->now_us = at_us;
        if (arrives) arrive(p);
        else take_credit(p);
    }
}

START_TEST(a_plain_window_is_as_agreed_and_stays) {
    path p;
    open_path(&p, false, (size_t)16 << 20, 1, 1000);
    run_path(&p, 0, 1000);
    ck_assert_uint_eq(p.send.bytes, (size_t)16 << 20);
    ck_assert_uint_eq(p.largest, PLAIN_BYTES);
}
END_TEST

static void settles(double megabytes_s, uint64_t delay_us, size_t window, size_t largest) {
    path p;
    open_path(&p, true, (size_t)64 << 20, megabytes_s, delay_us);
    ck_assert_uint_eq(p.send.bytes, TS_WINDOW_FIRST_BYTES);
    run_path(&p, 0, 5000);
    ck_assert_uint_eq(p.send.bytes, window);
    ck_assert_uint_eq(p.largest, largest);
}

/* 12 MB/s: a mebibyte takes 87 ms. */
START_TEST(a_slow_path_keeps_a_small_window_and_small_messages) {
    settles(12, 100, TS_WINDOW_SLOW_BYTES, SMALL_BYTES);
}
END_TEST

START_TEST(a_quick_path_gets_the_largest_window_and_large_messages) {
    settles(3000, 20, TS_WINDOW_QUICK_BYTES, LARGE_BYTES);
}
END_TEST

/* A gigabit: 10 ms are 1.2 MB. */
START_TEST(between_the_two_a_delay_bounds_it) {
    path p;
    open_path(&p, true, (size_t)64 << 20, 118, 100);
    run_path(&p, 0, 20000);
    ck_assert_uint_ge(p.send.bytes, TS_WINDOW_SLOW_BYTES);
    ck_assert_uint_lt(p.send.bytes, TS_WINDOW_LARGE_BYTES);
    ck_assert_uint_eq(p.largest, SMALL_BYTES);
}
END_TEST

START_TEST(a_path_that_turns_slow_gets_a_small_window_again_and_does_not_stop) {
    path p;
    open_path(&p, true, (size_t)64 << 20, 3000, 20);
    run_path(&p, 0, 3000);
    ck_assert_uint_eq(p.send.bytes, TS_WINDOW_QUICK_BYTES);
    p.bytes_per_us = 10;
    run_path(&p, 0, 3000);
    ck_assert_uint_eq(p.send.bytes, TS_WINDOW_SLOW_BYTES);
    p.largest = 0;
    run_path(&p, 0, 3000);
    ck_assert_uint_eq(p.largest, SMALL_BYTES);
    p.bytes_per_us = 3000;
    run_path(&p, 0, 5000);
    ck_assert_uint_eq(p.send.bytes, TS_WINDOW_QUICK_BYTES);
}
END_TEST

START_TEST(what_both_allow_bounds_a_paced_window) {
    path p;
    open_path(&p, true, (size_t)300 << 10, 3000, 20);
    run_path(&p, 0, 3000);
    ck_assert_uint_eq(p.send.bytes, (size_t)300 << 10);
    ck_assert_uint_eq(p.largest, SMALL_BYTES);
}
END_TEST

/* Speeds that change at random, messages of any size: run_path asserts that something is always under way. */
START_TEST(nothing_stops_whatever_the_path_does) {
    for (uint64_t seed = 0; seed < 200; seed++) {
        path p;
        size_t most = TS_WINDOW_FIRST_BYTES + (size_t)(ts_mix64(seed) % ((size_t)16 << 20));
        open_path(&p, seed % 4 != 0, most, 100, ts_mix64(seed + 1) % 20000);
        for (uint64_t turn = 0; turn < 40; turn++) {
            uint64_t draw = ts_mix64(ts_mix64(seed + 2) + turn);
            p.bytes_per_us = (double)(1 + draw % 4000);
            size_t least = p.send.bytes / (MOST_UNDER_WAY - 8);
            run_path(&p, draw & 1 ? 0 : least + (size_t)(draw >> 8) % 200000, 60);
        }
        ck_assert_uint_ge(p.send.bytes, TS_WINDOW_FIRST_BYTES);
        ck_assert_uint_le(p.send.bytes, most);
    }
}
END_TEST

START_TEST(credit_that_cannot_be_is_refused) {
    path p;
    open_path(&p, true, (size_t)8 << 20, 100, 10);
    ts_send_window_note(&p.send, 1000, 0);
    ts_send_window before = p.send;
    ck_assert(!ts_send_window_credit(&p.send, 1000 + TS_WINDOW_MESSAGE_COST + 1, true, 5));
    ck_assert_mem_eq(&p.send, &before, sizeof before);
    ck_assert(ts_send_window_credit(&p.send, 500, true, 5));
    ck_assert(!ts_send_window_credit(&p.send, 499, true, 6));
    ck_assert_uint_eq(p.send.credited, 500);
}
END_TEST

TCase *test_window(void);
TCase *test_window(void) {
    TCase *tests = tcase_create("window");
    tcase_add_test(tests, a_plain_window_is_as_agreed_and_stays);
    tcase_add_test(tests, a_slow_path_keeps_a_small_window_and_small_messages);
    tcase_add_test(tests, a_quick_path_gets_the_largest_window_and_large_messages);
    tcase_add_test(tests, between_the_two_a_delay_bounds_it);
    tcase_add_test(tests, a_path_that_turns_slow_gets_a_small_window_again_and_does_not_stop);
    tcase_add_test(tests, what_both_allow_bounds_a_paced_window);
    tcase_add_test(tests, nothing_stops_whatever_the_path_does);
    tcase_add_test(tests, credit_that_cannot_be_is_refused);
    return tests;
}
