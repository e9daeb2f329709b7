/* SPDX-License-Identifier: Apache-2.0 */
/* Little-endian loads and stores, and base-128 varints, on unaligned bytes. */
#ifndef TS_BASE_BYTES_H
#define TS_BASE_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TS_VARINT_MAX_BYTES 10

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Terse stores tensors little-endian and has not been ported to a big-endian machine"
#endif

static inline uint16_t ts_load_u16(const uint8_t *p) { uint16_t v; memcpy(&v, p, sizeof v); return v; }
static inline uint32_t ts_load_u32(const uint8_t *p) { uint32_t v; memcpy(&v, p, sizeof v); return v; }
static inline uint64_t ts_load_u64(const uint8_t *p) { uint64_t v; memcpy(&v, p, sizeof v); return v; }
static inline float ts_load_f32(const uint8_t *p) { float v; memcpy(&v, p, sizeof v); return v; }
static inline void ts_store_u16(uint8_t *p, uint16_t v) { memcpy(p, &v, sizeof v); }
static inline void ts_store_u32(uint8_t *p, uint32_t v) { memcpy(p, &v, sizeof v); }
static inline void ts_store_u64(uint8_t *p, uint64_t v) { memcpy(p, &v, sizeof v); }
static inline void ts_store_f32(uint8_t *p, float v) { memcpy(p, &v, sizeof v); }

/* Bytes that `v` takes as a varint: 1 … 10. */
static inline size_t ts_varint_bytes(uint64_t v) {
    size_t bytes = 1;
    while (v >= 0x80) { v >>= 7; bytes++; }
    return bytes;
}

/* Writes `v`; the caller has room for ts_varint_bytes(v). Returns the bytes written. */
static inline size_t ts_varint_put(uint8_t *p, uint64_t v) {
    size_t at = 0;
    while (v >= 0x80) { p[at++] = (uint8_t)(v | 0x80); v >>= 7; }
    p[at++] = (uint8_t)v;
    return at;
}

/*
 * Reads a varint from at most `available` bytes.
 * Returns the bytes read, or 0 when it is truncated or longer than 64 bits.
 */
static inline size_t ts_varint_get(const uint8_t *p, size_t available, uint64_t *v) {
    uint64_t value = 0;
    for (size_t at = 0; at < available && at < TS_VARINT_MAX_BYTES; at++) {
        if (at == 9 && p[at] > 1) return 0;
        value |= (uint64_t)(p[at] & 0x7F) << (7 * at);
        if (!(p[at] & 0x80)) { *v = value; return at + 1; }
    }
    return 0;
}

#endif
