/* SPDX-License-Identifier: Apache-2.0 */
/* Text from outside: whether logs and JSON can hold it, and how that is told which they cannot. */
#ifndef TS_BASE_TEXT_H
#define TS_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether all of it is UTF-8 (RFC 3629) without control characters (U+0000 to U+001F, U+007F). */
bool ts_text_is_plain(const char *text);
/*
 * Whether it is a name that paths and command lines can hold: 1 to capacity - 1 letters (ASCII), digits, '.', '_' and '-',
 * no '.' first, with its 0. Reads no more than capacity bytes.
 */
bool ts_text_is_label(const char *text, size_t capacity);
/*
 * On one line, in plain text: what is not plain as \xHH, a backslash doubled; what does not fit is cut, never in the middle
 * of a character, and ends in "...".
 * out: [out] capacity bytes, at least 8. Returns: out.
 */
const char *ts_text_escape(const char *text, char *out, size_t capacity);
/*
 * Likewise, but a backslash stays as it is, so that what is plain already, and short enough, is not changed: for messages,
 * which several hands pass on. Returns: out.
 */
const char *ts_text_plain(const char *text, char *out, size_t capacity);

/*
 * The character at the beginning of a text of len > 0 bytes; of one that ends with a 0 len may be more, since nothing behind
 * that is read. code: [out] its number. Returns its bytes; 0: that is not UTF-8.
 */
size_t ts_text_character(const char *text, size_t len, uint32_t *code);

#endif
