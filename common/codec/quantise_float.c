/* SPDX-License-Identifier: Apache-2.0 */
/* fp32, fp16 and bf16: floats without a scale. */
#include <string.h>

#include "common/codec/kernels.h"
#include "common/codec/stage_list.h"

static size_t fp32_bytes(const ts_stage_args *args, size_t n) {
    (void)args;
    return 4 * n;
}

static void fp32_encode(const ts_quantise_block *block, const float *scales, float *x, size_t n, uint8_t *out) {
    (void)block;
    (void)scales;
    memcpy(out, x, 4 * n);
    memset(x, 0, 4 * n);
}

/* Packets lie at any address: whole runs go to where floats may be read. */
static bool fp32_valid(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n) {
    float run[1024];
    (void)scales;
    for (size_t at = 0, count; at < n; at += count) {
        count = n - at < 1024 ? n - at : 1024;
        if (!block->kernels->fp32_sum(in + 4 * at, count, run, true)) return false;
    }
    return true;
}

static void fp32_decode(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *x) {
    (void)block;
    (void)scales;
    memcpy(x, in, 4 * n);
}

static void fp32_add(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *sum) {
    float run[256];
    (void)scales;
    for (size_t at = 0; at < n;) {
        size_t count = n - at < 256 ? n - at : 256;
        memcpy(run, in + 4 * at, 4 * count);
        block->kernels->add(sum + at, run, count);
        at += count;
    }
}

static bool fp32_sum(const ts_quantise_block *block, const uint8_t *in, size_t n, float *sum, bool fresh) {
    return block->kernels->fp32_sum(in, n, sum, fresh);
}

static void fp32_take_in(const ts_quantise_block *block, ts_sweep *sweep, size_t first, size_t end, uint8_t *out,
                         size_t *beyond) {
    block->kernels->sweep_floats(sweep, first, end, TS_FLOAT32, out, beyond);
}

const ts_quantise_stage ts_quantise_fp32 = {
    .info = {.name = "fp32",
             .args = "",
             .summary = "32-bit floats as they are; also called `dense`",
             .formula = "q = g",
             .source = "IEEE 754"},
    .lossless = true,
    .bytes = fp32_bytes,
    .encode = fp32_encode,
    .take_in = fp32_take_in,
    .valid = fp32_valid,
    .decode = fp32_decode,
    .add = fp32_add,
    .sum = fp32_sum,
};

static size_t fp16_bytes(const ts_stage_args *args, size_t n) {
    (void)args;
    return 2 * n;
}

static void fp16_encode(const ts_quantise_block *block, const float *scales, float *x, size_t n, uint8_t *out) {
    (void)scales;
    block->kernels->fp16_encode(x, n, out);
}

/* An exponent of all ones is the only thing never written. */
static bool fp16_valid(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n) {
    (void)scales;
    return block->kernels->fields_lack(16, 0x7C00, 0x7C00, in, 2 * n);
}

static void fp16_decode(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *x) {
    (void)scales;
    block->kernels->fp16_decode(in, n, x);
}

static void fp16_add(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *sum) {
    (void)scales;
    block->kernels->fp16_add(in, n, sum);
}

static void fp16_take_in(const ts_quantise_block *block, ts_sweep *sweep, size_t first, size_t end, uint8_t *out,
                         size_t *beyond) {
    block->kernels->sweep_floats(sweep, first, end, TS_FLOAT16, out, beyond);
}

const ts_quantise_stage ts_quantise_fp16 = {
    .info = {.name = "fp16",
             .args = "",
             .summary = "half precision, to nearest even; beyond 65504 the rest stays in the residual",
             .formula = "q = half(clamp(g, -65504, 65504))",
             .source = "IEEE 754; Micikevicius et al. 2018"},
    .most = 65504.0f,
    .bytes = fp16_bytes,
    .encode = fp16_encode,
    .take_in = fp16_take_in,
    .valid = fp16_valid,
    .decode = fp16_decode,
    .add = fp16_add,
};

static void bf16_encode(const ts_quantise_block *block, const float *scales, float *x, size_t n, uint8_t *out) {
    (void)scales;
    block->kernels->bf16_encode(x, n, out);
}

static bool bf16_valid(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n) {
    (void)scales;
    return block->kernels->fields_lack(16, 0x7F80, 0x7F80, in, 2 * n);
}

static void bf16_decode(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *x) {
    (void)scales;
    block->kernels->bf16_decode(in, n, x);
}

static void bf16_add(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *sum) {
    float run[256];
    (void)scales;
    for (size_t at = 0; at < n;) {
        size_t count = n - at < 256 ? n - at : 256;
        block->kernels->bf16_decode(in + 2 * at, count, run);
        block->kernels->add(sum + at, run, count);
        at += count;
    }
}

static void bf16_take_in(const ts_quantise_block *block, ts_sweep *sweep, size_t first, size_t end, uint8_t *out,
                         size_t *beyond) {
    block->kernels->sweep_floats(sweep, first, end, TS_BFLOAT16, out, beyond);
}

const ts_quantise_stage ts_quantise_bf16 = {
    .info = {.name = "bf16",
             .args = "",
             .summary = "floats with eight bits of mantissa, to nearest even; the range of fp32",
             .formula = "q = bfloat16(g)",
             .source = "Wang and Kanwar 2019"},
    .most = 0x1.FEp127f,
    .bytes = fp16_bytes,
    .encode = bf16_encode,
    .take_in = bf16_take_in,
    .valid = bf16_valid,
    .decode = bf16_decode,
    .add = bf16_add,
};
