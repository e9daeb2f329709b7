/* SPDX-License-Identifier: Apache-2.0 */
/* Values to codes, 32 at a time; tails go to the reference. */
#include <immintrin.h>

#include "common/codec/codes_avx2.h"
#include "common/codec/quantise_kernels.h"

INLINE void ask_group(const float *x, bool asks) {
    ask_next_block(x, asks);
    ask_next_block(x + GROUP / 2, asks);
}

void TS_LEVEL(ts_bf16_encode)(float *x, size_t n, uint8_t *out) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256 v = load(x + i);
        __m256i half = bf16_bits(v);
        _mm_storeu_si128((__m128i *)(void *)(out + 2 * i), upper_halves(half));
        store(x + i, _mm256_sub_ps(v, float_of(half)));
    }
    ts_bf16_encode_scalar(x + i, n - i, out + 2 * i);
}

void TS_LEVEL(ts_int_codes)(float scale, float most, float *x, size_t n, uint8_t *codes) {
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    const bool asks = ts_cpu_asks();
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        ask_group(x + i, asks);
        int_group(scale, inverse, most, x + i, codes + i);
    }
    ts_int_codes_scalar(scale, most, x + i, n - i, codes + i);
}

/* As the reference's, which is int_codes with 127. */
void TS_LEVEL(ts_int8_encode)(float scale, float *x, size_t n, uint8_t *out) { TS_LEVEL(ts_int_codes)(scale, 127.0f, x, n, out); }

void TS_LEVEL(ts_linear_codes)(float low, float step, float most, float *x, size_t n, uint8_t *codes) {
    const float inverse = step > 0.0f ? 1.0f / step : 0.0f;
    const bool asks = ts_cpu_asks();
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        __m256i q[4];
        ask_group(x + i, asks);
        for (size_t j = 0; j < 4; j++) {
            float *at = x + i + LANES * j;
            __m256 v = load(at), y = _mm256_mul_ps(_mm256_sub_ps(v, set(low)), set(inverse));
            q[j] = _mm256_cvtps_epi32(_mm256_max_ps(_mm256_min_ps(y, set(most)), _mm256_setzero_ps()));
            __m256 back = _mm256_add_ps(set(low), _mm256_mul_ps(_mm256_cvtepi32_ps(q[j]), set(step)));
            store(at, _mm256_sub_ps(v, back));
        }
        store_bytes(codes + i, q, false);
    }
    ts_linear_codes_scalar(low, step, most, x + i, n - i, codes + i);
}

void TS_LEVEL(ts_sign_bits)(float scale, float *x, size_t n, uint8_t *bits) {
    const bool asks = ts_cpu_asks();
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        ask_group(x + i, asks);
        sign_bits_group(scale, x + i, bits + i / 8);
    }
    ts_sign_bits_scalar(scale, x + i, n - i, bits + i / 8);
}

/* The rest of a run, for the reference. */
INLINE ts_stochastic rest_of(const ts_stochastic *how, size_t i) {
    ts_stochastic rest = *how;
    if (rest.index) rest.index += i;
    else rest.first += i;
    return rest;
}

INLINE size_t stochastic_codes(ts_stochastic how, bool indexed, float *x, size_t n, uint8_t *codes) {
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) stochastic_group(&how, i, indexed, x + i, codes + i);
    return i;
}

void TS_LEVEL(ts_stochastic_codes)(const ts_stochastic *how, float *x, size_t n, uint8_t *codes) {
    size_t i = how->index ? stochastic_codes(*how, true, x, n, codes) : stochastic_codes(*how, false, x, n, codes);
    ts_stochastic rest = rest_of(how, i);
    ts_stochastic_codes_scalar(&rest, x + i, n - i, codes + i);
}

INLINE size_t natural_codes(ts_stochastic how, bool indexed, float *x, size_t n, uint8_t *exponents, uint8_t *signs) {
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        __m256 v[4];
        for (size_t j = 0; j < 4; j++) v[j] = load(x + i + LANES * j);
        natural_group(&how, i, indexed, v, x + i, exponents + i, signs + i / 8);
    }
    return i;
}

void TS_LEVEL(ts_natural_codes)(const ts_stochastic *how, float *x, size_t n, uint8_t *exponents, uint8_t *signs) {
    size_t i = how->index ? natural_codes(*how, true, x, n, exponents, signs)
                          : natural_codes(*how, false, x, n, exponents, signs);
    ts_stochastic rest = rest_of(how, i);
    ts_natural_codes_scalar(&rest, x + i, n - i, exponents + i, signs + i / 8);
}

/* log_of_one_plus() of the reference, the same operations in the same order, for 32 values; x: in values, out logarithms. */
INLINE void logs_of_one_plus(__m256 x[4]) {
    static const float factor[8] = {-1.1514610310e-1f, 1.1676998740e-1f,  -1.2420140846e-1f, 1.4249322787e-1f,
                                    -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f};
    const __m256 one = set(1.0f);
    __m256 m[4], z[4], p[4], exponent[4];
    FOUR(j) {
        __m256 u = _mm256_add_ps(one, x[j]);
        __m256 lost = _mm256_div_ps(_mm256_sub_ps(x[j], _mm256_sub_ps(u, one)), u);
        x[j] = _mm256_andnot_ps(_mm256_cmp_ps(u, set(2.0f), _CMP_GT_OQ), lost);
        __m256i e = _mm256_srli_epi32(_mm256_sub_epi32(bits_of(u), _mm256_set1_epi32(0x3F3504F3)), 23);
        m[j] = _mm256_sub_ps(float_of(_mm256_sub_epi32(bits_of(u), _mm256_slli_epi32(e, 23))), one);
        exponent[j] = _mm256_cvtepi32_ps(e);
    }
    FOUR(j) p[j] = set(7.0376836292e-2f);
    for (int i = 0; i < 8; i++) FOUR(j) p[j] = _mm256_add_ps(_mm256_mul_ps(p[j], m[j]), set(factor[i]));
    FOUR(j) z[j] = _mm256_mul_ps(m[j], m[j]);
    FOUR(j) p[j] = _mm256_mul_ps(_mm256_mul_ps(m[j], z[j]), p[j]);
    FOUR(j) p[j] = _mm256_add_ps(p[j], _mm256_mul_ps(exponent[j], set(-2.12194440e-4f)));
    FOUR(j) p[j] = _mm256_sub_ps(p[j], _mm256_mul_ps(set(0.5f), z[j]));
    FOUR(j) p[j] = _mm256_add_ps(_mm256_add_ps(m[j], p[j]), x[j]);
    FOUR(j) x[j] = _mm256_add_ps(p[j], _mm256_mul_ps(exponent[j], set(0.693359375f)));
}

#define LOG_RUN 256 /* elements whose levels are worked out before they are looked up: then neither waits for the other */

INLINE void log_run(float inverse, float most, const float *values, float *x, size_t n, uint8_t *codes) {
    const bool asks = ts_cpu_asks();
    int32_t levels[LOG_RUN];
    for (size_t i = 0; i < n; i += GROUP) {
        __m256i q[4];
        ask_group(x + i, asks);
        __m256 y[4];
        FOUR(j) y[j] = magnitude(load(x + i + LANES * j));
        logs_of_one_plus(y);
        FOUR(j) {
            __m256i level = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_mul_ps(y[j], set(inverse)), set(most)));
            q[j] = _mm256_sign_epi32(level, bits_of(load(x + i + LANES * j)));
            _mm256_storeu_si256((__m256i *)(void *)(levels + i + LANES * j), level);
        }
        store_bytes(codes + i, q, true);
    }
    for (size_t i = 0; i < n; i += LANES) {
        const int32_t *l = levels + i;
        __m256 v = load(x + i), back = _mm256_setr_ps(values[l[0]], values[l[1]], values[l[2]], values[l[3]],
                                                      values[l[4]], values[l[5]], values[l[6]], values[l[7]]);
        store(x + i, _mm256_sub_ps(v, _mm256_xor_ps(back, _mm256_and_ps(v, set(-0.0f)))));
    }
}

void TS_LEVEL(ts_log_codes)(float inverse, float most, const float *values, float *x, size_t n, uint8_t *codes) {
    size_t i = 0;
    for (; i + GROUP <= n;) {
        size_t left = (n - i) / GROUP * GROUP, run = left < LOG_RUN ? left : LOG_RUN;
        log_run(inverse, most, values, x + i, run, codes + i);
        i += run;
    }
    ts_log_codes_scalar(inverse, most, values, x + i, n - i, codes + i);
}
