/* SPDX-License-Identifier: Apache-2.0 */
/* int8: symmetric, one scale a block of 16,384 values or one a tensor. */
#include <float.h>

#include "common/base/bytes.h"
#include "common/codec/kernels.h"
#include "common/codec/stage_list.h"

static size_t int8_bytes(const ts_stage_args *args, size_t n) {
    (void)args;
    return n;
}

static void int8_scale(const ts_quantise_block *block, const float *x, size_t n, float *scales) {
    (void)x;
    (void)n;
    /* So that neither 1 / scale nor 127 · scale overflows; what is beyond stays in the residual. */
    float scale = (block->max_abs < 0x1p120f ? block->max_abs : 0x1p120f) / 127.0f;
    scales[0] = scale >= FLT_MIN ? scale : 0.0f;
}

static void int8_encode(const ts_quantise_block *block, const float *scales, float *x, size_t n, uint8_t *out) {
    block->kernels->int8_encode(scales[0], x, n, out);
}

static bool int8_valid(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n) {
    (void)block;
    if (!(scales[0] >= FLT_MIN && scales[0] < 0x1p114f) && ts_float_bits(scales[0]) != 0) return false;
    /* -128 is never written; without a scale everything is 0. The zero-byte test of eight bytes at once. */
    const uint64_t low = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t odd = 0;
    size_t i = 0;
    if (scales[0] > 0.0f) {
        for (; i + 8 <= n; i += 8) {
            uint64_t v = ts_load_u64(in + i) ^ high;
            odd |= (v - low) & ~v & high;
        }
        for (; i < n; i++) odd |= in[i] == 0x80;
    } else {
        for (; i < n; i++) odd |= in[i];
    }
    return odd == 0;
}

static void int8_decode(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *x) {
    block->kernels->int8_decode(scales[0], in, n, x);
}

static void int8_add(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *sum) {
    block->kernels->int8_add(scales[0], in, n, sum);
}

const ts_quantise_stage ts_quantise_int8 = {
    .info = {.name = "int8",
             .args = "[tensor]",
             .summary = "symmetric 8-bit integers, one scale a block of 16384 values or one a tensor",
             .formula = "q = round(g / s), s = max|g| / 127",
             .source = "Dettmers 2016; Jacob et al. 2018",
             .allows_tensor = true},
    .scales = 1,
    .bytes = int8_bytes,
    .scale = int8_scale,
    .encode = int8_encode,
    .valid = int8_valid,
    .decode = int8_decode,
    .add = int8_add,
};
