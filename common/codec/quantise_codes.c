/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/quantise_codes.h"

#include "common/base/bytes.h"

bool ts_codes_valid(const ts_quantise_block *block, unsigned bits, const uint8_t *in, size_t n, int forbidden,
                    bool all_zero) {
    uint8_t codes[TS_CODES_RUN];
    unsigned used = (unsigned)(n * bits % 8);
    if (used > 0 && in[ts_codes_bytes(bits, n) - 1] >> used != 0) return false;
    if (all_zero) {
        uint8_t seen = 0;
        for (size_t i = 0; i < ts_codes_bytes(bits, n); i++) seen |= in[i];
        return seen == 0;
    }
    if (forbidden < 0) return true;
    const uint64_t ones = 0x0101010101010101u, pattern = ones * (uint64_t)forbidden;
    for (size_t at = 0; at < n; at += TS_CODES_RUN, in += TS_CODES_RUN / 8 * bits) {
        size_t run = n - at < TS_CODES_RUN ? n - at : TS_CODES_RUN;
        uint64_t seen = 0;
        size_t i = 0;
        block->kernels->unpack(bits, in, run, codes);
        for (; i + 8 <= run; i += 8) { /* the test for a byte that is zero */
            uint64_t v = ts_load_u64(codes + i) ^ pattern;
            seen |= (v - ones) & ~v & (ones << 7);
        }
        for (; i < run; i++) seen |= codes[i] == forbidden;
        if (seen) return false;
    }
    return true;
}

void ts_codes_decode(const ts_quantise_block *block, const float *scales, unsigned bits, ts_codes_to_values values,
                     const uint8_t *in, size_t n, float *x) {
    uint8_t codes[TS_CODES_RUN];
    for (size_t at = 0; at < n; at += TS_CODES_RUN, in += TS_CODES_RUN / 8 * bits) {
        size_t run = n - at < TS_CODES_RUN ? n - at : TS_CODES_RUN;
        block->kernels->unpack(bits, in, run, codes);
        values(block, scales, codes, run, x + at);
    }
}

void ts_codes_add(const ts_quantise_block *block, const float *scales, unsigned bits, ts_codes_to_values values,
                  const uint8_t *in, size_t n, float *sum) {
    float x[TS_CODES_RUN];
    for (size_t at = 0; at < n; at += TS_CODES_RUN, in += TS_CODES_RUN / 8 * bits) {
        size_t run = n - at < TS_CODES_RUN ? n - at : TS_CODES_RUN;
        ts_codes_decode(block, scales, bits, values, in, run, x);
        block->kernels->add(sum + at, x, run);
    }
}
