/* SPDX-License-Identifier: Apache-2.0 */
/* The server's side of workers that leave: sums that do not wait for them, and what they had not sent. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/job.h"
#include "server/server_status.h"
#include "tests/sim/server_rig.h"
#include "tests/unit/unit.h"

static void reduce(rig *r, uint32_t w, uint64_t sequence, double *values, size_t count) {
    Terse__Reduce body = TERSE__REDUCE__INIT;
    body.sequence = sequence;
    body.values = values;
    body.n_values = count;
    rig_send_body(r, w, TERSE__HEADER__BODY_REDUCE, &body);
}

START_TEST(sums_do_not_wait_for_who_is_about_to_leave) {
    rig *r = rig_create(3, RIG_DENSE);
    float params[RIG_ELEMS];
    double values[3] = {1, 2, 4};
    Terse__Heartbeat beat = TERSE__HEARTBEAT__INIT;
    rig_attach_all(r, params);
    reduce(r, 0, 1, &values[0], 1);
    reduce(r, 1, 1, &values[1], 1);
    rig_send_body(r, 2, TERSE__HEADER__BODY_HEARTBEAT, &beat);
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_REDUCED, NULL), 0);
    beat.leaving = true;
    for (int again = 0; again < 2; again++) rig_send_body(r, 2, TERSE__HEADER__BODY_HEARTBEAT, &beat);
    rig_run(r, 1000);
    ts_frame frame = {0};
    ck_assert_uint_ge(rig_got(r, 0, TERSE__HEADER__BODY_REDUCED, &frame), 1);
    ck_assert_double_eq(frame.header->reduced->values[0], 3);
    ts_frame_release(&frame);
    rig_forget(r);
    /* When it asks for one itself, it is waited for as before. */
    for (uint32_t w = 3; w-- > 1;) reduce(r, w, 2, &values[w], 1);
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_got(r, 2, TERSE__HEADER__BODY_REDUCED, NULL), 0);
    reduce(r, 0, 2, &values[0], 1);
    rig_run(r, 1000);
    ck_assert_uint_ge(rig_got(r, 2, TERSE__HEADER__BODY_REDUCED, &frame), 1);
    ck_assert_double_eq(frame.header->reduced->values[0], 7);
    ts_frame_release(&frame);
    rig_destroy(r);
}
END_TEST

START_TEST(what_was_not_sent_is_told_and_summed) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS];
    Terse__StatsRequest request = TERSE__STATS_REQUEST__INIT;
    rig_attach_all(r, params);
    for (uint32_t w = 0; w < 2; w++) {
        Terse__Done done = TERSE__DONE__INIT;
        done.unsent_l1 = 10 + w;
        done.unsent_squares = 4 + w;
        done.unsent_nonzero = 100 + w;
        rig_send_body(r, w, TERSE__HEADER__BODY_DONE, &done);
    }
    rig_run(r, 1000);
    rig_send_body(r, 0, TERSE__HEADER__BODY_STATS_REQUEST, &request);
    rig_run(r, 100000);
    ts_frame frame = {0};
    ck_assert_uint_ge(rig_got(r, 0, TERSE__HEADER__BODY_STATS, &frame), 1);
    ck_assert_double_eq(frame.header->stats->unsent_l1, 21);
    ck_assert_double_eq(frame.header->stats->unsent_squares, 9);
    ck_assert_uint_eq(frame.header->stats->unsent_nonzero, 201);
    ts_frame_release(&frame);
    rig_destroy(r);
}
END_TEST

/* Longer than the deadline in which only worker 0 is heard. */
static void be_silent(rig *r) {
    for (int i = 0; i < 6; i++) {
        rig_heartbeat(r, 0);
        rig_run(r, RIG_SECOND);
    }
}

static void ask(rig *r, uint32_t w) {
    Terse__StatsRequest request = TERSE__STATS_REQUEST__INIT;
    rig_send_body(r, w, TERSE__HEADER__BODY_STATS_REQUEST, &request);
    rig_run(r, 100000);
}

START_TEST(who_counted_as_gone_and_is_heard_again_is_answered) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS];
    rig_attach_all(r, params);
    rig_done(r, 1, 0);
    be_silent(r);
    rig_forget(r);
    rig_done(r, 1, 0); /* it has not heard that it is done */
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_got(r, 1, TERSE__HEADER__BODY_ACK, NULL), 1);
    ask(r, 1);
    ck_assert_uint_eq(rig_got(r, 1, TERSE__HEADER__BODY_STATS, NULL), 1);
    rig_bye(r, 1);
    ask(r, 1); /* it has left */
    ck_assert_uint_eq(rig_got(r, 1, TERSE__HEADER__BODY_STATS, NULL), 1);
    rig_done(r, 0, 0);
    rig_bye(r, 0);
    rig_run(r, 100000);
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_FINISHED);
    rig_destroy(r);
}
END_TEST

/* The others have had two sums meanwhile: of the older one nothing is known any more, and nobody waits for it. */
START_TEST(who_is_heard_again_gets_its_own_values_for_an_older_sum) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS];
    double values[2] = {1, 2};
    ts_frame frame = {0};
    rig_attach_all(r, params);
    rig_done(r, 1, 0);
    be_silent(r);
    for (uint64_t sequence = 1; sequence <= 2; sequence++) {
        reduce(r, 0, sequence, &values[0], 1);
        rig_run(r, 1000);
    }
    rig_forget(r);
    for (uint64_t sequence = 1; sequence <= 2; sequence++) {
        reduce(r, 1, sequence, &values[1], 1);
        rig_run(r, 1000);
        ck_assert_uint_eq(rig_got(r, 1, TERSE__HEADER__BODY_REDUCED, &frame), sequence);
        ck_assert_uint_eq(frame.header->reduced->sequence, sequence);
        ck_assert_double_eq(frame.header->reduced->values[0], sequence == 1 ? 2 : 1);
        ts_frame_release(&frame);
    }
    rig_destroy(r);
}
END_TEST

START_TEST(who_is_heard_again_after_the_end_is_told) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS];
    ts_frame frame = {0};
    rig_attach_all(r, params);
    rig_done(r, 1, 0);
    be_silent(r);
    rig_done(r, 0, 0);
    rig_bye(r, 0);
    rig_run(r, RIG_SECOND);
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_FINISHED);
    rig_forget(r);
    rig_done(r, 1, 0);
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_got(r, 1, TERSE__HEADER__BODY_ACK, NULL), 1);
    ck_assert_uint_eq(rig_got(r, 1, TERSE__HEADER__BODY_ABORT, NULL), 0);
    ask(r, 1);
    ck_assert_uint_eq(rig_got(r, 1, TERSE__HEADER__BODY_ABORT, &frame), 1);
    ck_assert_uint_eq(frame.header->abort->status, TERSE_ESHUTDOWN);
    ts_frame_release(&frame);
    ask(r, 0); /* it has left */
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_ABORT, NULL), 0);
    rig_destroy(r);
}
END_TEST

/* It says that it has pushed two steps, of which the second has not come, and never will. */
START_TEST(who_is_done_but_owes_a_packet_is_lost_when_silent) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS], gradient[RIG_ELEMS];
    rig_attach_all(r, params);
    for (uint32_t w = 0; w < 2; w++) {
        rig_gradient(w, 0, gradient);
        rig_push(r, w, 0, gradient);
    }
    rig_run(r, 100000);
    rig_done(r, 1, 2);
    rig_gradient(0, 1, gradient);
    rig_push(r, 0, 1, gradient);
    rig_run(r, 100000);
    ck_assert_uint_eq(rig_apply(r, 0, params), 1);
    rig_forget(r);
    be_silent(r);
    ck_assert_uint_eq(rig_apply(r, 0, params), 2);
    rig_destroy(r);
}
END_TEST

/* The report of `terse status`, and the state dump. */
static void must_tell(rig *r, const char *report, const char *dump) {
    char *text = NULL, state[8192] = "";
    size_t bytes = 0;
    ck_assert_ok(ts_server_status(r->server, false, &text, &bytes));
    text[bytes - 1] = '\0';
    ck_assert_msg(strstr(text, report) != NULL, "not %s but %s", report, text);
    free(text);
    FILE *out = fmemopen(state, sizeof state, "w");
    ts_server_dump(r->server, out);
    fclose(out);
    ck_assert_msg(strstr(state, dump) != NULL, "not %s but %s", dump, state);
}

START_TEST(who_is_lost_is_not_told_as_done) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS];
    rig_attach_all(r, params);
    must_tell(r, "\"done\": 0", "attached 2, done 0, gone 0, lost 0 of 2 workers");
    be_silent(r);
    must_tell(r, "\"done\": 0", "attached 2, done 0, gone 1, lost 1 of 2 workers");
    must_tell(r, "\"worker\": 1", "replies owed 0, lost\n");
    rig_done(r, 0, 0);
    rig_run(r, 1000);
    must_tell(r, "\"done\": 1", "done 1, gone 1, lost 1 of 2 workers");
    rig_destroy(r);
}
END_TEST

/* A peer's words that no check has seen, and that logs and JSON cannot hold. */
START_TEST(the_report_is_written_whatever_was_said) {
    rig *r = rig_create(1, RIG_DENSE);
    float params[RIG_ELEMS];
    rig_attach_all(r, params);
    strcpy(r->server->jobs[0]->message.text, "my\nown \xff \"reason\"\xc3");
    must_tell(r, "\"message\": \"my\\\\x0aown \\\\xff \\\"reason\\\"\\\\xc3\"", "attached 1");
    rig_destroy(r);
}
END_TEST

TCase *test_server_leave(void);
TCase *test_server_leave(void) {
    TCase *tests = tcase_create("server_leave");
    tcase_add_test(tests, sums_do_not_wait_for_who_is_about_to_leave);
    tcase_add_test(tests, who_counted_as_gone_and_is_heard_again_is_answered);
    tcase_add_test(tests, who_is_heard_again_after_the_end_is_told);
    tcase_add_test(tests, who_is_heard_again_gets_its_own_values_for_an_older_sum);
    tcase_add_test(tests, who_is_done_but_owes_a_packet_is_lost_when_silent);
    tcase_add_test(tests, who_is_lost_is_not_told_as_done);
    tcase_add_test(tests, the_report_is_written_whatever_was_said);
    tcase_add_test(tests, what_was_not_sent_is_told_and_summed);
    return tests;
}
