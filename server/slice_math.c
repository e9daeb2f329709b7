/* SPDX-License-Identifier: Apache-2.0 */
#include "server/slice_math.h"

#include <math.h>

/* The lowest element that a bitmap's word still names. */
static inline size_t lowest(size_t word, uint64_t bits) { return word * 64 + (size_t)__builtin_ctzll(bits); }

void ts_touched_clear(float *sum, const uint64_t *touched, size_t n) {
    for (size_t word = 0; word < ts_bitmap_words(n); word++)
        for (uint64_t bits = touched[word]; bits; bits &= bits - 1) sum[lowest(word, bits)] = 0.0f;
}

void ts_touched_scale(float *sum, float factor, const uint64_t *touched, size_t n) {
    for (size_t word = 0; word < ts_bitmap_words(n); word++)
        for (uint64_t bits = touched[word]; bits; bits &= bits - 1) sum[lowest(word, bits)] *= factor;
}

void ts_touched_add(float *sum, const float *x, const uint64_t *touched, size_t n) {
    for (size_t word = 0; word < ts_bitmap_words(n); word++) {
        for (uint64_t bits = touched[word]; bits; bits &= bits - 1) {
            size_t i = lowest(word, bits);
            sum[i] += x[i];
        }
    }
}

void ts_touched_descend(float *params, const float *gradient, float rate, const uint64_t *touched, size_t n) {
    for (size_t word = 0; word < ts_bitmap_words(n); word++) {
        for (uint64_t bits = touched[word]; bits; bits &= bits - 1) {
            size_t i = lowest(word, bits);
            params[i] -= rate * gradient[i];
        }
    }
}

static inline float clamp(float x, float limit) { return x > limit ? limit : x < -limit ? -limit : x; }

void ts_touched_clamp(float *x, float limit, const uint64_t *touched, size_t n) {
    if (!touched) {
        for (size_t i = 0; i < n; i++) x[i] = clamp(x[i], limit);
        return;
    }
    for (size_t word = 0; word < ts_bitmap_words(n); word++) {
        for (uint64_t bits = touched[word]; bits; bits &= bits - 1) {
            size_t i = lowest(word, bits);
            x[i] = clamp(x[i], limit);
        }
    }
}

double ts_touched_sum_squares(const float *x, const uint64_t *touched, size_t n) {
    double sum = 0;
    if (!touched) return ts_slice_kernels()->sum_squares(x, n);
    for (size_t word = 0; word < ts_bitmap_words(n); word++) {
        for (uint64_t bits = touched[word]; bits; bits &= bits - 1) {
            double value = (double)x[lowest(word, bits)];
            sum += value * value;
        }
    }
    return sum;
}

size_t ts_touched_nonfinite(const float *x, const uint64_t *touched, size_t n) {
    size_t first, count = 0;
    if (!touched) return ts_slice_kernels()->nonfinite(x, n, &first);
    for (size_t word = 0; word < ts_bitmap_words(n); word++)
        for (uint64_t bits = touched[word]; bits; bits &= bits - 1) count += isfinite(x[lowest(word, bits)]) ? 0 : 1;
    return count;
}
