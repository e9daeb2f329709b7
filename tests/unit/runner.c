/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs all unit tests, or those whose module name is given: unit-tests [MODULE ...]
 * Closes with "unit: N passed, N failed".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static int wanted(const char *name, int argc, char **argv) {
    if (argc < 2) return 1;
    for (int i = 1; i < argc; i++) {
        if (strstr(name, argv[i])) return 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    SRunner *runner = srunner_create(NULL);
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
        if (!wanted(modules[i].name, argc, argv)) continue;
        Suite *suite = suite_create(modules[i].name);
        suite_add_tcase(suite, modules[i].create());
        srunner_add_suite(runner, suite);
    }
    srunner_run_all(runner, CK_NORMAL);
    int run = srunner_ntests_run(runner), failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    printf("unit: %d passed, %d failed\n", run - failed, failed);
    return run > 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
