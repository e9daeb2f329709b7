/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A residual that is handed over is in one of two places, whenever the hand-over is killed. A child does it and is killed
 * at each of its system calls, and single-stepped from there to random instructions; then one of the files, by turns, is
 * opened as its worker would, and the elements of both are added.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/ckpt/ckpt_manifest.h"
#include "common/keep/keep_file.h"
#include "common/keep/keep_move.h"
#include "tests/unit/unit.h"

#define ELEMS 3000
#define EPOCH 77u

static char dir[64], giver[96], receiver[96];
static ts_contract *contract;

static void open_case(void) {
    const int64_t shape[] = {ELEMS / 2};
    ts_contract_options options = {.slice_elems = 1000, .seed = 1};
    ts_pipeline push, pull;
    ts_error error;
    snprintf(dir, sizeof dir, "/dev/shm/terse-test-move-%ld", (long)getpid());
    snprintf(giver, sizeof giver, "%s/worker-0.keep", dir);
    snprintf(receiver, sizeof receiver, "%s/worker-1.keep", dir);
    ck_assert_ok(ts_pipeline_parse("topk:0.01 | int8", &push, &error));
    ck_assert_ok(ts_pipeline_parse("dense", &pull, &error));
    ck_assert_ok(ts_contract_create(&options, &contract));
    ck_assert_ok(ts_contract_add(contract, "a", shape, 1, &push, &pull, true, NULL, &error));
    ck_assert_ok(ts_contract_add(contract, "b", shape, 1, &push, &pull, false, NULL, &error));
    ck_assert_ok(ts_contract_seal(contract, 2));
}

static void close_case(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
    ts_contract_destroy(contract);
}

static float value(uint32_t worker, uint32_t array, size_t i) {
    return (float)((int)(ts_random_key(3, worker, i, array, 0) % 2001) - 1000) * (worker ? 0.001f : 0.37f);
}

/* A worker's file as a killed process leaves it. packet: there is one without an answer. */
static void leave(uint32_t worker, bool brief, uint64_t epoch, bool packet) {
    ts_keep_options options = {.dir = dir, .job = "j", .worker = worker, .workers = 2, .contract = contract, .form = {.brief = brief}};
    ts_keep *keep = NULL;
    ts_error error = {""};
    terse_status status = ts_keep_open(&options, &keep, &error);
    ck_assert_msg(status == TERSE_OK, "%s", error.text);
    for (uint32_t t = 0; t < 2; t++) {
        ts_keep_tensor *tensor = &keep->tensors[t];
        for (size_t i = 0; i < tensor->n; i++) {
            float x = value(worker, t, i);
            if (brief) ts_kernels_get(TS_SIMD_SCALAR)->bf16_encode(&x, 1, tensor->brief + 2 * i);
            else tensor->residual[i] = x;
            if (tensor->velocity) tensor->velocity[i] = value(worker, 9, i);
        }
    }
    if (packet) {
        size_t capacity = 0;
        ck_assert_ok(ts_keep_reserve(keep, 0, 10, &capacity));
        ts_keep_hold(keep, 0, 4, 10, 1);
    }
    ts_keep_set_epoch(keep, epoch, epoch, false);
    ts_keep_close(keep, false);
}

/* Adds what a file holds to sums of residual and velocity; nothing when it is not there. */
static void add_file(const char *path, double *residual, double *velocity) {
    ts_keep *keep = NULL;
    ts_error error = {""};
    if (access(path, F_OK) != 0) return;
    terse_status status = ts_keep_open_file(path, false, &keep, &error);
    ck_assert_msg(status == TERSE_OK, "%s", error.text);
    for (uint32_t t = 0; t < 2; t++) {
        const ts_keep_tensor *tensor = &keep->tensors[t];
        for (size_t i = 0; i < tensor->n; i++) {
            float x;
            if (tensor->brief) ts_kernels_get(TS_SIMD_SCALAR)->bf16_decode(tensor->brief + 2 * i, 1, &x);
            else x = tensor->residual[i];
            residual[t * (ELEMS / 2) + i] += (double)x;
            if (tensor->velocity) velocity[i] += (double)tensor->velocity[i];
        }
    }
    ck_assert_uint_eq(atomic_load(&keep->head->given), 0);
    ck_assert_uint_eq(atomic_load(&keep->head->took), 0);
    ts_keep_close(keep, false);
}

/* Each element is there once: as two numbers, or as their sum in float32. */
static void check_sums(const double *residual, const double *velocity, const char *where) {
    for (size_t i = 0; i < ELEMS; i++) {
        uint32_t t = i >= ELEMS / 2;
        float a = value(0, t, i % (ELEMS / 2)), b = value(1, t, i % (ELEMS / 2));
        bool fine = residual[i] == (double)a + (double)b || residual[i] == (double)(a + b);
        if (!fine) ck_abort_msg("%s: element %zu: %.9g of %.9g and %.9g", where, i, residual[i], (double)a, (double)b);
    }
    for (size_t i = 0; i < ELEMS / 2; i++) {
        float a = value(0, 9, i), b = value(1, 9, i);
        bool fine = velocity[i] == (double)a + (double)b || velocity[i] == (double)(a + b);
        if (!fine) ck_abort_msg("%s: velocity %zu", where, i);
    }
}

START_TEST(sums_are_exact_or_their_rounding_is_told) {
    open_case();
    for (int brief = 0; brief < 2; brief++) {
        double before[2][ELEMS] = {{0}}, after[2][ELEMS] = {{0}}, lost = 0, l1 = 0;
        ts_keep_moved moved;
        ts_error error = {""};
        uint64_t rounded = 0;
        leave(0, brief, EPOCH, false);
        leave(1, brief, EPOCH, true);
        add_file(giver, before[0], before[1]);
        add_file(receiver, before[0], before[1]);
        terse_status status = ts_keep_move(giver, receiver, &moved, &error);
        ck_assert_msg(status == TERSE_OK, "%s", error.text);
        ck_assert_int_ne(access(giver, F_OK), 0); /* it held nothing else */
        add_file(receiver, after[0], after[1]);
        if (!brief) check_sums(after[0], after[1], "moved");
        for (size_t i = 0; i < ELEMS; i++) {
            lost += before[0][i] - after[0][i];
            l1 += fabs(before[0][i] - after[0][i]);
            rounded += before[0][i] != after[0][i];
        }
        ck_assert_double_eq_tol(moved.rounding.sum, lost, 1e-12);
        ck_assert_double_eq_tol(moved.rounding.l1, l1, 1e-12);
        ck_assert_uint_eq(moved.rounding.rounded, rounded);
        ck_assert_uint_gt(rounded, 0); /* a case that shows something */
        ck_assert_uint_eq(moved.packets_left, 0);
        ts_keep *keep = NULL;
        ck_assert_ok(ts_keep_open_file(receiver, true, &keep, &error));
        ck_assert(ts_keep_live(keep, 0)); /* the receiver's own packet stays its own */
        struct stat info;
        ck_assert_int_eq(stat(receiver, &info), 0); /* and its room, zeros too: writing to it never fails */
        ck_assert_uint_ge((uint64_t)info.st_blocks * 512, keep->area[0] + keep->slots[0].room);
        ts_keep_close(keep, true);
    }
    close_case();
}
END_TEST

static void is_refused(terse_status expected, const char *words) {
    ts_keep_moved moved;
    ts_error error = {""};
    double was[2][ELEMS] = {{0}}, is[2][ELEMS] = {{0}};
    add_file(giver, was[0], was[1]);
    add_file(receiver, was[0], was[1]);
    ck_assert_int_eq(ts_keep_move(giver, receiver, &moved, &error), expected);
    ck_assert_msg(strstr(error.text, words) != NULL, "%s", error.text);
    add_file(giver, is[0], is[1]);
    add_file(receiver, is[0], is[1]);
    ck_assert_int_eq(memcmp(was, is, sizeof was), 0);
}

START_TEST(what_does_not_belong_together_stays_apart) {
    open_case();
    leave(0, false, EPOCH, true);
    leave(1, false, EPOCH + 1, false);
    is_refused(TERSE_EMISMATCH, "the same epoch");
    ck_assert_int_eq(unlink(receiver), 0);
    leave(1, true, EPOCH, false);
    is_refused(TERSE_EMISMATCH, "different contracts");
    ck_assert_int_eq(unlink(receiver), 0);
    leave(1, false, EPOCH, false);
    ts_keep_moved moved;
    ts_error error = {""};
    ck_assert_int_eq(ts_keep_move(giver, giver, &moved, &error), TERSE_EMISMATCH);
    /* A living worker's. */
    for (int which = 0; which < 2; which++) {
        int pipes[2];
        char byte = 0;
        ck_assert_int_eq(pipe(pipes), 0);
        pid_t child = fork();
        if (child == 0) {
            ts_keep *keep = NULL;
            terse_status status = ts_keep_open_file(which ? receiver : giver, true, &keep, &error);
            if (write(pipes[1], &byte, 1) == 1) pause();
            _exit(status == TERSE_OK);
        }
        ck_assert_int_eq(read(pipes[0], &byte, 1), 1);
        is_refused(TERSE_ESTATE, "in use by process");
        ck_assert_int_gt(ts_keep_owner(which ? receiver : giver), 0);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        ck_assert_int_eq(ts_keep_owner(which ? receiver : giver), 0);
        close(pipes[0]);
        close(pipes[1]);
    }
    ck_assert_ok(ts_keep_move(giver, receiver, &moved, &error));
    ck_assert_uint_eq(moved.packets_left, 1);
    double residual[ELEMS] = {0}, velocity[ELEMS] = {0};
    add_file(giver, residual, velocity); /* what is left there is the packet alone */
    for (size_t i = 0; i < ELEMS; i++) ck_assert_double_eq(residual[i], 0);
    close_case();
}
END_TEST

/* ---- kills ---------------------------------------------------------------------------------------------------------------- */

/* Runs the child to its `calls`-th stop at a system call, and `steps` instructions on. Returns false when it ended before. */
static bool run_to(pid_t child, unsigned calls, unsigned steps) {
    int status;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return false;
    for (unsigned i = 0; i < calls; i++) {
        if (ptrace(PTRACE_SYSCALL, child, NULL, (void *)0) != 0) return false;
        if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return false;
    }
    for (unsigned i = 0; i < steps; i++) {
        if (ptrace(PTRACE_SINGLESTEP, child, NULL, (void *)0) != 0) return true;
        if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return false;
    }
    return true;
}

static pid_t start(void (*act)(void)) {
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child > 0) return child;
    int nowhere = open("/dev/null", O_RDWR); /* a kill must not cut the test library's own messages */
    for (int other = 3; other < 64; other++)
        if (other != nowhere && fcntl(other, F_GETFD) >= 0) dup2(nowhere, other);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(1);
    raise(SIGSTOP);
    act();
    _exit(0);
}

static void hand_over(void) {
    ts_keep_moved moved;
    ts_error error = {""};
    (void)!ts_keep_move(giver, receiver, &moved, &error);
}

START_TEST(a_hand_over_that_is_killed_neither_loses_nor_doubles) {
    unsigned committed = 0, undone = 0, calls = 0;
    bool more = true;
    ts_random random = ts_random_start(ts_random_key(8, 0, 0, 0, 0));
    open_case();
    for (unsigned run = 0; more && calls < 400; run++, calls = run / 2) { /* with each file first */
        char where[64];
        ts_error error = {""};
        leave(0, false, EPOCH, calls % 3 == 0);
        leave(1, false, EPOCH, false);
        pid_t child = start(hand_over);
        more = run_to(child, calls, calls % 2 ? 0 : ts_random_below(&random, 3000));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        if (run == 0 && !more) {
            fprintf(stderr, "keep_move: this machine does not let a process be traced\n");
            break;
        }
        /* Whoever comes first makes it good. */
        const char *first = run % 2 ? giver : receiver;
        double residual[ELEMS] = {0}, velocity[ELEMS] = {0};
        ts_keep *keep = NULL;
        snprintf(where, sizeof where, "killed at system call %u", calls);
        if (access(first, F_OK) == 0) {
            terse_status status = ts_keep_open_file(first, true, &keep, &error);
            ck_assert_msg(status == TERSE_OK, "%s: %s", where, error.text);
            ts_keep_close(keep, false);
        }
        const char *second = first == giver ? receiver : giver;
        if (access(second, F_OK) == 0) {
            terse_status status = ts_keep_open_file(second, true, &keep, &error);
            ck_assert_msg(status == TERSE_OK, "%s: %s", where, error.text);
            ts_keep_close(keep, false);
        }
        add_file(giver, residual, velocity);
        double there = residual[0];
        add_file(receiver, residual, velocity);
        check_sums(residual, velocity, where);
        if (there == 0) committed++;
        else undone++;
        (void)unlink(giver);
        (void)unlink(receiver);
    }
    if (calls > 1) ck_assert_msg(committed > 2 && undone > 10, "%u after the rename, %u before", committed, undone);
    close_case();
}
END_TEST

/* ---- to a checkpoint ---------------------------------------------------------------------------------------------------------- */

static void write_manifest(const char *path, const char *epoch) {
    ts_ckpt_manifest m = {.serial = 1, .version = 5, .servers = 1, .workers = 1};
    ts_ckpt_part parts[2] = {{.bytes = 10, .seal = 1}, {.bytes = 10, .seal = 1}};
    ts_error error = {""};
    snprintf(m.run, sizeof m.run, "%s", epoch);
    snprintf(m.epoch, sizeof m.epoch, "%s", epoch);
    m.parts = parts;
    ck_assert_ok(ts_ckpt_contract_digest(contract, m.digest));
    ck_assert_ok(ts_contract_pack(contract, &m.contract, &m.contract_bytes));
    terse_status status = ts_ckpt_manifest_write(&m, path, &error);
    ck_assert_msg(status == TERSE_OK, "%s", error.text);
    ts_mem_free(m.contract);
}

START_TEST(what_was_announced_counts_when_the_checkpoint_is_there) {
    char manifest[128];
    open_case();
    snprintf(manifest, sizeof manifest, "%s/manifest.json", dir);
    static const char *const epochs[] = {NULL, "00000000000000ab", "00000000000000cd"}; /* none, another's, the one */
    for (int i = 0; i < 3; i++) {
        ts_keep *keep = NULL;
        ts_error error = {""};
        leave(0, false, EPOCH, true);
        ck_assert_ok(ts_keep_open_file(giver, true, &keep, &error));
        ck_assert_ok(ts_keep_announce(keep, manifest, 0xcd));
        ts_keep_close(keep, false);
        if (epochs[i]) write_manifest(manifest, epochs[i]);
        ck_assert_ok(ts_keep_open_file(giver, true, &keep, &error));
        ts_keep_mass mass = ts_keep_mass_all(keep);
        ck_assert_int_eq(ts_keep_holds(&mass), i != 2);
        ts_keep_close(keep, true);
    }
    close_case();
}
END_TEST

/* ---- what cannot be read ------------------------------------------------------------------------------------------------------- */

/* Marks of a hand-over that was killed behind the rename: the receiver has it, the giver was not emptied. */
static void mark_given(void) {
    ts_keep *from = NULL, *to = NULL;
    ts_error error = {""};
    ck_assert_ok(ts_keep_open_file(giver, true, &from, &error));
    ck_assert_ok(ts_keep_open_file(receiver, true, &to, &error));
    snprintf(from->head->partner, TS_KEEP_PATH_CHARS, "%s", receiver);
    snprintf(to->head->partner, TS_KEEP_PATH_CHARS, "%s", giver);
    atomic_store(&from->head->given, 4711);
    atomic_store(&to->head->took, 4711);
    ts_keep_close(from, false);
    ts_keep_close(to, false);
}

static void flip_first_byte(const char *path) {
    uint8_t byte;
    int file = open(path, O_RDWR);
    ck_assert_int_eq(pread(file, &byte, 1, 0), 1);
    byte ^= 1;
    ck_assert_int_eq(pwrite(file, &byte, 1, 0), 1);
    close(file);
}

static void is_unsure(const char *path, const char *of) {
    ts_keep *keep = NULL;
    ts_error error = {""};
    ck_assert_int_eq(ts_keep_open_file(path, true, &keep, &error), TERSE_ESTATE);
    ck_assert_msg(strstr(error.text, path) && strstr(error.text, of) && strstr(error.text, "cannot be told"), "%s", error.text);
}

static double holds(const char *path) {
    ts_keep *keep = NULL;
    ts_error error = {""};
    terse_status status = ts_keep_open_file(path, true, &keep, &error);
    ck_assert_msg(status == TERSE_OK, "%s", error.text);
    double l1 = ts_keep_mass_all(keep).l1;
    ts_keep_close(keep, false);
    return l1;
}

START_TEST(a_side_that_cannot_be_read_is_not_taken_for_absent) {
    open_case();
    for (int which = 0; which < 3; which++) {
        const char *broken = which ? giver : receiver, *other = which ? receiver : giver;
        leave(0, false, EPOCH, false);
        leave(1, false, EPOCH, false);
        mark_given();
        if (which < 2) {
            flip_first_byte(broken);
        } else { /* neither is a folder a file */
            ck_assert_int_eq(unlink(broken), 0);
            ck_assert_int_eq(mkdir(broken, 0700), 0);
        }
        for (int again = 0; again < 2; again++) is_unsure(other, broken);
        if (which < 2) {
            flip_first_byte(broken); /* readable again: it took place */
            ck_assert_double_gt(holds(receiver), 0);
            ck_assert_double_eq(holds(giver), 0);
        } else {
            ck_assert_int_eq(rmdir(broken), 0); /* gone: nothing is waited for */
            ck_assert_double_gt(holds(other), 0);
        }
        (void)unlink(giver);
        (void)unlink(receiver);
    }
    close_case();
}
END_TEST

START_TEST(a_manifest_that_cannot_be_read_is_not_taken_for_absent) {
    char manifest[128];
    ts_keep *keep = NULL;
    ts_error error = {""};
    open_case();
    snprintf(manifest, sizeof manifest, "%s/manifest.json", dir);
    leave(0, false, EPOCH, true);
    ck_assert_ok(ts_keep_open_file(giver, true, &keep, &error));
    ck_assert_ok(ts_keep_announce(keep, manifest, 0xcd));
    ts_keep_close(keep, false);
    write_manifest(manifest, "00000000000000cd");
    flip_first_byte(manifest);
    is_unsure(giver, manifest);
    flip_first_byte(manifest);
    ck_assert_double_eq(holds(giver), 0);
    close_case();
}
END_TEST

/* ---- who has it meanwhile -------------------------------------------------------------------------------------------------------- */

static long owner_for_others(const char *path) {
    int pipes[2];
    long owner = -1;
    ck_assert_int_eq(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        owner = ts_keep_owner(path);
        _exit(write(pipes[1], &owner, sizeof owner) != (ssize_t)sizeof owner);
    }
    ck_assert_int_eq(read(pipes[0], &owner, sizeof owner), sizeof owner);
    waitpid(child, NULL, 0);
    close(pipes[0]);
    close(pipes[1]);
    return owner;
}

START_TEST(who_takes_both_files_keeps_both_locks) {
    ts_keep *both[2] = {NULL};
    ts_error error = {""};
    open_case();
    leave(0, false, EPOCH, false);
    leave(1, false, EPOCH, false);
    mark_given();
    ck_assert_int_eq(ts_keep_open_settled(giver, &both[0], &error), TERSE_ESTATE); /* first what was interrupted */
    ck_assert_ok(ts_keep_settle(giver, &error));
    ck_assert_ok(ts_keep_settle(receiver, &error));
    ck_assert_ok(ts_keep_open_settled(giver, &both[0], &error));
    ck_assert_ok(ts_keep_open_settled(receiver, &both[1], &error));
    ck_assert_int_eq(owner_for_others(giver), getpid());
    ck_assert_int_eq(owner_for_others(receiver), getpid());
    for (int i = 0; i < 2; i++) ts_keep_close(both[i], false);
    ck_assert_double_eq(holds(giver), 0);
    close_case();
}
END_TEST

START_TEST(who_reads_a_file_is_waited_for) {
    ts_keep *keep = NULL;
    ts_error error = {""};
    int said;
    open_case();
    leave(0, false, EPOCH, true);
    ck_assert_ok(ts_keep_open_still(giver, &keep, &error));
    pid_t worker = fork();
    if (worker == 0) {
        ts_keep *taken = NULL;
        _exit(ts_keep_open_file(giver, true, &taken, &error) == TERSE_OK ? 0 : 1);
    }
    usleep(100000); /* it is waiting by then, or comes later and has no need to */
    ts_keep_mass mass = ts_keep_mass_all(keep);
    ck_assert_uint_eq(mass.packets, 1);
    ts_keep_close(keep, false);
    ck_assert_int_eq(waitpid(worker, &said, 0), worker);
    ck_assert(WIFEXITED(said) && WEXITSTATUS(said) == 0);
    /* And it waits for nobody: whose file it is may live for long. */
    ck_assert_ok(ts_keep_open_file(giver, true, &keep, &error));
    pid_t reader = fork();
    if (reader == 0) {
        ts_keep *still = NULL;
        _exit(ts_keep_open_still(giver, &still, &error) == TERSE_ESTATE && strstr(error.text, "in use by process") ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(reader, &said, 0), reader);
    ck_assert(WIFEXITED(said) && WEXITSTATUS(said) == 0);
    ts_keep_close(keep, false);
    close_case();
}
END_TEST

/* A push that was interrupted is made good for who reads the file as for who takes it; the file stays as it is. */
START_TEST(who_reads_a_file_sees_what_its_worker_will) {
    double taken[2][ELEMS] = {{0}}, seen = 0;
    ts_keep_options options = {.dir = dir, .job = "j", .workers = 2, .form = {.brief = true}};
    ts_keep *keep = NULL;
    ts_error error = {""};
    open_case();
    options.contract = contract;
    leave(0, true, EPOCH, false);
    ck_assert_ok(ts_keep_open(&options, &keep, &error));
    ts_keep_begin(keep, 0);
    memset(keep->tensors[0].brief, 0, keep->tensors[0].n); /* of two bytes each: half of them */
    ts_keep_close(keep, false);
    for (int turn = 0; turn < 2; turn++) { /* the first has changed nothing */
        ck_assert_ok(ts_keep_open_still(giver, &keep, &error));
        seen = ts_keep_mass_of(keep, 0).l1;
        ts_keep_close(keep, false);
        ck_assert_ok(ts_keep_open_file(giver, false, &keep, &error));
        ck_assert_double_lt(ts_keep_mass_of(keep, 0).l1, 0.9 * seen);
        ts_keep_close(keep, false);
    }
    ck_assert_ok(ts_keep_open_file(giver, true, &keep, &error));
    ck_assert_double_eq(ts_keep_mass_of(keep, 0).l1, seen);
    ts_keep_close(keep, false);
    add_file(giver, taken[0], taken[1]);
    for (size_t i = 0; i < ELEMS; i++)
        ck_assert_double_eq_tol(taken[0][i], (double)value(0, i >= ELEMS / 2, i % (ELEMS / 2)), 2.0); /* of up to 370, in bfloat16 */
    close_case();
}
END_TEST

TCase *test_keep_move(void);
TCase *test_keep_move(void) {
    TCase *tests = tcase_create("keep_move");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, sums_are_exact_or_their_rounding_is_told);
    tcase_add_test(tests, what_does_not_belong_together_stays_apart);
    tcase_add_test(tests, a_hand_over_that_is_killed_neither_loses_nor_doubles);
    tcase_add_test(tests, what_was_announced_counts_when_the_checkpoint_is_there);
    tcase_add_test(tests, a_side_that_cannot_be_read_is_not_taken_for_absent);
    tcase_add_test(tests, a_manifest_that_cannot_be_read_is_not_taken_for_absent);
    tcase_add_test(tests, who_takes_both_files_keeps_both_locks);
    tcase_add_test(tests, who_reads_a_file_is_waited_for);
    tcase_add_test(tests, who_reads_a_file_sees_what_its_worker_will);
    return tests;
}
