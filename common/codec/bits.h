/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bit streams, least significant bit first: 64-bit words in the middle, single
 * bytes at the ends, so that nothing outside the buffer is touched.
 */
#ifndef TS_CODEC_BITS_H
#define TS_CODEC_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/bytes.h"

/* A put or a peek handles so many bits at a time: what a 64-bit word holds from any bit of its first byte on. */
#define TS_BITS_AT_ONCE 56u

/* Bits of the binary number v: 0 for 0, else 1 + floor(log2 v). */
static inline unsigned ts_bits_length(uint64_t v) { return v ? 64u - (unsigned)__builtin_clzll(v) : 0; }

/* The low `bits` bits of v; bits < 64. */
static inline uint64_t ts_bits_low(uint64_t v, unsigned bits) { return v & (((uint64_t)1 << bits) - 1); }

typedef struct {
    uint8_t *start, *at, *end;
    uint64_t pending; /* bits that do not fill a byte yet */
    unsigned fill;    /* how many, below 8 between calls */
    bool full;        /* something did not fit */
} ts_bit_writer;

static inline ts_bit_writer ts_bits_write(uint8_t *out, size_t capacity) {
    return (ts_bit_writer){.start = out, .at = out, .end = out + capacity};
}

/* The last bytes before the end of the buffer. */
static inline void ts_bits_put_tail(ts_bit_writer *w) {
    for (unsigned bytes = w->fill >> 3; bytes > 0; bytes--) {
        if (w->at == w->end) {
            w->full = true;
            return;
        }
        *w->at++ = (uint8_t)w->pending;
        w->pending >>= 8;
    }
}

/* Appends the low `bits` <= TS_BITS_AT_ONCE bits of v; the others are 0. */
static inline void ts_bits_put(ts_bit_writer *w, uint64_t v, unsigned bits) {
    w->pending |= v << w->fill;
    w->fill += bits;
    if ((size_t)(w->end - w->at) >= sizeof w->pending) {
        ts_store_u64(w->at, w->pending);
        w->at += w->fill >> 3;
        w->pending >>= w->fill & ~7u;
    } else {
        ts_bits_put_tail(w);
    }
    w->fill &= 7;
}

/* Zeroes up to the next whole byte. Returns false when something did not fit. len: [out] bytes in all. */
static inline bool ts_bits_finish(ts_bit_writer *w, size_t *len) {
    if (w->fill > 0) ts_bits_put(w, 0, 8 - w->fill);
    if (w->full) return false;
    *len = (size_t)(w->at - w->start);
    return true;
}

typedef struct {
    const uint8_t *in;
    size_t len;
    uint64_t at; /* in bits */
} ts_bit_reader;

static inline ts_bit_reader ts_bits_read(const uint8_t *in, size_t len) {
    return (ts_bit_reader){.in = in, .len = len};
}

/* The word at the end of the buffer, zeros behind it. */
static inline uint64_t ts_bits_peek_tail(const ts_bit_reader *r) {
    uint64_t word = 0, byte = r->at >> 3;
    if (byte < r->len) memcpy(&word, r->in + byte, (size_t)(r->len - byte));
    return word;
}

/* At least TS_BITS_AT_ONCE bits from here on, the next one lowest; zeros behind the end. */
static inline uint64_t ts_bits_peek(const ts_bit_reader *r) {
    uint64_t byte = r->at >> 3;
    uint64_t word = byte + sizeof word <= r->len ? ts_load_u64(r->in + byte) : ts_bits_peek_tail(r);
    return word >> (r->at & 7);
}

/* Whether exactly the buffer was read, up to zero bits that fill its last byte. */
static inline bool ts_bits_at_end(const ts_bit_reader *r) {
    if ((r->at + 7) >> 3 != r->len) return false;
    return (r->at & 7) == 0 || r->in[r->len - 1] >> (r->at & 7) == 0;
}

#endif
