/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/quantise_codes.h"

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
    if (bits == 2 || bits == 4 || bits == 8) {
        return block->kernels->fields_lack(bits, 0xFF, (uint16_t)forbidden, in, ts_codes_bytes(bits, n));
    }
    for (size_t at = 0; at < n; at += TS_CODES_RUN, in += TS_CODES_RUN / 8 * bits) {
        size_t run = n - at < TS_CODES_RUN ? n - at : TS_CODES_RUN;
        block->kernels->unpack(bits, in, run, codes);
        if (!block->kernels->fields_lack(8, 0xFF, (uint16_t)forbidden, codes, run)) return false;
    }
    return true;
}

static void values_of(const ts_quantise_block *block, const float *scales, unsigned bits, ts_codes_to_values values,
                      const uint8_t *in, size_t n, float *x, bool add) {
    uint8_t codes[TS_CODES_RUN];
    size_t half = n / 2 / TS_CODES_RUN; /* runs by turns from two places: memory serves two faster than one */
    for (size_t run = 0, at = 0; at < n; run++) {
        size_t place = run < 2 * half ? (run / 2 + run % 2 * half) * TS_CODES_RUN : at;
        size_t count = n - place < TS_CODES_RUN ? n - place : TS_CODES_RUN;
        block->kernels->unpack(bits, in + place / 8 * bits, count, codes);
        values(block, scales, codes, count, x + place, add);
        at += count;
    }
}

void ts_codes_decode(const ts_quantise_block *block, const float *scales, unsigned bits, ts_codes_to_values values,
                     const uint8_t *in, size_t n, float *x) {
    values_of(block, scales, bits, values, in, n, x, false);
}

void ts_codes_add(const ts_quantise_block *block, const float *scales, unsigned bits, ts_codes_to_values values,
                  const uint8_t *in, size_t n, float *sum) {
    values_of(block, scales, bits, values, in, n, sum, true);
}
