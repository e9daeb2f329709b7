/* SPDX-License-Identifier: Apache-2.0 */
/* linear:B, between the smallest and the largest value of the block. */
#include "common/codec/quantise_codes.h"
#include "common/codec/stage_list.h"

static unsigned bits_of(const ts_stage_args *args) { return (unsigned)args->value[0]; }
static float levels_of(const ts_stage_args *args) { return (float)((1u << bits_of(args)) - 1); }

static size_t linear_bytes(const ts_stage_args *args, size_t n) { return ts_codes_bytes(bits_of(args), n); }

static float limited(float x) {
    return x > TS_SCALE_LIMIT ? TS_SCALE_LIMIT : x < -TS_SCALE_LIMIT ? -TS_SCALE_LIMIT : x;
}

static void linear_scale(const ts_quantise_block *block, const float *x, size_t n, float *scales) {
    float low, high;
    block->kernels->min_max(x, n, &low, &high);
    low = limited(low);
    high = limited(high);
    scales[0] = low;
    scales[1] = ts_usable_scale((high - low) / levels_of(block->args));
}

static void linear_encode(const ts_quantise_block *block, const float *scales, float *x, size_t n, uint8_t *out) {
    uint8_t codes[TS_CODES_RUN];
    unsigned bits = bits_of(block->args);
    for (size_t at = 0; at < n; at += TS_CODES_RUN, out += TS_CODES_RUN / 8 * bits) {
        size_t run = n - at < TS_CODES_RUN ? n - at : TS_CODES_RUN;
        block->kernels->linear_codes(scales[0], scales[1], levels_of(block->args), x + at, run, codes);
        block->kernels->pack(bits, codes, run, out);
    }
}

static bool linear_valid(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n) {
    if (!(scales[0] >= -TS_SCALE_LIMIT && scales[0] <= TS_SCALE_LIMIT)) return false;
    if (!ts_scale_valid(scales[1], 4 * TS_SCALE_LIMIT / levels_of(block->args))) return false; /* no value overflows */
    return ts_codes_valid(block, bits_of(block->args), in, n, -1, scales[1] == 0.0f);
}

static void linear_values(const ts_quantise_block *block, const float *scales, const uint8_t *codes, size_t n,
                          float *x, bool add) {
    block->kernels->linear_values(scales[0], scales[1], codes, n, x, add);
}

static void linear_decode(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *x) {
    ts_codes_decode(block, scales, bits_of(block->args), linear_values, in, n, x);
}

static void linear_add(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *sum) {
    ts_codes_add(block, scales, bits_of(block->args), linear_values, in, n, sum);
}

const ts_quantise_stage ts_quantise_linear = {
    .info = {.name = "linear",
             .args = "B",
             .summary = "B bits between the smallest and the largest value of each block of 16384",
             .formula = "q = round((g - min) / s), s = (max - min) / (2^B - 1)",
             .source = "min-max quantisation; Jacob et al. 2018",
             .min_args = 1,
             .max_args = 1,
             .low = {1},
             .high = {8},
             .integral = {true}},
    .scales = 2,
    .most = TS_SCALE_LIMIT,
    .wide_scales = true,
    .bytes = linear_bytes,
    .scale = linear_scale,
    .encode = linear_encode,
    .valid = linear_valid,
    .decode = linear_decode,
    .add = linear_add,
};
