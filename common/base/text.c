/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define CUT "..."

/* Bytes of the plain character that begins here; 0: none does. Reads no further than a terminating 0. */
static size_t plain_bytes(const char *text) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint8_t head = (uint8_t)text[0];
    if (head < 0x80) return head >= 0x20 && head != 0x7F;
    size_t bytes = head >= 0xF0 ? 4 : head >= 0xE0 ? 3 : 2;
    if (head < 0xC2 || head > 0xF4) return 0;
    uint32_t code = head & (0x7Fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        uint8_t next = (uint8_t)text[i];
        if ((next & 0xC0) != 0x80) return 0;
        code = code << 6 | (next & 0x3Fu);
    }
    bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    return code < least[bytes] || code > 0x10FFFF || surrogate ? 0 : bytes;
}

bool ts_text_is_plain(const char *text) {
    while (*text) {
        size_t bytes = plain_bytes(text);
        if (bytes == 0) return false;
        text += bytes;
    }
    return true;
}

const char *ts_text_escape(const char *text, char *out, size_t capacity) {
    size_t at = 0, last = 0; /* last: up to where "..." still fits */
    while (*text) {
        char piece[8];
        size_t bytes = plain_bytes(text);
        if (bytes == 0) snprintf(piece, sizeof piece, "\\x%02x", (unsigned)(uint8_t)*text);
        else snprintf(piece, sizeof piece, "%s%.*s", *text == '\\' ? "\\" : "", (int)bytes, text);
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
