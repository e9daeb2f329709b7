/* SPDX-License-Identifier: Apache-2.0 */
/* AVX-512: sixteen floats a step, 64 a group in the sweeps, candidates by compress-store; the rest as AVX2. */
#include <immintrin.h>

#include "common/codec/kernels.h"
#include "common/codec/quantise_kernels.h"

#define GROUP 64
#define AHEAD 128 /* floats; as in sweep_avx2.h */
#define INLINE static inline __attribute__((always_inline))

typedef enum { SCAN, PLAIN, GENERAL } sweep_kind;
typedef struct { __m512 r, u; } swept;

INLINE __m512i abs_bits(__m512 x) {
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)TS_ABS_MASK));
}

INLINE __m512 flush(__m512 x) {
    __mmask16 normal = _mm512_cmpgt_epi32_mask(abs_bits(x), _mm512_set1_epi32((int)TS_MIN_NORMAL_BITS - 1));
    return _mm512_maskz_mov_ps(normal, x);
}

INLINE swept evaluate(const ts_sweep *s, size_t i, sweep_kind kind) {
    swept out = {_mm512_loadu_ps(s->residual + i), _mm512_setzero_ps()};
    if (kind == SCAN) return out;
    __m512 v = _mm512_loadu_ps(s->gradient + i);
    if (kind == GENERAL) {
        v = _mm512_mul_ps(v, _mm512_set1_ps(s->scale));
        if (s->params) {
            __m512 decay = _mm512_mul_ps(_mm512_set1_ps(s->weight_decay), _mm512_loadu_ps(s->params + i));
            v = _mm512_add_ps(v, decay);
        }
        if (s->velocity) {
            __m512 momentum = _mm512_set1_ps(s->momentum);
            out.u = flush(_mm512_add_ps(_mm512_mul_ps(momentum, _mm512_loadu_ps(s->velocity + i)), v));
            v = s->nesterov ? _mm512_add_ps(v, _mm512_mul_ps(momentum, out.u)) : out.u;
        }
    }
    out.r = flush(_mm512_add_ps(out.r, v));
    return out;
}

INLINE void ask(const float *x) {
    for (size_t j = 0; j < GROUP; j += 16) _mm_prefetch((const char *)(x + AHEAD + j), _MM_HINT_T0);
}

INLINE void ask_ahead(const ts_sweep *s, size_t i, sweep_kind kind) {
    ask(s->residual + i);
    if (kind != SCAN) ask(s->gradient + i);
    if (kind == GENERAL && s->velocity) ask(s->velocity + i);
}

INLINE void keep(const ts_sweep *s, size_t i, swept x, sweep_kind kind) {
    if (kind == SCAN) return;
    _mm512_storeu_ps(s->residual + i, x.r);
    if (kind == GENERAL && s->velocity) _mm512_storeu_ps(s->velocity + i, x.u);
}

INLINE __m512i max4(const __m512i *a) {
    return _mm512_max_epi32(_mm512_max_epi32(a[0], a[1]), _mm512_max_epi32(a[2], a[3]));
}

/* One group; max |residual| goes into *top, or as bits into *most. */
INLINE void sweep_group(ts_sweep *s, const ts_sweep *view, size_t i, __m512i *top, uint32_t *most, sweep_kind kind) {
    const __m512i finite = _mm512_set1_epi32((int)TS_INF_BITS - 1);
    swept x[4];
    __m512i a[4];
    ask_ahead(view, i, kind);
    for (size_t j = 0; j < 4; j++) {
        x[j] = evaluate(view, i + 16 * j, kind);
        a[j] = abs_bits(x[j].r);
    }
    __m512i group = max4(a);
    if (__builtin_expect(_mm512_cmpgt_epi32_mask(group, finite), 0)) {
        uint32_t bits = ts_sweep_scalar(s, i, i + GROUP);
        *most = bits > *most ? bits : *most;
        return;
    }
    *top = _mm512_max_epi32(*top, group);
    for (size_t j = 0; j < 4; j++) keep(view, i + 16 * j, x[j], kind);
}

/* Two places at once, as with AVX2. */
INLINE uint32_t sweep_body(ts_sweep *s, size_t first, size_t end, sweep_kind kind) {
    const ts_sweep view = *s; /* vector stores may alias anything but this */
    __m512i top = _mm512_setzero_si512();
    uint32_t most = 0;
    size_t half = (end - first) / 2 / GROUP * GROUP;
    for (size_t i = first; i < first + half; i += GROUP) {
        sweep_group(s, &view, i, &top, &most, kind);
        sweep_group(s, &view, half + i, &top, &most, kind);
    }
    uint32_t bits = ts_sweep_scalar(s, first + 2 * half, end);
    most = bits > most ? bits : most;
    bits = (uint32_t)_mm512_reduce_max_epi32(top);
    return bits > most ? bits : most;
}

INLINE void save(const ts_sweep *s, const ts_undo *undo, size_t i, sweep_kind kind) {
    if (kind == SCAN || !undo) return;
    size_t at = i - undo->first;
    for (size_t j = 0; j < GROUP; j += 16) _mm512_storeu_ps(undo->residual + at + j, _mm512_loadu_ps(s->residual + i + j));
    for (size_t j = 0; j < GROUP && kind == GENERAL && s->velocity; j += 16)
        _mm512_storeu_ps(undo->velocity + at + j, _mm512_loadu_ps(s->velocity + i + j));
    ts_undo_note(undo, at + GROUP);
}

/* Takes in one group; false, with nothing changed, when the candidates' room is short. */
INLINE bool select_group(ts_sweep *s, const ts_sweep *view, const ts_undo *undo, size_t i, ts_candidates *c,
                         __m512i below, sweep_kind kind) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    swept x[4];
    __m512i a[4];
    ask_ahead(view, i, kind);
    for (size_t j = 0; j < 4; j++) {
        x[j] = evaluate(view, i + 16 * j, kind);
        a[j] = abs_bits(x[j].r);
    }
    __m512i group = max4(a);
    if (__builtin_expect(!_mm512_cmpgt_epi32_mask(group, below), 1)) {
        save(view, undo, i, kind);
        for (size_t j = 0; j < 4; j++) keep(view, i + 16 * j, x[j], kind);
        return true;
    }
    if (c->count + TS_SELECT_GROUP > c->capacity) return false;
    save(view, undo, i, kind);
    if (__builtin_expect(_mm512_cmpgt_epi32_mask(group, _mm512_set1_epi32((int)TS_INF_BITS - 1)), 0)) {
        (void)ts_select_scalar(s, i, i + GROUP, c);
        return true;
    }
    for (size_t j = 0; j < 4; j++) {
        __mmask16 mask = _mm512_cmpgt_epi32_mask(a[j], below);
        __m512i at = _mm512_add_epi32(lanes, _mm512_set1_epi32((int)(uint32_t)(i + 16 * j)));
        keep(view, i + 16 * j, x[j], kind);
        _mm512_mask_compressstoreu_epi32(c->index + c->count, mask, at);
        _mm512_mask_compressstoreu_epi32(c->bits + c->count, mask, _mm512_castps_si512(x[j].r));
        c->count += (size_t)_mm_popcnt_u32(mask);
    }
    return true;
}

INLINE size_t select_body(ts_sweep *s, size_t first, size_t end, ts_candidates *c, sweep_kind kind) {
    const ts_sweep view = *s;
    const __m512i below = _mm512_set1_epi32((int)c->floor - 1);
    size_t i = first;
    for (; i + GROUP <= end; i += GROUP) {
        if (!select_group(s, &view, view.undo, i, c, below, kind)) return i;
    }
    if (c->count + TS_SELECT_GROUP > c->capacity) return i;
    return ts_select_scalar(s, i, end, c);
}

INLINE size_t pair_body(ts_sweep *s, size_t first, size_t end, size_t half, ts_candidates c[2],
                        sweep_kind kind) {
    const ts_sweep view = *s;
    const __m512i below0 = _mm512_set1_epi32((int)c[0].floor - 1), below1 = _mm512_set1_epi32((int)c[1].floor - 1);
    const ts_undo *undo0 = view.undo, *undo1 = view.undo ? view.undo + 1 : NULL;
    size_t i = first;
    for (; i + GROUP <= end; i += GROUP) {
        if (c[0].count + TS_SELECT_GROUP > c[0].capacity || c[1].count + TS_SELECT_GROUP > c[1].capacity) return i;
        (void)select_group(s, &view, undo0, i, &c[0], below0, kind);
        (void)select_group(s, &view, undo1, half + i, &c[1], below1, kind);
    }
    return ts_kernels_scalar.select_pair(s, i, end, half, c);
}

static bool is_plain(const ts_sweep *s) { return !s->velocity && !s->params && s->scale == 1.0f; }

static uint32_t sweep(ts_sweep *s, size_t first, size_t end) {
    if (!s->gradient) return sweep_body(s, first, end, SCAN);
    return is_plain(s) ? sweep_body(s, first, end, PLAIN) : sweep_body(s, first, end, GENERAL);
}

static size_t sweep_select(ts_sweep *s, size_t first, size_t end, ts_candidates *c) {
    if (!s->gradient) return select_body(s, first, end, c, SCAN);
    return is_plain(s) ? select_body(s, first, end, c, PLAIN) : select_body(s, first, end, c, GENERAL);
}

static size_t select_pair(ts_sweep *s, size_t first, size_t end, size_t half, ts_candidates c[2]) {
    if (!s->gradient) return pair_body(s, first, end, half, c, SCAN);
    return is_plain(s) ? pair_body(s, first, end, half, c, PLAIN) : pair_body(s, first, end, half, c, GENERAL);
}

INLINE void add_group(float *sum, const float *x) {
    ask(sum);
    ask(x);
    for (size_t j = 0; j < GROUP; j += 16) {
        _mm512_storeu_ps(sum + j, _mm512_add_ps(_mm512_loadu_ps(sum + j), _mm512_loadu_ps(x + j)));
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

static void sub(float *out, const float *a, const float *b, size_t n) { ts_kernels_avx2.sub(out, a, b, n); }
static void scale(float *x, float factor, size_t n) { ts_kernels_avx2.scale(x, factor, n); }
static void descend(float *params, const float *gradient, float rate, size_t n) {
    ts_kernels_avx2.descend(params, gradient, rate, n);
}
static double sum_squares(const float *x, size_t n) { return ts_kernels_avx2.sum_squares(x, n); }
static double sum_abs(const float *x, size_t n) { return ts_kernels_avx2.sum_abs(x, n); }
static void sums(const float *x, size_t n, double *squares, double *abs) { ts_kernels_avx2.sums(x, n, squares, abs); }
static bool fp32_sum(const uint8_t *in, size_t n, float *sum, bool fresh) {
    return ts_kernels_avx2.fp32_sum(in, n, sum, fresh);
}
static size_t nonfinite(const float *x, size_t n, size_t *first) { return ts_kernels_avx2.nonfinite(x, n, first); }
static uint32_t max_abs(const float *x, size_t n) { return ts_kernels_avx2.max_abs(x, n); }
static void min_max(const float *x, size_t n, float *low, float *high) { ts_kernels_avx2.min_max(x, n, low, high); }

const ts_kernels ts_kernels_avx512 = {
    .level = TS_SIMD_AVX512,
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
    .sweep_beside = ts_sweep_beside_avx2,
    .sweep_floats = ts_sweep_floats_avx2,
    .sweep_natural = ts_sweep_natural_avx2,
    .select = sweep_select,
    .select_pair = select_pair,
    .keep_above = ts_keep_above_avx2,
    .between = ts_between_avx2,
    TS_QUANTISE_KERNEL_ENTRIES(avx2),
};
