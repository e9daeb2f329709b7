/* SPDX-License-Identifier: Apache-2.0 */
/* Values to codes and back: the reference. */
#include "common/codec/kernels.h"
#include "common/codec/quantise_kernels.h"

/* A uniform 32-bit word for an element: the key in two halves around a mixing function (Wellons' lowbias32, 2018). */
static inline uint32_t mixed_word(uint32_t element, uint32_t low, uint32_t high) {
    uint32_t x = element ^ low;
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= (x >> 15) ^ high;
    x *= 0x846CA68Bu;
    return x ^ (x >> 16);
}

static inline float magnitude(float x) { return ts_bits_float(ts_float_bits(x) & TS_ABS_MASK); }

void ts_bf16_encode_scalar(float *x, size_t n, uint8_t *out) {
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = ts_float_bits(x[i]), sign = bits & ~TS_ABS_MASK;
        uint32_t rounded = (bits & TS_ABS_MASK) + 0x7FFFu + ((bits >> 16) & 1u);
        rounded = rounded > 0x7F7FFFFFu ? 0x7F7FFFFFu : rounded; /* the largest, never infinity */
        uint16_t half = (uint16_t)((sign | rounded) >> 16);
        out[2 * i] = (uint8_t)half;
        out[2 * i + 1] = (uint8_t)(half >> 8);
        x[i] = x[i] - ts_bits_float((uint32_t)half << 16);
    }
}

void ts_bf16_decode_scalar(const uint8_t *in, size_t n, float *x) {
    for (size_t i = 0; i < n; i++) x[i] = ts_bits_float((uint32_t)in[2 * i] << 16 | (uint32_t)in[2 * i + 1] << 24);
}

void ts_int_codes_scalar(float scale, float most, float *x, size_t n, uint8_t *codes) {
    float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    for (size_t i = 0; i < n; i++) {
        float y = x[i] * inverse;
        y = y > most ? most : y;
        y = y < -most ? -most : y;
        float q = ts_round(y);
        codes[i] = (uint8_t)(int32_t)q;
        x[i] = x[i] - q * scale;
    }
}

void ts_linear_codes_scalar(float low, float step, float most, float *x, size_t n, uint8_t *codes) {
    float inverse = step > 0.0f ? 1.0f / step : 0.0f;
    for (size_t i = 0; i < n; i++) {
        float y = (x[i] - low) * inverse;
        y = y > most ? most : y;
        y = y < 0.0f ? 0.0f : y;
        float q = ts_round(y);
        codes[i] = (uint8_t)(int32_t)q;
        x[i] = x[i] - (low + q * step);
    }
}

void ts_sign_bits_scalar(float scale, float *x, size_t n, uint8_t *bits) {
    for (size_t i = 0; i < n; i++) {
        bool negative = x[i] < 0.0f;
        if (i % 8 == 0) bits[i / 8] = 0;
        bits[i / 8] = (uint8_t)(bits[i / 8] | negative << i % 8);
        x[i] = x[i] - (negative ? -scale : scale);
    }
}

void ts_stochastic_codes_scalar(const ts_stochastic *how, float *x, size_t n, uint8_t *codes) {
    uint32_t low = (uint32_t)how->key, high = (uint32_t)(how->key >> 32), first = (uint32_t)how->first;
    float inverse = how->inverse, step = how->step, most = how->most;
    const uint32_t *index = how->index;
    for (size_t i = 0; i < n; i++) {
        uint32_t word = mixed_word(first + (index ? index[i] : (uint32_t)i), low, high);
        float u = (float)(int32_t)(word >> 8) * 0x1p-24f;
        float y = magnitude(x[i]) * inverse + u;
        y = y > most ? most : y;
        int32_t level = (int32_t)y;
        int32_t q = ts_float_bits(x[i]) >> 31 ? -level : level;
        codes[i] = (uint8_t)q;
        x[i] = x[i] - (float)q * step;
    }
}

void ts_natural_codes_scalar(const ts_stochastic *how, float *x, size_t n, uint8_t *exponents, uint8_t *signs) {
    uint32_t low = (uint32_t)how->key, high = (uint32_t)(how->key >> 32), first = (uint32_t)how->first;
    const uint32_t *index = how->index;
    for (size_t i = 0; i < n; i++) {
        uint32_t word = mixed_word(first + (index ? index[i] : (uint32_t)i), low, high);
        uint32_t bits = ts_float_bits(x[i]), sign = bits >> 31;
        /* The carry into the exponent comes with the probability that the mantissa says. */
        uint32_t exponent = ((bits & TS_ABS_MASK) + (word >> 9)) >> 23;
        exponent = exponent > 254 ? 254 : exponent;
        exponents[i] = (uint8_t)exponent;
        if (i % 8 == 0) signs[i / 8] = 0;
        signs[i / 8] = (uint8_t)(signs[i / 8] | sign << i % 8);
        x[i] = x[i] - ts_bits_float(exponent << 23 | sign << 31);
    }
}

/*
 * log(1 + x), x >= 0: exponent and mantissa of u = 1 + x with the mantissa in [0.7, 1.4], a polynomial (Cephes logf,
 * Moshier 1989), and what was lost in 1 + x put back. Within 2 units in the last place, the same everywhere.
 */
static inline float log_of_one_plus(float x) {
    float u = 1.0f + x, lost = u > 2.0f ? 0.0f : (x - (u - 1.0f)) / u;
    int32_t e = (int32_t)((ts_float_bits(u) - 0x3F3504F3u) >> 23); /* u >= 1 */
    float m = ts_bits_float(ts_float_bits(u) - ((uint32_t)e << 23)) - 1.0f, z = m * m;
    float p = 7.0376836292e-2f;
    p = p * m + -1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m + -1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m + -1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m + -2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    float y = m * z * p, exponent = (float)e;
    y = y + exponent * -2.12194440e-4f - 0.5f * z;
    return m + y + lost + exponent * 0.693359375f;
}

void ts_log_codes_scalar(float inverse, float most, const float *values, float *x, size_t n, uint8_t *codes) {
    for (size_t i = 0; i < n; i++) {
        float y = log_of_one_plus(magnitude(x[i])) * inverse;
        int32_t level = (int32_t)ts_round(y > most ? most : y);
        bool negative = ts_float_bits(x[i]) >> 31;
        codes[i] = (uint8_t)(negative ? -level : level);
        x[i] = x[i] - (negative ? -values[level] : values[level]);
    }
}

static inline void put(float *x, float value, bool add) { *x = add ? *x + value : value; }

void ts_int_values_scalar(float scale, unsigned bits, const uint8_t *codes, size_t n, float *x, bool add) {
    unsigned up = 32 - bits;
    for (size_t i = 0; i < n; i++) put(x + i, (float)((int32_t)((uint32_t)codes[i] << up) >> up) * scale, add);
}

void ts_linear_values_scalar(float low, float step, const uint8_t *codes, size_t n, float *x, bool add) {
    for (size_t i = 0; i < n; i++) put(x + i, low + (float)(int32_t)codes[i] * step, add);
}

void ts_table_values_scalar(const float *table, const uint8_t *codes, size_t n, float *x, bool add) {
    for (size_t i = 0; i < n; i++) put(x + i, table[codes[i]], add);
}

static inline uint32_t bit_of(const uint8_t *bits, size_t i) { return (uint32_t)bits[i / 8] >> i % 8 & 1u; }

void ts_sign_values_scalar(float scale, const uint8_t *bits, size_t n, float *x, bool add) {
    for (size_t i = 0; i < n; i++) put(x + i, bit_of(bits, i) ? -scale : scale, add);
}

void ts_natural_values_scalar(size_t block, const uint8_t *in, size_t n, float *x, bool add) {
    for (size_t at = 0, count; at < n; at += count, in += count + (count + 7) / 8) {
        count = n - at < block ? n - at : block;
        for (size_t i = 0; i < count; i++) {
            put(x + at + i, ts_bits_float((uint32_t)in[i] << 23 | bit_of(in + count, i) << 31), add);
        }
    }
}

void ts_pack_scalar(unsigned bits, const uint8_t *codes, size_t n, uint8_t *out) {
    uint32_t held = 0, mask = (1u << bits) - 1;
    unsigned filled = 0;
    for (size_t i = 0; i < n; i++) {
        held |= (codes[i] & mask) << filled;
        filled += bits;
        if (filled < 8) continue;
        *out++ = (uint8_t)held;
        held >>= 8;
        filled -= 8;
    }
    if (filled > 0) *out = (uint8_t)held;
}

void ts_unpack_scalar(unsigned bits, const uint8_t *in, size_t n, uint8_t *codes) {
    uint32_t held = 0, mask = (1u << bits) - 1;
    unsigned filled = 0;
    for (size_t i = 0; i < n; i++) {
        if (filled < bits) {
            held |= (uint32_t)*in++ << filled;
            filled += 8;
        }
        codes[i] = (uint8_t)(held & mask);
        held >>= bits;
        filled -= bits;
    }
}

bool ts_fields_lack_scalar(unsigned bits, uint16_t mask, uint16_t code, const uint8_t *in, size_t bytes) {
    bool found = false;
    if (bits == 16) {
        for (size_t i = 0; i + 2 <= bytes; i += 2) found |= ((in[i] | in[i + 1] << 8) & mask) == code;
        return !found;
    }
    unsigned whole = (1u << bits) - 1;
    for (size_t i = 0; i < bytes; i++) {
        for (unsigned at = 0; at < 8; at += bits) found |= ((unsigned)in[i] >> at & whole & mask) == code;
    }
    return !found;
}
