/* SPDX-License-Identifier: Apache-2.0 */
/* raw32: each index as four bytes. */
#include "common/base/bytes.h"
#include "common/codec/stage_list.h"

static size_t raw32_bound(size_t k, size_t n) {
    (void)n;
    return k * sizeof(uint32_t);
}

static size_t raw32_size(const uint32_t *index, size_t k, size_t n) {
    (void)index;
    return raw32_bound(k, n);
}

static terse_status raw32_encode(const uint32_t *index, size_t k, size_t n, uint8_t *out, size_t capacity,
                                 size_t *len) {
    size_t bytes = raw32_bound(k, n);
    TS_REQUIRE(capacity >= bytes, TERSE_ENOSPACE);
    if (k > 0) memcpy(out, index, bytes);
    *len = bytes;
    return TERSE_OK;
}

static terse_status raw32_decode(const uint8_t *in, size_t len, size_t k, size_t n, uint32_t *index) {
    TS_REQUIRE(k <= n && len == raw32_bound(k, n), TERSE_ECORRUPT);
    if (k == 0) return TERSE_OK;
    memcpy(index, in, len);
    unsigned descents = 0;
    for (size_t i = 1; i < k; i++) descents |= index[i - 1] >= index[i];
    return descents == 0 && index[k - 1] < n ? TERSE_OK : TERSE_ECORRUPT;
}

const ts_index_stage ts_index_raw32 = {
    .info = {.name = "raw32",
             .args = "",
             .summary = "each index as it is, in four bytes",
             .formula = "32 bits an index",
             .source = "coordinate format, as in MPI and torch sparse tensors"},
    .bound = raw32_bound,
    .size = raw32_size,
    .encode = raw32_encode,
    .decode = raw32_decode,
};
