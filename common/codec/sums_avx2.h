/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of the sweeps that look for a block's largest magnitude and its sums; only AVX2 files include this. */
#ifndef TS_CODEC_SUMS_AVX2_H
#define TS_CODEC_SUMS_AVX2_H

#include "common/codec/sweep_avx2.h"

/* Sums over x as kernels.h defines them, those that are wanted. */
void TS_LEVEL(ts_sum_lanes)(const float *x, size_t n, unsigned wanted, double sums[2]);

INLINE uint32_t max_lane(__m256i top) {
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4E));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(most, _mm_shuffle_epi32(most, 0xB1)));
}

/* One group; max |residual| goes into *top, or as bits into *most. */
INLINE void sweep_group(ts_sweep *s, const ts_sweep *view, size_t i, size_t ahead, __m256i *top, uint32_t *most,
                        sweep_kind kind) {
    swept x[4];
    __m256i a[4];
    ask_sweep(view, i, kind, ahead);
    for (size_t j = 0; j < 4; j++) {
        x[j] = evaluate(view, i + 8 * j, kind);
        a[j] = abs_bits(x[j].r);
    }
    __m256i group = max4(a);
    if (__builtin_expect(any(_mm256_cmpgt_epi32(group, _mm256_set1_epi32((int)TS_INF_BITS - 1))), 0)) {
        uint32_t bits = ts_sweep_scalar(s, i, i + GROUP);
        *most = bits > *most ? bits : *most;
        return;
    }
    *top = _mm256_max_epi32(*top, group);
    for (size_t j = 0; j < 4; j++) keep(view, i + 8 * j, x[j], a[j], kind);
}

/* The tail, and the largest bits of all. */
INLINE uint32_t finish_sweep(ts_sweep *s, size_t i, size_t end, sweep_kind kind, __m256i top, uint32_t most) {
    uint32_t bits = ts_sweep_scalar(s, i, end);
    most = bits > most ? bits : most;
    bits = max_lane(top);
    if (kind != SCAN && bits < TS_MIN_NORMAL_BITS) bits = 0; /* flushed, all of them */
    return bits > most ? bits : most;
}

/* Lanes as kernels.h defines them: register j holds lanes 4j ... 4j + 3, so whole groups keep i % TS_SUM_LANES. */
typedef struct { __m256d square[4], size[4]; } sum_registers;

INLINE sum_registers no_sums(void) {
    const __m256d zero = _mm256_setzero_pd();
    return (sum_registers){{zero, zero, zero, zero}, {zero, zero, zero, zero}};
}

/* x: magnitudes. */
INLINE void sum_four(sum_registers *to, size_t j, __m128 x, unsigned wanted) {
    __m256d v = _mm256_cvtps_pd(x);
    /* A float's square is exact in a double: one rounding, as without the fused operation. */
    if (wanted & TS_SUM_SQUARES) to->square[j] = _mm256_fmadd_pd(v, v, to->square[j]);
    if (wanted & TS_SUM_ABS) to->size[j] = _mm256_add_pd(to->size[j], v);
}

INLINE void sum_eight(sum_registers *to, size_t j, __m256 x, unsigned wanted) {
    sum_four(to, 2 * j % 4, _mm256_castps256_ps128(x), wanted);
    sum_four(to, 2 * j % 4 + 1, _mm256_extractf128_ps(x, 1), wanted);
}

/* Lane l and l + half, halving. */
INLINE double pairwise(const __m256d lanes[4]) {
    __m256d four = _mm256_add_pd(_mm256_add_pd(lanes[0], lanes[2]), _mm256_add_pd(lanes[1], lanes[3]));
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

/* Takes in the tail, less than TS_SUM_LANES elements from lane 0 on. */
INLINE void add_tail(sum_registers *to, const float *tail, size_t n, unsigned wanted) {
    float lanes[TS_SUM_LANES] = {0};
    for (size_t j = 0; j < n; j++) lanes[j] = tail[j] < 0 ? -tail[j] : tail[j];
    for (size_t j = 0; j < TS_SUM_LANES; j += 8) sum_eight(to, j / 8, _mm256_loadu_ps(lanes + j), wanted);
}

INLINE void finish_sums(sum_registers *from, const float *tail, size_t n, unsigned wanted, double sums[2]) {
    if (n > 0) add_tail(from, tail, n, wanted);
    sums[0] = wanted & TS_SUM_SQUARES ? pairwise(from->square) : 0;
    sums[1] = wanted & TS_SUM_ABS ? pairwise(from->size) : 0;
}

/* Takes in one group, from one place on in the order of the lanes. False: something in it is not finite, nothing is done. */
INLINE bool sums_group(const ts_sweep *view, size_t i, size_t ahead, sweep_kind kind, unsigned wanted,
                       sum_registers *lanes, __m256i *top) {
    const __m256i finite = _mm256_set1_epi32((int)TS_INF_BITS - 1);
    const __m256i flushed = _mm256_set1_epi32((int)TS_MIN_NORMAL_BITS - 1);
    __m256i a[4];
    swept x[4];
    ask_sweep(view, i, kind, ahead);
    for (size_t j = 0; j < 4; j++) {
        x[j] = evaluate(view, i + 8 * j, kind);
        a[j] = abs_bits(x[j].r);
    }
    __m256i group = max4(a);
    if (__builtin_expect(any(_mm256_cmpgt_epi32(group, finite)), 0)) return false;
    *top = _mm256_max_epi32(*top, group);
    for (size_t j = 0; j < 4; j++) {
        keep(view, i + 8 * j, x[j], a[j], kind);
        if (kind != SCAN) a[j] = _mm256_and_si256(a[j], _mm256_cmpgt_epi32(a[j], flushed));
        sum_eight(lanes, j, _mm256_castsi256_ps(a[j]), wanted);
    }
    return true;
}

/* The elements from i on, which the reference takes in; what goes to it is summed again. Returns the largest bits. */
INLINE uint32_t finish_sweep_sums(ts_sweep *s, size_t first, size_t i, size_t end, sweep_kind kind, unsigned wanted,
                                  sum_registers *lanes, __m256i top, double sums_of[2]) {
    uint32_t most = ts_sweep_scalar(s, i, end), bits = max_lane(top);
    if (kind != SCAN && bits < TS_MIN_NORMAL_BITS) bits = 0;
    if (end - i < TS_SUM_LANES) finish_sums(lanes, s->residual + i, end - i, wanted, sums_of);
    else TS_LEVEL(ts_sum_lanes)(s->residual + first, end - first, wanted, sums_of);
    return bits > most ? bits : most;
}

#endif
