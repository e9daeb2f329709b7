/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker has kept meets the parameters of its own epoch alone. A life that leaves something behind, and another
 * that finds it: of the same epoch, of another, of a job that has ended, of a run that goes on from a checkpoint, of
 * another contract; and files that are damaged.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <sys/stat.h>

#include "common/keep/keep_file.h"
#include "common/keep/keep_move.h"
#include "tests/unit/client_stage.h"

#define ELEMS 100
#define FIRST UINT64_C(0x1111222233334444)
#define SECOND UINT64_C(0x5555666677778888)

static char dir[64], path[96];

static void make_dir(void) {
    snprintf(dir, sizeof dir, "/dev/shm/terse-test-epoch-%ld", (long)getpid());
    snprintf(path, sizeof path, "%s/worker-0.keep", dir);
}

static void remove_dir(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}

typedef struct {
    uint64_t epoch;
    uint64_t run;       /* resumed, of that run; 0: from its beginning */
    bool without;
    bool mortal;        /* nobody can come into the job, and it has no checkpoints */
    bool joins;         /* as a worker that comes back into a job that goes on */
    const char *seed;   /* an override that makes another contract, or NULL */
} life;

/* One life up to its welcome. Returns whether it trains; message: [out] why not. */
static bool begin(stage *s, const life *l, float param[ELEMS], char *message, size_t capacity) {
    char keep[96], run[24];
    const char *overrides[] = {keep, "push.default=topk:0.1 | fp32", l->seed, NULL};
    snprintf(keep, sizeof keep, "error_feedback.keep=%s", dir);
    open_stage(s, 1, 1, 0, overrides);
    (void)declare(s, "w", ELEMS, param);
    terse_status status = ts_client_start(s->client);
    if (status == TERSE_OK) {
        uint32_t first = 0;
        uint64_t next = 1;
        Terse__Welcome welcome = TERSE__WELCOME__INIT;
        Terse__Resumed resumed = TERSE__RESUMED__INIT;
        Terse__Joined joined = TERSE__JOINED__INIT;
        run_stage(s, 1);
        s->life = last_heard(s, 0, TERSE__HEADER__BODY_HELLO)->header->hello->incarnation;
        welcome.job_epoch = l->epoch;
        welcome.mortal = l->mortal;
        if (l->run) {
            snprintf(run, sizeof run, "%016" PRIx64, l->run);
            resumed.run = resumed.epoch = run;
            resumed.without = l->without;
            welcome.resumed = &resumed;
        }
        joined.incarnation = 2;
        joined.n_next = 1;
        joined.next = &next; /* the packet of step 0 was used */
        joined.from = 1;
        if (l->joins) welcome.joined = &joined;
        say_header(s, 0, TERSE__HEADER__BODY_WELCOME, &welcome);
        if (l->joins) say_data(s, 0, 1, true, false, 0, param, ELEMS * sizeof *param);
        else say_ack(s, 0, 0, TERSE_OK, &first, 1);
    }
    snprintf(message, capacity, "%s", ts_client_message(s->client));
    return ts_client_get_state(s->client) == TS_CLIENT_TRAINING;
}

/* A life of the first epoch that pushes once, and is gone with 90 elements unsaid and a packet on its way. */
static void leave_something_in(const life *l) {
    stage s;
    float param[ELEMS] = {0}, gradient[ELEMS];
    char message[TS_ERROR_CHARS];
    for (int i = 0; i < ELEMS; i++) gradient[i] = (float)(i + 1);
    ck_assert_msg(begin(&s, l, param, message, sizeof message), "%s", message);
    ck_assert_ok(ts_client_push(s.client, 0, gradient));
    close_stage(&s); /* not in order: the file stays */
}

static void leave_something(void) { leave_something_in(&(life){.epoch = FIRST}); }

static ts_keep_mass look(ts_keep_identity *is) {
    ts_keep *file = NULL;
    ts_error error = {""};
    terse_status status = ts_keep_open_file(path, false, &file, &error);
    ck_assert_msg(status == TERSE_OK, "%s", error.text);
    ts_keep_mass mass = ts_keep_mass_all(file);
    if (is) *is = ts_keep_identify(file);
    ts_keep_close(file, false);
    return mass;
}

/* 1 … 90 are unsaid, 91 … 100 are in the packet. */
static void is_what_was_left(void) {
    ts_keep_identity is;
    ts_keep_mass mass = look(&is);
    ck_assert_double_eq(mass.l1, 90 * 91 / 2);
    ck_assert_double_eq(mass.squares, 90.0 * 91 * 181 / 6);
    ck_assert_uint_eq(mass.nonzero, 90);
    ck_assert_uint_eq(mass.packets, 1);
    ck_assert_uint_eq(is.epoch, FIRST);
    ck_assert_uint_eq(is.steps, 1);
    ck_assert_str_eq(is.job, "default");
}

static void is_refused(const life *l, const char *const *words) {
    stage s;
    float param[ELEMS] = {0};
    char message[TS_ERROR_CHARS];
    ck_assert(!begin(&s, l, param, message, sizeof message));
    ck_assert_int_eq(ts_client_failure(s.client), TERSE_EMISMATCH);
    for (; *words; words++) ck_assert_msg(strstr(message, *words) != NULL, "\"%s\" is not in: %s", *words, message);
    close_stage(&s);
    is_what_was_left();
    char temporary[128];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    ck_assert_int_ne(access(temporary, F_OK), 0);
}

/* It trains, and nothing of the former life is in it. */
static void begins_anew(const life *l) {
    stage s;
    float param[ELEMS] = {0};
    char message[TS_ERROR_CHARS];
    ck_assert_msg(begin(&s, l, param, message, sizeof message), "%s", message);
    for (int i = 0; i < ELEMS; i++) ck_assert_float_eq(ts_client_residual(s.client, 0)[i], 0);
    ts_keep_identity is;
    ts_keep_mass mass = look(&is);
    ck_assert(!ts_keep_holds(&mass));
    ck_assert_uint_eq(is.epoch, l->epoch);
    close_stage(&s);
}

/* A byte of the file. */
static void damage(off_t at, uint8_t with) {
    int file = open(path, O_RDWR);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(pwrite(file, &with, 1, at), 1);
    close(file);
}

START_TEST(a_file_of_another_epoch_is_refused_by_name) {
    make_dir();
    leave_something();
    is_what_was_left();
    for (int again = 0; again < 2; again++) /* and being refused changes nothing */
        is_refused(&(life){.epoch = SECOND}, (const char *const[]){path, "1111222233334444", "5555666677778888", "sum of magnitudes 4095",
                                              "1 packet without an answer", "terse ckpt keep fold", "terse ckpt keep drop", NULL});
    is_refused(&(life){.epoch = SECOND, .run = SECOND}, (const char *const[]){path, NULL}); /* another run's checkpoint */
    is_refused(&(life){.epoch = 0}, (const char *const[]){path, NULL}); /* nobody knows which */
    remove_dir();
}
END_TEST

START_TEST(a_worker_that_would_come_back_with_it_leaves_alone) {
    stage s;
    float param[ELEMS] = {0};
    char message[TS_ERROR_CHARS];
    make_dir();
    leave_something();
    ck_assert(!begin(&s, &(life){.epoch = SECOND, .joins = true}, param, message, sizeof message));
    ck_assert_ptr_nonnull(strstr(message, path));
    ck_assert_uint_eq(heard(&s, 0, TERSE__HEADER__BODY_ABORT, NULL), 0); /* the job goes on */
    close_stage(&s);
    is_what_was_left();
    remove_dir();
}
END_TEST

START_TEST(the_same_epoch_goes_on_from_it) {
    stage s;
    float param[ELEMS] = {0};
    char message[TS_ERROR_CHARS];
    make_dir();
    leave_something();
    ts_keep *file = NULL;
    ts_error error = {""};
    ts_keep_identity is;
    ck_assert_ok(ts_keep_open_file(path, true, &file, &error));
    ts_keep_set_ended(file); /* as it was thought to have */
    ts_keep_close(file, false);
    ck_assert_msg(begin(&s, &(life){.epoch = FIRST, .joins = true}, param, message, sizeof message), "%s", message);
    (void)look(&is);
    ck_assert(!is.ended && is.epoch == FIRST && is.run == FIRST);
    for (int i = 0; i < ELEMS; i++) ck_assert_float_eq(ts_client_residual(s.client, 0)[i], i < 90 ? (float)(i + 1) : 0);
    close_stage(&s);
    remove_dir();
}
END_TEST

/* It may have been said of a packet of the same step, which this life pushes anew. */
START_TEST(an_answer_to_a_former_life_is_not_heard) {
    stage s;
    float param[ELEMS] = {0}, gradient[ELEMS] = {1};
    char message[TS_ERROR_CHARS];
    uint32_t first = 0;
    uint64_t step = 0;
    make_dir();
    leave_something();
    ck_assert_msg(begin(&s, &(life){.epoch = FIRST, .joins = true}, param, message, sizeof message), "%s", message);
    ck_assert_ok(ts_client_push(s.client, 0, gradient));
    Terse__Ack ack = TERSE__ACK__INIT;
    ack.step = 1;
    ack.status = TERSE_ESTALE;
    ack.slices = &first;
    ack.n_slices = 1;
    for (ack.incarnation = 0; ack.incarnation <= 3; ack.incarnation++) { /* 0 is the first */
        if (ack.incarnation == 2) continue;
        say_header(&s, 0, TERSE__HEADER__BODY_ACK, &ack);
        ck_assert_msg(!ts_client_gives_back(s.client, 0, &step), "of life %u", ack.incarnation);
    }
    ack.incarnation = 2;
    say_header(&s, 0, TERSE__HEADER__BODY_ACK, &ack);
    ck_assert(ts_client_gives_back(s.client, 0, &step) && step == 1);
    close_stage(&s);
    remove_dir();
}
END_TEST

START_TEST(of_another_contract_it_is_refused_too) {
    make_dir();
    leave_something();
    is_refused(&(life){.epoch = SECOND, .seed = "training.seed=9"}, (const char *const[]){path, "of another contract", "seed", NULL});
    remove_dir();
}
END_TEST

START_TEST(a_checkpoint_of_its_run_takes_its_place) {
    static const char *const seeds[] = {NULL, "training.seed=9"};
    make_dir();
    for (int i = 0; i < 2; i++) {
        leave_something();
        begins_anew(&(life){.epoch = SECOND, .run = FIRST, .seed = seeds[i]});
        remove_dir();
    }
}
END_TEST

START_TEST(what_the_checkpoint_lacks_is_set_aside) {
    char aside[128];
    make_dir();
    leave_something();
    begins_anew(&(life){.epoch = SECOND, .run = FIRST, .without = true});
    snprintf(aside, sizeof aside, "%s.1111222233334444", path);
    ck_assert_int_eq(rename(aside, path), 0);
    is_what_was_left();
    remove_dir();
}
END_TEST

START_TEST(a_job_that_ended_hinders_none) {
    make_dir();
    for (int told = 0; told < 2; told++) {
        stage s;
        float param[ELEMS] = {0}, gradient[ELEMS] = {1, 2, 3};
        char message[TS_ERROR_CHARS];
        ck_assert(begin(&s, &(life){.epoch = FIRST}, param, message, sizeof message));
        ck_assert_ok(ts_client_push(s.client, 0, gradient));
        Terse__Abort abort_message = TERSE__ABORT__INIT;
        abort_message.status = TERSE_EPEER;
        abort_message.reason = (char *)"a test";
        if (told) say_header(&s, 0, TERSE__HEADER__BODY_ABORT, &abort_message);
        else ts_client_abort(s.client, TERSE_ESHUTDOWN, "a test");
        close_stage(&s);
        ck_assert(look(NULL).packets == 1); /* it is there to be looked at */
        begins_anew(&(life){.epoch = SECOND});
        remove_dir();
    }
    /* But not one that was only missed: its job may still be there. */
    stage s;
    float param[ELEMS] = {0}, gradient[ELEMS] = {0};
    char message[TS_ERROR_CHARS];
    for (int i = 0; i < ELEMS; i++) gradient[i] = (float)(i + 1);
    ck_assert(begin(&s, &(life){.epoch = FIRST}, param, message, sizeof message));
    ck_assert_ok(ts_client_push(s.client, 0, gradient));
    run_stage(&s, 60000000);
    ck_assert_int_eq(ts_client_failure(s.client), TERSE_ETIMEDOUT);
    close_stage(&s);
    is_refused(&(life){.epoch = SECOND}, (const char *const[]){path, NULL});
    remove_dir();
}
END_TEST

/* Killed in a job that nobody could have come into, and that had no checkpoints: what is left is of no use to anybody. */
START_TEST(what_nobody_could_go_on_from_hinders_none) {
    make_dir();
    leave_something_in(&(life){.epoch = FIRST, .mortal = true});
    is_what_was_left(); /* until then it is there to be looked at */
    begins_anew(&(life){.epoch = SECOND});
    remove_dir();
    /* The next job's own word counts for what is left of that one. */
    leave_something_in(&(life){.epoch = FIRST, .mortal = true});
    begins_anew(&(life){.epoch = SECOND});
    ts_keep_identity is;
    (void)look(&is);
    ck_assert(!is.mortal);
    remove_dir();
    leave_something_in(&(life){.epoch = FIRST, .mortal = true}); /* a new process is none of that epoch's other ends */
    stage s;
    float param[ELEMS] = {0};
    char message[TS_ERROR_CHARS];
    ck_assert_msg(begin(&s, &(life){.epoch = FIRST, .joins = true, .mortal = true}, param, message, sizeof message), "%s", message);
    ck_assert_float_eq(ts_client_residual(s.client, 0)[0], 1); /* should it come back after all, it goes on */
    close_stage(&s);
    remove_dir();
}
END_TEST

START_TEST(an_end_in_order_leaves_no_file) {
    stage s;
    float param[ELEMS] = {0};
    char message[TS_ERROR_CHARS];
    make_dir();
    ck_assert(begin(&s, &(life){.epoch = FIRST}, param, message, sizeof message));
    ck_assert_ok(ts_client_done(s.client));
    run_stage(&s, 1);
    say_ack(&s, 0, 0, TERSE_OK, NULL, 0);
    ck_assert_int_eq(ts_client_get_state(s.client), TS_CLIENT_DONE);
    close_stage(&s);
    ck_assert_int_ne(access(path, F_OK), 0);
    remove_dir();
}
END_TEST

START_TEST(of_another_worker_it_is_refused_in_the_same_epoch_too) {
    make_dir();
    leave_something();
    damage((off_t)offsetof(ts_keep_head, worker), 1); /* as if worker 1's file had been copied here */
    is_refused(&(life){.epoch = FIRST, .joins = true}, (const char *const[]){path, "worker 1 of job default", "This is worker 0", NULL});
    remove_dir();
}
END_TEST

START_TEST(packets_count_as_the_ledger_says) {
    make_dir();
    leave_something();
    ts_keep *file = NULL;
    ts_error error = {""};
    ck_assert_ok(ts_keep_open_file(path, true, &file, &error));
    for (uint64_t next = 0; next < 2; next++) { /* the servers have not used the packet of step 0, or have */
        float all[ELEMS];
        ts_keep_rounding rounding = {0};
        ck_assert_ok(ts_keep_outstanding(file, 0, &next, all, &rounding));
        for (int i = 0; i < ELEMS; i++) ck_assert_float_eq(all[i], i < 90 || next == 0 ? (float)(i + 1) : 0);
        ck_assert_uint_eq(rounding.rounded, 0);
    }
    is_what_was_left(); /* being asked changes nothing */
    ts_keep_spend(file);
    ts_keep_mass mass = ts_keep_mass_all(file);
    ck_assert(!ts_keep_holds(&mass));
    ts_keep_close(file, true);
    remove_dir();
}
END_TEST

START_TEST(a_damaged_file_is_named) {
    static const struct {
        off_t at;
        uint8_t with;
        const char *says;
    } faults[] = {
        {0, 'X', "no file of a worker's residual"},
        {7, '1', "another version"},
        {(off_t)offsetof(ts_keep_head, contract_bytes) + 7, 1, "its contract cannot be that long"},
        {(off_t)TS_KEEP_PAGE + 2, 0xff, "its contract"},
        {(off_t)offsetof(ts_keep_head, digest), 0, "its contract is another"},
        {(off_t)offsetof(ts_keep_head, ready), 0, "what it says of itself cannot be"}, /* a file without an end holds nothing; this one does */
        {(off_t)offsetof(ts_keep_head, mortal), 1, "what it says of itself cannot be"},
        {(off_t)offsetof(ts_keep_head, ended), 1, "what it says of itself cannot be"},
    };
    make_dir();
    for (size_t i = 0; i <= sizeof faults / sizeof faults[0]; i++) {
        leave_something();
        bool cut = i == sizeof faults / sizeof faults[0];
        if (cut) ck_assert_int_eq(truncate(path, 8192), 0);
        else damage(faults[i].at, faults[i].with);
        ts_keep *file = NULL;
        ts_error error = {""};
        ck_assert_int_ne(ts_keep_open_file(path, false, &file, &error), TERSE_OK);
        const char *says = cut ? "torn" : faults[i].says;
        ck_assert_msg(strstr(error.text, says) && strstr(error.text, path), "%s", error.text);
        stage s;
        float param[ELEMS] = {0};
        char message[TS_ERROR_CHARS];
        ck_assert(!begin(&s, &(life){.epoch = SECOND}, param, message, sizeof message));
        ck_assert_msg(strstr(message, path) != NULL, "%s", message);
        close_stage(&s);
        remove_dir();
    }
}
END_TEST

#define GUARD(field) ((off_t)(offsetof(ts_keep_head, guard) + offsetof(ts_guard_record, field)))

/* Bytes at offset 0 are none. */
typedef struct {
    off_t at;
    uint8_t with;
} fault;

static void damage_all(const fault faults[2]) {
    for (int i = 0; i < 2; i++)
        if (faults[i].at) damage(faults[i].at, faults[i].with);
}

START_TEST(a_damaged_file_leads_nowhere) {
    static const fault faults[][2] = {
        {{(off_t)offsetof(ts_keep_head, backup), 1}, {0, 0}},
        {{(off_t)offsetof(ts_keep_head, backup_tensor), 1}, {0, 0}},
        {{GUARD(phase), TS_GUARD_SWEEP}, {GUARD(tensor), 1}},
        {{GUARD(phase), TS_GUARD_SWEEP}, {GUARD(lane[1]) + 7, 0x7f}},
        {{GUARD(phase), TS_GUARD_SWEEP}, {GUARD(lane[0]), ELEMS + 1}},
        {{GUARD(phase), TS_GUARD_DENSE}, {GUARD(lane[0]) + 3, 0xff}},
        {{GUARD(phase), TS_GUARD_PUT}, {GUARD(slice), 1}},
        {{GUARD(phase), TS_GUARD_PUT}, {GUARD(put_count) + 3, 0x7f}},
        {{GUARD(phase), TS_GUARD_PUT}, {GUARD(put_first), ELEMS - 5}}, /* its list has ten elements, up to the last one */
        {{GUARD(phase), TS_GUARD_PUT}, {GUARD(put_len) + 7, 0x7f}},
        {{GUARD(phase), TS_GUARD_PUT}, {GUARD(put_then), TS_GUARD_PUT}},
        {{GUARD(phase), TS_GUARD_PUT + 1}, {0, 0}},
    };
    make_dir();
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        leave_something();
        damage_all(faults[i]);
        ts_keep *file = NULL;
        ts_error error = {""};
        ck_assert_msg(ts_keep_open_file(path, true, &file, &error) == TERSE_ECORRUPT, "fault %zu: %s", i, error.text);
        ck_assert_msg(strstr(error.text, "what it says of itself cannot be") && strstr(error.text, path), "%s", error.text);
        stage s;
        float param[ELEMS] = {0};
        char message[TS_ERROR_CHARS];
        ck_assert(!begin(&s, &(life){.epoch = FIRST, .joins = true}, param, message, sizeof message)); /* of the very same contract */
        ck_assert_msg(strstr(message, path) && strstr(message, "terse ckpt keep drop"), "%s", message);
        ck_assert_msg(strstr(strstr(message, "error_feedback.keep") + 1, "error_feedback.keep") == NULL, "twice: %s", message);
        close_stage(&s);
        remove_dir();
    }
}
END_TEST

/* Any one bit of what the file says of itself, its contract included: the file is refused by name, or holds what it held. */
START_TEST(a_flipped_bit_takes_nothing_away) {
    make_dir();
    leave_something();
    int file = open(path, O_RDWR);
    off_t last = (off_t)offsetof(ts_keep_head, guard), pages = (off_t)TS_KEEP_PAGE;
    ts_keep_mass held = look(NULL);
    size_t refused = 0, same = 0;
    uint64_t contract_bytes = 0;
    ck_assert_int_eq(pread(file, &contract_bytes, sizeof contract_bytes, (off_t)offsetof(ts_keep_head, contract_bytes)), sizeof contract_bytes);
    for (off_t at = 0; at < pages + (off_t)contract_bytes; at = at + 1 == last ? pages : at + 1) {
        uint8_t was, is;
        ck_assert_int_eq(pread(file, &was, 1, at), 1);
        for (unsigned bit = 0; bit < 8; bit++) {
            is = was ^ (uint8_t)(1u << bit);
            ck_assert_int_eq(pwrite(file, &is, 1, at), 1);
            ts_keep *keep = NULL;
            ts_error error = {""};
            terse_status status = ts_keep_open_file(path, true, &keep, &error);
            if (status == TERSE_OK) {
                ts_keep_mass mass = ts_keep_mass_all(keep);
                ts_keep_identity identity = ts_keep_identify(keep);
                ck_assert_msg(mass.l1 == held.l1 && mass.packets == held.packets && !identity.ended && !identity.mortal, "byte %lld, bit %u", (long long)at, bit);
                ts_keep_close(keep, false);
                same++;
            } else {
                ck_assert_msg(strstr(error.text, path) != NULL, "byte %lld, bit %u: %s", (long long)at, bit, error.text);
                refused++;
            }
            ck_assert_int_eq(pwrite(file, &was, 1, at), 1);
        }
    }
    close(file);
    ck_assert_uint_gt(refused, 1000);
    ck_assert_uint_gt(same, 1000);
    remove_dir();
}
END_TEST

static void damage_word(off_t at, uint32_t with) {
    for (unsigned byte = 0; byte < 4; byte++) damage(at + (off_t)byte, (uint8_t)(with >> (8 * byte)));
}

/* More than bits: one that says it was never complete, and has had a life; and a copy aside of a tensor that needs none. */
START_TEST(what_no_life_leaves_behind_is_named) {
    make_dir();
    for (int i = 0; i < 2; i++) {
        ts_keep *file = NULL;
        ts_error error = {""};
        leave_something();
        if (i) damage_word((off_t)offsetof(ts_keep_head, backup), TS_BACKUP_TAKEN);
        else damage_word((off_t)offsetof(ts_keep_head, ready), 0);
        ck_assert_msg(ts_keep_open_file(path, true, &file, &error) == TERSE_ECORRUPT && strstr(error.text, path), "%d: %s", i, error.text);
        remove_dir();
    }
}
END_TEST

START_TEST(killed_in_the_sweep_of_a_tensor_with_fewer_slices_than_the_last) {
    make_dir();
    leave_something();
    damage_all((const fault[]){{GUARD(slice), 3}, {GUARD(phase), TS_GUARD_SWEEP}});
    ts_keep *file = NULL;
    ts_error error = {""};
    terse_status status = ts_keep_open_file(path, true, &file, &error);
    ck_assert_msg(status == TERSE_OK, "%s", error.text);
    ts_keep_close(file, false);
    is_what_was_left();
    remove_dir();
}
END_TEST

TCase *test_keep_epoch(void);
TCase *test_keep_epoch(void) {
    TCase *tests = tcase_create("keep_epoch");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_file_of_another_epoch_is_refused_by_name);
    tcase_add_test(tests, a_worker_that_would_come_back_with_it_leaves_alone);
    tcase_add_test(tests, the_same_epoch_goes_on_from_it);
    tcase_add_test(tests, an_answer_to_a_former_life_is_not_heard);
    tcase_add_test(tests, of_another_contract_it_is_refused_too);
    tcase_add_test(tests, a_checkpoint_of_its_run_takes_its_place);
    tcase_add_test(tests, what_the_checkpoint_lacks_is_set_aside);
    tcase_add_test(tests, a_job_that_ended_hinders_none);
    tcase_add_test(tests, what_nobody_could_go_on_from_hinders_none);
    tcase_add_test(tests, an_end_in_order_leaves_no_file);
    tcase_add_test(tests, of_another_worker_it_is_refused_in_the_same_epoch_too);
    tcase_add_test(tests, packets_count_as_the_ledger_says);
    tcase_add_test(tests, a_damaged_file_is_named);
    tcase_add_test(tests, a_damaged_file_leads_nowhere);
    tcase_add_test(tests, a_flipped_bit_takes_nothing_away);
    tcase_add_test(tests, what_no_life_leaves_behind_is_named);
    tcase_add_test(tests, killed_in_the_sweep_of_a_tensor_with_fewer_slices_than_the_last);
    return tests;
}
