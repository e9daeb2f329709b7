/* SPDX-License-Identifier: Apache-2.0 */
#include "common/config/config_text.h"

#include <stdint.h>
#include <string.h>

#include "common/base/text.h"

static bool printable(uint32_t code) {
    return code >= 0x20 && (code < 0x7F || code > 0x9F) && code != 0xFEFF && code != 0xFFFE && code != 0xFFFF;
}

size_t ts_config_text_utf8(const char *text, size_t len) {
    size_t at = 0;
    uint32_t code;
    for (size_t bytes; at < len && (bytes = ts_text_character(text + at, len - at, &code)) > 0;) at += bytes;
    return at;
}

size_t ts_config_text_printable(const char *text, size_t len) {
    size_t at = 0;
    uint32_t code;
    for (size_t bytes; at < len && (bytes = ts_text_character(text + at, len - at, &code)) > 0 && printable(code);) at += bytes;
    return at;
}

void ts_config_text_show(char *text) {
    for (size_t len = strlen(text), at = 0; (at += ts_config_text_printable(text + at, len - at)) < len; at++) text[at] = '?';
}

/* "[:alpha:]", "[=a=]" and "[.-.]" inside of a bracket: their length, or 0. */
static size_t class_len(const char *at) {
    if (at[0] != '[' || !at[1] || !strchr(":=.", at[1])) return 0;
    for (const char *end = at + 2; *end; end++)
        if (end[0] == at[1] && end[1] == ']') return (size_t)(end - at) + 2;
    return 0;
}

/* Behind the ']' that closes a bracket, or NULL. A ']' that comes first is one of its characters. */
static const char *behind_bracket(const char *at) {
    at++;
    if (*at == '!' || *at == '^') at++;
    for (const char *first = at; *at; ) {
        size_t class = class_len(at);
        if (class > 0) {
            at += class;
        } else if (*at == ']' && at != first) {
            return at + 1;
        } else {
            at += at[0] == '\\' && at[1] ? 2 : 1;
        }
    }
    return NULL;
}

bool ts_config_pattern_fault(const char *pattern, size_t *at) {
    for (const char *p = pattern; *p;) {
        const char *next = p + 1;
        if (*p == '[') next = behind_bracket(p);
        else if (*p == '\\') next = p[1] ? p + 2 : NULL;
        if (!next) {
            *at = (size_t)(p - pattern);
            return true;
        }
        p = next;
    }
    return false;
}
