/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of configs of relays, and of robust aggregation where pushes are sparse. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/config/config.h"
#include "tests/unit/unit.h"

static char folder[] = "/tmp/terse-unit-XXXXXX";
static char below_path[64], above_path[64];

static void setup(void) {
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(below_path, sizeof below_path, "%s/below.yaml", folder);
    snprintf(above_path, sizeof above_path, "%s/above.yaml", folder);
}

static void teardown(void) {
    unlink(below_path);
    unlink(above_path);
    rmdir(folder);
}

static void put(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static ts_config *load(const char *path) {
    ts_config *config = NULL;
    ts_error error = {""};
    ck_assert_msg(ts_config_load(path, NULL, 0, &config, &error) == TERSE_OK, "%s", error.text);
    return config;
}

START_TEST(a_relay_reads_the_file_of_the_link) {
    ts_error error = {""};
    put(below_path, "servers: {group: rack}\nupstream: {config: above.yaml}\n");
    put(above_path, "servers: {group: world}\npush: {default: topk:0.01}\n");
    ts_config *below = load(below_path), *above = NULL;
    ck_assert_ok(ts_config_load_above(below, below_path, &above, &error));
    ck_assert_str_eq(above->servers.group, "world");
    ck_assert_str_eq(above->push.default_pipeline, "topk:0.01");
    ts_config_free(above);
    ts_config_free(below);
}
END_TEST

static const struct {
    const char *below, *above, *said;
} refused[] = {
    {"servers: {group: rack}\n", "{}\n", "below.yaml: upstream.config is missing"},
    {"servers: {group: rack}\nupstream: {config: above.yaml}\n", "servers: {group: rack}\n", "each level needs a name of its own"},
    {"servers: {group: rack}\nupstream: {config: above.yaml}\n", "servers: {group: world}\ncheckpoint:\n  dir: run/ckpt\n",
     "above.yaml:3: checkpoint.dir: "},
    {"servers: {group: rack}\nupstream: {config: above.yaml}\n", "servers: {group: world}\nerror_feedback: {flush: true}\n",
     "above.yaml:2: error_feedback.flush: "},
    {"servers: {group: rack}\nupstream: {config: above.yaml}\n", "servers: {groups: world}\n", "above.yaml:1: servers.groups"},
};

START_TEST(what_a_relay_cannot_be_above_is_refused_by_line) {
    ts_config *untouched = (ts_config *)&refused, *above = untouched;
    ts_error error = {""};
    put(below_path, refused[_i].below);
    put(above_path, refused[_i].above);
    ts_config *below = load(below_path);
    ck_assert_status(ts_config_load_above(below, below_path, &above, &error), TERSE_ECONFIG);
    ck_assert_msg(strstr(error.text, refused[_i].said) != NULL, "%s", error.text);
    ck_assert_ptr_eq(above, untouched);
    ts_config_free(below);
}
END_TEST

/* The same file is none of a relay's business when a server or a worker reads it. */
START_TEST(the_file_of_the_link_is_the_servers_too) {
    put(above_path, "servers: {group: world}\ncheckpoint: {dir: run/ckpt}\nerror_feedback: {flush: true}\n");
    ts_config_free(load(above_path));
}
END_TEST

START_TEST(a_relays_own_file_has_no_checkpoints) {
    ts_config *config = NULL;
    ts_error error = {""};
    put(above_path, "servers: {group: world}\n");
    put(below_path, "servers: {group: rack}\nupstream: {config: above.yaml}\ncheckpoint: {dir: run/ckpt}\n");
    ck_assert_status(ts_config_load(below_path, NULL, 0, &config, &error), TERSE_ECONFIG);
    ck_assert_ptr_nonnull(strstr(error.text, "below.yaml:3: checkpoint.dir: "));
}
END_TEST

static void gather(void *context, const char *text) {
    char *all = context;
    strncat(all, text, 1023 - strlen(all));
}

START_TEST(robust_orders_of_sparse_pushes_are_noted) {
    static const struct {
        const char *robust, *push, *said;
    } cases[] = {{"median", "topk:0.01", "fewer than half of the workers"}, {"trimmed", "topk:0.01", "those left out"},
                 {"clip", "topk:0.01", NULL},  {"none", "topk:0.01", NULL},
                 {"median", "int8", NULL},     {"trimmed", "dense", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256], all[1024] = "";
        snprintf(text, sizeof text, "aggregation: {robust: %s}\npush: {default: \"%s\"}\n", cases[i].robust, cases[i].push);
        put(above_path, text);
        ts_config *config = load(above_path);
        ts_config_notes(config, gather, all);
        const char *note = strstr(all, "aggregation.robust");
        if (cases[i].said) ck_assert_msg(note && strstr(note, cases[i].said), "%s with %s: %s", cases[i].robust, cases[i].push, all);
        else ck_assert_msg(!note, "%s with %s: %s", cases[i].robust, cases[i].push, all);
        ts_config_free(config);
    }
}
END_TEST

TCase *test_config_relay(void);
TCase *test_config_relay(void) {
    TCase *tests = tcase_create("config_relay");
    tcase_add_unchecked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_relay_reads_the_file_of_the_link);
    tcase_add_loop_test(tests, what_a_relay_cannot_be_above_is_refused_by_line, 0, (int)(sizeof refused / sizeof refused[0]));
    tcase_add_test(tests, the_file_of_the_link_is_the_servers_too);
    tcase_add_test(tests, a_relays_own_file_has_no_checkpoints);
    tcase_add_test(tests, robust_orders_of_sparse_pushes_are_noted);
    return tests;
}
