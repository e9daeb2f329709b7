/* SPDX-License-Identifier: Apache-2.0 */
/* The log: whatever its arguments hold, a line is one line, and a reader of logfmt gets them back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/text.h"
#include "tests/unit/unit.h"

#define PAIRS 24

/* What a strict reader makes of a line. */
typedef struct {
    char key[PAIRS][64];
    char value[PAIRS][5000];
    int count;
} parsed;

static const char *read_quoted(const char *at, char *to) {
    while (*at != '"') {
        if (*at == '\0') ck_abort_msg("a quote has no end"); /* an assertion a character would take Check a second a test */
        if (*at == '\\' && *++at != '"' && *at != '\\') ck_abort_msg("\\%c is no escape", *at);
        *to++ = *at++;
    }
    *to = '\0';
    return at + 1;
}

static const char *read_bare(const char *at, char *to, const char *none_of, const char *until) {
    while (*at && !strchr(until, *at)) {
        if (strchr(none_of, *at)) ck_abort_msg("a bare %c", *at);
        *to++ = *at++;
    }
    *to = '\0';
    return at;
}

static void parse(const char *line, parsed *out) {
    out->count = 0;
    for (const char *at = line; *at; out->count++) {
        ck_assert_int_lt(out->count, PAIRS);
        at = read_bare(at, out->key[out->count], "\"", " =");
        ck_assert_msg(out->key[out->count][0] != '\0', "no key: %s", at);
        out->value[out->count][0] = '\0';
        if (*at == '=' && at[1] == '"') at = read_quoted(at + 2, out->value[out->count]);
        else if (*at == '=') at = read_bare(at + 1, out->value[out->count], "=\"\\", " ");
        ck_assert_msg(!*at || (*at == ' ' && at[1]), "behind a value: %s", at);
        at += *at == ' ';
    }
}

static const char *value_of(const parsed *line, const char *key) {
    for (int i = 0; i < line->count; i++)
        if (strcmp(line->key[i], key) == 0) return line->value[i];
    ck_abort_msg("no %s", key);
    return NULL;
}

static parsed line; /* large */
static char *written;
static size_t written_bytes;
static FILE *stream;
static ts_log_level level_before;

static void begin(void) {
    level_before = ts_log_get_level(); /* other tests of the process may have made the log silent */
    ts_log_set_level(TS_LOG_INFO);
    stream = open_memstream(&written, &written_bytes);
    ck_assert_ptr_nonnull(stream);
    ts_log_set_stream(stream);
}

static void close_stream(void) {
    ts_log_set_stream(NULL);
    ts_log_set_level(level_before);
    fclose(stream);
}

static void end(void) {
    close_stream();
    ck_assert_uint_gt(written_bytes, 0);
    ck_assert_ptr_eq(memchr(written, '\n', written_bytes), written + written_bytes - 1);
    written[written_bytes - 1] = '\0';
    ck_assert_msg(ts_text_is_plain(written), "%s", written);
    parse(written, &line);
    free(written);
}

START_TEST(values_come_back_whatever_they_hold) {
    static const char *const values[] = {"plain", "", "two words", "a=b", "\"", "\\", "q\" é/ck pt", "x\" forged=\"1", "\\\"", "%s%n", "權",
                                         "=", " ", "C:\\dir"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        const char *v = values[i];
        begin();
        ts_log(TS_LOG_ERROR, "test", "a \"message\"", "bare=%s quoted=\"%s\" two=\"%s/%s\" n=%u more=%s/%s real=%.6g last=\"%.*s\"", v, v, v, v, 7u,
               v, v, 0.5, 3, "abcd");
        end();
        char two[64];
        snprintf(two, sizeof two, "%s/%s", v, v);
        ck_assert_str_eq(value_of(&line, "from"), "test");
        ck_assert_str_eq(value_of(&line, "msg"), "a \"message\"");
        ck_assert_str_eq(value_of(&line, "bare"), v);
        ck_assert_str_eq(value_of(&line, "quoted"), v);
        ck_assert_str_eq(value_of(&line, "two"), two);
        ck_assert_str_eq(value_of(&line, "n"), "7");
        ck_assert_str_eq(value_of(&line, "more"), two);
        ck_assert_str_eq(value_of(&line, "real"), "0.5");
        ck_assert_str_eq(value_of(&line, "last"), "abc");
        ck_assert_int_eq(line.count, 11);
    }
}
END_TEST

START_TEST(no_argument_begins_another_line) {
    begin();
    ts_log(TS_LOG_ERROR, "test", "m", "a=%s b=\"%s\" %s=1", "x\ntime=2026", "my\nown \xff \x7f reason\xc3", "k\n=\" y");
    end();
    ck_assert_str_eq(value_of(&line, "a"), "x\\x0atime=2026");
    ck_assert_str_eq(value_of(&line, "b"), "my\\x0aown \\xff \\x7f reason\\xc3");
    ck_assert_str_eq(value_of(&line, "k____y"), "1");
}
END_TEST

START_TEST(ordinary_values_are_written_as_they_are) {
    begin();
    ts_log(TS_LOG_WARN, "test", "m", "job=%s reason=\"%s\" x=%g", "a.b-c_1", "why", 1e-3);
    close_stream();
    ck_assert_ptr_nonnull(strstr(written, " level=warn from=test msg=\"m\" job=a.b-c_1 reason=\"why\" x=0.001\n"));
    free(written);
}
END_TEST

/* At each length around the longest line: values of one, of two and of many bytes a character, quoted or not. */
START_TEST(long_lines_are_cut_and_stay_lines) {
    static const char *const units[] = {"x", "\"", "é", "\xff"};
    static const char *const formats[] = {"a=%s b=\"%s\" c=%u", "a=\"%s\" b=%s c=%u"};
    char *text = malloc(9000);
    ck_assert_ptr_nonnull(text);
    for (size_t u = 0; u < 4; u++)
        for (size_t len = 0; len < 4300; len += (len > 750 && len < 850) || (len > 1900 && len < 2100) || len > 3900 ? 1 : 97) {
            text[0] = '\0';
            for (size_t i = 0, bytes = strlen(units[u]); i + bytes <= len; i += bytes) memcpy(text + i, units[u], bytes + 1);
            begin();
            ts_log(TS_LOG_ERROR, "test", "m", formats[len % 2], text, "w", 5u);
            size_t bytes = (fflush(stream), written_bytes);
            end();
            ck_assert_uint_le(bytes, 4096);
            bool whole = strcmp(line.key[line.count - 1], "c") == 0;
            ck_assert(whole || strstr(line.key[line.count - 1], "...") || strstr(line.value[line.count - 1], "..."));
            if (len < 700) ck_assert(whole);
            if (len > 4096) ck_assert(!whole);
        }
    free(text);
}
END_TEST

TCase *test_log(void);
TCase *test_log(void) {
    TCase *tests = tcase_create("log");
    tcase_add_test(tests, values_come_back_whatever_they_hold);
    tcase_add_test(tests, no_argument_begins_another_line);
    tcase_add_test(tests, ordinary_values_are_written_as_they_are);
    tcase_add_test(tests, long_lines_are_cut_and_stay_lines);
    return tests;
}
