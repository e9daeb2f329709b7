/* SPDX-License-Identifier: Apache-2.0 */
/*
 * natural: stochastic rounding to powers of two, 9 bits a value: a run of exponents, then a run of signs. Its relative
 * variance of 1/8 makes it a contraction as it is, so error feedback needs no damping.
 */
#include "common/codec/quantise_codes.h"
#include "common/codec/stage_list.h"

#define NATURAL_BLOCK 2048u
#define NO_EXPONENT 255u /* of infinity and NaN */

static size_t natural_bytes(const ts_stage_args *args, size_t n) {
    (void)args;
    return n + ts_codes_bytes(1, n);
}

static void natural_encode(const ts_quantise_block *block, const float *scales, float *x, size_t n, uint8_t *out) {
    const ts_stochastic how = {.key = block->key, .index = block->index, .first = block->first};
    (void)scales;
    block->kernels->natural_codes(&how, x, n, out, out + n);
}

static void natural_take_in(const ts_quantise_block *block, ts_sweep *sweep, size_t first, size_t end, uint8_t *out,
                            size_t *beyond) {
    const ts_stochastic how = {.key = block->key, .first = block->first};
    (void)beyond; /* nothing is */
    block->kernels->sweep_natural(sweep, first, end, &how, NATURAL_BLOCK, out);
}

static bool natural_valid(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n) {
    (void)scales;
    for (size_t at = 0, count; at < n; at += count, in += natural_bytes(NULL, count)) {
        count = n - at < NATURAL_BLOCK ? n - at : NATURAL_BLOCK;
        if (!block->kernels->fields_lack(8, 0xFF, NO_EXPONENT, in, count)) return false;
        if (!ts_codes_valid(block, 1, in + count, count, -1, false)) return false;
    }
    return true;
}

/* As many blocks as there are. */
static void natural_decode(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *x) {
    (void)scales;
    block->kernels->natural_values(NATURAL_BLOCK, in, n, x, false);
}

static void natural_add(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *sum) {
    (void)scales;
    block->kernels->natural_values(NATURAL_BLOCK, in, n, sum, true);
}

const ts_quantise_stage ts_quantise_natural = {
    .info = {.name = "natural",
             .args = "",
             .summary = "powers of two by stochastic rounding: a sign and eight bits of exponent",
             .formula = "q = sign(g) · 2^e or 2^(e+1), 2^e <= |g|, P(2^(e+1)) = (|g| - 2^e) / 2^e",
             .source = "Horváth et al. 2019"},
    .block_elems = NATURAL_BLOCK,
    .bytes = natural_bytes,
    .encode = natural_encode,
    .take_in = natural_take_in,
    .valid = natural_valid,
    .decode = natural_decode,
    .add = natural_add,
};
