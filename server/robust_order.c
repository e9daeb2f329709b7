/* SPDX-License-Identifier: Apache-2.0 */
#include "server/robust_order.h"

#include <string.h>

uint32_t ts_robust_cut(double trim, uint32_t count) {
    uint32_t cut = (uint32_t)(trim * (double)count + 1e-9); /* 0.1 of 10 is one, whatever 0.1 is in binary */
    return count > 2 * cut ? cut : (count - 1) / 2;
}

/* Puts the lower of each pair into `low`; of constant length, so that it becomes two vector instructions. */
static inline void exchange(float *restrict low, float *restrict high) {
    for (unsigned j = 0; j < TS_ROBUST_BLOCK; j++) {
        float a = low[j], b = high[j];
        low[j] = a < b ? a : b;
        high[j] = a < b ? b : a;
    }
}

/* Batcher's merge exchange (Knuth, TAOCP 3, 5.2.2 M): the same comparisons for all columns, whatever they hold. */
static void sort_columns(float *rows, uint32_t count) {
    uint32_t top = 1;
    while (top < count) top *= 2;
    for (uint32_t p = top / 2; p > 0; p /= 2) {
        for (uint32_t q = top / 2, r = 0, d = p;; d = q - p, q /= 2, r = p) {
            for (uint32_t i = 0; i + d < count; i++) {
                float *low = rows + (size_t)i * TS_ROBUST_BLOCK;
                if ((i & p) == r) exchange(low, low + (size_t)d * TS_ROBUST_BLOCK);
            }
            if (q == p) break;
        }
    }
}

static inline void add_row(float *restrict to, const float *restrict row) {
    for (unsigned j = 0; j < TS_ROBUST_BLOCK; j++) to[j] += row[j];
}

static inline void scale_row(float *row, float factor) {
    for (unsigned j = 0; j < TS_ROBUST_BLOCK; j++) row[j] *= factor;
}

void ts_robust_block(ts_robust_name robust, uint32_t cut, float *rows, uint32_t count, float out[TS_ROBUST_BLOCK]) {
    sort_columns(rows, count);
    if (robust == TS_ROBUST_MEDIAN) cut = (count - 1) / 2; /* one or two values are left */
    uint32_t left = count - 2 * cut;
    memcpy(out, rows + (size_t)cut * TS_ROBUST_BLOCK, TS_ROBUST_BLOCK * sizeof *out);
    for (uint32_t i = 1; i < left; i++) add_row(out, rows + (size_t)(cut + i) * TS_ROBUST_BLOCK);
    if (left > 1) scale_row(out, 1.0f / (float)left);
}
