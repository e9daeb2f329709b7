/* SPDX-License-Identifier: Apache-2.0 */
/* Internal side of the status codes: error sentences and the two flow macros. */
#ifndef TS_BASE_STATUS_H
#define TS_BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

#include "common/base/terse_status.h"

#define TS_ERROR_CHARS 1024

/* A message for people: file, line, key, value, and what would be allowed. Plain text (text.h), whatever it was made of. */
typedef struct {
    char text[TS_ERROR_CHARS];
} ts_error;

/*
 * Writes a sentence into `error` and hands back `status`, so that a refusal is one line.
 * error: [out] may be NULL when nobody wants the sentence.
 * Thread: any. Returns: status.
 */
terse_status ts_error_set(ts_error *error, terse_status status, const char *format, ...)
    TERSE_PRINTF(3, 4);

/* The sentence alone; what is not plain text in it as \xHH, so that logs and JSON can hold it. Thread: any. */
void ts_error_write(ts_error *error, const char *format, va_list args) TERSE_PRINTF(2, 0);

/* Forward: leave with the callee's status when it is not TERSE_OK. */
#define TS_TRY(expression)                                                      \
    do {                                                                        \
        terse_status ts_try_status = (expression);                              \
        if (ts_try_status != TERSE_OK) return ts_try_status;                    \
    } while (0)

/* Reject: leave with `status` when what came from outside does not hold. */
#define TS_REQUIRE(condition, status)                                           \
    do {                                                                        \
        if (!(condition)) return (status);                                      \
    } while (0)

#endif
