/* SPDX-License-Identifier: Apache-2.0 */
#include "common/net/groups.h"

#include <string.h>

#include "tests/unit/unit.h"

#define RANKS 8u

/* A world server, two racks with a relay and two workers each, and a rank that is no program of Terse. */
static const ts_group_member two_racks[RANKS] = {
    {.role = TS_ROLE_SERVER, .group = "world", .host = "w"},
    {.role = TS_ROLE_SERVER, .group = "a", .above = "world", .job = "j", .host = "a"},
    {.role = TS_ROLE_WORKER, .group = "a", .job = "j", .host = "a"},
    {.role = TS_ROLE_WORKER, .group = "a", .job = "j", .host = "a"},
    {.role = TS_ROLE_SERVER, .group = "b", .above = "world", .job = "j", .host = "b"},
    {.role = TS_ROLE_WORKER, .group = "b", .job = "j", .host = "b"},
    {.role = TS_ROLE_WORKER, .group = "b", .job = "j", .host = "b"},
    {.role = 77, .host = "x"},
};

static ts_peer peers[RANKS];
static ts_transport_job jobs[RANKS];

static ts_group_view look(uint32_t self, bool above) {
    ts_group_view view = {.peers = peers, .jobs = jobs};
    ts_groups_view(two_racks, RANKS, self, above, &view);
    return view;
}

static void expect(uint32_t rank, ts_role role, uint32_t index) {
    ck_assert_int_eq(peers[rank].role, role);
    if (role != TS_ROLE_NONE) ck_assert_uint_eq(peers[rank].index, index);
}

START_TEST(each_sees_its_own_group) {
    ts_group_view view = look(0, false);
    ck_assert(view.servers == 1 && view.workers == 2 && view.job_count == 1);
    expect(0, TS_ROLE_SERVER, 0);
    expect(1, TS_ROLE_WORKER, 0);
    expect(4, TS_ROLE_WORKER, 1);
    const uint32_t others[] = {2, 3, 5, 6, 7};
    for (size_t i = 0; i < 5; i++) expect(others[i], TS_ROLE_NONE, 0);
    ck_assert_str_eq(peers[4].name, "worker 1 (rank 4 on b, the relay of b)");
    for (uint32_t r = 0; r < RANKS; r++) ck_assert_int_eq(peers[r].relay, r == 1 || r == 4);

    view = look(6, false);
    ck_assert(view.servers == 1 && view.workers == 2 && view.job_count == 1);
    expect(4, TS_ROLE_SERVER, 0);
    expect(5, TS_ROLE_WORKER, 0);
    expect(6, TS_ROLE_WORKER, 1);
    expect(0, TS_ROLE_NONE, 0);
    expect(1, TS_ROLE_NONE, 0);
}
END_TEST

START_TEST(a_relay_has_two_views_and_no_peer_in_both) {
    ts_peer below[RANKS];
    ts_group_view view = look(1, false);
    ck_assert(view.servers == 1 && view.workers == 2);
    memcpy(below, peers, sizeof below);
    view = look(1, true);
    ck_assert(view.servers == 1 && view.workers == 2);
    expect(1, TS_ROLE_WORKER, 0);
    for (uint32_t r = 0; r < RANKS; r++)
        if (r != 1) ck_assert(below[r].role == TS_ROLE_NONE || peers[r].role == TS_ROLE_NONE);
}
END_TEST

static void expect_refused(uint32_t rank, const ts_group_member *other, const char *words) {
    ts_group_member members[RANKS];
    ts_error error = {""};
    memcpy(members, two_racks, sizeof members);
    members[rank] = *other;
    ck_assert_int_eq(ts_groups_check(members, RANKS, &error), TERSE_EMISMATCH);
    ck_assert_msg(strstr(error.text, words) != NULL, "%s", error.text);
}

START_TEST(what_makes_no_sense_is_refused) {
    ts_error error = {""};
    ck_assert_int_eq(ts_groups_check(two_racks, RANKS, &error), TERSE_OK);
    expect_refused(1, &(ts_group_member){.role = TS_ROLE_SERVER, .group = "world", .above = "world"}, "above itself");
    expect_refused(0, &(ts_group_member){.role = TS_ROLE_NONE}, "nobody serves the group \"world\"");
    expect_refused(3, &(ts_group_member){.role = TS_ROLE_WORKER, .group = "c", .job = "j"}, "servers.group=c");
    expect_refused(3, &(ts_group_member){.role = TS_ROLE_SERVER, .group = "a"}, "the group \"a\" has 2 servers");
    expect_refused(6, &(ts_group_member){.role = TS_ROLE_WORKER, .group = "b", .job = "k"},
                   "the relay at rank 4 serves one job, and in its group \"b\" rank 5 is a worker of job.name j, rank 6 of k");
}
END_TEST

START_TEST(jobs_are_numbered_in_rank_order) {
    const ts_group_member members[] = {{.role = TS_ROLE_WORKER, .group = "g", .job = "y"},
                                       {.role = TS_ROLE_SERVER, .group = "g"},
                                       {.role = TS_ROLE_WORKER, .group = "g", .job = "x"},
                                       {.role = TS_ROLE_WORKER, .group = "g", .job = "y"}};
    ts_group_view view = {.peers = peers, .jobs = jobs};
    ts_groups_view(members, 4, 3, false, &view);
    ck_assert(view.job_count == 2 && view.workers == 2); /* of its own job */
    ck_assert_str_eq(jobs[0].name, "y");
    ck_assert_str_eq(jobs[1].name, "x");
    ck_assert(jobs[0].workers == 2 && jobs[1].workers == 1);
    expect(3, TS_ROLE_WORKER, 1);
    ck_assert_uint_eq(peers[2].job, 1);
    ck_assert_str_eq(peers[2].name, "worker 0 of job x (rank 2 on )");
    ts_groups_view(members, 4, 1, false, &view);
    ck_assert_uint_eq(view.workers, 3); /* of all jobs */
}
END_TEST

TCase *test_groups(void);
TCase *test_groups(void) {
    TCase *tests = tcase_create("groups");
    tcase_add_test(tests, each_sees_its_own_group);
    tcase_add_test(tests, a_relay_has_two_views_and_no_peer_in_both);
    tcase_add_test(tests, what_makes_no_sense_is_refused);
    tcase_add_test(tests, jobs_are_numbered_in_rank_order);
    return tests;
}
