/* SPDX-License-Identifier: Apache-2.0 */
/* terse-worker --worker-id: which worker a process would be. */
#include <string.h>

#include "common/config/config.h"
#include "common/net/transport.h"
#include "tests/unit/unit.h"
#include "worker/trainer/options.h"

#define CONFIG "tests/sim/sim.yaml"

START_TEST(the_option_stands_for_its_key) {
    static const char *const ways[][5] = {{"terse-worker", "--worker-id", "3", CONFIG, NULL}, {"terse-worker", CONFIG, "--worker-id=3", NULL}};
    for (unsigned i = 0; i < 2; i++) {
        ts_worker_options options;
        ts_error error = {""};
        char *words[5];
        int count = 0;
        for (; ways[i][count]; count++) words[count] = (char *)(uintptr_t)ways[i][count];
        terse_status status = ts_worker_options_read(count, words, &options, &error);
        ck_assert_msg(status == TERSE_OK, "%s", error.text);
        ck_assert_str_eq(options.id_override, "worker.id=3");
        ck_assert_str_eq(options.words[1], "--set"); /* in front: a --set of the user's counts more */
        ck_assert_str_eq(options.words[2], "worker.id=3");
        ts_worker_options_free(&options);
    }
    char *bare[] = {(char *)(uintptr_t)"terse-worker", (char *)(uintptr_t)CONFIG, (char *)(uintptr_t)"--worker-id"};
    ts_worker_options options;
    ts_error error = {""};
    ck_assert_int_eq(ts_worker_options_read(3, bare, &options, &error), TERSE_EINVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "--worker-id needs a word behind it"));
    /* Behind --set it is the user's own word. */
    char *quoted[] = {(char *)(uintptr_t)"terse-worker", (char *)(uintptr_t)CONFIG, (char *)(uintptr_t)"--set", (char *)(uintptr_t)"job.name=--worker-id"};
    ck_assert_ok(ts_worker_options_read(4, quoted, &options, &error));
    ck_assert_ptr_null(options.id_override);
    ts_worker_options_free(&options);
}
END_TEST

static ts_config *load(const char *set, terse_status expected, ts_error *error) {
    const char *overrides[] = {set};
    ts_config *config = NULL;
    ck_assert_int_eq(ts_config_load(CONFIG, overrides, 1, &config, error), expected);
    return config;
}

START_TEST(numbers_are_rank_by_rank) {
    ts_error error = {""};
    ts_config *config = load("worker.id=new", TERSE_OK, &error);
    ck_assert(!ts_config_joins(config));
    ts_config_free(config);
    config = load("worker.id=any", TERSE_OK, &error);
    ck_assert(ts_config_joins(config));
    ck_assert_uint_eq(ts_config_worker_id(config, 5), TS_WORKER_ANY);
    ts_config_free(config);
    config = load("worker.id=4,0,17", TERSE_OK, &error);
    ck_assert(ts_config_joins(config));
    ck_assert_uint_eq(ts_config_worker_id(config, 0), 4);
    ck_assert_uint_eq(ts_config_worker_id(config, 1), 0);
    ck_assert_uint_eq(ts_config_worker_id(config, 2), 17);
    ts_config_free(config);
}
END_TEST

START_TEST(nonsense_is_refused_by_name) {
    static const char *const bad[] = {"worker.id=", "worker.id=1,", "worker.id=,1", "worker.id=-1", "worker.id=1 2", "worker.id=some",
                                      "worker.id=1,any", "worker.id=99999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ts_error error = {""};
        const char *overrides[] = {bad[i]};
        ts_config *config = NULL;
        ck_assert_msg(ts_config_load(CONFIG, overrides, 1, &config, &error) != TERSE_OK, "%s", bad[i]);
        ck_assert_msg(strstr(error.text, "worker.id"), "%s: %s", bad[i], error.text);
    }
}
END_TEST

TCase *test_worker_id(void);
TCase *test_worker_id(void) {
    TCase *tests = tcase_create("worker_id");
    tcase_add_test(tests, the_option_stands_for_its_key);
    tcase_add_test(tests, numbers_are_rank_by_rank);
    tcase_add_test(tests, nonsense_is_refused_by_name);
    return tests;
}
