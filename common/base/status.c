/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/status.h"

#include <stdarg.h>
#include <stdio.h>

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

terse_status ts_error_set(ts_error *error, terse_status status, const char *format, ...) {
    if (!error) return status;
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    return status;
}
