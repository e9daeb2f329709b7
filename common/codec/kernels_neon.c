/* SPDX-License-Identifier: Apache-2.0 */
/* NEON: four floats a step, 16 a group in the sweeps. Tails and groups with NaN or infinity go to the reference. */
#include <arm_neon.h>

#include "common/codec/kernels.h"
#include "common/codec/quantise_kernels.h"
#include "common/codec/quantise_kernels_neon.h"

#define GROUP 16
#define LANES 4
#define INLINE static inline __attribute__((always_inline))

typedef enum { SCAN, PLAIN, GENERAL } sweep_kind;
typedef struct { float32x4_t r, u; } swept; /* r is not flushed yet */

INLINE uint32x4_t abs_bits(float32x4_t x) {
    return vandq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(TS_ABS_MASK));
}

INLINE float32x4_t flush(float32x4_t x) {
    uint32x4_t normal = vcgeq_u32(abs_bits(x), vdupq_n_u32(TS_MIN_NORMAL_BITS));
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), normal));
}

/* Products are rounded before they are added: no fused operations here. */
INLINE swept evaluate(const ts_sweep *s, size_t i, sweep_kind kind) {
    swept out = {vld1q_f32(s->residual + i), vdupq_n_f32(0.0f)};
    if (kind == SCAN) return out;
    float32x4_t v = vld1q_f32(s->gradient + i);
    if (kind == GENERAL) {
        v = vmulq_f32(v, vdupq_n_f32(s->scale));
        if (s->params) v = vaddq_f32(v, vmulq_f32(vdupq_n_f32(s->weight_decay), vld1q_f32(s->params + i)));
        if (s->velocity) {
            float32x4_t momentum = vdupq_n_f32(s->momentum);
            out.u = flush(vaddq_f32(vmulq_f32(momentum, vld1q_f32(s->velocity + i)), v));
            v = s->nesterov ? vaddq_f32(v, vmulq_f32(momentum, out.u)) : out.u;
        }
    }
    out.r = vaddq_f32(out.r, v);
    return out;
}

INLINE void keep(const ts_sweep *s, size_t i, swept x, sweep_kind kind) {
    if (kind == SCAN) return;
    vst1q_f32(s->residual + i, flush(x.r));
    if (kind == GENERAL && s->velocity) vst1q_f32(s->velocity + i, x.u);
}

INLINE uint32x4_t max4(const uint32x4_t *a) { return vmaxq_u32(vmaxq_u32(a[0], a[1]), vmaxq_u32(a[2], a[3])); }

/* One group's values; returns the largest magnitude's bits. */
INLINE uint32_t evaluate_group(const ts_sweep *view, size_t i, swept x[4], sweep_kind kind) {
    uint32x4_t a[4];
    for (size_t j = 0; j < 4; j++) {
        x[j] = evaluate(view, i + LANES * j, kind);
        a[j] = abs_bits(x[j].r);
    }
    return vmaxvq_u32(max4(a));
}

INLINE uint32_t sweep_body(ts_sweep *s, size_t first, size_t end, sweep_kind kind) {
    const ts_sweep view = *s; /* vector stores may alias anything but this */
    uint32_t top = 0, most = 0;
    size_t i = first;
    for (; i + GROUP <= end; i += GROUP) {
        swept x[4];
        uint32_t group = evaluate_group(&view, i, x, kind);
        if (__builtin_expect(group >= TS_INF_BITS, 0)) {
            uint32_t bits = ts_sweep_scalar(s, i, i + GROUP);
            most = bits > most ? bits : most;
            continue;
        }
        top = group > top ? group : top;
        for (size_t j = 0; j < 4; j++) keep(&view, i + LANES * j, x[j], kind);
    }
    if (kind != SCAN && top < TS_MIN_NORMAL_BITS) top = 0; /* flushed, all of them */
    uint32_t bits = ts_sweep_scalar(s, i, end);
    most = bits > most ? bits : most;
    return top > most ? top : most;
}

INLINE void save(const ts_sweep *s, const ts_undo *undo, size_t i, sweep_kind kind) {
    if (kind == SCAN || !undo) return;
    size_t at = i - undo->first;
    for (size_t j = 0; j < GROUP; j += LANES) vst1q_f32(undo->residual + at + j, vld1q_f32(s->residual + i + j));
    for (size_t j = 0; j < GROUP && kind == GENERAL && s->velocity; j += LANES)
        vst1q_f32(undo->velocity + at + j, vld1q_f32(s->velocity + i + j));
    ts_undo_note(undo, at + GROUP);
}

/* Takes in one group; false, with nothing changed, when the candidates' room is short. */
INLINE bool select_group(ts_sweep *s, const ts_sweep *view, const ts_undo *undo, size_t i, ts_candidates *c,
                         sweep_kind kind) {
    swept x[4];
    uint32_t group = evaluate_group(view, i, x, kind);
    if (__builtin_expect(group < c->floor, 1)) {
        save(view, undo, i, kind);
        for (size_t j = 0; j < 4; j++) keep(view, i + LANES * j, x[j], kind);
        return true;
    }
    if (c->count + TS_SELECT_GROUP > c->capacity) return false;
    save(view, undo, i, kind);
    if (__builtin_expect(group >= TS_INF_BITS, 0)) {
        (void)ts_select_scalar(s, i, i + GROUP, c);
        return true;
    }
    uint32_t bits[GROUP];
    for (size_t j = 0; j < 4; j++) {
        keep(view, i + LANES * j, x[j], kind);
        float32x4_t r = kind == SCAN ? x[j].r : flush(x[j].r);
        vst1q_u32(bits + LANES * j, vreinterpretq_u32_f32(r));
    }
    size_t count = c->count;
    for (size_t j = 0; j < GROUP; j++) {
        c->index[count] = (uint32_t)(i + j);
        c->bits[count] = bits[j];
        count += (bits[j] & TS_ABS_MASK) >= c->floor;
    }
    c->count = count;
    return true;
}

INLINE size_t select_body(ts_sweep *s, size_t first, size_t end, ts_candidates *c, sweep_kind kind) {
    const ts_sweep view = *s;
    size_t i = first;
    for (; i + GROUP <= end; i += GROUP) {
        if (!select_group(s, &view, view.undo, i, c, kind)) return i;
    }
    if (c->count + TS_SELECT_GROUP > c->capacity) return i;
    return ts_select_scalar(s, i, end, c);
}

INLINE size_t pair_body(ts_sweep *s, size_t first, size_t end, size_t half, ts_candidates c[2],
                        sweep_kind kind) {
    const ts_sweep view = *s;
    const ts_undo *undo0 = view.undo, *undo1 = view.undo ? view.undo + 1 : NULL;
    size_t i = first;
    for (; i + GROUP <= end; i += GROUP) {
        if (c[0].count + TS_SELECT_GROUP > c[0].capacity || c[1].count + TS_SELECT_GROUP > c[1].capacity) return i;
        (void)select_group(s, &view, undo0, i, &c[0], kind);
        (void)select_group(s, &view, undo1, half + i, &c[1], kind);
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

static void add(float *sum, const float *x, size_t n) {
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        for (size_t j = i; j < i + GROUP; j += LANES) vst1q_f32(sum + j, vaddq_f32(vld1q_f32(sum + j), vld1q_f32(x + j)));
    }
    ts_kernels_scalar.add(sum + i, x + i, n - i);
}

static bool fp32_sum(const uint8_t *in, size_t n, float *sum, bool fresh) {
    return ts_kernels_scalar.fp32_sum(in, n, sum, fresh);
}

static void sub(float *out, const float *a, const float *b, size_t n) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) vst1q_f32(out + i, vsubq_f32(vld1q_f32(a + i), vld1q_f32(b + i)));
    ts_kernels_scalar.sub(out + i, a + i, b + i, n - i);
}

static void scale(float *x, float factor, size_t n) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) vst1q_f32(x + i, vmulq_f32(vld1q_f32(x + i), vdupq_n_f32(factor)));
    ts_kernels_scalar.scale(x + i, factor, n - i);
}

static void descend(float *params, const float *gradient, float rate, size_t n) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        float32x4_t change = vmulq_f32(vdupq_n_f32(rate), vld1q_f32(gradient + i));
        vst1q_f32(params + i, vsubq_f32(vld1q_f32(params + i), change));
    }
    ts_kernels_scalar.descend(params + i, gradient + i, rate, n - i);
}

/* Lanes as kernels.h defines them: register j holds lanes 2j and 2j + 1, so whole groups keep i % TS_SUM_LANES. */
INLINE double sum_lanes(const float *x, size_t n, bool squares) {
    float64x2_t lane[TS_SUM_LANES / 2];
    for (size_t j = 0; j < TS_SUM_LANES / 2; j++) lane[j] = vdupq_n_f64(0.0);
    size_t i = 0;
    for (; i + TS_SUM_LANES <= n; i += TS_SUM_LANES) {
        for (size_t j = 0; j < TS_SUM_LANES / 2; j++) {
            float64x2_t v = vcvt_f64_f32(vld1_f32(x + i + 2 * j));
            lane[j] = vaddq_f64(lane[j], squares ? vmulq_f64(v, v) : vabsq_f64(v));
        }
    }
    double sums[TS_SUM_LANES];
    for (size_t j = 0; j < TS_SUM_LANES / 2; j++) vst1q_f64(sums + 2 * j, lane[j]);
    for (size_t j = 0; i + j < n; j++) {
        double v = (double)x[i + j];
        sums[j] += squares ? v * v : (v < 0 ? -v : v);
    }
    for (size_t half = TS_SUM_LANES / 2; half > 0; half /= 2) {
        for (size_t l = 0; l < half; l++) sums[l] += sums[l + half];
    }
    return sums[0];
}

static double sum_squares(const float *x, size_t n) { return sum_lanes(x, n, true); }
static double sum_abs(const float *x, size_t n) { return sum_lanes(x, n, false); }
static void sums(const float *x, size_t n, double *squares, double *abs) {
    *squares = sum_squares(x, n);
    *abs = sum_abs(x, n);
}

static uint32_t max_abs(const float *x, size_t n) {
    uint32x4_t top[4] = {vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0)};
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        for (size_t j = 0; j < 4; j++) top[j] = vmaxq_u32(top[j], abs_bits(vld1q_f32(x + i + LANES * j)));
    }
    uint32_t most = vmaxvq_u32(max4(top)), tail = ts_kernels_scalar.max_abs(x + i, n - i);
    return tail > most ? tail : most;
}

static uint32_t sweep_beside(ts_sweep *s, size_t first, size_t end, unsigned wanted, double sums_of[2],
                             const ts_beside *work) {
    return ts_sweep_then_beside(&ts_kernels_neon, s, first, end, wanted, sums_of, work);
}

static void sweep_natural(ts_sweep *s, size_t first, size_t end, const ts_stochastic *how, size_t block, uint8_t *out) {
    ts_sweep_then_natural(&ts_kernels_neon, s, first, end, how, block, out);
}

static uint32_t sweep_sums(ts_sweep *s, size_t first, size_t end, unsigned wanted, double sums_of[2]) {
    return ts_sweep_then_sums(&ts_kernels_neon, s, first, end, wanted, sums_of);
}

/* Counting is left to the reference, in the rare case. */
static size_t nonfinite(const float *x, size_t n, size_t *first) {
    if (max_abs(x, n) < TS_INF_BITS) return 0;
    return ts_kernels_scalar.nonfinite(x, n, first);
}

static bool plain(const float *x, size_t n) { return ts_kernels_scalar.plain(x, n); }

static void min_max(const float *x, size_t n, float *low, float *high) {
    const float32x4_t zero = vdupq_n_f32(0.0f);
    float32x4_t least = vdupq_n_f32(x[0] + 0.0f), most = least;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        float32x4_t v = vaddq_f32(vld1q_f32(x + i), zero);
        least = vminq_f32(least, v);
        most = vmaxq_f32(most, v);
    }
    float tail_low = vminvq_f32(least), tail_high = vmaxvq_f32(most);
    for (; i < n; i++) {
        float v = x[i] + 0.0f;
        tail_low = v < tail_low ? v : tail_low;
        tail_high = v > tail_high ? v : tail_high;
    }
    *low = tail_low;
    *high = tail_high;
}

/* What NEON has no kernel of its own for is the reference's, whatever entries there are. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
const ts_kernels ts_kernels_neon = {
    TS_QUANTISE_KERNEL_ENTRIES(scalar),
    TS_NEON_QUANTISE_ENTRIES,
    .level = TS_SIMD_NEON,
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
    .sweep_sums = sweep_sums,
    .sweep_beside = sweep_beside,
    .sweep_floats = ts_sweep_floats_scalar,
    .sweep_natural = sweep_natural,
    .select = sweep_select,
    .select_pair = select_pair,
    .keep_above = ts_keep_above_scalar,
    .between = ts_between_scalar,
};
#pragma GCC diagnostic pop
