/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log: logfmt lines on standard error (or another sink), with levels.
 *   ts_log(TS_LOG_WARN, "server", "peer dropped", "peer=%u reason=\"%s\"", peer, reason);
 * Each is one line whose values a logfmt reader gets back, whatever the arguments hold: what is not plain text (text.h) is
 * written as \xHH, quotes and backslashes inside of a quoted value get a backslash, and a value that the format does not
 * quote is quoted where it has to be. What is longer than 4 KiB is cut, and ends in "...".
 */
#ifndef TS_BASE_LOG_H
#define TS_BASE_LOG_H

#include <stdio.h>

#include "common/base/status.h"

typedef enum { TS_LOG_NONE, TS_LOG_ERROR, TS_LOG_WARN, TS_LOG_INFO, TS_LOG_DEBUG } ts_log_level;

/*
 * Writes one line: level, who, message, then key=value pairs from `format` (may be ""), of less than 512 characters, with
 * blanks only between pairs and inside of quotes. Thread: any.
 */
void ts_log(ts_log_level level, const char *who, const char *message, const char *format, ...)
    TERSE_PRINTF(4, 5);

/* Lines above this level are dropped; the default is TS_LOG_INFO. Thread: before others start. */
void ts_log_set_level(ts_log_level level);
ts_log_level ts_log_get_level(void);
/* "none", "error", "warn", "info" or "debug". Thread: any. Returns TERSE_OK, TERSE_EINVAL. */
terse_status ts_log_level_parse(const char *name, ts_log_level *level) TERSE_NODISCARD;
/* A short name put into every line, as "server0"; copied. Thread: before others start. */
void ts_log_set_name(const char *name);
/* Another stream than stderr; [borrow]. Tests. */
void ts_log_set_stream(FILE *stream);

#endif
