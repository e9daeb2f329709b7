/* SPDX-License-Identifier: Apache-2.0 */
/* Texts as somebody wrote them: whether they are UTF-8, and whether they can be shown. Internal to config/. */
#ifndef TS_CONFIG_TEXT_H
#define TS_CONFIG_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Where a text ends to be UTF-8 (RFC 3629): the offset of the first byte that is not, or its length.
 * Thread: any, and so the others.
 */
size_t ts_config_text_utf8(const char *text, size_t len);

/* The offset of the first character that YAML takes for none (controls, U+FEFF, U+FFFE, U+FFFF), or the length. text: UTF-8 */
size_t ts_config_text_printable(const char *text, size_t len);

/* Puts '?' in the place of what is not UTF-8 or not printable. */
void ts_config_text_show(char *text);

/*
 * Why fnmatch(3) would take a pattern for another than was meant: a '[' that is never closed, a '\' with nothing behind it.
 * at: [out] its offset. Returns whether there is one.
 */
bool ts_config_pattern_fault(const char *pattern, size_t *at);

#endif
