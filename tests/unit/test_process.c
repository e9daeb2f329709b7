/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of processes, asked of children that are stopped, dead, reaped. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/process.h"
#include "tests/unit/unit.h"

#define CHILDREN 3

static pid_t start_child(void) {
    pid_t child = fork();
    if (child == 0) {
        for (;;) pause();
    }
    ck_assert(child > 0);
    return child;
}

static void end_child(pid_t child) {
    kill(child, SIGKILL);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
}

START_TEST(a_child_is_seen_until_it_is_dead) {
    pid_t child = start_child();
    ts_process process;
    ck_assert(ts_process_look(child, &process));
    ck_assert_int_eq(process.pid, child);
    ck_assert_int_eq(process.parent, getpid());
    ck_assert(process.birth >= ts_process_birth(getpid()));
    ck_assert(process.birth == ts_process_birth(child));
    ck_assert(ts_process_birth(1) < process.birth);
    kill(child, SIGKILL);
    siginfo_t info;
    ck_assert_int_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0); /* dead, not reaped */
    ck_assert(!ts_process_look(child, &process));
    end_child(child);
    ck_assert(!ts_process_look(child, &process));
    ck_assert(ts_process_birth(child) == 0);
    ck_assert(ts_process_birth(0) == 0);
}
END_TEST

START_TEST(a_stopped_one_is_told_from_others) {
    pid_t child = start_child();
    int status;
    ts_process process;
    ck_assert(ts_process_look(child, &process) && process.state != 'T');
    kill(child, SIGSTOP);
    ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
    ck_assert(ts_process_look(child, &process));
    ck_assert_int_eq(process.state, 'T');
    end_child(child);
}
END_TEST

START_TEST(children_are_all_found_and_no_more_than_fit) {
    pid_t child[CHILDREN];
    ts_process found[CHILDREN + 4];
    size_t before = ts_process_children(getpid(), found, CHILDREN + 4); /* a sanitizer may have some */
    for (int i = 0; i < CHILDREN; i++) child[i] = start_child();
    size_t count = ts_process_children(getpid(), found, CHILDREN + 4);
    ck_assert_uint_eq(count, before + CHILDREN);
    for (int i = 0; i < CHILDREN; i++) {
        size_t times = 0;
        for (size_t k = 0; k < count; k++) times += found[k].pid == child[i] && found[k].parent == getpid();
        ck_assert_uint_eq(times, 1);
    }
    ck_assert_uint_eq(ts_process_children(getpid(), found, CHILDREN - 1), CHILDREN - 1);
    for (int i = 0; i < CHILDREN; i++) end_child(child[i]);
}
END_TEST

START_TEST(a_variable_is_that_of_the_start_and_whole) {
    int said[2];
    ck_assert_int_eq(pipe2(said, O_CLOEXEC), 0);
    pid_t child = fork();
    if (child == 0) {
        char *const words[] = {"sleep", "60", NULL}, *const variables[] = {"RANKS=3", "RANK=17", "EMPTY=", NULL};
        close(said[0]);
        execve("/bin/sleep", words, variables); /* closes said[1], too */
        _exit(1);
    }
    close(said[1]);
    (void)!read(said[0], &(char){0}, 1);
    close(said[0]);
    char value[4];
    /* The pipe is closed a moment before the new program's variables are there. */
    bool there = false;
    for (unsigned ms = 0; ms < 10000 && !(there = ts_process_variable(child, "RANK", value, sizeof value)); ms++) usleep(1000);
    ck_assert(there);
    ck_assert_str_eq(value, "17");
    ck_assert(!ts_process_variable(child, "RANK", value, 2)); /* does not fit */
    ck_assert(ts_process_variable(child, "EMPTY", value, sizeof value));
    ck_assert_str_eq(value, "");
    ck_assert(!ts_process_variable(child, "RAN", value, sizeof value));
    ck_assert(!ts_process_launches(child));
    end_child(child);
}
END_TEST

TCase *test_process(void);
TCase *test_process(void) {
    TCase *tests = tcase_create("process");
    tcase_add_test(tests, a_child_is_seen_until_it_is_dead);
    tcase_add_test(tests, a_stopped_one_is_told_from_others);
    tcase_add_test(tests, children_are_all_found_and_no_more_than_fit);
    tcase_add_test(tests, a_variable_is_that_of_the_start_and_whole);
    return tests;
}
