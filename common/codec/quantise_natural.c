/* SPDX-License-Identifier: Apache-2.0 */
/*
 * natural: stochastic rounding to powers of two, 9 bits a value: a run of exponents, then a run of signs. Its relative
 * variance of 1/8 makes it a contraction as it is, so error feedback needs no damping.
 */
#include "common/base/bytes.h"
#include "common/codec/quantise_codes.h"
#include "common/codec/stage_list.h"

#define NATURAL_BLOCK 2048u
#define NO_EXPONENT 255u /* of infinity and NaN */

static size_t natural_bytes(const ts_stage_args *args, size_t n) {
    (void)args;
    return n + ts_codes_bytes(1, n);
}

static void natural_encode(const ts_quantise_block *block, const float *scales, float *x, size_t n, uint8_t *out) {
    uint8_t signs[TS_CODES_RUN], *packed = out + n;
    ts_stochastic how = {.key = block->key};
    (void)scales;
    for (size_t at = 0; at < n; at += TS_CODES_RUN, packed += TS_CODES_RUN / 8) {
        size_t run = n - at < TS_CODES_RUN ? n - at : TS_CODES_RUN;
        how.index = block->index ? block->index + at : NULL;
        how.first = block->first + (block->index ? 0 : at);
        block->kernels->natural_codes(&how, x + at, run, out + at, signs);
        block->kernels->pack(1, signs, run, packed);
    }
}

static bool natural_valid(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n) {
    const uint64_t ones = 0x0101010101010101u;
    uint64_t seen = 0;
    size_t i = 0;
    (void)scales;
    for (; i + 8 <= n; i += 8) { /* the test for a zero byte in the complement */
        uint64_t v = ts_load_u64(in + i);
        seen |= (~v - ones) & v & (ones << 7);
    }
    for (; i < n; i++) seen |= in[i] == NO_EXPONENT;
    return seen == 0 && ts_codes_valid(block, 1, in + n, n, -1, false);
}

static void natural_decode(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *x) {
    uint8_t signs[TS_CODES_RUN];
    const uint8_t *packed = in + n;
    (void)scales;
    for (size_t at = 0; at < n; at += TS_CODES_RUN, packed += TS_CODES_RUN / 8) {
        size_t run = n - at < TS_CODES_RUN ? n - at : TS_CODES_RUN;
        block->kernels->unpack(1, packed, run, signs);
        block->kernels->natural_values(in + at, signs, run, x + at);
    }
}

static void natural_add(const ts_quantise_block *block, const float *scales, const uint8_t *in, size_t n, float *sum) {
    float x[NATURAL_BLOCK];
    natural_decode(block, scales, in, n, x);
    block->kernels->add(sum, x, n);
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
    .valid = natural_valid,
    .decode = natural_decode,
    .add = natural_add,
};
