/* SPDX-License-Identifier: Apache-2.0 */
/* What the AVX2 files that make codes share; only they include this. */
#ifndef TS_CODEC_CODES_AVX2_H
#define TS_CODEC_CODES_AVX2_H

#include "common/codec/sweep_avx2.h"

#define LANES 8

INLINE __m256 load(const float *x) { return _mm256_loadu_ps(x); }
INLINE void store(float *x, __m256 v) { _mm256_storeu_ps(x, v); }
INLINE __m256 set(float x) { return _mm256_set1_ps(x); }
INLINE __m256i bits_of(__m256 x) { return _mm256_castps_si256(x); }
INLINE __m256 float_of(__m256i x) { return _mm256_castsi256_ps(x); }
INLINE __m256 magnitude(__m256 x) { return _mm256_and_ps(x, float_of(_mm256_set1_epi32((int)TS_ABS_MASK))); }

/* The low bytes of 32 lanes, in order; lanes hold -128 ... 127, or 0 ... 255 without `negative`. */
INLINE void store_bytes(uint8_t *out, const __m256i q[4], bool negative) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i a = _mm256_packs_epi32(q[0], q[1]), b = _mm256_packs_epi32(q[2], q[3]);
    __m256i bytes = negative ? _mm256_packs_epi16(a, b) : _mm256_packus_epi16(a, b);
    _mm256_storeu_si256((__m256i *)(void *)out, _mm256_permutevar8x32_epi32(bytes, order));
}

/* The highest bits of 32 lanes, in order. */
INLINE void store_signs(uint8_t *out, const __m256i v[4]) {
    for (size_t j = 0; j < 4; j++) out[j] = (uint8_t)_mm256_movemask_ps(float_of(v[j]));
}

/* The numbers of eight elements. */
INLINE __m256i elements(const ts_stochastic *how, size_t i, bool indexed) {
    const __m256i up = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    if (!indexed) return _mm256_add_epi32(_mm256_set1_epi32((int)(uint32_t)(how->first + i)), up);
    __m256i index = _mm256_loadu_si256((const __m256i *)(const void *)(how->index + i));
    return _mm256_add_epi32(index, _mm256_set1_epi32((int)(uint32_t)how->first));
}

/* For the four vectors of a group, step by step: one alone would wait for each of its results. */
#define FOUR(j) for (size_t j = 0; j < 4; j++)

/* mixed_word() of the reference, for 32 elements. */
INLINE void mixed_words(const ts_stochastic *how, size_t i, bool indexed, __m256i x[4]) {
    const __m256i low = _mm256_set1_epi32((int)(uint32_t)how->key), high = _mm256_set1_epi32((int)(uint32_t)(how->key >> 32));
    __m256i first = elements(how, i, indexed);
    FOUR(j) x[j] = indexed ? elements(how, i + LANES * j, true) : _mm256_add_epi32(first, _mm256_set1_epi32((int)(LANES * j)));
    FOUR(j) x[j] = _mm256_xor_si256(x[j], low);
    FOUR(j) x[j] = _mm256_xor_si256(x[j], _mm256_srli_epi32(x[j], 16));
    FOUR(j) x[j] = _mm256_mullo_epi32(x[j], _mm256_set1_epi32(0x7FEB352D));
    FOUR(j) x[j] = _mm256_xor_si256(x[j], _mm256_xor_si256(_mm256_srli_epi32(x[j], 15), high));
    FOUR(j) x[j] = _mm256_mullo_epi32(x[j], _mm256_set1_epi32((int)0x846CA68Bu));
    FOUR(j) x[j] = _mm256_xor_si256(x[j], _mm256_srli_epi32(x[j], 16));
}

/* 32 values to integers; x: out what these do not say. */
INLINE void int_group(float scale, float inverse, float most, float *x, uint8_t *codes) {
    __m256i q[4];
    __m256 v[4];
    FOUR(j) v[j] = load(x + LANES * j);
    FOUR(j) {
        __m256 y = _mm256_mul_ps(v[j], set(inverse));
        q[j] = _mm256_cvtps_epi32(_mm256_max_ps(_mm256_min_ps(y, set(most)), set(-most)));
    }
    FOUR(j) store(x + LANES * j, _mm256_sub_ps(v[j], _mm256_mul_ps(_mm256_cvtepi32_ps(q[j]), set(scale))));
    store_bytes(codes, q, true);
}

/* 32 values to a bit each. */
INLINE void sign_bits_group(float scale, float *x, uint8_t *bits) {
    __m256i signs[4];
    for (size_t j = 0; j < 4; j++) {
        float *at = x + LANES * j;
        __m256 v = load(at), negative = _mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_LT_OQ);
        signs[j] = bits_of(negative);
        store(at, _mm256_sub_ps(v, _mm256_xor_ps(set(scale), _mm256_and_ps(negative, set(-0.0f)))));
    }
    store_signs(bits, signs);
}

/* 32 values, the first of them element i, to integers by chance. */
INLINE void stochastic_group(const ts_stochastic *how, size_t i, bool indexed, float *x, uint8_t *codes) {
    __m256i q[4];
    __m256 v[4], y[4];
    mixed_words(how, i, indexed, q);
    FOUR(j) v[j] = load(x + LANES * j);
    /* A power of two times an integer below 2^24 is exact: one rounding, as without the fused operation. */
    FOUR(j) y[j] = _mm256_mul_ps(magnitude(v[j]), set(how->inverse));
    FOUR(j) y[j] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32(q[j], 8)), set(0x1p-24f), y[j]);
    /* The level of what is 0 is 0, whatever the sign. */
    FOUR(j) q[j] = _mm256_sign_epi32(_mm256_cvttps_epi32(_mm256_min_ps(y[j], set(how->most))), bits_of(v[j]));
    FOUR(j) y[j] = _mm256_mul_ps(_mm256_cvtepi32_ps(q[j]), set(how->step));
    FOUR(j) store(x + LANES * j, _mm256_sub_ps(v[j], y[j]));
    store_bytes(codes, q, true);
}

/* 32 values `v` to exponents and signs; x: out what these do not say. */
INLINE void natural_group(const ts_stochastic *how, size_t i, bool indexed, const __m256 v[4], float *x,
                          uint8_t *exponents, uint8_t *signs) {
    __m256i exponent[4], sign[4];
    mixed_words(how, i, indexed, exponent);
    FOUR(j) {
        __m256i abs = abs_bits(v[j]), carried = _mm256_add_epi32(abs, _mm256_srli_epi32(exponent[j], 9));
        sign[j] = _mm256_xor_si256(bits_of(v[j]), abs);
        exponent[j] = _mm256_min_epi32(_mm256_srli_epi32(carried, 23), _mm256_set1_epi32(254));
    }
    FOUR(j) {
        __m256i power = _mm256_or_si256(_mm256_slli_epi32(exponent[j], 23), sign[j]);
        store(x + LANES * j, _mm256_sub_ps(v[j], float_of(power)));
    }
    store_bytes(exponents, exponent, false);
    store_signs(signs, sign);
}

#endif
