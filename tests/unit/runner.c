/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs all unit tests, or those whose module name holds a word that is given: unit-tests [--at-once N] [WORD ...]
 * N processes (1 without the option) take module after module. Closes with "unit: N passed, N failed".
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/unit.h"

#ifndef TEST_LIST
#define TEST_LIST "test_list.h"
#endif

#define X(name) TCase *name(void);
#include TEST_LIST
#undef X

static const struct {
    const char *name;
    TCase *(*create)(void);
} modules[] = {
#define X(name) {#name, name},
#include TEST_LIST
#undef X
};

enum { MODULES = sizeof modules / sizeof modules[0], PROCESSES_MAX = 16 };

/* Shared by the processes. */
typedef struct {
    atomic_size_t taken, run, failed;
} tally;

static int wanted(const char *name, int words, char **word) {
    if (words == 0) return 1;
    for (int i = 0; i < words; i++) {
        if (strstr(name, word[i])) return 1;
    }
    return 0;
}

static void run_module(size_t module, tally *shared) {
    Suite *suite = suite_create(modules[module].name);
    suite_add_tcase(suite, modules[module].create());
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_SILENT);
    printf("%s: ", modules[module].name);
    srunner_print(runner, CK_NORMAL);
    atomic_fetch_add(&shared->run, (size_t)srunner_ntests_run(runner));
    atomic_fetch_add(&shared->failed, (size_t)srunner_ntests_failed(runner));
    srunner_free(runner);
}

/* From the end of the alphabet: simulations, which take longest, should not come last. */
static void take_modules(tally *shared, int words, char **word) {
    size_t next;
    while ((next = atomic_fetch_add(&shared->taken, 1)) < MODULES) {
        size_t module = MODULES - 1 - next;
        if (wanted(modules[module].name, words, word)) run_module(module, shared);
    }
}

/* Returns how many of the processes ended badly, which in a sanitizer's build is how they fail. */
static int run_beside(long count, tally *shared, int words, char **word) {
    pid_t pids[PROCESSES_MAX];
    int bad = 0;
    for (long i = 0; i < count; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            take_modules(shared, words, word);
            exit(EXIT_SUCCESS);
        }
    }
    for (long i = 0; i < count; i++) {
        int status = -1;
        if (pids[i] < 0 || waitpid(pids[i], &status, 0) != pids[i] || status != 0) bad++;
    }
    return bad;
}

int main(int argc, char **argv) {
    int first = 1;
    long at_once = 1;
    if (argc > 2 && strcmp(argv[1], "--at-once") == 0) {
        at_once = strtol(argv[2], NULL, 10);
        first = 3;
    }
    if (at_once < 1 || at_once > PROCESSES_MAX) {
        fprintf(stderr, "unit-tests: --at-once takes 1 to %d\n", PROCESSES_MAX);
        return 2;
    }
    tally *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return EXIT_FAILURE;
    setvbuf(stdout, NULL, _IOLBF, 1 << 16);
    int bad = 0;
    if (at_once > 1) bad = run_beside(at_once, shared, argc - first, argv + first);
    else take_modules(shared, argc - first, argv + first);
    size_t run = atomic_load(&shared->run), failed = atomic_load(&shared->failed);
    if (bad > 0) printf("unit: %d processes ended before their tests\n", bad);
    printf("unit: %zu passed, %zu failed\n", run - failed, failed + (size_t)bad);
    return run > 0 && failed == 0 && bad == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
