/* SPDX-License-Identifier: Apache-2.0 */
/* int4: as int8, in -7 … 7, two to a byte. */
#include "common/codec/quantise_codes.h"
#include "common/codec/stage_list.h"

#define BITS 4u
#define MOST 7.0f
#define NEVER 8 /* the code of -8 */

static size_t int4_bytes(const ts_stage_args *args, size_t n) {
    (void)args;
    return ts_codes_bytes(BITS, n);
}

static void int4_scale(const ts_quantise_block *block, const float *x, size_t n, float *scales) {
    (void)x;
    (void)n;
    scales[0] = ts_usable_scale((block->max_abs < TS_SCALE_LIMIT ? block->max_abs : TS_SCALE_LIMIT) / MOST);
}

static void int4_encode(const ts_quantise_block *block, const float *scales, float *x, size_t n, uint8_t *out) {
    uint8_t codes[TS_CODES_RUN];
    for (size_t at = 0; at < n; at += TS_CODES_RUN, out += TS_CODES_RUN / 8 * BITS) {
        size_t run = n - at < TS_CODES_RUN ? n - at : TS_CODES_RUN;
        block->kernels->int_codes(scales[0], MOST, x + at, run, codes);
        block->kernels->pack(BITS, codes, run, out);
    }
}

static bool int4_valid(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n) {
    return ts_scale_valid(scales[0], TS_SCALE_LIMIT) && ts_codes_valid(block, BITS, in, n, NEVER, scales[0] == 0.0f);
}

static void int4_values(const ts_quantise_block *block, const float *scales, const uint8_t *codes, size_t n,
                        float *x, bool add) {
    block->kernels->int_values(scales[0], BITS, codes, n, x, add);
}

static void int4_decode(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *x) {
    ts_codes_decode(block, scales, BITS, int4_values, in, n, x);
}

static void int4_add(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *sum) {
    ts_codes_add(block, scales, BITS, int4_values, in, n, sum);
}

const ts_quantise_stage ts_quantise_int4 = {
    .info = {.name = "int4",
             .args = "[tensor]",
             .summary = "symmetric 4-bit integers, one scale a block of 16384 values or one a tensor",
             .formula = "q = round(g / s), s = max|g| / 7",
             .source = "Jacob et al. 2018",
             .allows_tensor = true},
    .scales = 1,
    .most = TS_SCALE_LIMIT,
    .bytes = int4_bytes,
    .scale = int4_scale,
    .encode = int4_encode,
    .valid = int4_valid,
    .decode = int4_decode,
    .add = int4_add,
};
