/* SPDX-License-Identifier: Apache-2.0 */
#include "server/slice_math.h"

static inline void subtract(float *restrict out, const float *restrict a, const float *restrict b, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = a[i] - b[i];
}

static inline void add(float *restrict a, const float *restrict b, size_t n) {
    for (size_t i = 0; i < n; i++) a[i] += b[i];
}

static inline void scale(float *restrict a, float factor, size_t n) {
    for (size_t i = 0; i < n; i++) a[i] *= factor;
}

static inline void add_scaled(float *restrict a, float factor, const float *restrict b, size_t n) {
    for (size_t i = 0; i < n; i++) a[i] += factor * b[i];
}

void ts_sweep_subtract(float *difference, const float *a, const float *b, size_t n) {
    size_t i = 0;
    for (; i + TS_SWEEP_BLOCK <= n; i += TS_SWEEP_BLOCK) subtract(difference + i, a + i, b + i, TS_SWEEP_BLOCK);
    subtract(difference + i, a + i, b + i, n - i);
}

void ts_sweep_add(float *a, const float *b, size_t n) {
    size_t i = 0;
    for (; i + TS_SWEEP_BLOCK <= n; i += TS_SWEEP_BLOCK) add(a + i, b + i, TS_SWEEP_BLOCK);
    add(a + i, b + i, n - i);
}

void ts_sweep_scale(float *a, float factor, size_t n) {
    size_t i = 0;
    for (; i + TS_SWEEP_BLOCK <= n; i += TS_SWEEP_BLOCK) scale(a + i, factor, TS_SWEEP_BLOCK);
    scale(a + i, factor, n - i);
}

void ts_sweep_add_scaled(float *a, float factor, const float *b, size_t n) {
    size_t i = 0;
    for (; i + TS_SWEEP_BLOCK <= n; i += TS_SWEEP_BLOCK) add_scaled(a + i, factor, b + i, TS_SWEEP_BLOCK);
    add_scaled(a + i, factor, b + i, n - i);
}
