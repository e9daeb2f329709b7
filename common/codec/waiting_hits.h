/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where hits wait before they are listed; only AVX2 files include this.
 *
 * The list's next line is in no near cache, however early it is asked for, since a whole second-level cache of other
 * lines passes by between two hits that need one; and while a store waits for its line, no later one leaves the core.
 * So hits wait in a few lines that are always near, and many are listed at once: past the caches, where hints pay,
 * since who reads the list comes when all of memory has been swept.
 */
#ifndef TS_CODEC_WAITING_HITS_H
#define TS_CODEC_WAITING_HITS_H

#include <string.h>

#include "common/base/mem.h"
#include "common/codec/sweep_avx2.h"

#define LISTED_AT_ONCE 128 /* hits */
#define WORD_HITS 64       /* so many more may come before they are looked at, */
#define SPILL 8            /* and a vector may be written behind the last */
#define LINE_HITS (TS_CACHE_LINE / sizeof(uint32_t))
#define NEAR_LIST 16384 /* hits; a shorter list stays near as it is */

typedef struct {
    _Alignas(TS_CACHE_LINE) uint32_t index[LISTED_AT_ONCE + WORD_HITS + SPILL];
    _Alignas(TS_CACHE_LINE) uint32_t bits[LISTED_AT_ONCE + WORD_HITS + SPILL];
    size_t count;
    bool past; /* the list's lines are whole ones, and written past the caches */
} waiting_hits;

INLINE bool begins_line(const uint32_t *at) { return (uintptr_t)at % TS_CACHE_LINE == 0; }

/* What lies in the list's last line, if that is to be written as one, comes back from there. */
INLINE void begin_waiting(waiting_hits *w, ts_candidates *c) {
    w->past = c->capacity >= NEAR_LIST && ts_cpu_reach() == TS_REACH_MIDDLE && begins_line(c->index) && begins_line(c->bits);
    w->count = w->past ? c->count % LINE_HITS : 0;
    c->count -= w->count;
    for (size_t i = 0; i < w->count; i++) {
        w->index[i] = c->index[c->count + i];
        w->bits[i] = c->bits[c->count + i];
    }
}

INLINE void copy_hits(uint32_t *to, const uint32_t *from, bool past) {
    for (size_t i = 0; i < LISTED_AT_ONCE; i += 8) {
        __m256i v = _mm256_load_si256((const __m256i *)(const void *)(from + i));
        if (past) _mm256_stream_si256((__m256i *)(void *)(to + i), v);
        else _mm256_storeu_si256((__m256i *)(void *)(to + i), v);
    }
}

/* When there are enough. */
INLINE void list_hits(waiting_hits *w, ts_candidates *c) {
    if (__builtin_expect(w->count < LISTED_AT_ONCE, 1)) return;
    copy_hits(c->index + c->count, w->index, w->past);
    copy_hits(c->bits + c->count, w->bits, w->past);
    c->count += LISTED_AT_ONCE;
    w->count -= LISTED_AT_ONCE;
    memcpy(w->index, w->index + LISTED_AT_ONCE, WORD_HITS * sizeof *w->index);
    memcpy(w->bits, w->bits + LISTED_AT_ONCE, WORD_HITS * sizeof *w->bits);
}

/* The rest of them. */
INLINE void end_waiting(waiting_hits *w, ts_candidates *c) {
    memcpy(c->index + c->count, w->index, w->count * sizeof *w->index);
    memcpy(c->bits + c->count, w->bits, w->count * sizeof *w->bits);
    c->count += w->count;
    w->count = 0;
    if (w->past) _mm_sfence(); /* stores past the caches are not in order with others */
}

#endif
