/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in a config file or behind --set, whatever it is made of: taken as it was meant, or refused by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/config/config.h"
#include "common/config/config_keys.h"
#include "common/config/config_text.h"
#include "common/contract/contract.h"
#include "tests/unit/unit.h"

/* Loads `bytes` of text as a file of its own. path: [out] where it lay. */
static terse_status load_bytes(const char *text, size_t bytes, const char *override, char path[32], ts_config **out, ts_error *error) {
    strcpy(path, "/tmp/terse-values-XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, bytes), (ssize_t)bytes);
    close(fd);
    terse_status status = ts_config_load(path, &override, override ? 1 : 0, out, error);
    unlink(path);
    return status;
}

static void must_refuse(const char *text, size_t bytes, const char *override, const char *said) {
    char path[32], wanted[400];
    ts_config *config = NULL;
    ts_error error = {""};
    ck_assert_status(load_bytes(text, bytes, override, path, &config, &error), TERSE_ECONFIG);
    snprintf(wanted, sizeof wanted, "%s%s", override ? "" : path, said);
    ck_assert_msg(strncmp(error.text, wanted, strlen(wanted)) == 0, "said  %s\nnot   %s", error.text, wanted);
    ck_assert_uint_eq(ts_config_text_printable(error.text, strlen(error.text)), strlen(error.text));
    ck_assert_ptr_null(config);
}

#define FILE_SAYS(text, said) must_refuse(text, sizeof(text) - 1, NULL, said)
#define SET_SAYS(override, said) must_refuse("{}", 2, override, said)

START_TEST(bytes_that_are_no_text_are_refused_where_they_stand) {
    FILE_SAYS("training:\n  epochs: 3\n  # caf\xe9\n", ":3: not text in UTF-8: ");
    FILE_SAYS("training:\n  model: ml\0p\n", ":2: not text in UTF-8: ");
    FILE_SAYS("\xff", ":1: not text in UTF-8: ");
    FILE_SAYS("training:\n  model: \"\\x85\"\n", ":2: training.model: \"??\": holds a control character at byte 1");
    FILE_SAYS("training: {model: mlp,\n  data: \"a\\uFEFFb\"}\n", ":2: training.data: \"a???b\": allowed: one of");
    SET_SAYS("training.model=\xff\xfe", "--set training.model=??: training.model: \"??\": not UTF-8 at byte 1; allowed: text in UTF-8");
    SET_SAYS("training.model=ab\xc3", "--set training.model=ab?: training.model: \"ab?\": not UTF-8 at byte 3");
    SET_SAYS("optimizer.lr=\xff", "--set optimizer.lr=?: optimizer.lr: \"?\": not UTF-8 at byte 1");
    SET_SAYS("push.default=int8\xff", "--set push.default=int8?: push.default: \"int8?\": not UTF-8 at byte 5");
    SET_SAYS("push.rules=[{match: \"\xff\", pipeline: int8}]",
             "--set push.rules=[{match: \"?\", pipeline: int8}]: push.rules: not text in UTF-8: ");
    SET_SAYS("training.model=\xc2\x85", "--set training.model=??: training.model: \"??\": holds a control character at byte 1");
    SET_SAYS("\xfe=1", "--set ?=1: ?: unknown key");
}
END_TEST

START_TEST(an_empty_path_is_called_empty) {
    ts_config *config = NULL;
    ts_error error = {""};
    ck_assert_status(ts_config_load("", NULL, 0, &config, &error), TERSE_EIO);
    ck_assert_str_eq(error.text, "the path of the config is empty; allowed: a YAML file");
}
END_TEST

START_TEST(utf8_is_told_from_what_only_looks_like_it) {
    static const char *const good[] = {"", "plain", "\xc2\xa0", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "\xf8\x88\x80\x80\x80", "\xe2\x82", "\xc3(", "\xff"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) ck_assert_uint_eq(ts_config_text_utf8(good[i], strlen(good[i])), strlen(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[16], shown[16];
        snprintf(text, sizeof text, "ab%s", bad[i]);
        ck_assert_msg(ts_config_text_utf8(text, strlen(text)) == 2, "%zu", i);
        strcpy(shown, text);
        ts_config_text_show(shown);
        ck_assert_msg(strncmp(shown, "ab?", 3) == 0 && ts_config_text_utf8(shown, strlen(shown)) == strlen(text), "%zu: %s", i, shown);
    }
}
END_TEST

START_TEST(numbers_that_would_count_as_nothing_are_refused) {
    SET_SAYS("optimizer.lr=1e-400", "--set optimizer.lr=1e-400: optimizer.lr: \"1e-400\": too small: it would count as 0");
    SET_SAYS("optimizer.lr=1e-50", "--set optimizer.lr=1e-50: optimizer.lr: \"1e-50\": too small");
    SET_SAYS("error_feedback.clip_norm=0.0001e-100", "--set error_feedback.clip_norm=0.0001e-100: error_feedback.clip_norm: \"0.0001e-100\": too small");
    FILE_SAYS("optimizer:\n  lr: 1e-400\n", ":2: optimizer.lr: \"1e-400\": too small: it would count as 0, since the least 32-bit float is 1.4e-45; allowed: a number of");
    static const char *const taken[] = {"optimizer.lr=0", "optimizer.lr=0.000", "optimizer.lr=0e-400", "optimizer.lr=0E-4", "optimizer.lr=1e-40"};
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        char path[32];
        ts_config *config = NULL;
        ts_error error = {""};
        terse_status status = load_bytes("{}", 2, taken[i], path, &config, &error);
        ck_assert_msg(status == TERSE_OK, "%s", error.text);
        ck_assert_double_eq(config->optimizer.lr, i == 4 ? 1e-40 : 0);
        ts_config_free(config);
    }
}
END_TEST

START_TEST(patterns_that_are_not_closed_are_refused) {
    static const char *const good[] = {"*", "a?b", "[a-z]*", "[]]", "[!]]x", "[^]a]", "[[:alpha:]]", "[a[]", "\\[a", "[\\]]", "a]", "[[.-.]b]"};
    static const struct {
        const char *pattern;
        size_t at;
    } bad[] = {{"[a", 0}, {"fc[", 2}, {"a[]", 1}, {"[!]", 0}, {"[[:alpha:]", 0}, {"[a]b[c", 4}, {"[a\\]", 0}, {"end\\", 3}};
    size_t at = 99;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) ck_assert_msg(!ts_config_pattern_fault(good[i], &at), "%s", good[i]);
    ck_assert_uint_eq(at, 99);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_msg(ts_config_pattern_fault(bad[i].pattern, &at), "%s", bad[i].pattern);
        ck_assert_uint_eq(at, bad[i].at);
    }
    FILE_SAYS("push:\n  rules:\n    - {match: \"[a\", pipeline: int8}\n",
              ":3: push.rules[0].match: \"[a\": the '[' at byte 1 is never closed; allowed: *, ?, [a-z], and \\[ for the character itself");
    FILE_SAYS("pull:\n  rules:\n    - {match: 'a\\', pipeline: int8}\n", ":3: pull.rules[0].match: \"a\\\": nothing stands behind the '\\' at byte 2");
}
END_TEST

/* Each key with its documented default, but those that name data to be there. */
static size_t all_defaults(char *text, size_t capacity) {
    size_t at = 0;
    const char *before = "";
    for (unsigned k = 0; k < ts_config_keys_count; k++) {
        const ts_config_key *key = &ts_config_keys[k];
        int depth = 0;
        bool same = true;
        if (!key->fallback || strncmp(key->name, "training.data", 13) == 0 || strcmp(key->name, "training.model") == 0) continue;
        const char *part = key->name;
        for (const char *dot; (dot = strchr(part, '.')) != NULL; part = dot + 1, depth++) {
            same = same && strncmp(before, key->name, (size_t)(dot - key->name) + 1) == 0;
            if (!same) at += (size_t)snprintf(text + at, capacity - at, "%*s%.*s:\n", 2 * depth, "", (int)(dot - part), part);
        }
        at += (size_t)snprintf(text + at, capacity - at, "%*s%s: %s\n", 2 * depth, "", part, key->fallback);
        ck_assert_uint_lt(at, capacity);
        before = key->name;
    }
    return at;
}

START_TEST(a_file_of_all_defaults_is_the_empty_file) {
    char text[8192], path[32];
    size_t len = all_defaults(text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "  quorum: 0\n"));
    ck_assert_ptr_nonnull(strstr(text, "  trim: 0.1\n"));
    ts_config *said = NULL, *empty = NULL;
    ts_error error = {""};
    terse_status status = load_bytes(text, len, NULL, path, &said, &error);
    ck_assert_msg(status == TERSE_OK, "%s\n%s", error.text, text);
    ck_assert_ok(load_bytes("{}", 2, NULL, path, &empty, &error));
    ts_contract *one, *other;
    ts_error difference = {""};
    ck_assert_ok(ts_config_contract(said, &one));
    ck_assert_ok(ts_config_contract(empty, &other));
    ck_assert_msg(!ts_contract_difference(one, "said", other, "empty", &difference), "%s", difference.text);
    ck_assert_mem_eq(&said->aggregation, &empty->aggregation, sizeof said->aggregation);
    ck_assert_mem_eq(&said->consistency, &empty->consistency, sizeof said->consistency);
    ts_contract_destroy(one);
    ts_contract_destroy(other);
    ts_config_free(said);
    ts_config_free(empty);
}
END_TEST

/* A default that is spelt otherwise than the same value in a file would be taken for a choice. */
START_TEST(defaults_are_spelt_as_values_are) {
    for (unsigned k = 0; k < ts_config_keys_count; k++) {
        const ts_config_key *key = &ts_config_keys[k];
        char *spelt = NULL;
        ts_error why = {""};
        if (!key->fallback) continue;
        ck_assert_ok(ts_config_key_spell(key, key->fallback, strlen(key->fallback), &spelt, &why));
        ck_assert_str_eq(spelt, key->fallback);
        ts_mem_free(spelt);
    }
}
END_TEST

START_TEST(another_value_than_the_default_still_needs_its_mode) {
    SET_SAYS("consistency.quorum=1", "--set consistency.quorum=1: consistency.quorum: \"1\": only with consistency.stragglers");
    SET_SAYS("consistency.straggler_s=2", "--set consistency.straggler_s=2: consistency.straggler_s: \"2\": only with");
    SET_SAYS("aggregation.trim=0.2", "--set aggregation.trim=0.2: aggregation.trim: \"0.2\": only with aggregation.robust trimmed");
    SET_SAYS("aggregation.clip_norm=2", "--set aggregation.clip_norm=2: aggregation.clip_norm: \"2\": only with aggregation.robust clip");
    SET_SAYS("error_feedback.beta=0.8", "--set error_feedback.beta=0.8: error_feedback.beta: \"0.8\": only with");
    SET_SAYS("checkpoint.keep=4", "--set checkpoint.keep=4: checkpoint.keep: \"4\": needs checkpoint.dir");
    SET_SAYS("optimizer.beta1=0.8", "--set optimizer.beta1=0.8: optimizer.beta1: \"0.8\": not used by optimizer.name sgd");
}
END_TEST

START_TEST(slips_are_no_values) {
    SET_SAYS("error_feedback.keep=Off", "--set error_feedback.keep=Off: error_feedback.keep: \"Off\": allowed: off, auto, or a folder with a '/' in it");
    SET_SAYS("error_feedback.keep=on", "--set error_feedback.keep=on: error_feedback.keep: \"on\": allowed: off, auto, or a folder");
    SET_SAYS("worker.id=1,3,1", "--set worker.id=1,3,1: worker.id: \"1,3,1\": worker 1 is there twice; allowed: each number once");
    SET_SAYS("worker.id=2,02", "--set worker.id=2,02: worker.id: \"2,02\": worker 2 is there twice");
    SET_SAYS("job.name=..", "--set job.name=..: job.name: \"..\": allowed: 1 to 31 letters, digits, '.', '_' and '-', no '.' first");
    SET_SAYS("consistency.deadline_s=1e-30", "--set consistency.deadline_s=1e-30: consistency.deadline_s: \"1e-30\": allowed: a number of at least 0.001 and");
    SET_SAYS("limits.frame_bytes=65536", "--set limits.frame_bytes=65536: limits.frame_bytes: \"65536\": allowed: a whole number from 65544");
}
END_TEST

/* libyaml's time is the square of the depth; a megabyte of it must not take minutes. */
START_TEST(depth_has_an_end) {
    static char deep[1000001] = "push:\n  rules: ";
    size_t head = strlen(deep);
    memset(deep + head, '[', sizeof deep - 1 - head);
    must_refuse(deep, sizeof deep - 1, NULL, ":2: lists and sections lie in each other too deep here; allowed: 64 levels");
    FILE_SAYS("push: {rules: [[[[[[[[]]]]]]]]}", ":1: push.rules");
}
END_TEST

/* ---- places ------------------------------------------------------------------------------------------------------------ */

/* One --set on an empty file of the folder. Returns what was said, "" when it is fine. */
static const char *examine(const char *dir, const char *key, const char *name) {
    static ts_error error;
    char path[64], override[128];
    const char *const overrides[] = {override};
    ts_config *config = NULL;
    snprintf(path, sizeof path, "%s/empty.yaml", dir);
    snprintf(override, sizeof override, "%s=%s%s%s", key, name[0] == '/' ? "" : dir, name[0] == '/' ? "" : "/", name);
    error.text[0] = '\0';
    terse_status status = ts_config_examine(path, overrides, 1, &config, &error);
    ck_assert(status == TERSE_OK || status == TERSE_ECONFIG);
    ck_assert_int_eq(status == TERSE_OK, error.text[0] == '\0');
    ts_config_free(config);
    if (status != TERSE_OK) { /* a launch says it itself */
        ck_assert_ok(ts_config_load(path, overrides, 1, &config, NULL));
        ts_config_free(config);
    }
    return error.text;
}

static void make(const char *dir, const char *name, mode_t mode) {
    char path[64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    ck_assert_int_eq(mkdir(path, mode), 0);
    ck_assert_int_eq(chmod(path, mode), 0);
}

#define SAYS(key, name, words) \
    ck_assert_msg(words[0] ? strstr(examine(dir, key, name), words) != NULL : !examine(dir, key, name)[0], "%s: %s", name, examine(dir, key, name))

START_TEST(places_that_cannot_be_written_are_refused) {
    char dir[] = "/tmp/terse-places-XXXXXX", path[64], command[64];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/empty.yaml", dir);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs("{}\n", file);
    fclose(file);
    ck_assert_int_eq(chmod(dir, 0777), 0);
    bool root = geteuid() == 0; /* whom every folder lets in */
    if (root) ck_assert_int_eq(setresuid(65534, 65534, 0), 0);
    make(dir, "own", 0700);
    make(dir, "open", 0755);
    make(dir, "closed", 0500);
    snprintf(path, sizeof path, "%s/link", dir);
    ck_assert_int_eq(symlink("own", path), 0);
    SAYS("checkpoint.dir", "own", "");
    SAYS("checkpoint.dir", "open", "");
    SAYS("checkpoint.dir", "link", "");
    SAYS("checkpoint.dir", "new/below/it/", "");
    SAYS("checkpoint.dir", "empty.yaml", "checkpoint.dir: \"/tmp/terse-places-");
    SAYS("checkpoint.dir", "empty.yaml", "empty.yaml: not a folder; allowed: a folder that can be written to, or one that can be made");
    SAYS("checkpoint.dir", "empty.yaml/below", "Not a directory; allowed: ");
    SAYS("checkpoint.dir", "closed", "closed: Permission denied; allowed: ");
    SAYS("checkpoint.dir", "closed/new/below", "closed: Permission denied; allowed: ");
    SAYS("error_feedback.keep", "own", "");
    SAYS("error_feedback.keep", "own/new/", "");
    SAYS("error_feedback.keep", "new/below", "new: No such file or directory; allowed: ");
    SAYS("error_feedback.keep", "open", "and mode 0755; allowed: a folder of your own, of mode 0700");
    SAYS("error_feedback.keep", "link", "a link; allowed: a folder");
    SAYS("error_feedback.keep", "closed", "closed: Permission denied");
    SAYS("error_feedback.keep", "closed/new", "closed: Permission denied");
    SAYS("error_feedback.keep", "empty.yaml", "not a folder");
    SAYS("error_feedback.keep", "/no/such/place", "/no/such: No such file or directory");
    if (root) ck_assert_int_eq(setresuid(0, 0, 0), 0);
    snprintf(command, sizeof command, "rm -r %s", dir);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

TCase *test_config_values(void);
TCase *test_config_values(void) {
    TCase *t = tcase_create("config_values");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, bytes_that_are_no_text_are_refused_where_they_stand);
    tcase_add_test(t, an_empty_path_is_called_empty);
    tcase_add_test(t, utf8_is_told_from_what_only_looks_like_it);
    tcase_add_test(t, numbers_that_would_count_as_nothing_are_refused);
    tcase_add_test(t, patterns_that_are_not_closed_are_refused);
    tcase_add_test(t, a_file_of_all_defaults_is_the_empty_file);
    tcase_add_test(t, defaults_are_spelt_as_values_are);
    tcase_add_test(t, another_value_than_the_default_still_needs_its_mode);
    tcase_add_test(t, slips_are_no_values);
    tcase_add_test(t, depth_has_an_end);
    tcase_add_test(t, places_that_cannot_be_written_are_refused);
    return t;
}
