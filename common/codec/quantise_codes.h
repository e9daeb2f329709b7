/* SPDX-License-Identifier: Apache-2.0 */
/* What quantisers to small integers share: codes of 1 … 8 bits, packed lowest first, unused bits 0. */
#ifndef TS_CODEC_QUANTISE_CODES_H
#define TS_CODEC_QUANTISE_CODES_H

#include <float.h>

#include "common/codec/kernels.h"
#include "common/codec/stage.h"

#define TS_CODES_RUN 256u        /* codes held between two steps; a multiple of 8 */
#define TS_SCALE_LIMIT 0x1p120f  /* values above it stay in the residual, so that no product overflows */

static inline size_t ts_codes_bytes(unsigned bits, size_t n) { return n / 8 * bits + (n % 8 * bits + 7) / 8; }

/* A step size that can be divided by, or 0. */
static inline float ts_usable_scale(float scale) { return scale >= FLT_MIN ? scale : 0.0f; }

/* Sums of x^2 and of |x| over the block, those the stage wants, in lanes as kernels.h defines them. */
static inline void ts_block_sums(const ts_quantise_block *block, const float *x, size_t n, double sums[2]) {
    if (block->sums) {
        sums[0] = block->sums[0];
        sums[1] = block->sums[1];
    } else {
        block->kernels->sums(x, n, &sums[0], &sums[1]);
    }
}

/* Whether `scale` is 0 or a usable one below `limit`. */
static inline bool ts_scale_valid(float scale, float limit) {
    return ts_float_bits(scale) == 0 || (scale >= FLT_MIN && scale < limit);
}

/* Whether unused bits are 0 and no code is `forbidden` (-1: all are allowed); all_zero: and every code is 0. */
bool ts_codes_valid(const ts_quantise_block *block, unsigned bits, const uint8_t *in, size_t n, int forbidden,
                    bool all_zero);

/* Codes to values, into x or added to it; one of the kernels behind it. */
typedef void (*ts_codes_to_values)(const ts_quantise_block *block, const float *scales, const uint8_t *codes, size_t n,
                                   float *x, bool add);
void ts_codes_decode(const ts_quantise_block *block, const float *scales, unsigned bits, ts_codes_to_values values,
                     const uint8_t *in, size_t n, float *x);
void ts_codes_add(const ts_quantise_block *block, const float *scales, unsigned bits, ts_codes_to_values values,
                  const uint8_t *in, size_t n, float *sum);

#endif
