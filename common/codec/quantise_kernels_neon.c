/* SPDX-License-Identifier: Apache-2.0 */
/* Quantisers in NEON, eight values a step; tails go to the reference. */
#include <arm_neon.h>

#include "common/codec/kernels.h"
#include "common/codec/quantise_kernels.h"
#include "common/codec/quantise_kernels_neon.h"

#define STEP 8
#define HALF_MAX 65504.0f
#define INLINE static inline __attribute__((always_inline))

/* Eight values: two registers that go through everything together. */
typedef struct { float32x4_t a, b; } pair;
typedef struct { uint32x4_t a, b; } words;

INLINE pair load(const float *x) { return (pair){vld1q_f32(x), vld1q_f32(x + 4)}; }
INLINE void store(float *x, pair v) {
    vst1q_f32(x, v.a);
    vst1q_f32(x + 4, v.b);
}
INLINE uint32x4_t bits_of(float32x4_t x) { return vreinterpretq_u32_f32(x); }
INLINE float32x4_t float_of(uint32x4_t x) { return vreinterpretq_f32_u32(x); }
INLINE float32x4_t clamp(float32x4_t x, float least, float most) {
    return vmaxq_f32(vminq_f32(x, vdupq_n_f32(most)), vdupq_n_f32(least));
}

/* The low byte of each of eight words. */
INLINE void store_bytes(uint8_t *out, uint32x4_t a, uint32x4_t b) {
    vst1_u8(out, vmovn_u16(vcombine_u16(vmovn_u32(a), vmovn_u32(b))));
}

INLINE float16x8_t load_halves(const uint8_t *in) { return vreinterpretq_f16_u8(vld1q_u8(in)); }
INLINE pair widen(float16x8_t half) {
    return (pair){vcvt_f32_f16(vget_low_f16(half)), vcvt_f32_f16(vget_high_f16(half))};
}

void ts_fp16_encode_neon(float *x, size_t n, uint8_t *out) {
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        pair v = load(x + i);
        float16x8_t half = vcombine_f16(vcvt_f16_f32(clamp(v.a, -HALF_MAX, HALF_MAX)),
                                        vcvt_f16_f32(clamp(v.b, -HALF_MAX, HALF_MAX)));
        vst1q_u8(out + 2 * i, vreinterpretq_u8_f16(half));
        pair back = widen(half);
        store(x + i, (pair){vsubq_f32(v.a, back.a), vsubq_f32(v.b, back.b)});
    }
    ts_fp16_encode_scalar(x + i, n - i, out + 2 * i);
}

void ts_fp16_decode_neon(const uint8_t *in, size_t n, float *x) {
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) store(x + i, widen(load_halves(in + 2 * i)));
    ts_fp16_decode_scalar(in + 2 * i, n - i, x + i);
}

void ts_fp16_add_neon(const uint8_t *in, size_t n, float *sum) {
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        pair s = load(sum + i), v = widen(load_halves(in + 2 * i));
        store(sum + i, (pair){vaddq_f32(s.a, v.a), vaddq_f32(s.b, v.b)});
    }
    ts_fp16_add_scalar(in + 2 * i, n - i, sum + i);
}

/* Four values to integers; *x becomes what the receiver does not get. */
INLINE int32x4_t to_int(float32x4_t *x, float inverse, float most, float scale) {
    int32x4_t q = vcvtnq_s32_f32(clamp(vmulq_f32(*x, vdupq_n_f32(inverse)), -most, most));
    *x = vsubq_f32(*x, vmulq_f32(vcvtq_f32_s32(q), vdupq_n_f32(scale)));
    return q;
}

/* One loop for both: int8 writes bytes, too. */
INLINE size_t int_groups(float scale, float most, float *x, size_t n, uint8_t *out) {
    float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        pair v = load(x + i);
        int32x4_t a = to_int(&v.a, inverse, most, scale), b = to_int(&v.b, inverse, most, scale);
        store_bytes(out + i, vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b));
        store(x + i, v);
    }
    return i;
}

void ts_int8_encode_neon(float scale, float *x, size_t n, uint8_t *out) {
    size_t i = int_groups(scale, 127.0f, x, n, out);
    ts_int8_encode_scalar(scale, x + i, n - i, out + i);
}

void ts_int_codes_neon(float scale, float most, float *x, size_t n, uint8_t *codes) {
    size_t i = int_groups(scale, most, x, n, codes);
    ts_int_codes_scalar(scale, most, x + i, n - i, codes + i);
}

INLINE pair int8_load(const uint8_t *in, float scale) {
    int16x8_t wide = vmovl_s8(vreinterpret_s8_u8(vld1_u8(in)));
    float32x4_t a = vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))), b = vcvtq_f32_s32(vmovl_s16(vget_high_s16(wide)));
    return (pair){vmulq_f32(a, vdupq_n_f32(scale)), vmulq_f32(b, vdupq_n_f32(scale))};
}

void ts_int8_decode_neon(float scale, const uint8_t *in, size_t n, float *x) {
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) store(x + i, int8_load(in + i, scale));
    ts_int8_decode_scalar(scale, in + i, n - i, x + i);
}

void ts_int8_add_neon(float scale, const uint8_t *in, size_t n, float *sum) {
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        pair s = load(sum + i), v = int8_load(in + i, scale);
        store(sum + i, (pair){vaddq_f32(s.a, v.a), vaddq_f32(s.b, v.b)});
    }
    ts_int8_add_scalar(scale, in + i, n - i, sum + i);
}

/* Four values to bfloat16, which stands in the upper half of the words. */
INLINE uint32x4_t to_bf16(float32x4_t x) {
    uint32x4_t abs = vandq_u32(bits_of(x), vdupq_n_u32(TS_ABS_MASK)), sign = veorq_u32(bits_of(x), abs);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(abs, 16), vdupq_n_u32(1));
    uint32x4_t rounded = vaddq_u32(vaddq_u32(abs, vdupq_n_u32(0x7FFF)), odd);
    rounded = vorrq_u32(sign, vminq_u32(rounded, vdupq_n_u32(0x7F7FFFFF)));
    return vandq_u32(rounded, vdupq_n_u32(0xFFFF0000u));
}

void ts_bf16_encode_neon(float *x, size_t n, uint8_t *out) {
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        pair v = load(x + i);
        uint32x4_t a = to_bf16(v.a), b = to_bf16(v.b);
        vst1q_u8(out + 2 * i, vreinterpretq_u8_u16(vcombine_u16(vshrn_n_u32(a, 16), vshrn_n_u32(b, 16))));
        store(x + i, (pair){vsubq_f32(v.a, float_of(a)), vsubq_f32(v.b, float_of(b))});
    }
    ts_bf16_encode_scalar(x + i, n - i, out + 2 * i);
}

void ts_bf16_decode_neon(const uint8_t *in, size_t n, float *x) {
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        uint16x8_t v = vreinterpretq_u16_u8(vld1q_u8(in + 2 * i));
        store(x + i, (pair){float_of(vshll_n_u16(vget_low_u16(v), 16)), float_of(vshll_n_u16(vget_high_u16(v), 16))});
    }
    ts_bf16_decode_scalar(in + 2 * i, n - i, x + i);
}

INLINE uint32x4_t to_linear(float32x4_t *x, float low, float inverse, float most, float step) {
    float32x4_t y = vmulq_f32(vsubq_f32(*x, vdupq_n_f32(low)), vdupq_n_f32(inverse));
    int32x4_t q = vcvtnq_s32_f32(clamp(y, 0.0f, most));
    *x = vsubq_f32(*x, vaddq_f32(vdupq_n_f32(low), vmulq_f32(vcvtq_f32_s32(q), vdupq_n_f32(step))));
    return vreinterpretq_u32_s32(q);
}

void ts_linear_codes_neon(float low, float step, float most, float *x, size_t n, uint8_t *codes) {
    float inverse = step > 0.0f ? 1.0f / step : 0.0f;
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        pair v = load(x + i);
        uint32x4_t a = to_linear(&v.a, low, inverse, most, step), b = to_linear(&v.b, low, inverse, most, step);
        store_bytes(codes + i, a, b);
        store(x + i, v);
    }
    ts_linear_codes_scalar(low, step, most, x + i, n - i, codes + i);
}

INLINE uint32x4_t to_sign(float32x4_t *x, float scale) {
    uint32x4_t negative = vcltq_f32(*x, vdupq_n_f32(0.0f));
    *x = vsubq_f32(*x, vbslq_f32(negative, vdupq_n_f32(-scale), vdupq_n_f32(scale)));
    return negative;
}

/* A bit a lane, of masks of all ones or zeros. */
INLINE uint8_t to_byte(uint32x4_t a, uint32x4_t b) {
    static const uint32_t weights[STEP] = {1, 2, 4, 8, 16, 32, 64, 128};
    return (uint8_t)vaddvq_u32(vorrq_u32(vandq_u32(a, vld1q_u32(weights)), vandq_u32(b, vld1q_u32(weights + 4))));
}

void ts_sign_bits_neon(float scale, float *x, size_t n, uint8_t *bits) {
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        pair v = load(x + i);
        uint32x4_t a = to_sign(&v.a, scale), b = to_sign(&v.b, scale);
        bits[i / STEP] = to_byte(a, b);
        store(x + i, v);
    }
    ts_sign_bits_scalar(scale, x + i, n - i, bits + i / STEP);
}

/* mixed_word() of the reference, for four elements. */
INLINE uint32x4_t mixed(uint32x4_t x, uint64_t key) {
    x = veorq_u32(x, vdupq_n_u32((uint32_t)key));
    x = veorq_u32(x, vshrq_n_u32(x, 16));
    x = vmulq_u32(x, vdupq_n_u32(0x7FEB352Du));
    x = veorq_u32(x, veorq_u32(vshrq_n_u32(x, 15), vdupq_n_u32((uint32_t)(key >> 32))));
    x = vmulq_u32(x, vdupq_n_u32(0x846CA68Bu));
    return veorq_u32(x, vshrq_n_u32(x, 16));
}

INLINE words mixed_words(const ts_stochastic *how, size_t i) {
    static const uint32_t lanes[STEP] = {0, 1, 2, 3, 4, 5, 6, 7};
    const uint32_t *at = how->index ? how->index + i : lanes;
    uint32x4_t from = vdupq_n_u32((uint32_t)how->first + (how->index ? 0 : (uint32_t)i));
    return (words){mixed(vaddq_u32(vld1q_u32(at), from), how->key), mixed(vaddq_u32(vld1q_u32(at + 4), from), how->key)};
}

/* The rest of a run, for the reference. */
INLINE ts_stochastic rest_of(const ts_stochastic *how, size_t i) {
    ts_stochastic rest = *how;
    if (rest.index) rest.index += i;
    else rest.first += i;
    return rest;
}

INLINE uint32x4_t to_level(float32x4_t *x, uint32x4_t word, const ts_stochastic *how) {
    float32x4_t u = vmulq_f32(vcvtq_f32_u32(vshrq_n_u32(word, 8)), vdupq_n_f32(0x1p-24f));
    float32x4_t y = vaddq_f32(vmulq_f32(vabsq_f32(*x), vdupq_n_f32(how->inverse)), u);
    int32x4_t level = vcvtq_s32_f32(vminq_f32(y, vdupq_n_f32(how->most)));
    int32x4_t minus = vshrq_n_s32(vreinterpretq_s32_f32(*x), 31), q = vsubq_s32(veorq_s32(level, minus), minus);
    *x = vsubq_f32(*x, vmulq_f32(vcvtq_f32_s32(q), vdupq_n_f32(how->step)));
    return vreinterpretq_u32_s32(q);
}

void ts_stochastic_codes_neon(const ts_stochastic *given, float *x, size_t n, uint8_t *codes) {
    const ts_stochastic how = *given;
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        pair v = load(x + i);
        words w = mixed_words(&how, i);
        uint32x4_t a = to_level(&v.a, w.a, &how), b = to_level(&v.b, w.b, &how);
        store_bytes(codes + i, a, b);
        store(x + i, v);
    }
    ts_stochastic rest = rest_of(&how, i);
    ts_stochastic_codes_scalar(&rest, x + i, n - i, codes + i);
}

INLINE uint32x4_t to_natural(float32x4_t *x, uint32x4_t word, uint32x4_t *sign) {
    uint32x4_t abs = vandq_u32(bits_of(*x), vdupq_n_u32(TS_ABS_MASK)), above = veorq_u32(bits_of(*x), abs);
    uint32x4_t exponent = vshrq_n_u32(vaddq_u32(abs, vshrq_n_u32(word, 9)), 23);
    exponent = vminq_u32(exponent, vdupq_n_u32(254));
    *sign = vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(above), 31));
    *x = vsubq_f32(*x, float_of(vorrq_u32(vshlq_n_u32(exponent, 23), above)));
    return exponent;
}

void ts_natural_codes_neon(const ts_stochastic *given, float *x, size_t n, uint8_t *exponents, uint8_t *signs) {
    const ts_stochastic how = *given;
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        pair v = load(x + i);
        words w = mixed_words(&how, i), sign;
        uint32x4_t a = to_natural(&v.a, w.a, &sign.a), b = to_natural(&v.b, w.b, &sign.b);
        store_bytes(exponents + i, a, b);
        signs[i / STEP] = to_byte(sign.a, sign.b);
        store(x + i, v);
    }
    ts_stochastic rest = rest_of(&how, i);
    ts_natural_codes_scalar(&rest, x + i, n - i, exponents + i, signs + i / STEP);
}
