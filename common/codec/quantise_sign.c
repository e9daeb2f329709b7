/* SPDX-License-Identifier: Apache-2.0 */
/* sign: one bit a value, and the mean magnitude of the block. */
#include "common/codec/quantise_codes.h"
#include "common/codec/stage_list.h"

#define BITS 1u

static size_t sign_bytes(const ts_stage_args *args, size_t n) {
    (void)args;
    return ts_codes_bytes(BITS, n);
}

static void sign_scale(const ts_quantise_block *block, const float *x, size_t n, float *scales) {
    double sums[2], mean;
    ts_block_sums(block, x, n, sums);
    mean = sums[1] / (double)n;
    scales[0] = ts_usable_scale(mean < (double)TS_SCALE_LIMIT ? (float)mean : TS_SCALE_LIMIT);
}

static void sign_encode(const ts_quantise_block *block, const float *scales, float *x, size_t n, uint8_t *out) {
    block->kernels->sign_bits(scales[0], x, n, out);
}

static void sign_beside(const ts_quantise_block *block, const float *scales, size_t n, ts_beside *work) {
    (void)block;
    (void)n;
    work->kind = TS_BESIDE_SIGN;
    work->scale = scales[0];
}

static bool sign_valid(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n) {
    return ts_scale_valid(scales[0], 2 * TS_SCALE_LIMIT) && ts_codes_valid(block, BITS, in, n, -1, false);
}

static void sign_decode(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *x) {
    block->kernels->sign_values(scales[0], in, n, x, false);
}

static void sign_add(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *sum) {
    block->kernels->sign_values(scales[0], in, n, sum, true);
}

const ts_quantise_stage ts_quantise_sign = {
    .info = {.name = "sign",
             .args = "",
             .summary = "one bit a value and the mean magnitude of each block of 16384; the bit of zero is plus",
             .formula = "q = sign(g) · mean|g|",
             .source = "Bernstein et al. 2018; Karimireddy et al. 2019"},
    .scales = 1,
    .sums = TS_SUM_ABS,
    .bytes = sign_bytes,
    .scale = sign_scale,
    .encode = sign_encode,
    .beside = sign_beside,
    .valid = sign_valid,
    .decode = sign_decode,
    .add = sign_add,
};
