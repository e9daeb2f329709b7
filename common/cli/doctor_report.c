/* SPDX-License-Identifier: Apache-2.0 */
#include "common/cli/doctor_report.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>

static void say_json(const ts_doctor_report *report, const char *verdict, const char *what, const char *fix,
                     const char *found) {
    json_t *line = json_pack("{s:s, s:s, s:s, s:s, s:s?}", "verdict", verdict, "what", what, "where", report->where, "found",
                             found, "fix", fix);
    char *text = line ? json_dumps(line, JSON_PRESERVE_ORDER) : NULL;
    if (text) puts(text);
    free(text);
    json_decref(line);
}

void ts_doctor_say(ts_doctor_report *report, ts_doctor_verdict verdict, const char *what, const char *fix,
                   const char *format, ...) {
    static const char *const names[] = {"ok", "warn", "FAIL"};
    static const char *const colours[] = {"\033[32m", "\033[33m", "\033[31m"};
    report->warnings += verdict == TS_DOCTOR_WARN;
    report->failures += verdict == TS_DOCTOR_FAIL;
    if (verdict == TS_DOCTOR_OK && report->quiet) return;
    char found[1024], line[1400];
    va_list args;
    va_start(args, format);
    vsnprintf(found, sizeof found, format, args);
    va_end(args);
    if (report->json) {
        say_json(report, names[verdict], what, fix, found);
        return;
    }
    /* One write a line: ranks share a terminal. */
    snprintf(line, sizeof line, "%s%-4s%s  %s%s%s: %s", report->terminal ? colours[verdict] : "", names[verdict],
             report->terminal ? "\033[0m" : "", report->where, report->where[0] ? ": " : "", what, found);
    if (fix) printf("%s\n      fix: %s\n", line, fix);
    else printf("%s\n", line);
    fflush(stdout);
}
