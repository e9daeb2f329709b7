/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rle8: runs of equal bytes. A control byte c below 128 stands in front of c + 1 bytes as they are, one from 128 on in
 * front of a byte that is repeated c - 125 times (3 ... 130). As PackBits, but a run of two is never worth a control
 * byte.
 *
 * As all byte packs, encode() says in_len and leaves `out` undefined when the result would not be smaller: the packet
 * layer then stores the bytes.
 */
#include <string.h>

#include "common/codec/stage_list.h"

#define LITERAL_MOST 128u
#define RUN_LEAST 3u
#define RUN_MOST 130u
#define RUN_CONTROL 125u /* control byte - length of a run */

static size_t rle8_bound(size_t len, const ts_stage_args *args) {
    (void)args;
    return len;
}

/* Equal bytes from `at` on, at most RUN_MOST. */
static size_t run_at(const uint8_t *in, size_t len, size_t at) {
    size_t run = 1;
    while (at + run < len && run < RUN_MOST && in[at + run] == in[at]) run++;
    return run;
}

static terse_status rle8_encode(struct ts_scratch *scratch, const ts_stage_args *args, const uint8_t *in, size_t in_len,
                                uint8_t *out, size_t capacity, size_t *out_len) {
    (void)scratch;
    (void)args;
    TS_REQUIRE(capacity >= in_len, TERSE_ENOSPACE);
    size_t at = 0, wrote = 0;
    while (at < in_len) {
        size_t run = run_at(in, in_len, at), first = at;
        if (run >= RUN_LEAST) {
            if (in_len - wrote <= 2) goto not_smaller;
            out[wrote++] = (uint8_t)(run + RUN_CONTROL);
            out[wrote++] = in[at];
            at += run;
            continue;
        }
        while (at < in_len && at - first < LITERAL_MOST && run_at(in, in_len, at) < RUN_LEAST) at++;
        if (in_len - wrote <= 1 + (at - first)) goto not_smaller;
        out[wrote++] = (uint8_t)(at - first - 1);
        memcpy(out + wrote, in + first, at - first);
        wrote += at - first;
    }
    *out_len = wrote;
    return TERSE_OK;
not_smaller:
    *out_len = in_len;
    return TERSE_OK;
}

static terse_status rle8_decode(struct ts_scratch *scratch, const ts_stage_args *args, const uint8_t *in, size_t in_len,
                                uint8_t *out, size_t out_len) {
    (void)scratch;
    (void)args;
    size_t at = 0, made = 0;
    while (at < in_len) {
        size_t control = in[at++];
        if (control >= LITERAL_MOST) {
            size_t run = control - RUN_CONTROL;
            TS_REQUIRE(at < in_len && run <= out_len - made, TERSE_ECORRUPT);
            memset(out + made, in[at++], run);
            made += run;
        } else {
            size_t count = control + 1;
            TS_REQUIRE(count <= in_len - at && count <= out_len - made, TERSE_ECORRUPT);
            memcpy(out + made, in + at, count);
            at += count;
            made += count;
        }
    }
    return made == out_len ? TERSE_OK : TERSE_ECORRUPT;
}

const ts_bytes_stage ts_bytes_rle8 = {
    .info = {.name = "rle8",
             .args = "",
             .summary = "runs of equal bytes as a count and the byte",
             .formula = "2 bytes for a run of 3 ... 130; 1 + m for m <= 128 other bytes",
             .source = "Golomb 1966; PackBits, Apple 1984"},
    .bound = rle8_bound,
    .encode = rle8_encode,
    .decode = rle8_decode,
};
