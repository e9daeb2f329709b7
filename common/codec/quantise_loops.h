/* SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

#include "common/codec/kernels.h"
#include "common/codec/quantise_kernels.h"
#include "common/codec/sweep_avx2.h"

#define HALF_MAX 65504.0f

void TS_LEVEL(ts_fp16_encode)(float *x, size_t n, uint8_t *out) {
    const __m256 high = _mm256_set1_ps(HALF_MAX), low = _mm256_set1_ps(-HALF_MAX);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);
        __m128i p = _mm256_cvtps_ph(_mm256_max_ps(_mm256_min_ps(a, high), low), _MM_FROUND_TO_NEAREST_INT);
        __m128i q = _mm256_cvtps_ph(_mm256_max_ps(_mm256_min_ps(b, high), low), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(out + 2 * i), p);
        _mm_storeu_si128((__m128i *)(void *)(out + 2 * i + 16), q);
        _mm256_storeu_ps(x + i, _mm256_sub_ps(a, _mm256_cvtph_ps(p)));
        _mm256_storeu_ps(x + i + 8, _mm256_sub_ps(b, _mm256_cvtph_ps(q)));
    }
    ts_fp16_encode_scalar(x + i, n - i, out + 2 * i);
}

void TS_LEVEL(ts_fp16_decode)(const uint8_t *in, size_t n, float *x) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm256_storeu_ps(x + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(in + 2 * i))));
    }
    ts_fp16_decode_scalar(in + 2 * i, n - i, x + i);
}

INLINE void fp16_add_group(const uint8_t *in, float *sum, size_t ahead) {
    ask(sum, ahead);
    for (size_t j = 0; j < GROUP; j += 8) {
        __m256 v = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(in + 2 * j)));
        _mm256_storeu_ps(sum + j, _mm256_add_ps(_mm256_loadu_ps(sum + j), v));
    }
}

void TS_LEVEL(ts_fp16_add)(const uint8_t *in, size_t n, float *sum) {
    const places at = places_of(n);
    for (size_t i = 0; i < at.half; i += GROUP) {
        fp16_add_group(in + 2 * i, sum + i, at.ahead);
        fp16_add_group(in + 2 * (at.half + i), sum + at.half + i, at.ahead);
    }
    size_t i = 2 * at.half;
    for (; i + GROUP <= n; i += GROUP) fp16_add_group(in + 2 * i, sum + i, at.ahead);
    ts_fp16_add_scalar(in + 2 * i, n - i, sum + i);
}
