/* SPDX-License-Identifier: Apache-2.0 */
/* Codes to values, 32 at a time, and the search for codes that nobody writes; tails go to the reference. */
#include <immintrin.h>
#include <string.h>

#include "common/codec/kernels.h"
#include "common/codec/quantise_kernels.h"
#include "common/codec/sweep_avx2.h"

#define LANES 8

INLINE __m256 load(const float *x) { return _mm256_loadu_ps(x); }
INLINE void store(float *x, __m256 v) { _mm256_storeu_ps(x, v); }
INLINE __m256 set(float x) { return _mm256_set1_ps(x); }
INLINE __m256 float_of(__m256i x) { return _mm256_castsi256_ps(x); }

INLINE __m256i load_bytes(const uint8_t *in) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)in));
}

void TS_LEVEL(ts_bf16_decode)(const uint8_t *in, size_t n, float *x) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(in + 2 * i)));
        store(x + i, float_of(_mm256_slli_epi32(wide, 16)));
    }
    ts_bf16_decode_scalar(in + 2 * i, n - i, x + i);
}

INLINE void put(float *x, __m256 value, bool add) { store(x, add ? _mm256_add_ps(load(x), value) : value); }

/* Eight bytes from `at` on, each in a lane; signed. */
INLINE __m256 signed_lanes(const uint8_t *in) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)in)));
}

/* A group's values, by one of these; `bits` of a sign: 32 of them. */
INLINE void int8_group(float scale, const uint8_t *in, float *x, size_t ahead, bool add) {
    if (add) ask(x, ahead);
    for (size_t j = 0; j < GROUP; j += LANES) put(x + j, _mm256_mul_ps(signed_lanes(in + j), set(scale)), add);
}

INLINE void linear_group(float low, float step, const uint8_t *in, float *x, size_t ahead, bool add) {
    if (add) ask(x, ahead);
    for (size_t j = 0; j < GROUP; j += LANES) {
        put(x + j, _mm256_add_ps(set(low), _mm256_mul_ps(_mm256_cvtepi32_ps(load_bytes(in + j)), set(step))), add);
    }
}

/* 32 bits as the signs of four times eight lanes. */
INLINE __m256 signs_of(const uint8_t *bits, size_t j) {
    const __m256i up = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    int32_t all;
    memcpy(&all, bits, sizeof all);
    __m256i shift = _mm256_sub_epi32(up, _mm256_set1_epi32((int)j));
    return _mm256_and_ps(float_of(_mm256_sllv_epi32(_mm256_set1_epi32(all), shift)), set(-0.0f));
}

INLINE void sign_group(float scale, const uint8_t *bits, float *x, size_t ahead, bool add) {
    if (add) ask(x, ahead);
    for (size_t j = 0; j < GROUP; j += LANES) put(x + j, _mm256_xor_ps(set(scale), signs_of(bits, j)), add);
}

INLINE void natural_group(const uint8_t *exponents, const uint8_t *signs, float *x, size_t ahead, bool add) {
    if (add) ask(x, ahead);
    for (size_t j = 0; j < GROUP; j += LANES) {
        __m256i e = _mm256_slli_epi32(load_bytes(exponents + j), 23);
        put(x + j, _mm256_or_ps(float_of(e), signs_of(signs, j)), add);
    }
}

/* What each code stands for, a byte each. */
INLINE size_t table_values(const float *table, const uint8_t *codes, size_t n, float *x, bool add) {
    const size_t ahead = ts_cpu_asks() ? AHEAD : 0;
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        if (add) ask(x + i, ahead);
        for (size_t j = i; j < i + GROUP; j += LANES) {
            put(x + j, _mm256_i32gather_ps(table, load_bytes(codes + j), sizeof *table), add);
        }
    }
    return i;
}

void TS_LEVEL(ts_table_values)(const float *table, const uint8_t *codes, size_t n, float *x, bool add) {
    size_t i = add ? table_values(table, codes, n, x, true) : table_values(table, codes, n, x, false);
    ts_table_values_scalar(table, codes + i, n - i, x + i, add);
}

INLINE size_t int8_values(float scale, const uint8_t *in, size_t n, float *x, bool add) {
    const places at = places_of(n);
    for (size_t i = 0; i < at.half; i += GROUP) {
        int8_group(scale, in + i, x + i, at.ahead, add);
        int8_group(scale, in + at.half + i, x + at.half + i, at.ahead, add);
    }
    size_t i = 2 * at.half;
    for (; i + GROUP <= n; i += GROUP) int8_group(scale, in + i, x + i, at.ahead, add);
    return i;
}

void TS_LEVEL(ts_int8_decode)(float scale, const uint8_t *in, size_t n, float *x) {
    size_t i = int8_values(scale, in, n, x, false);
    ts_int8_decode_scalar(scale, in + i, n - i, x + i);
}

void TS_LEVEL(ts_int8_add)(float scale, const uint8_t *in, size_t n, float *sum) {
    size_t i = int8_values(scale, in, n, sum, true);
    ts_int8_add_scalar(scale, in + i, n - i, sum + i);
}

/* Of fewer than eight bits: the sign is extended in the bytes. */
INLINE size_t int_values(float scale, unsigned bits, const uint8_t *codes, size_t n, float *x, bool add) {
    const __m256i mask = _mm256_set1_epi8((char)((1u << bits) - 1)), top = _mm256_set1_epi8((char)(1u << (bits - 1)));
    const size_t ahead = ts_cpu_asks() ? AHEAD : 0;
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        uint8_t extended[GROUP];
        __m256i q = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)(codes + i)), mask);
        q = _mm256_sub_epi8(_mm256_xor_si256(q, top), top);
        _mm256_storeu_si256((__m256i *)(void *)extended, q);
        int8_group(scale, extended, x + i, ahead, add);
    }
    return i;
}

void TS_LEVEL(ts_int_values)(float scale, unsigned bits, const uint8_t *codes, size_t n, float *x, bool add) {
    size_t i = add ? int_values(scale, bits, codes, n, x, true) : int_values(scale, bits, codes, n, x, false);
    ts_int_values_scalar(scale, bits, codes + i, n - i, x + i, add);
}

INLINE size_t linear_values(float low, float step, const uint8_t *codes, size_t n, float *x, bool add) {
    const size_t ahead = ts_cpu_asks() ? AHEAD : 0;
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) linear_group(low, step, codes + i, x + i, ahead, add);
    return i;
}

void TS_LEVEL(ts_linear_values)(float low, float step, const uint8_t *codes, size_t n, float *x, bool add) {
    size_t i = add ? linear_values(low, step, codes, n, x, true) : linear_values(low, step, codes, n, x, false);
    ts_linear_values_scalar(low, step, codes + i, n - i, x + i, add);
}

INLINE size_t sign_values(float scale, const uint8_t *bits, size_t n, float *x, bool add) {
    const places at = places_of(n);
    for (size_t i = 0; i < at.half; i += GROUP) {
        sign_group(scale, bits + i / 8, x + i, at.ahead, add);
        sign_group(scale, bits + (at.half + i) / 8, x + at.half + i, at.ahead, add);
    }
    size_t i = 2 * at.half;
    for (; i + GROUP <= n; i += GROUP) sign_group(scale, bits + i / 8, x + i, at.ahead, add);
    return i;
}

void TS_LEVEL(ts_sign_values)(float scale, const uint8_t *bits, size_t n, float *x, bool add) {
    size_t i = add ? sign_values(scale, bits, n, x, true) : sign_values(scale, bits, n, x, false);
    ts_sign_values_scalar(scale, bits + i / 8, n - i, x + i, add);
}

INLINE void natural_block(const uint8_t *in, size_t n, float *x, size_t ahead, bool add) {
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) natural_group(in + i, in + n + i / 8, x + i, ahead, add);
    for (; i < n; i++) {
        uint32_t sign = (uint32_t)in[n + i / 8] >> i % 8 & 1u;
        float value = ts_bits_float((uint32_t)in[i] << 23 | sign << 31);
        x[i] = add ? x[i] + value : value;
    }
}

/* Two blocks at a time, of the two halves of all whole blocks, where it pays; then what is left. */
INLINE void natural_blocks(size_t block, const uint8_t *in, size_t n, float *x, bool add) {
    const size_t bytes = block + block / 8, ahead = ts_cpu_asks() ? AHEAD : 0;
    const size_t half = ahead && block % GROUP == 0 ? n / block / 2 : 0;
    for (size_t b = 0; b < half; b++) {
        const uint8_t *near = in + b * bytes, *far = near + half * bytes;
        float *to = x + b * block;
        for (size_t i = 0; i < block; i += GROUP) {
            natural_group(near + i, near + block + i / 8, to + i, ahead, add);
            natural_group(far + i, far + block + i / 8, to + half * block + i, ahead, add);
        }
    }
    in += 2 * half * bytes;
    for (size_t at = 2 * half * block, count; at < n; at += count, in += count + (count + 7) / 8) {
        count = n - at < block ? n - at : block;
        natural_block(in, count, x + at, ahead, add);
    }
}

void TS_LEVEL(ts_natural_values)(size_t block, const uint8_t *in, size_t n, float *x, bool add) {
    if (add) natural_blocks(block, in, n, x, true);
    else natural_blocks(block, in, n, x, false);
}

/* Two, four, eight or sixteen bits repeated all over. */
INLINE __m256i repeated(unsigned bits, unsigned field) {
    for (; bits < 16; bits *= 2) field |= field << bits;
    return _mm256_set1_epi16((short)field);
}

/*
 * The test for a zero among fields: subtracting one borrows into a field's highest bit only when the field is zero, or
 * when a lower one was, which is found all the same.
 */
bool TS_LEVEL(ts_fields_lack)(unsigned bits, uint16_t mask, uint16_t code, const uint8_t *in, size_t bytes) {
    const __m256i masks = repeated(bits, mask & ((1u << bits) - 1)), codes = repeated(bits, code);
    const __m256i ones = repeated(bits, 1), highs = repeated(bits, 1u << (bits - 1));
    __m256i seen[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    const size_t ahead = ts_cpu_asks() ? 4 * AHEAD : 0, quarter = bytes / 4 / 64 * 64;
    const size_t apart = ahead ? quarter : 32, along = ahead ? 1 : 4; /* four places, or one */
    for (size_t i = 0; i < quarter; i += 32) {
        for (size_t j = 0; j < 4; j++) {
            const uint8_t *at = in + j * apart + i * along;
            if (ahead && i % 64 == 0) _mm_prefetch((const char *)(at + ahead), _MM_HINT_T0);
            __m256i fields = _mm256_loadu_si256((const __m256i *)(const void *)at);
            __m256i zero = _mm256_xor_si256(_mm256_and_si256(fields, masks), codes);
            seen[j] = _mm256_or_si256(seen[j], _mm256_andnot_si256(zero, _mm256_sub_epi64(zero, ones)));
        }
    }
    __m256i any_seen = _mm256_or_si256(_mm256_or_si256(seen[0], seen[1]), _mm256_or_si256(seen[2], seen[3]));
    return _mm256_testz_si256(any_seen, highs) &&
           ts_fields_lack_scalar(bits, mask, code, in + 4 * quarter, bytes - 4 * quarter);
}
