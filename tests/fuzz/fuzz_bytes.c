/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte packs. Input: pack, claimed length (12 bits in 2 bytes), then bytes, which are decoded, and which must survive
 * encoding and decoding.
 */
#include <string.h>

#include "common/codec/codec.h"
#include "common/codec/registry.h"
#include "tests/fuzz/fuzz.h"

#define HEAD_BYTES 3

static const ts_bytes_stage *const stages[] = {
#define TABLE(table) &(table),
    TS_BYTES_STAGES(TABLE)
#undef TABLE
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    static ts_scratch *scratch; /* kept between inputs, as a server keeps it */
    if (len < HEAD_BYTES || (!scratch && ts_scratch_create(&scratch) != TERSE_OK)) return 0;
    const ts_bytes_stage *stage = stages[data[0] % (sizeof stages / sizeof stages[0])];
    ts_stage_args args = {.value = {stage->info.low[0]}, .count = stage->info.max_args};
    size_t claimed = ((size_t)data[1] | (size_t)data[2] << 8) & 0xFFF;
    const uint8_t *in = data + HEAD_BYTES;
    size_t in_len = len - HEAD_BYTES, bound = stage->bound(in_len, &args), packed = 0;
    uint8_t *out = malloc(claimed + 1), *wire = malloc(bound + 1), *back = malloc(in_len + 1);
    if (out && wire && back) {
        terse_status status = stage->decode(scratch, &args, in, in_len, out, claimed);
        FUZZ_CHECK(status == TERSE_OK || status == TERSE_ECORRUPT);
        FUZZ_CHECK(stage->encode(scratch, &args, in, in_len, wire, bound, &packed) == TERSE_OK && packed <= bound);
        if (packed < in_len) {
            FUZZ_CHECK(stage->decode(scratch, &args, wire, packed, back, in_len) == TERSE_OK);
            FUZZ_CHECK(memcmp(in, back, in_len) == 0);
        }
    }
    free(out);
    free(wire);
    free(back);
    return 0;
}
