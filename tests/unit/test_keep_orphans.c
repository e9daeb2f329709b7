/* SPDX-License-Identifier: Apache-2.0 */
/* Which workers of a folder a new process could be. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/keep/keep.h"
#include "tests/unit/unit.h"
#include "worker/client/keep_orphans.h"

static char dir[64];

static void make_file(const char *name) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    ck_assert_int_ge(file, 0);
    close(file);
}

/* A living process that has the file, as its worker has. */
static pid_t hold(const char *name, int pipes[2]) {
    char path[160], byte = 0;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    ck_assert_int_eq(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int file = open(path, O_RDWR);
        if (fcntl(file, F_SETLK, &whole) == 0 && write(pipes[1], &byte, 1) == 1) pause();
        _exit(1);
    }
    ck_assert_int_eq(read(pipes[0], &byte, 1), 1);
    return child;
}

START_TEST(the_lowest_whose_files_nobody_has) {
    static const char *const names[] = {"worker-30.keep", "worker-4.keep", "worker-1.keep", "worker-12.keep", "worker-7.keep",
                                        /* none of these */
                                        "worker-.keep", "worker-2.keep.new", "worker-3.keep.1111222233334444", "worker-x.keep",
                                        "worker-4294967295.keep", "worker--5.keep", "worker-6.keep~", "other-6.keep", "worker-8"};
    uint32_t found[8];
    int pipes[2];
    char command[128];
    snprintf(dir, sizeof dir, "/dev/shm/terse-test-orphans-%ld", (long)getpid());
    ck_assert_uint_eq(ts_keep_orphans(dir, found, 8), 0); /* no folder */
    snprintf(command, sizeof command, "mkdir -m 700 %s", dir);
    ck_assert_int_eq(system(command), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) make_file(names[i]);
    pid_t living = hold("worker-1.keep", pipes);
    ck_assert_uint_eq(ts_keep_orphans(dir, found, 8), 4);
    const uint32_t all[] = {4, 7, 12, 30};
    for (unsigned i = 0; i < 4; i++) ck_assert_uint_eq(found[i], all[i]);
    ck_assert_uint_eq(ts_keep_orphans(dir, found, 2), 2); /* the lowest of them */
    ck_assert(found[0] == 4 && found[1] == 7);
    kill(living, SIGKILL);
    waitpid(living, NULL, 0);
    ck_assert_uint_eq(ts_keep_orphans(dir, found, 8), 5);
    ck_assert_uint_eq(found[0], 1);
    close(pipes[0]);
    close(pipes[1]);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(files_that_were_set_aside_are_named_too) {
    uint32_t worker = 0;
    bool aside = false;
    ck_assert(ts_keep_name("worker-17.keep", &worker, &aside) && worker == 17 && !aside);
    ck_assert(ts_keep_name("worker-3.keep.1111222233334444", &worker, &aside) && worker == 3 && aside);
    ck_assert(!ts_keep_name("worker-3.keep.1111222233334444", &worker, NULL));
    ck_assert(!ts_keep_name("worker-3.keep.111122223333444", &worker, &aside));
    ck_assert(!ts_keep_name("worker-3.keep.11112222333344445", &worker, &aside));
    ck_assert(!ts_keep_name("worker-3.keep.111122223333444x", &worker, &aside));
    ck_assert(!ts_keep_name("worker-3.keep.1111222233334444.partial", &worker, &aside));
    ck_assert(!ts_keep_name("worker-3.keep.moved", &worker, &aside));
}
END_TEST

TCase *test_keep_orphans(void);
TCase *test_keep_orphans(void) {
    TCase *tests = tcase_create("keep_orphans");
    tcase_add_test(tests, the_lowest_whose_files_nobody_has);
    tcase_add_test(tests, files_that_were_set_aside_are_named_too);
    return tests;
}
