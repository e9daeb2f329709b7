/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets which place in a running job, and who gets none. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/job.h"
#include "server/server_status.h"
#include "server/worker_place.h"
#include "tests/sim/server_rig.h"
#include "tests/unit/unit.h"

static terse_status wish(rig *r, const ts_transport_wish *wishes, uint32_t count, ts_transport_place *place, char *words, size_t room) {
    ts_error reason = {""};
    terse_status status = ts_place_wish(r->server, wishes, count, place, &reason);
    snprintf(words, room, "%s", reason.text);
    return status;
}

static ts_transport_wish as(uint32_t wanted) { return (ts_transport_wish){.job = "default", .wanted = wanted}; }

static void is_refused(rig *r, ts_transport_wish wanted, terse_status expected, const char *says) {
    ts_transport_place place;
    char words[TS_ERROR_CHARS];
    ck_assert_int_eq(wish(r, &wanted, 1, &place, words, sizeof words), expected);
    ck_assert_msg(strstr(words, says), "%s", words);
}

static void is_given(rig *r, ts_transport_wish wanted, uint32_t worker, uint32_t life) {
    ts_transport_place place;
    char words[TS_ERROR_CHARS];
    terse_status status = wish(r, &wanted, 1, &place, words, sizeof words);
    ck_assert_msg(status == TERSE_OK, "%s", words);
    ck_assert_uint_eq(place.worker, worker);
    ck_assert_uint_eq(place.incarnation, life);
    ck_assert_uint_eq(place.workers, r->workers);
}

static void lose(rig *r, uint32_t w) {
    ts_sim_kill(r->network, 1 + w);
    ts_sim_tell_lost(r->network, 1 + w);
    for (int i = 0; i < 10; i++) {
        for (uint32_t v = 0; v < r->workers; v++)
            if (v != w && !r->server->jobs[0]->members.members[v].lost) rig_heartbeat(r, v);
        rig_run(r, RIG_SECOND / 2);
    }
    ck_assert(r->server->jobs[0]->members.members[w].lost);
}

START_TEST(wishes_are_granted_or_refused_in_words) {
    rig *r = rig_create(2, RIG_DENSE "limits: {workers: 4}\n");
    float params[RIG_ELEMS];
    ts_transport_place places[3];
    char words[TS_ERROR_CHARS];
    is_refused(r, as(TS_WORKER_ANY), TERSE_ESTATE, "has not begun yet");
    rig_attach_all(r, params);
    is_refused(r, (ts_transport_wish){.job = "other", .wanted = 0}, TERSE_ENOTFOUND, "no job other");
    is_refused(r, as(0), TERSE_EDUPLICATE, "it lives");
    is_refused(r, as(3), TERSE_ELIMIT, "a new one would be worker 2, not another number");
    is_given(r, as(2), 2, 1);
    is_given(r, as(TS_WORKER_ANY), 2, 1);
    const ts_transport_wish three[3] = {as(TS_WORKER_ANY), as(TS_WORKER_ANY), as(TS_WORKER_ANY)};
    ck_assert_int_eq(wish(r, three, 2, places, words, sizeof words), TERSE_OK); /* as one launch */
    ck_assert(places[0].worker == 2 && places[1].worker == 3);
    ck_assert_int_eq(wish(r, three, 3, places, words, sizeof words), TERSE_ELIMIT);
    ck_assert_msg(strstr(words, "limits.workers of the servers is 4"), "%s", words);
    const ts_transport_wish twice[2] = {as(2), as(2)};
    ck_assert_int_eq(wish(r, twice, 2, places, words, sizeof words), TERSE_EINVAL);
    ck_assert_msg(strstr(words, "two processes of one launch would be worker 2"), "%s", words);
    const ts_transport_wish turned[2] = {as(3), as(2)}, mixed[2] = {as(TS_WORKER_ANY), as(2)}, gap[2] = {as(4), as(2)};
    ck_assert_int_eq(wish(r, turned, 2, places, words, sizeof words), TERSE_OK); /* together they leave no gap */
    ck_assert(places[0].worker == 3 && places[1].worker == 2);
    ck_assert_int_eq(wish(r, mixed, 2, places, words, sizeof words), TERSE_OK);
    ck_assert(places[0].worker == 3 && places[1].worker == 2);
    ck_assert_int_eq(wish(r, gap, 2, places, words, sizeof words), TERSE_ELIMIT);
    ck_assert_msg(strstr(words, "a new one would be worker 2, not another number"), "%s", words);
    lose(r, 1);
    is_given(r, as(TS_WORKER_ANY), 1, 2); /* before a new number */
    is_given(r, as(1), 1, 2);
    rig_done(r, 0, 0);
    rig_run(r, 1000);
    is_refused(r, as(0), TERSE_EDUPLICATE, "it has pushed its last");
    rig_destroy(r);
}
END_TEST

START_TEST(what_lies_on_the_host_is_found_first) {
    rig *r = rig_create(3, RIG_DENSE);
    float params[RIG_ELEMS];
    rig_attach_all(r, params);
    lose(r, 1);
    lose(r, 2);
    ts_transport_wish any = as(TS_WORKER_ANY);
    is_given(r, any, 1, 2);
    any.kept[any.kept_count++] = 0; /* it lives */
    any.kept[any.kept_count++] = 2;
    is_given(r, any, 2, 2);
    const ts_transport_wish both[2] = {any, any};
    ts_transport_place places[2];
    char words[TS_ERROR_CHARS];
    ck_assert_int_eq(wish(r, both, 2, places, words, sizeof words), TERSE_OK);
    ck_assert(places[0].worker == 2 && places[1].worker == 1);
    rig_destroy(r);
}
END_TEST

/* 2^32 - 1 is the last life; what comes after it would be the one before the first. */
static void must_report(const rig *r, const char *what) {
    char *text = NULL;
    size_t bytes = 0;
    ck_assert_ok(ts_server_status(r->server, false, &text, &bytes));
    text[bytes - 1] = '\0';
    ck_assert_msg(strstr(text, what) != NULL, "not %s but %s", what, text);
    free(text);
}

/* It ends before it is let in, as one that is refused does. */
START_TEST(a_place_that_nobody_took_does_not_count) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS];
    uint32_t worker, speaks;
    rig_attach_all(r, params);
    speaks = rig_come(r, TS_WORKER_ANY, &worker);
    ck_assert_uint_eq(worker, 2);
    must_report(r, "\"workers\": 2,\n      \"attached\": 2,\n      \"done\": 0,\n      \"gone\": 0,");
    is_given(r, as(TS_WORKER_ANY), 3, 1); /* while it is coming */
    ts_sim_kill(r->network, 1 + speaks);
    ts_sim_tell_lost(r->network, 1 + speaks);
    must_report(r, "\"workers\": 2,\n      \"attached\": 2,\n      \"done\": 0,\n      \"gone\": 0,");
    is_given(r, as(TS_WORKER_ANY), 2, 1);
    is_given(r, as(2), 2, 1);
    rig_destroy(r);
}
END_TEST

static void push_values(rig *r, uint32_t w, uint64_t step, float value) {
    float gradient[RIG_ELEMS];
    for (size_t i = 0; i < RIG_ELEMS; i++) gradient[i] = value;
    rig_push(r, w, step, gradient);
}

/* One who was before it has died on its way: the gap in the numbers counts for nothing, and is filled by who comes next. */
START_TEST(a_gap_among_the_numbers_does_no_harm) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS], first[RIG_ELEMS];
    uint32_t before, worker;
    rig_attach_all(r, params);
    memcpy(first, params, sizeof first);
    uint32_t dies = rig_come(r, TS_WORKER_ANY, &before), speaks = rig_come(r, TS_WORKER_ANY, &worker);
    ck_assert(before == 2 && worker == 3);
    ts_sim_kill(r->network, 1 + dies);
    ts_sim_tell_lost(r->network, 1 + dies);
    rig_hello(r, speaks, r->contract, TS_PROTOCOL_VERSION);
    rig_run(r, RIG_SECOND);
    ts_frame frame = {0};
    ck_assert_uint_ge(rig_got(r, speaks, TERSE__HEADER__BODY_WELCOME, &frame), 1);
    ck_assert_ptr_nonnull(frame.header->welcome->joined);
    uint64_t from = frame.header->welcome->joined->from;
    ts_frame_release(&frame);
    for (uint64_t step = 0; step <= from; step++) {
        push_values(r, 0, step, 1);
        push_values(r, 1, step, 2);
        rig_run(r, RIG_SECOND / 2);
    }
    ck_assert_uint_eq(ts_store_version(&r->server->jobs[0]->store), from); /* which is waited for, but nobody else */
    push_values(r, speaks, from, 6);
    rig_run(r, RIG_SECOND / 2);
    ck_assert_uint_eq(rig_apply(r, 0, params), from + 1);
    for (size_t i = 0; i < RIG_ELEMS; i++) ck_assert_float_eq_tol(params[i], first[i] - 0.5f * (1.5f * (float)from + 3), 1e-5f);
    const ts_membership *members = &r->server->jobs[0]->members;
    ck_assert_uint_eq(ts_membership_weight(members), 3); /* by which steps without rounds are divided */
    must_report(r, "\"workers\": 3,\n      \"attached\": 3,\n      \"done\": 0,\n      \"gone\": 0,");
    is_given(r, as(TS_WORKER_ANY), 2, 1);
    is_given(r, as(2), 2, 1);
    is_refused(r, as(5), TERSE_ELIMIT, "a new one would be worker 4, not another number");
    rig_destroy(r);
}
END_TEST

START_TEST(lives_have_an_end) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS];
    rig_attach_all(r, params);
    lose(r, 1);
    ts_member *member = &r->server->jobs[0]->members.members[1];
    member->incarnation = UINT32_MAX - 2;
    is_given(r, as(1), 1, UINT32_MAX - 1);
    Terse__Hello hello = TERSE__HELLO__INIT; /* nobody can say that it is the last */
    uint32_t worker, speaks = rig_come(r, 1, &worker);
    hello.protocol = TS_PROTOCOL_VERSION;
    hello.digest = (ProtobufCBinaryData){TS_DIGEST_BYTES, (uint8_t *)(uintptr_t)r->contract->digest};
    hello.worker = 1;
    hello.incarnation = UINT32_MAX;
    hello.workers = 2;
    rig_send_body(r, speaks, TERSE__HEADER__BODY_HELLO, &hello);
    rig_run(r, 1000);
    ts_frame frame = {0};
    ck_assert_uint_eq(rig_got(r, speaks, TERSE__HEADER__BODY_WELCOME, &frame), 1);
    ck_assert_int_eq(frame.header->welcome->verdict, TERSE__WELCOME__VERDICT__REFUSED);
    ck_assert_ptr_nonnull(strstr(frame.header->welcome->reason, "no number for a life after it"));
    ts_frame_release(&frame);
    ck_assert(member->lost && member->wants_in == 0);
    ts_sim_kill(r->network, 1 + speaks);
    ts_sim_tell_lost(r->network, 1 + speaks);
    member->incarnation = UINT32_MAX;
    is_refused(r, as(1), TERSE_EDUPLICATE, "all the lives");
    is_given(r, as(TS_WORKER_ANY), 2, 1);
    rig_destroy(r);
}
END_TEST

/* Answers say to which life they are said. */
START_TEST(answers_name_the_life) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS], gradient[RIG_ELEMS] = {0};
    rig_attach_all(r, params);
    lose(r, 1);
    uint32_t worker, speaks = rig_come(r, 1, &worker);
    Terse__Hello hello = TERSE__HELLO__INIT;
    hello.protocol = TS_PROTOCOL_VERSION;
    hello.digest = (ProtobufCBinaryData){TS_DIGEST_BYTES, (uint8_t *)(uintptr_t)r->contract->digest};
    hello.worker = 1;
    hello.incarnation = 2;
    hello.workers = 2;
    rig_send_body(r, speaks, TERSE__HEADER__BODY_HELLO, &hello);
    rig_run(r, RIG_SECOND);
    ck_assert_uint_ge(rig_got(r, speaks, TERSE__HEADER__BODY_WELCOME, NULL), 1);
    Terse__Done done = TERSE__DONE__INIT;
    rig_send_body(r, speaks, TERSE__HEADER__BODY_DONE, &done);
    rig_push(r, 0, 0, gradient);
    rig_run(r, RIG_SECOND);
    ts_frame frame = {0};
    ck_assert_uint_ge(rig_got(r, speaks, TERSE__HEADER__BODY_ACK, &frame), 1);
    ck_assert_uint_eq(frame.header->ack->incarnation, 2);
    ts_frame_release(&frame);
    rig_destroy(r);
}
END_TEST

/* With delta a server keeps an array a worker: a job that may take so much takes in as many as fit. */
START_TEST(more_workers_are_held_to_the_jobs_memory) {
    static const char settings[] = "optimizer: {name: sgd, lr: 0.5, momentum: 0}\npush: {default: 'delta:5 | int8'}\npull: {default: dense}\n";
    rig *r = rig_create(2, settings);
    float params[RIG_ELEMS];
    rig_attach_all(r, params);
    uint64_t two = 0, three = 0;
    ts_job *job = r->server->jobs[0];
    job->config->limits.job_bytes = UINT64_MAX;
    ck_assert_ok(ts_job_memory_for(job, 0, 2, &two));
    ck_assert_ok(ts_job_memory_for(job, 0, 3, &three));
    ck_assert_uint_eq(three - two, RIG_ELEMS * sizeof(float));
    job->config->limits.job_bytes = three;
    is_given(r, as(TS_WORKER_ANY), 2, 1);
    is_refused(r, as(3), TERSE_ELIMIT, "a new one would be worker 2");
    job->config->limits.job_bytes = three - 1;
    is_refused(r, as(TS_WORKER_ANY), TERSE_ELIMIT, "limits.job_bytes");
    is_refused(r, as(2), TERSE_ELIMIT, "with it server 0 would need");
    job->config->limits.job_bytes = 0;
    uint32_t worker;
    size_t before = ts_store_bytes(&job->store).receivers;
    (void)rig_come(r, TS_WORKER_ANY, &worker);
    ck_assert_uint_eq(job->members.count, 3);
    ck_assert_uint_eq(ts_store_bytes(&job->store).receivers, before / 2 * 3);
    rig_destroy(r);
}
END_TEST

/* Who has come for a place, and not shown the secret, is forgotten with the job. */
START_TEST(who_sues_for_a_place_is_forgotten_with_the_job) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS];
    char path[] = "/tmp/terse-place-XXXXXX";
    int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq((int)write(file, "correct horse battery\n", 22), 22);
    close(file);
    ts_error error = {""};
    rig_attach_all(r, params);
    ck_assert_ok(ts_secret_load(path, &r->server->secret, &error)); /* from now on */
    unlink(path);
    lose(r, 1);
    uint32_t worker;
    rig_come(r, 1, &worker);
    rig_come(r, TS_WORKER_ANY, &worker);
    ck_assert(worker == 2 && r->server->suitors == 2);
    is_refused(r, as(1), TERSE_EDUPLICATE, "another process is just coming in its place");
    is_refused(r, as(2), TERSE_ELIMIT, "a new one would be worker 3, not another number");
    ts_job_fail(r->server->jobs[0], TERSE_EIO, "as a test");
    for (int i = 0; i < 20; i++) rig_run(r, RIG_SECOND / 2);
    ck_assert(r->server->jobs[0]->closed);
    ck_assert_uint_eq(r->server->suitors, 0);
    rig_destroy(r);
}
END_TEST

TCase *test_place(void);
TCase *test_place(void) {
    TCase *tests = tcase_create("place");
    tcase_add_test(tests, wishes_are_granted_or_refused_in_words);
    tcase_add_test(tests, what_lies_on_the_host_is_found_first);
    tcase_add_test(tests, a_place_that_nobody_took_does_not_count);
    tcase_add_test(tests, a_gap_among_the_numbers_does_no_harm);
    tcase_add_test(tests, lives_have_an_end);
    tcase_add_test(tests, answers_name_the_life);
    tcase_add_test(tests, more_workers_are_held_to_the_jobs_memory);
    tcase_add_test(tests, who_sues_for_a_place_is_forgotten_with_the_job);
    return tests;
}
