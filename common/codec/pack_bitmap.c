/* SPDX-License-Identifier: Apache-2.0 */
/* bitmap: one bit an element, set where an index is; the first element lowest in its byte. */
#include "common/base/bytes.h"
#include "common/codec/stage_list.h"

static size_t bitmap_bound(size_t k, size_t n) {
    (void)k;
    return n / 8 + (n % 8 != 0);
}

static size_t bitmap_size(const uint32_t *index, size_t k, size_t n) {
    (void)index;
    return bitmap_bound(k, n);
}

static terse_status bitmap_encode(const uint32_t *index, size_t k, size_t n, uint8_t *out, size_t capacity,
                                  size_t *len) {
    size_t bytes = bitmap_bound(k, n);
    TS_REQUIRE(capacity >= bytes, TERSE_ENOSPACE);
    if (bytes > 0) memset(out, 0, bytes);
    for (size_t i = 0; i < k; i++) out[index[i] >> 3] |= (uint8_t)(1u << (index[i] & 7));
    *len = bytes;
    return TERSE_OK;
}

/* Eight bytes of the map, zeros behind its end. */
static uint64_t word_at(const uint8_t *in, size_t len, size_t at) {
    if (len - at >= sizeof(uint64_t)) return ts_load_u64(in + at);
    uint64_t word = 0;
    memcpy(&word, in + at, len - at);
    return word;
}

static terse_status bitmap_decode(const uint8_t *in, size_t len, size_t k, size_t n, uint32_t *index) {
    TS_REQUIRE(k <= n && len == bitmap_bound(k, n), TERSE_ECORRUPT);
    if (n % 8 != 0) TS_REQUIRE(in[len - 1] >> (n % 8) == 0, TERSE_ECORRUPT);
    size_t found = 0;
    for (size_t at = 0; at < len; at += sizeof(uint64_t)) {
        uint64_t bits = word_at(in, len, at);
        TS_REQUIRE((size_t)__builtin_popcountll(bits) <= k - found, TERSE_ECORRUPT);
        for (; bits; bits &= bits - 1) index[found++] = (uint32_t)(at * 8 + (size_t)__builtin_ctzll(bits));
    }
    return found == k ? TERSE_OK : TERSE_ECORRUPT;
}

const ts_index_stage ts_index_bitmap = {
    .info = {.name = "bitmap",
             .args = "",
             .summary = "one bit an element, set where an index is",
             .formula = "n / k bits an index",
             .source = "folklore"},
    .bound = bitmap_bound,
    .size = bitmap_size,
    .encode = bitmap_encode,
    .decode = bitmap_decode,
};
