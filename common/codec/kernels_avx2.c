/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2: eight floats a step, 32 a group in the sweeps. Tails and groups with NaN or infinity go to the reference. */
#include <immintrin.h>

#include "common/codec/kernels.h"
#include "common/codec/quantise_kernels.h"
#include "common/codec/sweep_avx2.h"

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

INLINE uint32_t sweep_body(ts_sweep *s, size_t first, size_t end, sweep_kind kind) {
    const ts_sweep view = *s; /* vector stores may alias anything but this */
    __m256i top = _mm256_setzero_si256();
    uint32_t most = 0;
    size_t half = (end - first) / 2 / GROUP * GROUP, i = first;
    for (; i < first + half; i += GROUP) {
        sweep_group(s, &view, i, &top, &most, kind);
        sweep_group(s, &view, half + i, &top, &most, kind);
    }
    uint32_t bits = ts_sweep_scalar(s, first + 2 * half, end);
    most = bits > most ? bits : most;
    bits = max_lane(top);
    if (kind != SCAN && bits < TS_MIN_NORMAL_BITS) bits = 0; /* flushed, all of them */
    return bits > most ? bits : most;
}

static uint32_t sweep(ts_sweep *s, size_t first, size_t end) {
    if (!s->gradient) return sweep_body(s, first, end, SCAN);
    return is_plain(s) ? sweep_body(s, first, end, PLAIN) : sweep_body(s, first, end, GENERAL);
}

INLINE void add_group(float *sum, const float *x) {
    ask(sum);
    ask(x);
    for (size_t j = 0; j < GROUP; j += 8) {
        _mm256_storeu_ps(sum + j, _mm256_add_ps(_mm256_loadu_ps(sum + j), _mm256_loadu_ps(x + j)));
    }
}

static void add(float *sum, const float *x, size_t n) {
    size_t half = n / 2 / GROUP * GROUP;
    for (size_t i = 0; i < half; i += GROUP) {
        add_group(sum + i, x + i);
        add_group(sum + half + i, x + half + i);
    }
    ts_kernels_scalar.add(sum + 2 * half, x + 2 * half, n - 2 * half);
}

INLINE __m256i sum_group(const uint8_t *in, float *sum, bool fresh) {
    __m256i top = _mm256_setzero_si256();
    for (size_t j = 0; j < GROUP; j += 8) {
        __m256 x = _mm256_loadu_ps((const float *)(const void *)(in + 4 * j));
        top = _mm256_max_epi32(top, abs_bits(x));
        _mm256_storeu_ps(sum + j, _mm256_add_ps(fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(sum + j), x));
    }
    return top;
}

INLINE bool sum_body(const uint8_t *in, size_t n, float *sum, bool fresh) {
    size_t half = n / 2 / GROUP * GROUP;
    __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();
    for (size_t i = 0; i < half; i += GROUP) {
        low = _mm256_max_epi32(low, sum_group(in + 4 * i, sum + i, fresh));
        high = _mm256_max_epi32(high, sum_group(in + 4 * (half + i), sum + half + i, fresh));
    }
    bool rest = ts_kernels_scalar.fp32_sum(in + 8 * half, n - 2 * half, sum + 2 * half, fresh);
    return rest && !any(_mm256_cmpgt_epi32(_mm256_max_epi32(low, high), _mm256_set1_epi32((int)TS_INF_BITS - 1)));
}

static bool fp32_sum(const uint8_t *in, size_t n, float *sum, bool fresh) {
    return fresh ? sum_body(in, n, sum, true) : sum_body(in, n, sum, false);
}

static void sub(float *out, const float *a, const float *b, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm256_storeu_ps(out + i, _mm256_sub_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
    }
    ts_kernels_scalar.sub(out + i, a + i, b + i, n - i);
}

static void scale(float *x, float factor, size_t n) {
    const __m256 f = _mm256_set1_ps(factor);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), f));
    ts_kernels_scalar.scale(x + i, factor, n - i);
}

static void descend(float *params, const float *gradient, float rate, size_t n) {
    const __m256 r = _mm256_set1_ps(rate);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 change = _mm256_mul_ps(r, _mm256_loadu_ps(gradient + i));
        _mm256_storeu_ps(params + i, _mm256_sub_ps(_mm256_loadu_ps(params + i), change));
    }
    ts_kernels_scalar.descend(params + i, gradient + i, rate, n - i);
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
static void finish_sums(const sum_registers *from, const float *tail, size_t n, double sums[2]) {
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

INLINE void sum_lanes(const float *x, size_t n, unsigned wanted, double sums[2]) {
    sum_registers lanes = no_sums();
    size_t i = 0;
    for (; i + TS_SUM_LANES <= n; i += TS_SUM_LANES) {
        for (size_t j = 0; j < 2; j++) {
            sum_eight(&lanes, j, _mm256_castsi256_ps(abs_bits(_mm256_loadu_ps(x + i + 8 * j))), wanted);
        }
    }
    finish_sums(&lanes, x + i, n - i, sums);
}

static double sum_squares(const float *x, size_t n) {
    double sums[2];
    sum_lanes(x, n, TS_SUM_SQUARES, sums);
    return sums[0];
}

static double sum_abs(const float *x, size_t n) {
    double sums[2];
    sum_lanes(x, n, TS_SUM_ABS, sums);
    return sums[1];
}

static void sums(const float *x, size_t n, double *squares, double *abs) {
    double both[2];
    sum_lanes(x, n, TS_SUM_SQUARES | TS_SUM_ABS, both);
    *squares = both[0];
    *abs = both[1];
}

/* From one place on, in the order of the lanes; what goes to the reference is read again. */
INLINE uint32_t sums_body(ts_sweep *s, size_t first, size_t end, sweep_kind kind, unsigned wanted, double sums_of[2]) {
    const ts_sweep view = *s;
    const __m256i finite = _mm256_set1_epi32((int)TS_INF_BITS - 1);
    const __m256i flushed = _mm256_set1_epi32((int)TS_MIN_NORMAL_BITS - 1);
    sum_registers lanes = no_sums();
    __m256i top = _mm256_setzero_si256();
    size_t i = first;
    for (; i + GROUP <= end; i += GROUP) {
        __m256i a[4];
        swept x[4];
        ask_ahead(&view, i, kind);
        for (size_t j = 0; j < 4; j++) {
            x[j] = evaluate(&view, i + 8 * j, kind);
            a[j] = abs_bits(x[j].r);
        }
        __m256i group = max4(a);
        if (__builtin_expect(any(_mm256_cmpgt_epi32(group, finite)), 0)) break;
        top = _mm256_max_epi32(top, group);
        for (size_t j = 0; j < 4; j++) {
            keep(&view, i + 8 * j, x[j], a[j], kind);
            if (kind != SCAN) a[j] = _mm256_and_si256(a[j], _mm256_cmpgt_epi32(a[j], flushed));
            sum_eight(&lanes, j, _mm256_castsi256_ps(a[j]), wanted);
        }
    }
    uint32_t most = ts_sweep_scalar(s, i, end), bits = max_lane(top);
    if (kind != SCAN && bits < TS_MIN_NORMAL_BITS) bits = 0;
    if (end - i < TS_SUM_LANES) finish_sums(&lanes, s->residual + i, end - i, sums_of);
    else sum_lanes(s->residual + first, end - first, wanted, sums_of);
    if (!(wanted & TS_SUM_SQUARES)) sums_of[0] = 0;
    if (!(wanted & TS_SUM_ABS)) sums_of[1] = 0;
    return bits > most ? bits : most;
}

uint32_t ts_sweep_sums_avx2(ts_sweep *s, size_t first, size_t end, unsigned wanted, double sums_of[2]) {
    if (!s->gradient) return sums_body(s, first, end, SCAN, wanted, sums_of);
    if (!is_plain(s)) return sums_body(s, first, end, GENERAL, wanted, sums_of);
    if (wanted == TS_SUM_SQUARES) return sums_body(s, first, end, PLAIN, TS_SUM_SQUARES, sums_of);
    if (wanted == TS_SUM_ABS) return sums_body(s, first, end, PLAIN, TS_SUM_ABS, sums_of);
    return sums_body(s, first, end, PLAIN, TS_SUM_SQUARES | TS_SUM_ABS, sums_of);
}

/* Four places at once: memory serves them faster than one. Counting is left to the reference, in the rare case. */
INLINE bool all_finite(const float *x, size_t quarter) {
    __m256i top[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    for (size_t i = 0; i < quarter; i += 16) {
        for (size_t j = 0; j < 4; j++) {
            const float *at = x + j * quarter + i;
            __m256i a = _mm256_max_epi32(abs_bits(_mm256_loadu_ps(at)), abs_bits(_mm256_loadu_ps(at + 8)));
            top[j] = _mm256_max_epi32(top[j], a);
        }
    }
    return !any(_mm256_cmpgt_epi32(max4(top), _mm256_set1_epi32((int)TS_INF_BITS - 1)));
}

static size_t nonfinite(const float *x, size_t n, size_t *first) {
    size_t quarter = n / 4 / 16 * 16;
    if (all_finite(x, quarter)) {
        size_t at = 0, found = ts_kernels_scalar.nonfinite(x + 4 * quarter, n - 4 * quarter, &at);
        if (found > 0) *first = 4 * quarter + at;
        return found;
    }
    return ts_kernels_scalar.nonfinite(x, n, first);
}

static uint32_t max_abs(const float *x, size_t n) {
    __m256i top[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        for (size_t j = 0; j < 4; j++) top[j] = _mm256_max_epi32(top[j], abs_bits(_mm256_loadu_ps(x + i + 8 * j)));
    }
    uint32_t most = max_lane(max4(top)), tail = ts_kernels_scalar.max_abs(x + i, n - i);
    return tail > most ? tail : most;
}

static void min_max(const float *x, size_t n, float *low, float *high) {
    const __m256 zero = _mm256_setzero_ps();
    __m256 least = _mm256_set1_ps(x[0] + 0.0f), most = least;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_add_ps(_mm256_loadu_ps(x + i), zero);
        least = _mm256_min_ps(least, v);
        most = _mm256_max_ps(most, v);
    }
    float ends[18];
    _mm256_storeu_ps(ends, least);
    _mm256_storeu_ps(ends + 8, most);
    float tail_low = ends[0], tail_high = ends[8];
    if (i < n) ts_kernels_scalar.min_max(x + i, n - i, &tail_low, &tail_high);
    ends[16] = tail_low;
    ends[17] = tail_high;
    ts_kernels_scalar.min_max(ends, 18, low, high);
}

const ts_kernels ts_kernels_avx2 = {
    .level = TS_SIMD_AVX2,
    .add = add,
    .fp32_sum = fp32_sum,
    .sub = sub,
    .scale = scale,
    .descend = descend,
    .sum_squares = sum_squares,
    .sum_abs = sum_abs,
    .sums = sums,
    .nonfinite = nonfinite,
    .max_abs = max_abs,
    .min_max = min_max,
    .sweep = sweep,
    .sweep_sums = ts_sweep_sums_avx2,
    .sweep_floats = ts_sweep_floats_avx2,
    .sweep_natural = ts_sweep_natural_avx2,
    .select = ts_select_avx2,
    .select_pair = ts_select_pair_avx2,
    .keep_above = ts_keep_above_avx2,
    .between = ts_between_avx2,
    TS_QUANTISE_KERNEL_ENTRIES(avx2),
};
