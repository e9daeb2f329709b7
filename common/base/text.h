/* SPDX-License-Identifier: Apache-2.0 */
/* Names from outside: whether logs and JSON can hold them, and how those are told that cannot. */
#ifndef TS_BASE_TEXT_H
#define TS_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Whether all of it is UTF-8 (RFC 3629) without control characters (U+0000 to U+001F, U+007F). */
bool ts_text_is_plain(const char *text);
/*
 * On one line, in plain text: what is not plain as \xHH, a backslash doubled; what does not fit is cut, never in the middle
 * of a character, and ends in "...".
 * out: [out] capacity bytes, at least 8. Returns: out.
 */
const char *ts_text_escape(const char *text, char *out, size_t capacity);

#endif
