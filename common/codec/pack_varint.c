/* SPDX-License-Identifier: Apache-2.0 */
/* varint: each gap in as many 7-bit groups as it needs. */
#include "common/base/bytes.h"
#include "common/codec/stage_list.h"

#define GAP_MAX_BYTES 5 /* of 32 bits */

static size_t varint_bound(size_t k, size_t n) {
    (void)n;
    return k * GAP_MAX_BYTES;
}

static size_t varint_size(const uint32_t *index, size_t k, size_t n) {
    (void)n;
    size_t bytes = k;
    uint32_t next = 0;
    for (size_t i = 0; i < k; i++) {
        uint32_t gap = index[i] - next;
        bytes += (size_t)(gap >= 1u << 7) + (gap >= 1u << 14) + (gap >= 1u << 21) + (gap >= 1u << 28);
        next = index[i] + 1;
    }
    return bytes;
}

static terse_status varint_encode(const uint32_t *index, size_t k, size_t n, uint8_t *out, size_t capacity,
                                  size_t *len) {
    TS_REQUIRE(capacity >= varint_bound(k, n) || capacity >= varint_size(index, k, n), TERSE_ENOSPACE);
    size_t at = 0;
    uint32_t next = 0;
    for (size_t i = 0; i < k; i++) {
        at += ts_varint_put(out + at, index[i] - next);
        next = index[i] + 1;
    }
    *len = at;
    return TERSE_OK;
}

static terse_status varint_decode(const uint8_t *in, size_t len, size_t k, size_t n, uint32_t *index) {
    size_t at = 0;
    uint64_t next = 0;
    for (size_t i = 0; i < k; i++) {
        uint64_t gap;
        if (at < len && in[at] < 0x80) {
            gap = in[at++];
        } else {
            size_t bytes = ts_varint_get(in + at, len - at, &gap);
            TS_REQUIRE(bytes > 0 && bytes == ts_varint_bytes(gap), TERSE_ECORRUPT);
            at += bytes;
        }
        TS_REQUIRE(next < n && gap < n - next, TERSE_ECORRUPT);
        index[i] = (uint32_t)(next + gap);
        next += gap + 1;
    }
    return at == len ? TERSE_OK : TERSE_ECORRUPT;
}

const ts_index_stage ts_index_varint = {
    .info = {.name = "varint",
             .args = "",
             .summary = "gaps between indices in base 128, one to five bytes each",
             .formula = "gap = index - previous - 1; 8 ceil(bits(gap) / 7) bits",
             .source = "Thiel and Heaps 1972"},
    .bound = varint_bound,
    .size = varint_size,
    .encode = varint_encode,
    .decode = varint_decode,
};
