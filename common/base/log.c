/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/log.h"

#include <stdarg.h>
#include <string.h>
#include <time.h>

static struct {
    ts_log_level level;
    char name[64];
    FILE *stream;
} sink = {.level = TS_LOG_INFO};

static const char *const level_names[] = {"none", "error", "warn", "info", "debug"};

void ts_log_set_level(ts_log_level level) { sink.level = level; }
terse_status ts_log_level_parse(const char *name, ts_log_level *level) {
    for (unsigned i = 0; i < sizeof level_names / sizeof level_names[0]; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *level = (ts_log_level)i;
            return TERSE_OK;
        }
    }
    return TERSE_EINVAL;
}

ts_log_level ts_log_get_level(void) { return sink.level; }
void ts_log_set_name(const char *name) { snprintf(sink.name, sizeof sink.name, "%s", name); }
void ts_log_set_stream(FILE *stream) { sink.stream = stream; }

void ts_log(ts_log_level level, const char *who, const char *message, const char *format, ...) {
    if (level > sink.level) return;
    char line[2048];
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t at = strftime(line, sizeof line, "time=%Y-%m-%dT%H:%M:%S", &parts);
    int wrote = snprintf(line + at, sizeof line - at, ".%03ldZ level=%s%s%s from=%s msg=\"%s\"", now.tv_nsec / 1000000,
                         level_names[level], sink.name[0] ? " process=" : "", sink.name, who, message);
    if (wrote > 0) at += (size_t)wrote;
    if (at < sizeof line - 2 && format[0]) {
        line[at++] = ' ';
        va_list args;
        va_start(args, format);
        wrote = vsnprintf(line + at, sizeof line - at, format, args);
        va_end(args);
        if (wrote > 0) at += (size_t)wrote;
    }
    if (at > sizeof line - 2) at = sizeof line - 2;
    line[at++] = '\n';
    FILE *stream = sink.stream ? sink.stream : stderr;
    fwrite(line, 1, at, stream); /* one write a line, so that ranks do not mix theirs */
    fflush(stream);
}
