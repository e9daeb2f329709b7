/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of optimizer_kernels.h, compiled once a level: include with TS_LEVEL(name) defined. They are written for
 * the compiler to make vectors of: no calls, no branches, constants in locals, blocks of constant length.
 */
#include <math.h>

#include "common/codec/kernels.h"
#include "server/optimizer_kernels.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define BLOCK 64u

/* No array overlaps another: compilers forget that of pointers in inlined functions, and give up on many of them. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Runs `loop(…, first, count)` over n elements, whole blocks with a count that the compiler knows. */
#define SWEEP(loop, ...)                                                                  \
    do {                                                                                  \
        size_t at = 0;                                                                    \
        for (; at + BLOCK <= n; at += BLOCK) loop(__VA_ARGS__, *rate, at, BLOCK);         \
        if (at < n) loop(__VA_ARGS__, *rate, at, n - at);                                 \
    } while (0)

#define FROM(x) ((x) + first)

/* ts_flush by a mask: of a choice between 0 and x the compiler may make a branch, and then no vectors. */
ALWAYS_INLINE float flush(float x) {
    uint32_t bits = ts_float_bits(x);
    return ts_bits_float(bits & (0u - (uint32_t)((bits & TS_ABS_MASK) >= TS_MIN_NORMAL_BITS)));
}

ALWAYS_INLINE void decayed_block(float *w0, const float *g0, ts_step_rates r, size_t first, size_t n) {
    float *restrict w = FROM(w0);
    const float *restrict g = FROM(g0);
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float kept = r.keep * w[i], given = g[i] + r.decay * w[i];
        w[i] = kept - r.lr * given;
    }
}

static void decayed(float *w, const float *g, const ts_step_rates *rate, size_t n) { SWEEP(decayed_block, w, g); }

ALWAYS_INLINE void momentum_block(float *w0, float *v0, const float *g0, bool nesterov, ts_step_rates r, size_t first,
                                  size_t n) {
    float *restrict w = FROM(w0), *restrict v = FROM(v0);
    const float *restrict g = FROM(g0);
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float kept = r.keep * w[i], given = g[i] + r.decay * w[i];
        float speed = flush(r.momentum * v[i] + given);
        v[i] = speed;
        w[i] = kept - r.lr * (nesterov ? given + r.momentum * speed : speed);
    }
}

static void momentum(float *w, float *v, const float *g, const ts_step_rates *rate, size_t n) {
    SWEEP(momentum_block, w, v, g, false);
}

static void nesterov(float *w, float *v, const float *g, const ts_step_rates *rate, size_t n) {
    SWEEP(momentum_block, w, v, g, true);
}

ALWAYS_INLINE void adagrad_block(float *w0, float *s0, const float *g0, ts_step_rates r, size_t first, size_t n) {
    float *restrict w = FROM(w0), *restrict s = FROM(s0);
    const float *restrict g = FROM(g0);
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float kept = r.keep * w[i], given = g[i] + r.decay * w[i];
        float squares = flush(s[i] + given * given);
        s[i] = squares;
        w[i] = kept - r.lr * given / (sqrtf(squares) + r.eps);
    }
}

static void adagrad(float *w, float *s, const float *g, const ts_step_rates *rate, size_t n) {
    SWEEP(adagrad_block, w, s, g);
}

ALWAYS_INLINE float not_below_zero(float x) {
    uint32_t bits = ts_float_bits(x);
    return ts_bits_float(bits & ((bits >> 31) - 1u));
}

/* `centred` and `moving` are constants where this is inlined; arrays that they do not name are not used. */
ALWAYS_INLINE void rmsprop_block(float *w0, float *s0, float *mean0, float *v0, const float *g0, bool centred,
                                 bool moving, ts_step_rates r, size_t first, size_t n) {
    float *restrict w = FROM(w0), *restrict s = FROM(s0), *restrict mean = centred ? FROM(mean0) : NULL;
    float *restrict v = moving ? FROM(v0) : NULL;
    const float *restrict g = FROM(g0);
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float kept = r.keep * w[i], given = g[i] + r.decay * w[i];
        float squares = flush(r.beta2 * s[i] + r.less2 * given * given), spread = squares;
        s[i] = squares;
        if (centred) {
            float middle = flush(mean[i] + r.less2 * (given - mean[i]));
            mean[i] = middle;
            spread = not_below_zero(squares - middle * middle); /* rounding can bring it there */
        }
        float divisor = sqrtf(spread) + r.eps;
        if (moving) {
            float speed = flush(r.momentum * v[i] + given / divisor);
            v[i] = speed;
            w[i] = kept - r.lr * speed;
        } else {
            w[i] = kept - r.lr * given / divisor;
        }
    }
}

static void rmsprop(float *w, float *s, float *mean, float *v, const float *g, const ts_step_rates *rate, size_t n) {
    if (mean && v) SWEEP(rmsprop_block, w, s, mean, v, g, true, true);
    else if (mean) SWEEP(rmsprop_block, w, s, mean, v, g, true, false);
    else if (v) SWEEP(rmsprop_block, w, s, mean, v, g, false, true);
    else SWEEP(rmsprop_block, w, s, mean, v, g, false, false);
}

ALWAYS_INLINE void adam_block(float *w0, float *m0, float *s0, const float *g0, ts_step_rates r, size_t first,
                              size_t n) {
    float *restrict w = FROM(w0), *restrict m = FROM(m0), *restrict s = FROM(s0);
    const float *restrict g = FROM(g0);
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float kept = r.keep * w[i], given = g[i] + r.decay * w[i];
        float mean = flush(m[i] + r.less1 * (given - m[i]));
        float squares = flush(r.beta2 * s[i] + r.less2 * given * given);
        m[i] = mean;
        s[i] = squares;
        w[i] = kept - r.lr * mean / (sqrtf(squares) / r.root2 + r.eps);
    }
}

static void adam(float *w, float *m, float *s, const float *g, const ts_step_rates *rate, size_t n) {
    SWEEP(adam_block, w, m, s, g);
}

ALWAYS_INLINE float direction_of(float w, float m, float s, ts_step_rates r) {
    return m * r.gain / (sqrtf(s) + r.eps) + r.decay * w;
}

ALWAYS_INLINE void moments_block(float *u0, const float *w0, float *m0, float *s0, const float *g0, ts_step_rates r,
                                 size_t first, size_t n) {
    float *restrict u = FROM(u0), *restrict m = FROM(m0), *restrict s = FROM(s0);
    const float *restrict w = FROM(w0), *restrict g = FROM(g0);
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float mean = flush(m[i] + r.less1 * (g[i] - m[i]));
        float squares = flush(r.beta2 * s[i] + r.less2 * g[i] * g[i]);
        m[i] = mean;
        s[i] = squares;
        u[i] = direction_of(w[i], mean, squares, r);
    }
}

static void moments(float *u, const float *w, float *m, float *s, const float *g, const ts_step_rates *rate, size_t n) {
    SWEEP(moments_block, u, w, m, s, g);
}

ALWAYS_INLINE void direction_block(float *u0, const float *w0, const float *m0, const float *s0, ts_step_rates r,
                                   size_t first, size_t n) {
    float *restrict u = FROM(u0);
    const float *restrict w = FROM(w0), *restrict m = FROM(m0), *restrict s = FROM(s0);
    INDEPENDENT
    for (size_t i = 0; i < n; i++) u[i] = direction_of(w[i], m[i], s[i], r);
}

static void direction(float *u, const float *w, const float *m, const float *s, const ts_step_rates *rate, size_t n) {
    SWEEP(direction_block, u, w, m, s);
}

const ts_optimizer_kernels TS_LEVEL(ts_optimizer_kernels) = {
    .decayed = decayed,
    .momentum = momentum,
    .nesterov = nesterov,
    .adagrad = adagrad,
    .rmsprop = rmsprop,
    .adam = adam,
    .moments = moments,
    .direction = direction,
};
