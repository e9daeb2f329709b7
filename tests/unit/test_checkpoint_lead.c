/* SPDX-License-Identifier: Apache-2.0 */
/* Who leads a checkpoint, and what it hears of a worker that was given up in the middle of it, and comes back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/ckpt/ckpt_manifest.h"
#include "tests/sim/server_rig.h"
#include "tests/unit/unit.h"

#define CUT 2u /* the step of the first checkpoint */
#define WORKS 64

/* Keeps what is submitted, when it is told to, until it is told to run it. */
typedef struct {
    ts_executor executor;
    struct {
        ts_executor_fn work, done;
        void *argument;
    } works[WORKS];
    uint32_t count;
    bool holds;
} holding_executor;

static terse_status submit(ts_executor *executor, ts_executor_fn work, ts_executor_fn done, void *argument) {
    holding_executor *to = (holding_executor *)executor;
    if (!to->holds) return ts_executor_inline.submit(&ts_executor_inline, work, done, argument);
    ck_assert_uint_lt(to->count, WORKS);
    to->works[to->count].work = work;
    to->works[to->count].done = done;
    to->works[to->count++].argument = argument;
    return TERSE_OK;
}

/* Runs what lies there; what these works lead to is held again. */
static void run_held(holding_executor *of) {
    uint32_t count = of->count;
    ck_assert_uint_gt(count, 0);
    for (uint32_t i = 0; i < count; i++) {
        of->works[i].work(of->works[i].argument);
        of->works[i].done(of->works[i].argument);
    }
    of->count -= count;
    memmove(of->works, of->works + count, of->count * sizeof of->works[0]);
}

static void release(holding_executor *of) {
    while (of->count > 0) run_held(of);
    of->holds = false;
}

static char folder[64];

static void make(void) {
    strcpy(folder, "/tmp/terse-lead-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void unmake(void) {
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

/* Two workers that train, on a server that makes a checkpoint every CUT steps and keeps one. */
static rig *begin(holding_executor *executor) {
    char config[512];
    float params[RIG_ELEMS];
    *executor = (holding_executor){.executor = {.submit = submit, .threads = 4}};
    snprintf(config, sizeof config, RIG_DENSE "checkpoint: {dir: %s, every_steps: %u, keep: 1}\n", folder, CUT);
    rig *r = rig_create_on(2, config, &executor->executor);
    rig_run(r, 1000);
    rig_attach_all(r, params);
    return r;
}

static void push(rig *r, uint32_t w, uint64_t step) {
    float gradient[RIG_ELEMS];
    rig_gradient(w, step, gradient);
    rig_push(r, w, step, gradient);
}

/* The last message of the kind that the worker got; 0: none. */
static uint64_t heard(rig *r, uint32_t w, Terse__Checkpoint__Kind kind) {
    uint64_t serial = 0;
    for (uint32_t i = 0; i < r->in[w].count; i++) {
        ts_frame frame = {0};
        ck_assert_ok(ts_frame_parse(r->in[w].frames[i], &frame));
        const Terse__Header *header = frame.header;
        if (header->body_case == TERSE__HEADER__BODY_CHECKPOINT && header->checkpoint->kind == kind) serial = header->checkpoint->serial;
        ts_frame_release(&frame);
    }
    return serial;
}

static void say(rig *r, uint32_t w, Terse__Checkpoint__Kind kind, uint64_t serial) {
    Terse__Checkpoint message = TERSE__CHECKPOINT__INIT;
    message.kind = kind;
    message.serial = serial;
    message.version = CUT;
    message.bytes = message.seal = 1;
    message.reason = (char *)(uintptr_t)"the worker was given up while it wrote its part";
    rig_send_body(r, w, TERSE__HEADER__BODY_CHECKPOINT, &message);
    rig_run(r, 1000);
}

/* Longer than the deadline in which only worker 0 is heard. */
static void give_up_worker_1(rig *r) {
    for (int i = 0; i < 6; i++) {
        rig_heartbeat(r, 0);
        rig_run(r, RIG_SECOND);
    }
}

static void come_back(rig *r) {
    Terse__Hello hello = TERSE__HELLO__INIT;
    hello.protocol = TS_PROTOCOL_VERSION;
    hello.digest = (ProtobufCBinaryData){TS_DIGEST_BYTES, (uint8_t *)(uintptr_t)r->contract->digest};
    hello.worker = 1;
    hello.incarnation = 2;
    hello.workers = 2;
    rig_forget(r);
    rig_send_body(r, 1, TERSE__HEADER__BODY_HELLO, &hello);
    rig_run(r, RIG_SECOND);
    ck_assert_uint_ge(rig_got(r, 1, TERSE__HEADER__BODY_WELCOME, NULL), 1);
}

/* It is complete, without a part of worker 1, and the server's is whole. */
static void is_complete(uint64_t serial) {
    char name[TS_CKPT_NAME_CHARS], path[192];
    ts_ckpt_manifest m = {0};
    ts_ckpt_reader *reader = NULL;
    ts_error error = {""};
    ts_ckpt_folder_name(serial, CUT, name);
    snprintf(path, sizeof path, "%s/%s/" TS_CKPT_MANIFEST, folder, name);
    terse_status status = ts_ckpt_manifest_read(path, &m, &error);
    ck_assert_msg(status == TERSE_OK, "%s", error.text);
    ck_assert_uint_eq(ts_ckpt_manifest_part(&m, true, 1)->bytes, 0);
    status = ts_ckpt_manifest_open(&m, folder, name, false, 0, &reader, &error);
    ck_assert_msg(status == TERSE_OK, "%s", error.text);
    ts_ckpt_reader_close(reader);
    ts_ckpt_manifest_free(&m);
}

/* The plan of the first checkpoint, taken by both. */
static uint64_t planned(rig *r) {
    rig_run(r, RIG_SECOND);
    uint64_t serial = heard(r, 0, TERSE__CHECKPOINT__KIND__PLAN);
    ck_assert_uint_gt(serial, 0);
    for (uint32_t w = 0; w < 2; w++) say(r, w, TERSE__CHECKPOINT__KIND__PLANNED, serial);
    return serial;
}

/* What was held back is done now, and the checkpoint is complete; the rig ends. */
static void completes(rig *r, holding_executor *executor, uint64_t serial) {
    release(executor);
    rig_run(r, RIG_SECOND);
    ck_assert_uint_eq(heard(r, 0, TERSE__CHECKPOINT__KIND__COMMITTED), serial);
    is_complete(serial);
    rig_destroy(r);
}

START_TEST(who_comes_back_while_the_manifest_is_written_spoils_nothing) {
    holding_executor executor;
    rig *r = begin(&executor);
    uint64_t serial = planned(r);
    for (uint64_t step = 0; step < CUT; step++)
        for (uint32_t w = 0; w < 2; w++) push(r, w, step);
    rig_run(r, 1000);
    say(r, 0, TERSE__CHECKPOINT__KIND__WRITTEN, serial);
    executor.holds = true;
    give_up_worker_1(r);
    ck_assert_uint_eq(executor.count, 1); /* the manifest */
    come_back(r);
    say(r, 1, TERSE__CHECKPOINT__KIND__FAILED, serial);
    ck_assert_uint_eq(heard(r, 1, TERSE__CHECKPOINT__KIND__NOTED), serial);
    rig_run(r, RIG_SECOND);
    ck_assert_uint_eq(heard(r, 0, TERSE__CHECKPOINT__KIND__ABANDONED), 0);
    completes(r, &executor, serial);
}
END_TEST

START_TEST(who_comes_back_before_all_have_reported_is_not_waited_for) {
    holding_executor executor;
    rig *r = begin(&executor);
    uint64_t serial = planned(r);
    for (uint32_t w = 0; w < 2; w++) push(r, w, 0);
    rig_run(r, 1000);
    executor.holds = true;
    for (uint32_t w = 0; w < 2; w++) push(r, w, 1);
    rig_run(r, 1000);
    run_held(&executor); /* the rounds; the slices are still to be written */
    say(r, 0, TERSE__CHECKPOINT__KIND__WRITTEN, serial);
    give_up_worker_1(r);
    come_back(r);
    say(r, 1, TERSE__CHECKPOINT__KIND__FAILED, serial);
    ck_assert_uint_eq(heard(r, 0, TERSE__CHECKPOINT__KIND__ABANDONED), 0);
    completes(r, &executor, serial);
}
END_TEST

/* Whose part is wanted and will not be there is the end of it, whoever it is. */
START_TEST(who_fails_and_is_wanted_ends_the_checkpoint) {
    for (uint32_t w = 0; w < 2; w++) {
        holding_executor executor;
        rig *r = begin(&executor);
        uint64_t serial = planned(r);
        say(r, w, TERSE__CHECKPOINT__KIND__FAILED, serial);
        for (uint32_t other = 0; other < 2; other++)
            ck_assert_uint_eq(heard(r, other, TERSE__CHECKPOINT__KIND__ABANDONED), serial);
        rig_destroy(r);
    }
}
END_TEST

TCase *test_checkpoint_lead(void);
TCase *test_checkpoint_lead(void) {
    TCase *tests = tcase_create("checkpoint_lead");
    tcase_add_checked_fixture(tests, make, unmake);
    tcase_add_test(tests, who_comes_back_while_the_manifest_is_written_spoils_nothing);
    tcase_add_test(tests, who_comes_back_before_all_have_reported_is_not_waited_for);
    tcase_add_test(tests, who_fails_and_is_wanted_ends_the_checkpoint);
    return tests;
}
