/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Index packs. Input: pack, k (12 bits), n (18 bits in 3 bytes), then bytes, which are decoded (and must be what
 * encode() writes when they decode), and taken as gaps, whose indices must survive encoding and decoding.
 */
#include <string.h>

#include "common/codec/registry.h"
#include "tests/fuzz/fuzz.h"

#define HEAD_BYTES 6

static void decode_bytes(const ts_index_stage *stage, const uint8_t *in, size_t len, size_t k, size_t n) {
    uint32_t *index = malloc((k + 1) * sizeof *index);
    if (!index) return;
    terse_status status = stage->decode(in, len, k, n, index);
    FUZZ_CHECK(status == TERSE_OK || status == TERSE_ECORRUPT);
    if (status == TERSE_OK && stage != &ts_index_best) {
        uint8_t *again = malloc(len + 1);
        size_t wrote = 0;
        for (size_t i = 0; i < k; i++) FUZZ_CHECK(index[i] < n && (i == 0 || index[i] > index[i - 1]));
        FUZZ_CHECK(stage->size(index, k, n) == len && len <= stage->bound(k, n));
        if (again) FUZZ_CHECK(stage->encode(index, k, n, again, len, &wrote) == TERSE_OK);
        if (again) FUZZ_CHECK(wrote == len && (len == 0 || memcmp(again, in, len) == 0));
        free(again);
    }
    free(index);
}

/* Bytes as gaps; one with its high bit set makes a long one. */
static void encode_gaps(const ts_index_stage *stage, const uint8_t *in, size_t len, size_t n) {
    uint32_t *index = malloc((len + 1) * sizeof *index), *back = malloc((len + 1) * sizeof *back);
    size_t k = 0, wrote = 0;
    uint64_t next = 0;
    for (size_t i = 0; index && i < len; i++) {
        next += in[i] < 0x80 ? in[i] : (uint64_t)(in[i] & 0x7F) << 10;
        if (next >= n) break;
        index[k++] = (uint32_t)next++;
    }
    uint8_t *bytes = index ? malloc(stage->size(index, k, n) + 1) : NULL;
    if (bytes && back) {
        size_t size = stage->size(index, k, n);
        FUZZ_CHECK(size <= stage->bound(k, n));
        FUZZ_CHECK(stage->encode(index, k, n, bytes, size, &wrote) == TERSE_OK && wrote == size);
        FUZZ_CHECK(stage->decode(bytes, size, k, n, back) == TERSE_OK);
        FUZZ_CHECK(k == 0 || memcmp(index, back, k * sizeof *index) == 0);
    }
    free(bytes);
    free(back);
    free(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    if (len < HEAD_BYTES) return 0;
    size_t which = data[0] % (ts_registry_index_count() + 1);
    const ts_index_stage *stage = which < ts_registry_index_count() ? ts_registry_index(which) : &ts_index_best;
    size_t k = ((size_t)data[1] | (size_t)data[2] << 8) & 0xFFF,
           n = (size_t)data[3] | (size_t)data[4] << 8 | (size_t)(data[5] & 3) << 16;
    decode_bytes(stage, data + HEAD_BYTES, len - HEAD_BYTES, k, n);
    if (n > 0) encode_gaps(stage, data + HEAD_BYTES, len - HEAD_BYTES, n);
    return 0;
}
