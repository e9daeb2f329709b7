/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/status.h"

#include <stdio.h>

#include "common/base/text.h"

const char *terse_strerror(terse_status status) {
    switch (status) {
#define X(name, value, sentence)                                                \
    case TERSE_##name: return sentence;
        TERSE_STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

const char *terse_status_name(terse_status status) {
    switch (status) {
#define X(name, value, sentence)                                                \
    case TERSE_##name: return #name;
        TERSE_STATUS_LIST(X)
#undef X
    }
    return "UNKNOWN";
}

void ts_error_write(ts_error *error, const char *format, va_list args) {
    char raw[2 * TS_ERROR_CHARS]; /* of what is cut here nothing would fit anyway */
    raw[0] = '\0';
    vsnprintf(raw, sizeof raw, format, args);
    ts_text_plain(raw, error->text, sizeof error->text);
}

terse_status ts_error_set(ts_error *error, terse_status status, const char *format, ...) {
    if (!error) return status;
    va_list args;
    va_start(args, format);
    ts_error_write(error, format, args);
    va_end(args);
    return status;
}
