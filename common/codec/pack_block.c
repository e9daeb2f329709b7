/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block: the elements in blocks of 256; one bit a block, set where it holds an index (the first block lowest in its
 * byte), then for each marked block the number of its indices less one and the indices within it, a byte each.
 */
#include "common/base/bytes.h"
#include "common/codec/stage_list.h"

#define BLOCK_BITS 8
#define BLOCK_MOST ((size_t)1 << BLOCK_BITS)

static size_t blocks_of(size_t n) { return (n >> BLOCK_BITS) + (n % BLOCK_MOST != 0); }

static size_t map_bytes(size_t n) { return (blocks_of(n) + 7) / 8; }

static size_t block_bound(size_t k, size_t n) {
    size_t marked = k < blocks_of(n) ? k : blocks_of(n);
    return map_bytes(n) + marked + k;
}

static size_t block_size(const uint32_t *index, size_t k, size_t n) {
    size_t marked = k > 0;
    for (size_t i = 1; i < k; i++) marked += index[i] >> BLOCK_BITS != index[i - 1] >> BLOCK_BITS;
    return map_bytes(n) + marked + k;
}

static terse_status block_encode(const uint32_t *index, size_t k, size_t n, uint8_t *out, size_t capacity,
                                 size_t *len) {
    TS_REQUIRE(capacity >= block_bound(k, n) || capacity >= block_size(index, k, n), TERSE_ENOSPACE);
    size_t at = map_bytes(n);
    if (at > 0) memset(out, 0, at);
    for (size_t i = 0; i < k;) {
        uint32_t block = index[i] >> BLOCK_BITS;
        size_t count_at = at++, first = i;
        for (; i < k && index[i] >> BLOCK_BITS == block; i++) out[at++] = (uint8_t)index[i];
        out[count_at] = (uint8_t)(i - first - 1);
        out[block >> 3] |= (uint8_t)(1u << (block & 7));
    }
    *len = at;
    return TERSE_OK;
}

/* One marked block. at, found: in and out. */
static terse_status read_block(const uint8_t *in, size_t len, size_t *at, size_t block, size_t k, size_t n,
                               uint32_t *index, size_t *found) {
    TS_REQUIRE(*at < len, TERSE_ECORRUPT);
    size_t count = (size_t)in[(*at)++] + 1, base = block << BLOCK_BITS;
    TS_REQUIRE(count <= len - *at && count <= k - *found, TERSE_ECORRUPT);
    const uint8_t *inner = in + *at;
    unsigned descents = 0;
    for (size_t i = 0; i < count; i++) {
        descents |= i > 0 && inner[i - 1] >= inner[i];
        index[*found + i] = (uint32_t)(base + inner[i]);
    }
    TS_REQUIRE(descents == 0 && base + inner[count - 1] < n, TERSE_ECORRUPT);
    *at += count;
    *found += count;
    return TERSE_OK;
}

static terse_status block_decode(const uint8_t *in, size_t len, size_t k, size_t n, uint32_t *index) {
    size_t at = map_bytes(n), found = 0, blocks = blocks_of(n);
    TS_REQUIRE(k <= n && len >= at, TERSE_ECORRUPT);
    if (blocks % 8 != 0) TS_REQUIRE(in[at - 1] >> (blocks % 8) == 0, TERSE_ECORRUPT);
    for (size_t byte = 0, bytes = at; byte < bytes; byte++) {
        for (unsigned bits = in[byte]; bits; bits &= bits - 1) {
            TS_TRY(read_block(in, len, &at, byte * 8 + (size_t)__builtin_ctz(bits), k, n, index, &found));
        }
    }
    return found == k && at == len ? TERSE_OK : TERSE_ECORRUPT;
}

const ts_index_stage ts_index_block = {
    .info = {.name = "block",
             .args = "",
             .summary = "one bit for each 256 elements; in marked blocks a count and the indices within, a byte each",
             .formula = "8 + (n / 256 + 8 marked) / k bits an index",
             .source = "two-level bitmaps; Chambi, Lemire, Kaser and Godin 2016"},
    .bound = block_bound,
    .size = block_size,
    .encode = block_encode,
    .decode = block_decode,
};
