/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/net/loopback.h"
#include "tests/unit/unit.h"

static void congestion(int fd, char name[16]) {
    socklen_t bytes = 15;
    memset(name, 0, 16);
    ck_assert_int_eq(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes), 0);
}

static void has(int fd, const char *want) {
    char name[16];
    congestion(fd, name);
    ck_assert_str_eq(name, want);
}

static bool choose(int fd, const char *name) {
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0;
}

typedef struct {
    int listens, ends[2];
} connection;

/* Its ends are at 127.0.0.1 and at `there`, or ::1 and ::1. */
static connection connected(const char *there) {
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    bool six = inet_pton(AF_INET, there, &v4.sin_addr) != 1;
    struct sockaddr *at = six ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4;
    socklen_t bytes = six ? sizeof v6 : sizeof v4;
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    connection c = {.listens = socket(at->sa_family, SOCK_STREAM, 0)};
    ck_assert_int_eq(bind(c.listens, at, bytes), 0);
    ck_assert_int_eq(listen(c.listens, 1), 0);
    ck_assert_int_eq(getsockname(c.listens, at, &bytes), 0);
    c.ends[0] = socket(at->sa_family, SOCK_STREAM, 0);
    if (!six) ck_assert_int_eq(bind(c.ends[0], (struct sockaddr *)&from, sizeof from), 0);
    ck_assert_int_eq(connect(c.ends[0], at, bytes), 0);
    c.ends[1] = accept(c.listens, NULL, NULL);
    ck_assert_int_ge(c.ends[1], 0);
    return c;
}

static void close_all(connection c) {
    close(c.listens);
    close(c.ends[0]);
    close(c.ends[1]);
}

static void both_ends_change(const char *there) {
    connection c = connected(there);
    if (!choose(c.listens, "bbr")) {
        printf("loopback: skipped, this kernel has no BBR or keeps it to itself\n");
        close_all(c);
        return;
    }
    ck_assert(choose(c.ends[0], "bbr") && choose(c.ends[1], "bbr"));
    ck_assert_uint_eq(ts_loopback_leave_bbr(), 2);
    has(c.ends[0], "reno");
    has(c.ends[1], "reno");
    has(c.listens, "bbr");
    ck_assert_uint_eq(ts_loopback_leave_bbr(), 0);
    ck_assert_int_eq(write(c.ends[0], "on", 2), 2);
    char came[2];
    ck_assert_int_eq(read(c.ends[1], came, 2), 2);
    close_all(c);
}

START_TEST(a_connection_to_the_own_host_leaves_bbr) { both_ends_change("127.0.0.1"); }
END_TEST

START_TEST(the_same_with_the_other_kind_of_address) {
    int six = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 here = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    bool there_is = six >= 0 && bind(six, (struct sockaddr *)&here, sizeof here) == 0;
    if (six >= 0) close(six);
    if (there_is) both_ends_change("::1");
}
END_TEST

/* Two addresses may be those of two hosts. */
START_TEST(a_connection_between_two_addresses_stays_as_it_is) {
    connection c = connected("127.0.0.2");
    char before[16];
    (void)!choose(c.ends[0], "bbr");
    (void)!choose(c.ends[1], "bbr");
    congestion(c.ends[0], before);
    ck_assert_uint_eq(ts_loopback_leave_bbr(), 0);
    has(c.ends[0], before);
    has(c.ends[1], before);
    close_all(c);
}
END_TEST

START_TEST(what_is_not_under_bbr_stays_as_it_is) {
    connection c = connected("127.0.0.1");
    ck_assert(choose(c.ends[0], "reno") && choose(c.ends[1], "reno"));
    (void)!choose(c.ends[1], "cubic"); /* where there is one */
    char before[16];
    congestion(c.ends[1], before);
    ck_assert_uint_eq(ts_loopback_leave_bbr(), 0);
    has(c.ends[0], "reno");
    has(c.ends[1], before);
    close_all(c);
}
END_TEST

TCase *test_loopback(void);

TCase *test_loopback(void) {
    TCase *tests = tcase_create("loopback");
    tcase_add_test(tests, a_connection_to_the_own_host_leaves_bbr);
    tcase_add_test(tests, the_same_with_the_other_kind_of_address);
    tcase_add_test(tests, a_connection_between_two_addresses_stays_as_it_is);
    tcase_add_test(tests, what_is_not_under_bbr_stays_as_it_is);
    return tests;
}
