/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw16: each gap (index - previous - 1) in two bytes, never the index itself, so that nothing wraps in long tensors.
 * A gap of 0xFFFF or more is written as 0xFFFF and then in four bytes.
 */
#include "common/base/bytes.h"
#include "common/codec/stage_list.h"

#define ESCAPE 0xFFFFu
#define SHORT_BYTES ((size_t)2)
#define LONG_BYTES (SHORT_BYTES + sizeof(uint32_t))

static size_t raw16_bound(size_t k, size_t n) {
    /* The gaps sum to less than n, so only so many can be long. */
    size_t most = n / ESCAPE < k ? n / ESCAPE : k;
    return k * SHORT_BYTES + most * sizeof(uint32_t);
}

static size_t raw16_size(const uint32_t *index, size_t k, size_t n) {
    (void)n;
    size_t escapes = 0;
    uint32_t next = 0;
    for (size_t i = 0; i < k; i++) {
        escapes += index[i] - next >= ESCAPE;
        next = index[i] + 1;
    }
    return k * SHORT_BYTES + escapes * sizeof(uint32_t);
}

static terse_status raw16_encode(const uint32_t *index, size_t k, size_t n, uint8_t *out, size_t capacity,
                                 size_t *len) {
    TS_REQUIRE(capacity >= raw16_bound(k, n) || capacity >= raw16_size(index, k, n), TERSE_ENOSPACE);
    size_t at = 0;
    uint32_t next = 0;
    for (size_t i = 0; i < k; i++) {
        uint32_t gap = index[i] - next;
        next = index[i] + 1;
        if (gap < ESCAPE) {
            ts_store_u16(out + at, (uint16_t)gap);
            at += SHORT_BYTES;
        } else {
            ts_store_u16(out + at, (uint16_t)ESCAPE);
            ts_store_u32(out + at + SHORT_BYTES, gap);
            at += LONG_BYTES;
        }
    }
    *len = at;
    return TERSE_OK;
}

static terse_status raw16_decode(const uint8_t *in, size_t len, size_t k, size_t n, uint32_t *index) {
    size_t at = 0;
    uint64_t next = 0;
    for (size_t i = 0; i < k; i++) {
        TS_REQUIRE(len - at >= SHORT_BYTES, TERSE_ECORRUPT);
        uint32_t gap = ts_load_u16(in + at);
        at += SHORT_BYTES;
        if (gap == ESCAPE) {
            TS_REQUIRE(len - at >= sizeof(uint32_t), TERSE_ECORRUPT);
            gap = ts_load_u32(in + at);
            at += sizeof(uint32_t);
            TS_REQUIRE(gap >= ESCAPE, TERSE_ECORRUPT);
        }
        TS_REQUIRE(next < n && gap < n - next, TERSE_ECORRUPT);
        index[i] = (uint32_t)(next + gap);
        next += (uint64_t)gap + 1;
    }
    return at == len ? TERSE_OK : TERSE_ECORRUPT;
}

const ts_index_stage ts_index_raw16 = {
    .info = {.name = "raw16",
             .args = "",
             .summary = "gaps between indices in two bytes, longer ones behind an escape",
             .formula = "16 bits an index, 48 when the gap is 0xFFFF or more",
             .source = "relative indices as in Han, Mao and Dally 2016"},
    .bound = raw16_bound,
    .size = raw16_size,
    .encode = raw16_encode,
    .decode = raw16_decode,
};
