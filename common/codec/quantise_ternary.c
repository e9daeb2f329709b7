/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ternary: -s, 0 or s, s the block's largest magnitude, an element not zero with probability |g| / s. With error
 * feedback what is sent is damped by 1 / (1 + w), w = s·sum|g| / sum g^2 - 1 being the relative variance of this very
 * block.
 */
#include "common/codec/quantise_codes.h"
#include "common/codec/stage_list.h"

#define BITS 2u
#define NEVER 2 /* the code of -2 */

static size_t ternary_bytes(const ts_stage_args *args, size_t n) {
    (void)args;
    return ts_codes_bytes(BITS, n);
}

static float largest(const ts_quantise_block *block) {
    return block->max_abs < TS_SCALE_LIMIT ? block->max_abs : TS_SCALE_LIMIT;
}

static void ternary_scale(const ts_quantise_block *block, const float *x, size_t n, float *scales) {
    double s = (double)largest(block), damping = 1;
    if (!block->unbiased && s > 0) {
        double sums[2];
        ts_block_sums(block, x, n, sums);
        damping = sums[0] / (s * sums[1]);
        if (!(damping <= 1)) damping = 1; /* of values beyond the limit */
    }
    scales[0] = s >= (double)FLT_MIN ? ts_usable_scale((float)(s * damping)) : 0.0f;
}

static ts_stochastic chance(const ts_quantise_block *block, const float *scales) {
    return (ts_stochastic){.key = block->key,
                           .index = block->index,
                           .first = block->first,
                           .inverse = scales[0] > 0.0f ? 1.0f / largest(block) : 0.0f,
                           .step = scales[0],
                           .most = 1.0f};
}

static void ternary_encode(const ts_quantise_block *block, const float *scales, float *x, size_t n, uint8_t *out) {
    const ts_stochastic how = chance(block, scales);
    ts_chance_write(block->kernels, &how, BITS, x, n, out);
}

static void ternary_beside(const ts_quantise_block *block, const float *scales, size_t n, ts_beside *work) {
    (void)n;
    work->kind = TS_BESIDE_CHANCE;
    work->how = chance(block, scales);
    work->bits = BITS;
}

static bool ternary_valid(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n) {
    return ts_scale_valid(scales[0], 2 * TS_SCALE_LIMIT) &&
           ts_codes_valid(block, BITS, in, n, NEVER, scales[0] == 0.0f);
}

static void ternary_values(const ts_quantise_block *block, const float *scales, const uint8_t *codes, size_t n,
                           float *x, bool add) {
    block->kernels->int_values(scales[0], BITS, codes, n, x, add);
}

static void ternary_decode(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *x) {
    ts_codes_decode(block, scales, BITS, ternary_values, in, n, x);
}

static void ternary_add(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *sum) {
    ts_codes_add(block, scales, BITS, ternary_values, in, n, sum);
}

const ts_quantise_stage ts_quantise_ternary = {
    .info = {.name = "ternary",
             .args = "",
             .summary = "two bits: minus, nothing or plus the largest magnitude of each block of 16384, by chance",
             .formula = "q = s · sign(g) · b, P(b = 1) = |g| / s, s = max|g|",
             .source = "Wen et al. 2017"},
    .scales = 1,
    .most = TS_SCALE_LIMIT,
    .sums = TS_SUM_SQUARES | TS_SUM_ABS,
    .wide_scales = true,
    .bytes = ternary_bytes,
    .scale = ternary_scale,
    .encode = ternary_encode,
    .beside = ternary_beside,
    .valid = ternary_valid,
    .decode = ternary_decode,
    .add = ternary_add,
};
