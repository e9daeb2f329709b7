/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The optimizers' sweeps, by level. Element by element: one product, sum, quotient or root after the other, each
 * rounded to a float, so that every level gives the same bits. State below the smallest normal number becomes +0.
 *
 * w: parameters, g: gradient, others: state; [borrow] n each, none overlapping.
 * In all of them g' = g + decay·w, and w is first multiplied by `keep`; 0 and 1 switch these off without changing a bit.
 */
#ifndef TS_SERVER_OPTIMIZER_KERNELS_H
#define TS_SERVER_OPTIMIZER_KERNELS_H

#include <stddef.h>

#include "common/base/cpu.h"

/* One step's constants. */
typedef struct {
    float lr;       /* with Adam: divided by the first moment's bias correction */
    float decay;    /* weight decay in the gradient; with LAMB in the direction */
    float keep;     /* 1 - lr · weight decay when that is decoupled */
    float momentum;
    float beta1, less1; /* decay of the first moment, 1 - it */
    float beta2, less2; /* of the second, and of RMSProp's squares */
    float root2;    /* root of the second moment's bias correction */
    float gain;     /* LAMB: root2 / the first moment's bias correction */
    float eps;      /* LAMB: times root2 */
} ts_step_rates;

typedef struct {
    /* w -= lr·g' */
    void (*decayed)(float *w, const float *g, const ts_step_rates *rate, size_t n);
    /* v = momentum·v + g' ; w -= lr·v */
    void (*momentum)(float *w, float *v, const float *g, const ts_step_rates *rate, size_t n);
    /* v = momentum·v + g' ; w -= lr·(g' + momentum·v) */
    void (*nesterov)(float *w, float *v, const float *g, const ts_step_rates *rate, size_t n);
    /* s += g'² ; w -= lr·g' / (√s + eps) */
    void (*adagrad)(float *w, float *s, const float *g, const ts_step_rates *rate, size_t n);
    /*
     * s = beta2·s + less2·g'² ; d = √s + eps ; w -= lr·g' / d
     * mean not NULL: mean += less2·(g' - mean) ; d = √max(s - mean², 0) + eps
     * v not NULL: v = momentum·v + g' / d ; w -= lr·v
     */
    void (*rmsprop)(float *w, float *s, float *mean, float *v, const float *g, const ts_step_rates *rate, size_t n);
    /* m += less1·(g' - m) ; s = beta2·s + less2·g'² ; w -= lr·m / (√s / root2 + eps) */
    void (*adam)(float *w, float *m, float *s, const float *g, const ts_step_rates *rate, size_t n);
    /* m and s as with Adam, of g itself, then u as below. */
    void (*moments)(float *u, const float *w, float *m, float *s, const float *g, const ts_step_rates *rate, size_t n);
    /* u = gain·m / (√s + eps) + decay·w */
    void (*direction)(float *u, const float *w, const float *m, const float *s, const ts_step_rates *rate, size_t n);
} ts_optimizer_kernels;

/* Kernels of that level, or of the next lower one that was built. Thread: any. */
const ts_optimizer_kernels *ts_optimizer_kernels_get(ts_simd level);

extern const ts_optimizer_kernels ts_optimizer_kernels_scalar;
#if defined(__x86_64__)
extern const ts_optimizer_kernels ts_optimizer_kernels_avx2; /* only for CPUs that have it */
extern const ts_optimizer_kernels ts_optimizer_kernels_avx512;
#endif

#endif
