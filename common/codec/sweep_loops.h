/* SPDX-License-Identifier: Apache-2.0 */
/* What needs no scale is written in the very pass that takes the gradient in. */
#include <string.h>

#include "common/base/mem.h"
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

/* Where the packet goes is waited for as well: a store needs the line that it changes a part of. */
INLINE void ask_packet(const uint8_t *out, size_t bytes, size_t ahead) {
    for (size_t at = 0; ahead > 0 && at < bytes; at += TS_CACHE_LINE) _mm_prefetch((const char *)(out + ahead + at), _MM_HINT_T0);
}

INLINE void floats_group(ts_sweep *s, const ts_sweep *view, size_t i, size_t ahead, ts_float_kind kind, uint8_t *out,
                         size_t *beyond, sweep_kind what) {
    const __m256i most = _mm256_set1_epi32((int)ts_float_bits(ts_float_most(kind)));
    __m256 r[4];
    __m256i group = _mm256_setzero_si256();
    swept x[4];
    ask_sweep(view, i, what, ahead);
    ask_packet(out, GROUP * ts_float_bytes(kind), ahead * ts_float_bytes(kind));
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

INLINE void floats_body(ts_sweep *s, size_t first, size_t end, ts_float_kind kind, uint8_t *out, size_t *beyond,
                        sweep_kind what) {
    const ts_sweep view = *s;
    const places at = places_of(end - first);
    const size_t half = at.half, width = ts_float_bytes(kind);
    for (size_t i = 0; i < half; i += GROUP) {
        floats_group(s, &view, first + i, at.ahead, kind, out + width * i, beyond, what);
        floats_group(s, &view, first + half + i, at.ahead, kind, out + width * (half + i), beyond, what);
    }
    size_t i = 2 * half;
    for (; first + i + GROUP <= end; i += GROUP) {
        floats_group(s, &view, first + i, at.ahead, kind, out + width * i, beyond, what);
    }
    ts_kernels_scalar.sweep_floats(s, first + i, end, kind, out + width * i, beyond);
}

INLINE void by_input(ts_sweep *s, size_t first, size_t end, ts_float_kind kind, uint8_t *out, size_t *beyond) {
    if (!s->gradient) floats_body(s, first, end, kind, out, beyond, SCAN);
    else if (is_plain(s)) floats_body(s, first, end, kind, out, beyond, PLAIN);
    else floats_body(s, first, end, kind, out, beyond, GENERAL);
}

void TS_LEVEL(ts_sweep_floats)(ts_sweep *s, size_t first, size_t end, ts_float_kind kind, uint8_t *out, size_t *beyond) {
    if (kind == TS_FLOAT32 && s->blank) floats_body(s, first, end, TS_FLOAT32, out, beyond, BLANK);
    else if (kind == TS_FLOAT32) by_input(s, first, end, TS_FLOAT32, out, beyond);
    else if (kind == TS_FLOAT16) by_input(s, first, end, TS_FLOAT16, out, beyond);
    else by_input(s, first, end, TS_BFLOAT16, out, beyond);
}

/* Where a block's codes go. */
typedef struct { uint8_t *exponents, *signs; } natural_out;

/* One group; `i` counts from the first element. */
INLINE void natural_sweep_group(ts_sweep *s, const ts_sweep *view, size_t first, size_t i, size_t ahead,
                                const ts_stochastic *how, natural_out out, sweep_kind what) {
    const __m256i finite = _mm256_set1_epi32((int)TS_INF_BITS - 1);
    __m256 r[4];
    __m256i group = _mm256_setzero_si256();
    swept x[4];
    float *residual = view->residual + first + i;
    ask_sweep(view, first + i, what, ahead);
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

/* Two blocks at a time, from the two halves of all whole blocks, where it pays; then one. */
INLINE void natural_body(ts_sweep *s, size_t first, size_t end, const ts_stochastic *given, size_t block, uint8_t *out,
                         sweep_kind what) {
    const ts_sweep view = *s;
    const ts_stochastic how = *given;
    const size_t bytes = block + block / 8, ahead = ts_cpu_asks() ? AHEAD : 0;
    const size_t blocks = block % GROUP == 0 ? (end - first) / block : 0, half = ahead ? blocks / 2 : 0;
    for (size_t b = 0; b < half; b++) {
        uint8_t *to[2] = {out + b * bytes, out + (half + b) * bytes};
        for (size_t i = 0; i < block; i += GROUP) {
            natural_out near = {to[0] + i, to[0] + block + i / 8}, far = {to[1] + i, to[1] + block + i / 8};
            natural_sweep_group(s, &view, first, b * block + i, ahead, &how, near, what);
            natural_sweep_group(s, &view, first, (half + b) * block + i, ahead, &how, far, what);
        }
    }
    for (size_t b = 2 * half; b < blocks; b++) {
        uint8_t *to = out + b * bytes;
        for (size_t i = 0; i < block; i += GROUP) {
            natural_out near = {to + i, to + block + i / 8};
            natural_sweep_group(s, &view, first, b * block + i, ahead, &how, near, what);
        }
    }
    ts_stochastic rest = how;
    rest.first += blocks * block;
    ts_sweep_then_natural(&TS_LEVEL(ts_kernels), s, first + blocks * block, end, &rest, block, out + blocks * bytes);
}

void TS_LEVEL(ts_sweep_natural)(ts_sweep *s, size_t first, size_t end, const ts_stochastic *how, size_t block, uint8_t *out) {
    if (!s->gradient) natural_body(s, first, end, how, block, out, SCAN);
    else if (is_plain(s)) natural_body(s, first, end, how, block, out, PLAIN);
    else natural_body(s, first, end, how, block, out, GENERAL);
}
