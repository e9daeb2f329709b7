/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rle: runs of neighbouring indices. For each run two varints: the elements between it and the run before (less one,
 * except in front of the first run), and its length less one.
 */
#include "common/base/bytes.h"
#include "common/codec/stage_list.h"

#define GAP_MAX_BYTES 5 /* of 32 bits */

/* Indices in the run that begins with index[0]. */
static size_t run_length(const uint32_t *index, size_t k) {
    size_t run = 1;
    while (run < k && index[run] == index[run - 1] + 1) run++;
    return run;
}

static size_t rle_bound(size_t k, size_t n) {
    (void)n;
    return k * (GAP_MAX_BYTES + 1); /* the length of a run takes no more bytes than the run has indices */
}

static size_t rle_size(const uint32_t *index, size_t k, size_t n) {
    (void)n;
    size_t bytes = 0;
    uint32_t next = 0;
    for (size_t i = 0; i < k;) {
        size_t run = run_length(index + i, k - i);
        bytes += ts_varint_bytes(index[i] - next) + ts_varint_bytes(run - 1);
        i += run;
        next = index[i - 1] + 2;
    }
    return bytes;
}

static terse_status rle_encode(const uint32_t *index, size_t k, size_t n, uint8_t *out, size_t capacity, size_t *len) {
    TS_REQUIRE(capacity >= rle_bound(k, n) || capacity >= rle_size(index, k, n), TERSE_ENOSPACE);
    size_t at = 0;
    uint32_t next = 0;
    for (size_t i = 0; i < k;) {
        size_t run = run_length(index + i, k - i);
        at += ts_varint_put(out + at, index[i] - next);
        at += ts_varint_put(out + at, run - 1);
        i += run;
        next = index[i - 1] + 2;
    }
    *len = at;
    return TERSE_OK;
}

/* A varint in its shortest form. */
static terse_status read_number(const uint8_t *in, size_t len, size_t *at, uint64_t *value) {
    size_t bytes = ts_varint_get(in + *at, len - *at, value);
    TS_REQUIRE(bytes > 0 && bytes == ts_varint_bytes(*value), TERSE_ECORRUPT);
    *at += bytes;
    return TERSE_OK;
}

static terse_status rle_decode(const uint8_t *in, size_t len, size_t k, size_t n, uint32_t *index) {
    size_t at = 0;
    uint64_t next = 0;
    for (size_t i = 0; i < k;) {
        uint64_t gap, more;
        TS_TRY(read_number(in, len, &at, &gap));
        TS_TRY(read_number(in, len, &at, &more));
        TS_REQUIRE(next < n && gap < n - next, TERSE_ECORRUPT);
        uint64_t first = next + gap;
        TS_REQUIRE(more < k - i && more < n - first, TERSE_ECORRUPT);
        for (uint64_t j = 0; j <= more; j++) index[i++] = (uint32_t)(first + j);
        next = first + more + 2;
    }
    return at == len ? TERSE_OK : TERSE_ECORRUPT;
}

const ts_index_stage ts_index_rle = {
    .info = {.name = "rle",
             .args = "",
             .summary = "runs of neighbouring indices, each as distance and length in base 128",
             .formula = "varint(distance - 1), varint(length - 1) a run",
             .source = "Golomb 1966"},
    .bound = rle_bound,
    .size = rle_size,
    .encode = rle_encode,
    .decode = rle_decode,
};
