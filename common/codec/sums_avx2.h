/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of the sweeps that look for a block's largest magnitude and its sums; only AVX2 files include this. */
#ifndef TS_CODEC_SUMS_AVX2_H
#define TS_CODEC_SUMS_AVX2_H

#include "common/codec/sweep_avx2.h"

/* Sums over x as kernels.h defines them, those that are wanted. */
void ts_sum_lanes_avx2(const float *x, size_t n, unsigned wanted, double sums[2]);

INLINE uint32_t max_lane(__m256i top) {
    uint32_t lane[8], most = 0;
    _mm256_storeu_si256((__m256i *)(void *)lane, top);
    for (int i = 0; i < 8; i++) most = lane[i] > most ? lane[i] : most;
    return most;
}

/* One group; max |residual| goes into *top, or as bits into *most. */
INLINE void sweep_group(ts_sweep *s, const ts_sweep *view, size_t i, __m256i *top, uint32_t *most, sweep_kind kind) {
    swept x[4];
    __m256i a[4];
    ask_ahead(view, i, kind);
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
    if (wanted & TS_SUM_SQUARES) to->square[j] = _mm256_add_pd(to->square[j], _mm256_mul_pd(v, v));
    if (wanted & TS_SUM_ABS) to->size[j] = _mm256_add_pd(to->size[j], v);
}

INLINE void sum_eight(sum_registers *to, size_t j, __m256 x, unsigned wanted) {
    sum_four(to, 2 * j % 4, _mm256_castps256_ps128(x), wanted);
    sum_four(to, 2 * j % 4 + 1, _mm256_extractf128_ps(x, 1), wanted);
}

/* Takes in the tail, less than TS_SUM_LANES elements from lane 0 on, and adds the lanes. */
INLINE void finish_sums(const sum_registers *from, const float *tail, size_t n, double sums[2]) {
    double lanes[2][TS_SUM_LANES];
    for (size_t j = 0; j < 4; j++) {
        _mm256_storeu_pd(lanes[0] + 4 * j, from->square[j]);
        _mm256_storeu_pd(lanes[1] + 4 * j, from->size[j]);
    }
    for (size_t j = 0; j < n; j++) {
        double v = (double)tail[j];
        lanes[0][j] += v * v;
        lanes[1][j] += v < 0 ? -v : v;
    }
    for (size_t half = TS_SUM_LANES / 2; half > 0; half /= 2) {
        for (size_t l = 0; l < half; l++) {
            lanes[0][l] += lanes[0][l + half];
            lanes[1][l] += lanes[1][l + half];
        }
    }
    sums[0] = lanes[0][0];
    sums[1] = lanes[1][0];
}

/* Takes in one group, from one place on in the order of the lanes. False: something in it is not finite, nothing is done. */
INLINE bool sums_group(const ts_sweep *view, size_t i, sweep_kind kind, unsigned wanted, sum_registers *lanes,
                       __m256i *top) {
    const __m256i finite = _mm256_set1_epi32((int)TS_INF_BITS - 1);
    const __m256i flushed = _mm256_set1_epi32((int)TS_MIN_NORMAL_BITS - 1);
    __m256i a[4];
    swept x[4];
    ask_ahead(view, i, kind);
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
                                  const sum_registers *lanes, __m256i top, double sums_of[2]) {
    uint32_t most = ts_sweep_scalar(s, i, end), bits = max_lane(top);
    if (kind != SCAN && bits < TS_MIN_NORMAL_BITS) bits = 0;
    if (end - i < TS_SUM_LANES) finish_sums(lanes, s->residual + i, end - i, sums_of);
    else ts_sum_lanes_avx2(s->residual + first, end - first, wanted, sums_of);
    if (!(wanted & TS_SUM_SQUARES)) sums_of[0] = 0;
    if (!(wanted & TS_SUM_ABS)) sums_of[1] = 0;
    return bits > most ? bits : most;
}

#endif
