/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define CUT "..."

size_t ts_text_character(const char *text, size_t len, uint32_t *code) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* none is written longer than it need be */
    const unsigned char *at = (const unsigned char *)text;
    size_t bytes = at[0] < 0x80 ? 1 : at[0] >> 5 == 6 ? 2 : at[0] >> 4 == 14 ? 3 : at[0] >> 3 == 30 ? 4 : 0;
    if (bytes == 0 || bytes > len) return 0;
    uint32_t value = bytes == 1 ? at[0] : at[0] & (0x7Fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if (at[i] >> 6 != 2) return 0;
        value = value << 6 | (at[i] & 0x3Fu);
    }
    if (value < least[bytes] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return 0;
    *code = value;
    return bytes;
}

/* Bytes of the plain character that begins here; 0: none does. Reads no further than a terminating 0. */
static size_t plain_bytes(const char *text) {
    uint32_t code;
    size_t bytes = ts_text_character(text, 4, &code);
    return bytes > 0 && code >= 0x20 && code != 0x7F ? bytes : 0;
}

bool ts_text_is_plain(const char *text) {
    while (*text) {
        size_t bytes = plain_bytes(text);
        if (bytes == 0) return false;
        text += bytes;
    }
    return true;
}

bool ts_text_is_label(const char *text, size_t capacity) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t len = 0;
    while (len < capacity && text[len] && strchr(letters, text[len])) len++;
    return len > 0 && len < capacity && !text[len] && text[0] != '.';
}

static const char *escape(const char *text, const char *before_backslash, char *out, size_t capacity) {
    size_t at = 0, last = 0; /* last: up to where "..." still fits */
    while (*text) {
        char piece[8];
        size_t bytes = plain_bytes(text);
        if (bytes == 0) snprintf(piece, sizeof piece, "\\x%02x", (unsigned)(uint8_t)*text);
        else snprintf(piece, sizeof piece, "%s%.*s", *text == '\\' ? before_backslash : "", (int)bytes, text);
        size_t chars = strlen(piece);
        if (at + chars >= capacity) {
            memcpy(out + last, CUT, sizeof CUT);
            return out;
        }
        memcpy(out + at, piece, chars);
        at += chars;
        if (at + sizeof CUT <= capacity) last = at;
        text += bytes > 0 ? bytes : 1;
    }
    out[at] = '\0';
    return out;
}

const char *ts_text_escape(const char *text, char *out, size_t capacity) { return escape(text, "\\", out, capacity); }
const char *ts_text_plain(const char *text, char *out, size_t capacity) { return escape(text, "", out, capacity); }
