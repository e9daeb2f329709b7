/* SPDX-License-Identifier: Apache-2.0 */
/* int8: symmetric, one scale a block of 16,384 values or one a tensor. */
#include <float.h>

#include "common/codec/kernels.h"
#include "common/codec/stage_list.h"

#define NEVER 0x80 /* the code of -128 */
#define LIMIT 0x1p120f

static size_t int8_bytes(const ts_stage_args *args, size_t n) {
    (void)args;
    return n;
}

static void int8_scale(const ts_quantise_block *block, const float *x, size_t n, float *scales) {
    (void)x;
    (void)n;
    /* So that neither 1 / scale nor 127 · scale overflows; what is beyond stays in the residual. */
    float scale = (block->max_abs < LIMIT ? block->max_abs : LIMIT) / 127.0f;
    scales[0] = scale >= FLT_MIN ? scale : 0.0f;
}

static void int8_encode(const ts_quantise_block *block, const float *scales, float *x, size_t n, uint8_t *out) {
    block->kernels->int8_encode(scales[0], x, n, out);
}

static void int8_beside(const ts_quantise_block *block, const float *scales, size_t n, ts_beside *work) {
    (void)block;
    (void)n;
    work->kind = TS_BESIDE_INT8;
    work->scale = scales[0];
}

static bool int8_valid(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n) {
    if (!(scales[0] >= FLT_MIN && scales[0] < 0x1p114f) && ts_float_bits(scales[0]) != 0) return false;
    if (scales[0] > 0.0f) return block->kernels->fields_lack(8, 0xFF, NEVER, in, n);
    uint8_t seen = 0; /* without a scale everything is 0 */
    for (size_t i = 0; i < n; i++) seen |= in[i];
    return seen == 0;
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
    .most = LIMIT,
    .bytes = int8_bytes,
    .scale = int8_scale,
    .encode = int8_encode,
    .beside = int8_beside,
    .valid = int8_valid,
    .decode = int8_decode,
    .add = int8_add,
};
