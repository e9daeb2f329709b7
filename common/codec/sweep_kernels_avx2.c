/* SPDX-License-Identifier: Apache-2.0 */
/* What needs no scale is written in the very pass that takes the gradient in. */
#include <string.h>

#include "common/codec/codes_avx2.h"
#include "common/codec/quantise_kernels.h"

/* Writes 32 values and leaves in the residual what they do not say. */
INLINE void write_group(float *residual, const __m256 *r, ts_float_kind kind, uint8_t *out) {
    for (size_t j = 0; j < 4; j++) {
        if (kind == TS_FLOAT32) {
            _mm256_storeu_ps((float *)(void *)(out + 32 * j), r[j]);
            if (residual) _mm256_storeu_ps(residual + 8 * j, _mm256_setzero_ps());
        } else if (kind == TS_FLOAT16) {
            __m128i half = _mm256_cvtps_ph(r[j], _MM_FROUND_TO_NEAREST_INT);
            _mm_storeu_si128((__m128i *)(void *)(out + 16 * j), half);
            _mm256_storeu_ps(residual + 8 * j, _mm256_sub_ps(r[j], _mm256_cvtph_ps(half)));
        } else {
            __m256i half = bf16_bits(r[j]);
            _mm_storeu_si128((__m128i *)(void *)(out + 16 * j), upper_halves(half));
            _mm256_storeu_ps(residual + 8 * j, _mm256_sub_ps(r[j], _mm256_castsi256_ps(half)));
        }
    }
}

INLINE void floats_group(ts_sweep *s, const ts_sweep *view, size_t i, ts_float_kind kind, uint8_t *out, size_t *beyond,
                         sweep_kind what) {
    const __m256i most = _mm256_set1_epi32((int)ts_float_bits(ts_float_most(kind)));
    __m256 r[4];
    __m256i group = _mm256_setzero_si256();
    swept x[4];
    ask_ahead(view, i, what);
    for (size_t j = 0; j < 4; j++) {
        x[j] = evaluate(view, i + 8 * j, what);
        group = _mm256_max_epi32(group, abs_bits(x[j].r));
        r[j] = what == SCAN ? x[j].r : flush(x[j].r);
    }
    if (__builtin_expect(any(_mm256_cmpgt_epi32(group, most)), 0)) { /* not finite, or beyond what can be said */
        ts_kernels_scalar.sweep_floats(s, i, i + GROUP, kind, out, beyond);
        return;
    }
    for (size_t j = 0; j < 4 && what == GENERAL && view->velocity; j++) _mm256_storeu_ps(view->velocity + i + 8 * j, x[j].u);
    write_group(what == BLANK ? NULL : view->residual + i, r, kind, out);
}

/* Two places at once, as the other sweeps. */
INLINE void floats_body(ts_sweep *s, size_t first, size_t end, ts_float_kind kind, uint8_t *out, size_t *beyond,
                        sweep_kind what) {
    const ts_sweep view = *s;
    size_t half = (end - first) / 2 / GROUP * GROUP, width = ts_float_bytes(kind);
    for (size_t i = 0; i < half; i += GROUP) {
        floats_group(s, &view, first + i, kind, out + width * i, beyond, what);
        floats_group(s, &view, first + half + i, kind, out + width * (half + i), beyond, what);
    }
    ts_kernels_scalar.sweep_floats(s, first + 2 * half, end, kind, out + width * 2 * half, beyond);
}

INLINE void by_input(ts_sweep *s, size_t first, size_t end, ts_float_kind kind, uint8_t *out, size_t *beyond) {
    if (!s->gradient) floats_body(s, first, end, kind, out, beyond, SCAN);
    else if (is_plain(s)) floats_body(s, first, end, kind, out, beyond, PLAIN);
    else floats_body(s, first, end, kind, out, beyond, GENERAL);
}

void ts_sweep_floats_avx2(ts_sweep *s, size_t first, size_t end, ts_float_kind kind, uint8_t *out, size_t *beyond) {
    if (kind == TS_FLOAT32 && s->blank) floats_body(s, first, end, TS_FLOAT32, out, beyond, BLANK);
    else if (kind == TS_FLOAT32) by_input(s, first, end, TS_FLOAT32, out, beyond);
    else if (kind == TS_FLOAT16) by_input(s, first, end, TS_FLOAT16, out, beyond);
    else by_input(s, first, end, TS_BFLOAT16, out, beyond);
}

/* Where a block's codes go. */
typedef struct { uint8_t *exponents, *signs; } natural_out;

/* One group; `i` counts from the first element. */
INLINE void natural_sweep_group(ts_sweep *s, const ts_sweep *view, size_t first, size_t i, const ts_stochastic *how,
                                natural_out out, sweep_kind what) {
    const __m256i finite = _mm256_set1_epi32((int)TS_INF_BITS - 1);
    __m256 r[4];
    __m256i group = _mm256_setzero_si256();
    swept x[4];
    float *residual = view->residual + first + i;
    ask_ahead(view, first + i, what);
    for (size_t j = 0; j < 4; j++) {
        x[j] = evaluate(view, first + i + LANES * j, what);
        group = _mm256_max_epi32(group, abs_bits(x[j].r));
        r[j] = what == SCAN ? x[j].r : flush(x[j].r);
    }
    if (__builtin_expect(any(_mm256_cmpgt_epi32(group, finite)), 0)) {
        ts_stochastic from = *how;
        from.first += i;
        (void)ts_sweep_scalar(s, first + i, first + i + GROUP);
        ts_natural_codes_scalar(&from, residual, GROUP, out.exponents, out.signs);
        return;
    }
    for (size_t j = 0; j < 4 && what == GENERAL && view->velocity; j++) {
        _mm256_storeu_ps(view->velocity + first + i + LANES * j, x[j].u);
    }
    natural_group(how, i, false, r, residual, out.exponents, out.signs);
}

/* Two blocks at a time, from the two halves of all whole blocks. */
INLINE void natural_body(ts_sweep *s, size_t first, size_t end, const ts_stochastic *given, size_t block, uint8_t *out,
                         sweep_kind what) {
    const ts_sweep view = *s;
    const ts_stochastic how = *given;
    size_t bytes = block + block / 8, half = block % GROUP == 0 ? (end - first) / block / 2 : 0;
    for (size_t b = 0; b < half; b++) {
        uint8_t *to[2] = {out + b * bytes, out + (half + b) * bytes};
        for (size_t i = 0; i < block; i += GROUP) {
            natural_out near = {to[0] + i, to[0] + block + i / 8}, far = {to[1] + i, to[1] + block + i / 8};
            natural_sweep_group(s, &view, first, b * block + i, &how, near, what);
            natural_sweep_group(s, &view, first, (half + b) * block + i, &how, far, what);
        }
    }
    ts_stochastic rest = how;
    rest.first += 2 * half * block;
    ts_sweep_then_natural(&ts_kernels_avx2, s, first + 2 * half * block, end, &rest, block, out + 2 * half * bytes);
}

void ts_sweep_natural_avx2(ts_sweep *s, size_t first, size_t end, const ts_stochastic *how, size_t block, uint8_t *out) {
    if (!s->gradient) natural_body(s, first, end, how, block, out, SCAN);
    else if (is_plain(s)) natural_body(s, first, end, how, block, out, PLAIN);
    else natural_body(s, first, end, how, block, out, GENERAL);
}
