/* SPDX-License-Identifier: Apache-2.0 */
/* Values to codes and back, eight at a time; tails go to the reference. */
#include <immintrin.h>
#include <string.h>

#include "common/codec/kernels.h"
#include "common/codec/quantise_kernels.h"
#include "common/codec/sweep_avx2.h"

#define LANES 8

INLINE __m256 load(const float *x) { return _mm256_loadu_ps(x); }
INLINE void store(float *x, __m256 v) { _mm256_storeu_ps(x, v); }
INLINE __m256 set(float x) { return _mm256_set1_ps(x); }
INLINE __m256i bits_of(__m256 x) { return _mm256_castps_si256(x); }
INLINE __m256 float_of(__m256i x) { return _mm256_castsi256_ps(x); }
INLINE __m256 magnitude(__m256 x) { return _mm256_and_ps(x, float_of(_mm256_set1_epi32((int)TS_ABS_MASK))); }

/* The low byte of each lane, in order. */
INLINE void store_bytes(uint8_t *out, __m256i v) {
    const __m256i low = _mm256_set1_epi32(0x0C080400);
    __m256i four = _mm256_shuffle_epi8(v, low);
    __m128i eight = _mm_unpacklo_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
    _mm_storel_epi64((__m128i *)(void *)out, eight);
}

INLINE __m256i load_bytes(const uint8_t *in) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)in));
}

void ts_bf16_encode_avx2(float *x, size_t n, uint8_t *out) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256 v = load(x + i);
        __m256i half = bf16_bits(v);
        _mm_storeu_si128((__m128i *)(void *)(out + 2 * i), upper_halves(half));
        store(x + i, _mm256_sub_ps(v, float_of(half)));
    }
    ts_bf16_encode_scalar(x + i, n - i, out + 2 * i);
}

void ts_bf16_decode_avx2(const uint8_t *in, size_t n, float *x) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(in + 2 * i)));
        store(x + i, float_of(_mm256_slli_epi32(wide, 16)));
    }
    ts_bf16_decode_scalar(in + 2 * i, n - i, x + i);
}

void ts_int_codes_avx2(float scale, float most, float *x, size_t n, uint8_t *codes) {
    float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        if (i % 16 == 0) ask_next_block(x + i);
        __m256 v = load(x + i), y = _mm256_max_ps(_mm256_min_ps(_mm256_mul_ps(v, set(inverse)), set(most)), set(-most));
        __m256i q = _mm256_cvtps_epi32(y);
        store_bytes(codes + i, q);
        store(x + i, _mm256_sub_ps(v, _mm256_mul_ps(_mm256_cvtepi32_ps(q), set(scale))));
    }
    ts_int_codes_scalar(scale, most, x + i, n - i, codes + i);
}

void ts_linear_codes_avx2(float low, float step, float most, float *x, size_t n, uint8_t *codes) {
    float inverse = step > 0.0f ? 1.0f / step : 0.0f;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        if (i % 16 == 0) ask_next_block(x + i);
        __m256 v = load(x + i), y = _mm256_mul_ps(_mm256_sub_ps(v, set(low)), set(inverse));
        __m256i q = _mm256_cvtps_epi32(_mm256_max_ps(_mm256_min_ps(y, set(most)), _mm256_setzero_ps()));
        store_bytes(codes + i, q);
        __m256 back = _mm256_add_ps(set(low), _mm256_mul_ps(_mm256_cvtepi32_ps(q), set(step)));
        store(x + i, _mm256_sub_ps(v, back));
    }
    ts_linear_codes_scalar(low, step, most, x + i, n - i, codes + i);
}

void ts_sign_bits_avx2(float scale, float *x, size_t n, uint8_t *bits) {
    const __m256 minus = set(-0.0f);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        if (i % 16 == 0) ask_next_block(x + i);
        __m256 v = load(x + i), negative = _mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_LT_OQ);
        bits[i / LANES] = (uint8_t)_mm256_movemask_ps(negative);
        store(x + i, _mm256_sub_ps(v, _mm256_xor_ps(set(scale), _mm256_and_ps(negative, minus))));
    }
    ts_sign_bits_scalar(scale, x + i, n - i, bits + i / LANES);
}

/* mixed_word() of the reference, for eight elements. */
INLINE __m256i mixed_words(const ts_stochastic *how, size_t i) {
    __m256i x = how->index
                    ? _mm256_loadu_si256((const __m256i *)(const void *)(how->index + i))
                    : _mm256_add_epi32(_mm256_set1_epi32((int)(uint32_t)i), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    x = _mm256_add_epi32(x, _mm256_set1_epi32((int)(uint32_t)how->first));
    x = _mm256_xor_si256(x, _mm256_set1_epi32((int)(uint32_t)how->key));
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32(0x7FEB352D));
    x = _mm256_xor_si256(
        x, _mm256_xor_si256(_mm256_srli_epi32(x, 15), _mm256_set1_epi32((int)(uint32_t)(how->key >> 32))));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int)0x846CA68Bu));
    return _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
}

/* The rest of a run, for the reference. */
INLINE ts_stochastic rest_of(const ts_stochastic *how, size_t i) {
    ts_stochastic rest = *how;
    if (rest.index) rest.index += i;
    else rest.first += i;
    return rest;
}

void ts_stochastic_codes_avx2(const ts_stochastic *given, float *x, size_t n, uint8_t *codes) {
    const ts_stochastic how = *given;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256 v = load(x + i), u = _mm256_cvtepi32_ps(_mm256_srli_epi32(mixed_words(&how, i), 8));
        u = _mm256_mul_ps(u, set(0x1p-24f));
        __m256 y = _mm256_add_ps(_mm256_mul_ps(magnitude(v), set(how.inverse)), u);
        __m256i level = _mm256_cvttps_epi32(_mm256_min_ps(y, set(how.most))), minus = _mm256_srai_epi32(bits_of(v), 31);
        __m256i q = _mm256_sub_epi32(_mm256_xor_si256(level, minus), minus);
        store_bytes(codes + i, q);
        store(x + i, _mm256_sub_ps(v, _mm256_mul_ps(_mm256_cvtepi32_ps(q), set(how.step))));
    }
    ts_stochastic rest = rest_of(&how, i);
    ts_stochastic_codes_scalar(&rest, x + i, n - i, codes + i);
}

void ts_natural_codes_avx2(const ts_stochastic *given, float *x, size_t n, uint8_t *exponents, uint8_t *signs) {
    const ts_stochastic how = *given;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256 v = load(x + i);
        __m256i abs = bits_of(magnitude(v)), sign = _mm256_xor_si256(bits_of(v), abs);
        __m256i carried = _mm256_add_epi32(abs, _mm256_srli_epi32(mixed_words(&how, i), 9));
        __m256i exponent = _mm256_min_epu32(_mm256_srli_epi32(carried, 23), _mm256_set1_epi32(254));
        store_bytes(exponents + i, exponent);
        signs[i / LANES] = (uint8_t)_mm256_movemask_ps(float_of(sign));
        store(x + i, _mm256_sub_ps(v, float_of(_mm256_or_si256(_mm256_slli_epi32(exponent, 23), sign))));
    }
    ts_stochastic rest = rest_of(&how, i);
    ts_natural_codes_scalar(&rest, x + i, n - i, exponents + i, signs + i / LANES);
}

/* log_of_one_plus() of the reference, the same operations in the same order. */
INLINE __m256 log_of_one_plus(__m256 x) {
    static const float factor[8] = {-1.1514610310e-1f, 1.1676998740e-1f,  -1.2420140846e-1f, 1.4249322787e-1f,
                                    -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f};
    __m256 one = set(1.0f), u = _mm256_add_ps(one, x);
    __m256 lost = _mm256_div_ps(_mm256_sub_ps(x, _mm256_sub_ps(u, one)), u);
    lost = _mm256_andnot_ps(_mm256_cmp_ps(u, set(2.0f), _CMP_GT_OQ), lost);
    __m256i e = _mm256_srli_epi32(_mm256_sub_epi32(bits_of(u), _mm256_set1_epi32(0x3F3504F3)), 23);
    __m256 m = _mm256_sub_ps(float_of(_mm256_sub_epi32(bits_of(u), _mm256_slli_epi32(e, 23))), one),
           z = _mm256_mul_ps(m, m);
    __m256 p = set(7.0376836292e-2f), exponent = _mm256_cvtepi32_ps(e);
    for (int i = 0; i < 8; i++) p = _mm256_add_ps(_mm256_mul_ps(p, m), set(factor[i]));
    __m256 y = _mm256_mul_ps(_mm256_mul_ps(m, z), p);
    y = _mm256_add_ps(y, _mm256_mul_ps(exponent, set(-2.12194440e-4f)));
    y = _mm256_sub_ps(y, _mm256_mul_ps(set(0.5f), z));
    y = _mm256_add_ps(_mm256_add_ps(m, y), lost);
    return _mm256_add_ps(y, _mm256_mul_ps(exponent, set(0.693359375f)));
}

void ts_log_codes_avx2(float inverse, float most, const float *values, float *x, size_t n, uint8_t *codes) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256 v = load(x + i), y = _mm256_mul_ps(log_of_one_plus(magnitude(v)), set(inverse));
        __m256i level = _mm256_cvtps_epi32(_mm256_min_ps(y, set(most))), minus = _mm256_srai_epi32(bits_of(v), 31);
        store_bytes(codes + i, _mm256_sub_epi32(_mm256_xor_si256(level, minus), minus));
        __m256 back = _mm256_i32gather_ps(values, level, 4);
        store(x + i, _mm256_sub_ps(v, _mm256_xor_ps(back, _mm256_and_ps(v, set(-0.0f)))));
    }
    ts_log_codes_scalar(inverse, most, values, x + i, n - i, codes + i);
}

INLINE void put(float *x, __m256 value, bool add) { store(x, add ? _mm256_add_ps(load(x), value) : value); }

/* A byte's bits as the signs of eight lanes. */
INLINE __m256 sign_lanes(uint8_t byte) {
    const __m256i up = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    __m256i signs = _mm256_sllv_epi32(_mm256_set1_epi32(byte), up);
    return _mm256_and_ps(float_of(signs), set(-0.0f));
}

INLINE size_t int_values(float scale, unsigned bits, const uint8_t *codes, size_t n, float *x, bool add) {
    const __m128i up = _mm_cvtsi32_si128((int)(32 - bits));
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256i q = _mm256_sra_epi32(_mm256_sll_epi32(load_bytes(codes + i), up), up);
        put(x + i, _mm256_mul_ps(_mm256_cvtepi32_ps(q), set(scale)), add);
    }
    return i;
}

void ts_int_values_avx2(float scale, unsigned bits, const uint8_t *codes, size_t n, float *x, bool add) {
    size_t i = add ? int_values(scale, bits, codes, n, x, true) : int_values(scale, bits, codes, n, x, false);
    ts_int_values_scalar(scale, bits, codes + i, n - i, x + i, add);
}

INLINE size_t linear_values(float low, float step, const uint8_t *codes, size_t n, float *x, bool add) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256 q = _mm256_cvtepi32_ps(load_bytes(codes + i));
        put(x + i, _mm256_add_ps(set(low), _mm256_mul_ps(q, set(step))), add);
    }
    return i;
}

void ts_linear_values_avx2(float low, float step, const uint8_t *codes, size_t n, float *x, bool add) {
    size_t i = add ? linear_values(low, step, codes, n, x, true) : linear_values(low, step, codes, n, x, false);
    ts_linear_values_scalar(low, step, codes + i, n - i, x + i, add);
}

INLINE size_t sign_values(float scale, const uint8_t *bits, size_t n, float *x, bool add) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) put(x + i, _mm256_xor_ps(set(scale), sign_lanes(bits[i / LANES])), add);
    return i;
}

void ts_sign_values_avx2(float scale, const uint8_t *bits, size_t n, float *x, bool add) {
    size_t i = add ? sign_values(scale, bits, n, x, true) : sign_values(scale, bits, n, x, false);
    ts_sign_values_scalar(scale, bits + i / LANES, n - i, x + i, add);
}

INLINE size_t natural_values(const uint8_t *exponents, const uint8_t *signs, size_t n, float *x, bool add) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256i e = _mm256_slli_epi32(load_bytes(exponents + i), 23);
        put(x + i, _mm256_or_ps(float_of(e), sign_lanes(signs[i / LANES])), add);
    }
    return i;
}

void ts_natural_values_avx2(const uint8_t *exponents, const uint8_t *signs, size_t n, float *x, bool add) {
    size_t i = add ? natural_values(exponents, signs, n, x, true) : natural_values(exponents, signs, n, x, false);
    ts_natural_values_scalar(exponents + i, signs + i / LANES, n - i, x + i, add);
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
bool ts_fields_lack_avx2(unsigned bits, uint16_t mask, uint16_t code, const uint8_t *in, size_t bytes) {
    const __m256i masks = repeated(bits, mask & ((1u << bits) - 1)), codes = repeated(bits, code);
    const __m256i ones = repeated(bits, 1), highs = repeated(bits, 1u << (bits - 1));
    __m256i seen = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 32 <= bytes; i += 32) {
        __m256i fields = _mm256_loadu_si256((const __m256i *)(const void *)(in + i));
        __m256i zero = _mm256_xor_si256(_mm256_and_si256(fields, masks), codes);
        seen = _mm256_or_si256(seen, _mm256_andnot_si256(zero, _mm256_sub_epi64(zero, ones)));
    }
    return _mm256_testz_si256(seen, highs) && ts_fields_lack_scalar(bits, mask, code, in + i, bytes - i);
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

void ts_pack_avx2(unsigned bits, const uint8_t *codes, size_t n, uint8_t *out) {
    switch (bits) {
    case 1: pack_fixed(1, codes, n, out); break;
    case 2: pack_fixed(2, codes, n, out); break;
    case 3: pack_fixed(3, codes, n, out); break;
    case 4: pack_fixed(4, codes, n, out); break;
    case 5: pack_fixed(5, codes, n, out); break;
    case 6: pack_fixed(6, codes, n, out); break;
    case 7: pack_fixed(7, codes, n, out); break;
    default: memcpy(out, codes, n); break;
    }
}

void ts_unpack_avx2(unsigned bits, const uint8_t *in, size_t n, uint8_t *codes) {
    switch (bits) {
    case 1: unpack_fixed(1, in, n, codes); break;
    case 2: unpack_fixed(2, in, n, codes); break;
    case 3: unpack_fixed(3, in, n, codes); break;
    case 4: unpack_fixed(4, in, n, codes); break;
    case 5: unpack_fixed(5, in, n, codes); break;
    case 6: unpack_fixed(6, in, n, codes); break;
    case 7: unpack_fixed(7, in, n, codes); break;
    default: memcpy(codes, in, n); break;
    }
}
