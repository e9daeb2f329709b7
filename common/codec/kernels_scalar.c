/* SPDX-License-Identifier: Apache-2.0 */
/* The reference: what every vector kernel must reproduce, bit for bit. */
#include <float.h>
#include <string.h>

#include "common/codec/kernels.h"
#include "common/codec/quantise_kernels.h"

static bool is_finite(float x) { return (ts_float_bits(x) & TS_ABS_MASK) < TS_INF_BITS; }

/* Sums of finite numbers that overflow stay the largest number of their sign. */
static float saturate(float x) { return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : x; }

/* Vector sweeps work at two places at once, so a later element may come first. */
static void count_bad(ts_sweep *s, size_t i) {
    if (s->bad_count++ == 0 || i < s->bad_first) s->bad_first = i;
}

static void save(const ts_sweep *s, size_t i) {
    const ts_undo *undo = s->undo[1].word && i >= s->undo[1].first ? &s->undo[1] : &s->undo[0];
    undo->residual[i - undo->first] = s->residual[i];
    if (s->velocity) undo->velocity[i - undo->first] = s->velocity[i];
    ts_undo_note(undo, i - undo->first + 1);
}

/*
 * Takes in element i. Returns whether it may be selected; *result is its residual.
 * The residual itself is finite unless the caller's own memory holds nonsense (parameters that diverged, say).
 */
static bool take_in(ts_sweep *s, size_t i, float *result) {
    if (s->undo && s->gradient) save(s, i);
    float e = s->residual[i], g = 0.0f;
    bool bad = !is_finite(e);
    if (s->gradient) {
        g = s->gradient[i] * s->scale;
        if (s->params) g = g + s->weight_decay * s->params[i];
        bad = bad || !is_finite(g);
    }
    if (bad) {
        count_bad(s, i);
        if (s->policy != TS_NONFINITE_ZERO) return false;
        if (!is_finite(e)) e = 0.0f;
        if (!is_finite(g)) g = 0.0f;
        s->residual[i] = e;
    }
    if (!s->gradient) {
        *result = e;
        return true;
    }
    float v = g;
    if (s->velocity) {
        float u = ts_flush(saturate(s->momentum * s->velocity[i] + g));
        s->velocity[i] = u;
        v = s->nesterov ? saturate(g + s->momentum * u) : u;
    }
    *result = s->residual[i] = ts_flush(saturate(e + v));
    return true;
}

uint32_t ts_sweep_scalar(ts_sweep *s, size_t first, size_t end) {
    uint32_t top = 0;
    for (size_t i = first; i < end; i++) {
        float r;
        if (!take_in(s, i, &r)) continue;
        uint32_t bits = ts_float_bits(r) & TS_ABS_MASK;
        if (bits > top) top = bits;
    }
    return top;
}

size_t ts_select_scalar(ts_sweep *s, size_t first, size_t end, ts_candidates *c) {
    for (size_t i = first; i < end; i++) {
        if (c->count == c->capacity) return i;
        float r;
        if (!take_in(s, i, &r)) continue;
        uint32_t bits = ts_float_bits(r);
        if ((bits & TS_ABS_MASK) < c->floor) continue;
        c->index[c->count] = (uint32_t)i;
        c->bits[c->count++] = bits;
    }
    return end;
}

static size_t select_reference(ts_sweep *s, size_t first, size_t end, ts_candidates *c) {
    if (c->count + TS_SELECT_GROUP > c->capacity) return first;
    return ts_select_scalar(s, first, end, c);
}

static size_t select_pair(ts_sweep *s, size_t first, size_t end, size_t half, ts_candidates c[2]) {
    for (size_t i = first; i < end; i++) {
        if (c[0].count + TS_SELECT_GROUP > c[0].capacity || c[1].count + TS_SELECT_GROUP > c[1].capacity) return i;
        (void)ts_select_scalar(s, i, i + 1, &c[0]);
        (void)ts_select_scalar(s, half + i, half + i + 1, &c[1]);
    }
    return end;
}

void ts_keep_above_scalar(ts_candidates *c, uint32_t level) {
    size_t out = 0;
    for (size_t i = 0; i < c->count; i++) {
        uint32_t index = c->index[i], bits = c->bits[i];
        c->index[out] = index;
        c->bits[out] = bits;
        out += (bits & TS_ABS_MASK) >= level;
    }
    c->count = out;
}

size_t ts_between_scalar(const uint32_t *v, size_t n, uint32_t mask, uint32_t low, uint32_t high, uint32_t *between,
                         size_t room, size_t *above) {
    size_t inside = 0, beyond = 0;
    for (size_t i = 0; i < n && inside + TS_KEEP_SPARE <= room; i++) {
        uint32_t x = v[i] & mask;
        between[inside] = x;
        beyond += x > high;
        inside += x <= high && x >= low;
    }
    *above = beyond;
    return inside;
}

static void add(float *sum, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) sum[i] += x[i];
}

static bool fp32_sum(const uint8_t *in, size_t n, float *sum, bool fresh) {
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, in + 4 * i, sizeof x);
        uint32_t bits = ts_float_bits(x) & TS_ABS_MASK;
        if (bits > top) top = bits;
        sum[i] = (fresh ? 0.0f : sum[i]) + x;
    }
    return top < TS_INF_BITS;
}

static void sub(float *out, const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = a[i] - b[i];
}

static void scale(float *x, float factor, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] *= factor;
}

static void descend(float *params, const float *gradient, float rate, size_t n) {
    for (size_t i = 0; i < n; i++) params[i] -= rate * gradient[i];
}

static double fold_lanes(double *lane) {
    for (size_t half = TS_SUM_LANES / 2; half > 0; half /= 2) {
        for (size_t l = 0; l < half; l++) lane[l] += lane[l + half];
    }
    return lane[0];
}

static double sum_squares(const float *x, size_t n) {
    double lane[TS_SUM_LANES] = {0};
    for (size_t i = 0; i < n; i++) lane[i % TS_SUM_LANES] += (double)x[i] * (double)x[i];
    return fold_lanes(lane);
}

static double sum_abs(const float *x, size_t n) {
    double lane[TS_SUM_LANES] = {0};
    for (size_t i = 0; i < n; i++) lane[i % TS_SUM_LANES] += (double)ts_bits_float(ts_float_bits(x[i]) & TS_ABS_MASK);
    return fold_lanes(lane);
}

static void sums(const float *x, size_t n, double *squares, double *abs) {
    *squares = sum_squares(x, n);
    *abs = sum_abs(x, n);
}

static size_t nonfinite(const float *x, size_t n, size_t *first) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (is_finite(x[i])) continue;
        if (count++ == 0) *first = i;
    }
    return count;
}

static bool plain(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = ts_float_bits(x[i]), abs = bits & TS_ABS_MASK;
        if (abs >= TS_INF_BITS || (abs < TS_MIN_NORMAL_BITS && bits != 0)) return false;
    }
    return true;
}

static uint32_t max_abs(const float *x, size_t n) {
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = ts_float_bits(x[i]) & TS_ABS_MASK;
        if (bits > top) top = bits;
    }
    return top;
}

static void min_max(const float *x, size_t n, float *low, float *high) {
    float least = x[0] + 0.0f, most = x[0] + 0.0f;
    for (size_t i = 1; i < n; i++) {
        float v = x[i] + 0.0f;
        if (v < least) least = v;
        if (v > most) most = v;
    }
    *low = least;
    *high = most;
}

static uint32_t sweep_beside(ts_sweep *s, size_t first, size_t end, unsigned wanted, double sums_of[2],
                             const ts_beside *work) {
    return ts_sweep_then_beside(&ts_kernels_scalar, s, first, end, wanted, sums_of, work);
}

static void sweep_natural(ts_sweep *s, size_t first, size_t end, const ts_stochastic *how, size_t block, uint8_t *out) {
    ts_sweep_then_natural(&ts_kernels_scalar, s, first, end, how, block, out);
}

static uint32_t sweep_sums(ts_sweep *s, size_t first, size_t end, unsigned wanted, double sums_of[2]) {
    return ts_sweep_then_sums(&ts_kernels_scalar, s, first, end, wanted, sums_of);
}

static void sweep_kept(ts_sweep *s, size_t first, size_t end, ts_float_kind kind, uint8_t *out, size_t *beyond) {
    float *x = s->residual + first, most = ts_float_most(kind);
    size_t n = end - first;
    (void)ts_sweep_scalar(s, first, end);
    for (size_t i = 0; i < n; i++, out += ts_float_bytes(kind)) {
        float kept = x[i], value = is_finite(kept) ? kept : 0.0f; /* the caller's own nonsense stays where it is */
        *beyond += value > most || value < -most;
        if (kind == TS_FLOAT16) ts_fp16_encode_scalar(&value, 1, out);
        else if (kind == TS_BFLOAT16) ts_bf16_encode_scalar(&value, 1, out);
        else memcpy(out, &value, sizeof value), value = 0.0f;
        x[i] = is_finite(kept) ? value : kept;
    }
}

/* With zeros of its own for a residual, a few at a time. */
static void sweep_blank(ts_sweep *s, size_t first, size_t end, ts_float_kind kind, uint8_t *out, size_t *beyond) {
    for (size_t at = first, n; at < end; at += n) {
        float zeros[256] = {0};
        n = end - at < 256 ? end - at : 256;
        ts_sweep part = *s;
        part.gradient += at;
        part.residual = zeros;
        part.bad_count = 0;
        sweep_kept(&part, 0, n, kind, out + ts_float_bytes(kind) * (at - first), beyond);
        if (part.bad_count == 0) continue;
        if (s->bad_count == 0 || at + part.bad_first < s->bad_first) s->bad_first = at + part.bad_first;
        s->bad_count += part.bad_count;
    }
}

void ts_sweep_floats_scalar(ts_sweep *s, size_t first, size_t end, ts_float_kind kind, uint8_t *out, size_t *beyond) {
    (s->blank ? sweep_blank : sweep_kept)(s, first, end, kind, out, beyond);
}

const ts_kernels ts_kernels_scalar = {
    .level = TS_SIMD_SCALAR,
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
    .sweep = ts_sweep_scalar,
    .sweep_sums = sweep_sums,
    .sweep_beside = sweep_beside,
    .sweep_floats = ts_sweep_floats_scalar,
    .sweep_natural = sweep_natural,
    .select = select_reference,
    .select_pair = select_pair,
    .keep_above = ts_keep_above_scalar,
    .between = ts_between_scalar,
    TS_QUANTISE_KERNEL_ENTRIES(scalar),
};
