/* SPDX-License-Identifier: Apache-2.0 */
/*
 * qsgd:B: stochastic rounding to s = 2^(B-1) - 1 levels of the block's L2 norm. Blocks of 512 values keep the variance
 * bound w = min(n / s^2, sqrt(n) / s) small. With error feedback what is sent is damped by 1 / (1 + w), which makes an
 * unbiased quantiser a contraction (Richtárik et al. 2021); what is left goes with later steps.
 */
#include <math.h>

#include "common/codec/quantise_codes.h"
#include "common/codec/stage_list.h"

#define QSGD_BLOCK 512u

static unsigned bits_of(const ts_stage_args *args) { return (unsigned)args->value[0]; }
static double levels_of(const ts_stage_args *args) { return (double)((1u << (bits_of(args) - 1)) - 1); }

static size_t qsgd_bytes(const ts_stage_args *args, size_t n) { return ts_codes_bytes(bits_of(args), n); }

/* Of full blocks by their bits, which nearly all blocks are: the square root and the divisions would be waited for. */
#define ROOT 0x1.6a09e667f3bcdp+4 /* of QSGD_BLOCK */
#define LESS(s) ((double)QSGD_BLOCK / ((s) * (s)) < ROOT / (s) ? (double)QSGD_BLOCK / ((s) * (s)) : ROOT / (s))
#define FULL(s) (1 / (1 + LESS((double)(s))))
static const double full_block[] = {0, 0, FULL(1), FULL(3), FULL(7), FULL(15), FULL(31), FULL(63), FULL(127)};

static double damping(const ts_quantise_block *block, size_t n) {
    if (block->unbiased) return 1;
    if (n == QSGD_BLOCK) return full_block[bits_of(block->args)];
    double s = levels_of(block->args), linear = (double)n / (s * s), root = sqrt((double)n) / s;
    return 1 / (1 + (linear < root ? linear : root));
}

static void qsgd_scale(const ts_quantise_block *block, const float *x, size_t n, float *scales) {
    double sums[2];
    ts_block_sums(block, x, n, sums);
    double norm = sqrt(sums[0]);
    if (norm > (double)TS_SCALE_LIMIT) norm = (double)TS_SCALE_LIMIT;
    scales[0] = ts_usable_scale((float)(norm * damping(block, n) / levels_of(block->args)));
}

static ts_stochastic chance(const ts_quantise_block *block, const float *scales, size_t n) {
    return (ts_stochastic){.key = block->key,
                           .index = block->index,
                           .first = block->first,
                           .inverse = scales[0] > 0.0f ? (float)(damping(block, n) / (double)scales[0]) : 0.0f,
                           .step = scales[0],
                           .most = (float)levels_of(block->args)};
}

static void qsgd_encode(const ts_quantise_block *block, const float *scales, float *x, size_t n, uint8_t *out) {
    const ts_stochastic how = chance(block, scales, n);
    ts_chance_write(block->kernels, &how, bits_of(block->args), x, n, out);
}

static void qsgd_beside(const ts_quantise_block *block, const float *scales, size_t n, ts_beside *work) {
    work->kind = TS_BESIDE_CHANCE;
    work->how = chance(block, scales, n);
    work->bits = bits_of(block->args);
}

static bool qsgd_valid(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n) {
    int never = (int)levels_of(block->args) + 1;
    return ts_scale_valid(scales[0], 2 * TS_SCALE_LIMIT) &&
           ts_codes_valid(block, bits_of(block->args), in, n, never, scales[0] == 0.0f);
}

static void qsgd_values(const ts_quantise_block *block, const float *scales, const uint8_t *codes, size_t n,
                        float *x, bool add) {
    block->kernels->int_values(scales[0], bits_of(block->args), codes, n, x, add);
}

static void qsgd_decode(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *x) {
    ts_codes_decode(block, scales, bits_of(block->args), qsgd_values, in, n, x);
}

static void qsgd_add(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *sum) {
    ts_codes_add(block, scales, bits_of(block->args), qsgd_values, in, n, sum);
}

const ts_quantise_stage ts_quantise_qsgd = {
    .info = {.name = "qsgd",
             .args = "B",
             .summary = "B bits by stochastic rounding to levels of the L2 norm of each block of 512 values",
             .formula = "q = sign(g) · ||g|| · l / s, l = floor(s |g| / ||g|| + u), s = 2^(B-1) - 1",
             .source = "Alistarh et al. 2017",
             .min_args = 1,
             .max_args = 1,
             .low = {2},
             .high = {8},
             .integral = {true}},
    .scales = 1,
    .most = TS_SCALE_LIMIT,
    .sums = TS_SUM_SQUARES,
    .wide_scales = true,
    .block_elems = QSGD_BLOCK,
    .bytes = qsgd_bytes,
    .scale = qsgd_scale,
    .encode = qsgd_encode,
    .beside = qsgd_beside,
    .valid = qsgd_valid,
    .decode = qsgd_decode,
    .add = qsgd_add,
};
