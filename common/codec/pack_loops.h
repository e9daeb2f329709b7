/* SPDX-License-Identifier: Apache-2.0 */
/* Codes to bits and back. Tails go to the reference. */
#include <string.h>

#include "common/codec/kernels.h"
#include "common/codec/quantise_kernels.h"
#include "common/codec/sweep_avx2.h"

INLINE __m256i load(const uint8_t *in) { return _mm256_loadu_si256((const __m256i *)(const void *)in); }
INLINE void store(uint8_t *out, __m256i v) { _mm256_storeu_si256((__m256i *)(void *)out, v); }

/* 64 codes to 32 bytes: neighbours are multiplied by 1 and 16 and added. */
INLINE __m256i pairs_of_four(const uint8_t *codes) {
    __m256i code = _mm256_and_si256(load(codes), _mm256_set1_epi8(0x0F));
    return _mm256_maddubs_epi16(code, _mm256_set1_epi16(0x1001));
}

static void pack_four(const uint8_t *codes, size_t n, uint8_t *out) {
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        __m256i bytes = _mm256_packus_epi16(pairs_of_four(codes + i), pairs_of_four(codes + i + 32));
        store(out + i / 2, _mm256_permute4x64_epi64(bytes, 0xD8));
    }
    ts_pack_scalar(4, codes + i, n - i, out + i / 2);
}

/* 32 codes to eight bytes, one a lane: by 1 and 4, then by 1 and 16. */
INLINE __m256i fours_of_two(const uint8_t *codes) {
    __m256i code = _mm256_and_si256(load(codes), _mm256_set1_epi8(3));
    __m256i pair = _mm256_maddubs_epi16(code, _mm256_set1_epi16(0x0401));
    return _mm256_madd_epi16(pair, _mm256_set1_epi32(0x00100001));
}

static void pack_two(const uint8_t *codes, size_t n, uint8_t *out) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    size_t i = 0;
    for (; i + 128 <= n; i += 128) {
        __m256i a = _mm256_packs_epi32(fours_of_two(codes + i), fours_of_two(codes + i + 32));
        __m256i b = _mm256_packs_epi32(fours_of_two(codes + i + 64), fours_of_two(codes + i + 96));
        store(out + i / 4, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b), order));
    }
    ts_pack_scalar(2, codes + i, n - i, out + i / 4);
}

static void unpack_four(const uint8_t *in, size_t n, uint8_t *codes) {
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i both = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(in + i / 2)));
        both = _mm256_or_si256(both, _mm256_slli_epi16(both, 4));
        store(codes + i, _mm256_and_si256(both, _mm256_set1_epi8(0x0F)));
    }
    ts_unpack_scalar(4, in + i / 2, n - i, codes + i);
}

static void unpack_two(const uint8_t *in, size_t n, uint8_t *codes) {
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i all = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(in + i / 4)));
        __m256i pairs = _mm256_and_si256(_mm256_or_si256(all, _mm256_slli_epi32(all, 12)), _mm256_set1_epi16(0x0F));
        pairs = _mm256_or_si256(pairs, _mm256_slli_epi16(pairs, 6));
        store(codes + i, _mm256_and_si256(pairs, _mm256_set1_epi8(3)));
    }
    ts_unpack_scalar(2, in + i / 4, n - i, codes + i);
}

/* Eight codes of B bits are B bytes: one parallel extract or deposit. `bits` is a constant wherever this is inlined. */
INLINE void pack_fixed(unsigned bits, const uint8_t *codes, size_t n, uint8_t *out) {
    const uint64_t mask = ((1u << bits) - 1) * 0x0101010101010101u;
    size_t i = 0;
    for (; i + 8 <= n; i += 8, out += bits) {
        uint64_t eight;
        memcpy(&eight, codes + i, sizeof eight);
        uint64_t packed = _pext_u64(eight, mask);
        memcpy(out, &packed, bits);
    }
    if (i < n) ts_pack_scalar(bits, codes + i, n - i, out);
}

INLINE void unpack_fixed(unsigned bits, const uint8_t *in, size_t n, uint8_t *codes) {
    const uint64_t mask = ((1u << bits) - 1) * 0x0101010101010101u;
    size_t i = 0;
    for (; i + 8 <= n; i += 8, in += bits) {
        uint64_t packed = 0;
        memcpy(&packed, in, bits);
        uint64_t eight = _pdep_u64(packed, mask);
        memcpy(codes + i, &eight, sizeof eight);
    }
    if (i < n) ts_unpack_scalar(bits, in, n - i, codes + i);
}

void TS_LEVEL(ts_pack)(unsigned bits, const uint8_t *codes, size_t n, uint8_t *out) {
    switch (bits) {
    case 1: pack_fixed(1, codes, n, out); break;
    case 2: pack_two(codes, n, out); break;
    case 3: pack_fixed(3, codes, n, out); break;
    case 4: pack_four(codes, n, out); break;
    case 5: pack_fixed(5, codes, n, out); break;
    case 6: pack_fixed(6, codes, n, out); break;
    case 7: pack_fixed(7, codes, n, out); break;
    default: memcpy(out, codes, n); break;
    }
}

void TS_LEVEL(ts_unpack)(unsigned bits, const uint8_t *in, size_t n, uint8_t *codes) {
    switch (bits) {
    case 1: unpack_fixed(1, in, n, codes); break;
    case 2: unpack_two(in, n, codes); break;
    case 3: unpack_fixed(3, in, n, codes); break;
    case 4: unpack_four(in, n, codes); break;
    case 5: unpack_fixed(5, in, n, codes); break;
    case 6: unpack_fixed(6, in, n, codes); break;
    case 7: unpack_fixed(7, in, n, codes); break;
    default: memcpy(codes, in, n); break;
    }
}
