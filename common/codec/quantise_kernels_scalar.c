/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/bytes.h"
#include "common/codec/kernels.h"
#include "common/codec/quantise_kernels.h"

#define HALF_MAX 65504.0f

uint16_t ts_half_from_float(float x) {
    uint32_t bits = ts_float_bits(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & TS_ABS_MASK;
    if (magnitude >= ts_float_bits(HALF_MAX)) return (uint16_t)(sign | 0x7BFFu);
    if (magnitude < 0x38800000u) {
        /* Denormal half: adding 0.5 leaves the value in units of 2^-24 in the low mantissa bits, rounded to even. */
        float shifted = ts_bits_float(magnitude) + 0.5f;
        return (uint16_t)(sign | (ts_float_bits(shifted) - 0x3F000000u));
    }
    uint32_t odd = (magnitude >> 13) & 1u;
    uint32_t rounded = (magnitude + 0xFFFu + odd) >> 13;
    return (uint16_t)(sign | (rounded - (112u << 10)));
}

float ts_half_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = half & 0x7FFFu;
    if (magnitude >= 0x7C00u) return ts_bits_float(sign | TS_INF_BITS | ((magnitude & 0x3FFu) << 13));
    if (magnitude < 0x400u) {
        float value = (float)magnitude * 0x1p-24f;
        return ts_bits_float(sign | ts_float_bits(value));
    }
    return ts_bits_float(sign | ((magnitude + (112u << 10)) << 13));
}

void ts_fp16_encode_scalar(float *x, size_t n, uint8_t *out) {
    for (size_t i = 0; i < n; i++) {
        uint16_t half = ts_half_from_float(x[i]);
        ts_store_u16(out + 2 * i, half);
        x[i] = x[i] - ts_half_to_float(half);
    }
}

void ts_fp16_decode_scalar(const uint8_t *in, size_t n, float *x) {
    for (size_t i = 0; i < n; i++) x[i] = ts_half_to_float(ts_load_u16(in + 2 * i));
}

void ts_fp16_add_scalar(const uint8_t *in, size_t n, float *sum) {
    for (size_t i = 0; i < n; i++) sum[i] += ts_half_to_float(ts_load_u16(in + 2 * i));
}

void ts_int8_encode_scalar(float scale, float *x, size_t n, uint8_t *out) {
    float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    for (size_t i = 0; i < n; i++) {
        float y = x[i] * inverse;
        float q = ts_round(y > 127.0f ? 127.0f : y < -127.0f ? -127.0f : y);
        out[i] = (uint8_t)(int8_t)q;
        x[i] = x[i] - q * scale;
    }
}

void ts_int8_decode_scalar(float scale, const uint8_t *in, size_t n, float *x) {
    for (size_t i = 0; i < n; i++) x[i] = (float)(int8_t)in[i] * scale;
}

void ts_int8_add_scalar(float scale, const uint8_t *in, size_t n, float *sum) {
    for (size_t i = 0; i < n; i++) sum[i] += (float)(int8_t)in[i] * scale;
}
