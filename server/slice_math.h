/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sweeps over the floats of one slice. Element by element, without reassociation,
 * so every compiler and vector width gives the same bits.
 */
#ifndef TS_SERVER_SLICE_MATH_H
#define TS_SERVER_SLICE_MATH_H

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* Sweeps go by blocks of this constant length: gcc vectorises such loops at -O2, others only at -O3. */
#define TS_SWEEP_BLOCK 64u

/* Words of a bitmap of n bits. */
static inline size_t ts_bitmap_words(size_t n) { return n / 64 + (n % 64 != 0); }

/* Magnitudes below the smallest normal number become +0: denormals make later arithmetic many times slower. */
static inline float ts_flush_denormal(float x) { return fabsf(x) < FLT_MIN ? 0.0f : x; }

/* difference[i] = a[i] - b[i] */
void ts_sweep_subtract(float *difference, const float *a, const float *b, size_t n);
/* a[i] += b[i] */
void ts_sweep_add(float *a, const float *b, size_t n);
/* a[i] *= factor */
void ts_sweep_scale(float *a, float factor, size_t n);
/* a[i] += factor * b[i], rounded after the product and after the sum */
void ts_sweep_add_scaled(float *a, float factor, const float *b, size_t n);

#endif
