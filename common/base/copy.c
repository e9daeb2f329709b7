/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/copy.h"

#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#include <stdint.h>

#include "common/base/mem.h"

void ts_copy_past(void *to, const void *from, size_t bytes) {
    char *out = to;
    const char *in = from;
    size_t head = (0 - (uintptr_t)out) % TS_CACHE_LINE;
    if (head > bytes) head = bytes;
    memcpy(out, in, head);
    size_t at = head;
    for (; bytes - at >= TS_CACHE_LINE; at += TS_CACHE_LINE) { /* whole lines: they are written as one */
        __m128i line[TS_CACHE_LINE / sizeof(__m128i)];
        for (size_t i = 0; i < TS_CACHE_LINE / sizeof line[0]; i++)
            line[i] = _mm_loadu_si128((const __m128i *)(const void *)(in + at) + i);
        for (size_t i = 0; i < TS_CACHE_LINE / sizeof line[0]; i++) _mm_stream_si128((__m128i *)(void *)(out + at) + i, line[i]);
    }
    _mm_sfence(); /* these stores are not in order with others */
    memcpy(out + at, in + at, bytes - at);
}
#else
void ts_copy_past(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
#endif
