/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AVX2: eight floats a step, 32 a group in the sweeps. Tails and groups with NaN or infinity go to the reference.
 * Compiled once a level, as all *_loops.h: for AVX-512, which these loops need for its 32 registers alone. Vectors of
 * sixteen floats gained nothing where they were measured (Zen 4), compress-stores to memory lost most of the time.
 */
#include <immintrin.h>

#include "common/codec/kernels.h"
#include "common/codec/quantise_kernels.h"
#include "common/codec/sums_avx2.h"

INLINE uint32_t sweep_body(ts_sweep *s, size_t first, size_t end, sweep_kind kind) {
    const ts_sweep view = *s; /* vector stores may alias anything but this */
    __m256i top = _mm256_setzero_si256();
    uint32_t most = 0;
    const places at = places_of(end - first);
    for (size_t i = first; i < first + at.half; i += GROUP) {
        sweep_group(s, &view, i, at.ahead, &top, &most, kind);
        sweep_group(s, &view, at.half + i, at.ahead, &top, &most, kind);
    }
    size_t i = first + 2 * at.half;
    for (; i + GROUP <= end; i += GROUP) sweep_group(s, &view, i, at.ahead, &top, &most, kind);
    return finish_sweep(s, i, end, kind, top, most);
}

static uint32_t sweep(ts_sweep *s, size_t first, size_t end) {
    if (!s->gradient) return sweep_body(s, first, end, SCAN);
    return is_plain(s) ? sweep_body(s, first, end, PLAIN) : sweep_body(s, first, end, GENERAL);
}

INLINE void add_group(float *sum, const float *x, size_t ahead) {
    ask(sum, ahead);
    ask(x, ahead);
    for (size_t j = 0; j < GROUP; j += 8) {
        _mm256_storeu_ps(sum + j, _mm256_add_ps(_mm256_loadu_ps(sum + j), _mm256_loadu_ps(x + j)));
    }
}

static void add(float *sum, const float *x, size_t n) {
    const places at = places_of(n);
    for (size_t i = 0; i < at.half; i += GROUP) {
        add_group(sum + i, x + i, at.ahead);
        add_group(sum + at.half + i, x + at.half + i, at.ahead);
    }
    size_t i = 2 * at.half;
    for (; i + GROUP <= n; i += GROUP) add_group(sum + i, x + i, at.ahead);
    ts_kernels_scalar.add(sum + i, x + i, n - i);
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

void TS_LEVEL(ts_sum_lanes)(const float *x, size_t n, unsigned wanted, double sums[2]) {
    sum_registers lanes = no_sums();
    size_t i = 0;
    for (; i + TS_SUM_LANES <= n; i += TS_SUM_LANES) {
        for (size_t j = 0; j < 2; j++) {
            sum_eight(&lanes, j, _mm256_castsi256_ps(abs_bits(_mm256_loadu_ps(x + i + 8 * j))), wanted);
        }
    }
    finish_sums(&lanes, x + i, n - i, wanted, sums);
}

static double sum_squares(const float *x, size_t n) {
    double sums[2];
    TS_LEVEL(ts_sum_lanes)(x, n, TS_SUM_SQUARES, sums);
    return sums[0];
}

static double sum_abs(const float *x, size_t n) {
    double sums[2];
    TS_LEVEL(ts_sum_lanes)(x, n, TS_SUM_ABS, sums);
    return sums[1];
}

static void sums(const float *x, size_t n, double *squares, double *abs) {
    double both[2];
    TS_LEVEL(ts_sum_lanes)(x, n, TS_SUM_SQUARES | TS_SUM_ABS, both);
    *squares = both[0];
    *abs = both[1];
}

INLINE uint32_t sums_body(ts_sweep *s, size_t first, size_t end, sweep_kind kind, unsigned wanted, double sums_of[2]) {
    const ts_sweep view = *s;
    sum_registers lanes = no_sums();
    __m256i top = _mm256_setzero_si256();
    size_t i = first;
    const size_t ahead = ahead_alone();
    while (i + GROUP <= end && sums_group(&view, i, ahead, kind, wanted, &lanes, &top)) i += GROUP;
    return finish_sweep_sums(s, first, i, end, kind, wanted, &lanes, top, sums_of);
}

uint32_t TS_LEVEL(ts_sweep_sums)(ts_sweep *s, size_t first, size_t end, unsigned wanted, double sums_of[2]) {
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

/* All ones where taking x in would not leave its bits. */
INLINE __m256i changes(const float *x) {
    __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)x), abs = abs_bits(_mm256_castsi256_ps(bits));
    __m256i tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)TS_MIN_NORMAL_BITS), abs);
    __m256i zero = _mm256_cmpeq_epi32(bits, _mm256_setzero_si256());
    return _mm256_or_si256(_mm256_andnot_si256(zero, tiny), _mm256_cmpgt_epi32(abs, _mm256_set1_epi32((int)TS_INF_BITS - 1)));
}

static bool plain(const float *x, size_t n) {
    __m256i bad = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP)
        for (size_t j = 0; j < GROUP; j += 8) bad = _mm256_or_si256(bad, changes(x + i + j));
    return !any(bad) && ts_kernels_scalar.plain(x + i, n - i);
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

const ts_kernels TS_LEVEL(ts_kernels) = {
    .level = TS_LEVEL_SIMD,
    .add = add,
    .fp32_sum = fp32_sum,
    .sub = sub,
    .scale = scale,
    .descend = descend,
    .sum_squares = sum_squares,
    .sum_abs = sum_abs,
    .sums = sums,
    .nonfinite = nonfinite,
    .plain = plain,
    .max_abs = max_abs,
    .min_max = min_max,
    .sweep = sweep,
    .sweep_sums = TS_LEVEL(ts_sweep_sums),
    .sweep_beside = TS_LEVEL(ts_sweep_beside),
    .sweep_floats = TS_LEVEL(ts_sweep_floats),
    .sweep_natural = TS_LEVEL(ts_sweep_natural),
    .select = TS_LEVEL(ts_select),
    .select_pair = TS_LEVEL(ts_select_pair),
    .keep_above = TS_LEVEL(ts_keep_above),
    .between = TS_LEVEL(ts_between),
    TS_LEVEL_ENTRIES,
};
