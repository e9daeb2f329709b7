/* SPDX-License-Identifier: Apache-2.0 */
/*
 * best: whichever pack takes the fewest bytes, by exact size. Used alone, a byte with the pack's number comes first.
 */
#include "common/codec/pack_best.h"

#include "common/codec/registry.h"

#define NUMBER_BYTES 1

const ts_index_stage *ts_index_best_choose(const uint32_t *index, size_t k, size_t n, size_t *size) {
    const ts_index_stage *best = NULL;
    size_t least = 0;
    for (size_t i = 0; i < ts_registry_index_count(); i++) {
        const ts_index_stage *stage = ts_registry_index(i);
        size_t bytes = stage->size(index, k, n);
        if (best && bytes >= least) continue;
        best = stage;
        least = bytes;
    }
    *size = least;
    return best;
}

static size_t best_bound(size_t k, size_t n) {
    size_t least = ts_registry_index(0)->bound(k, n);
    for (size_t i = 1; i < ts_registry_index_count(); i++) {
        size_t bytes = ts_registry_index(i)->bound(k, n);
        if (bytes < least) least = bytes;
    }
    return NUMBER_BYTES + least;
}

static size_t best_size(const uint32_t *index, size_t k, size_t n) {
    size_t bytes;
    (void)ts_index_best_choose(index, k, n, &bytes);
    return NUMBER_BYTES + bytes;
}

static terse_status best_encode(const uint32_t *index, size_t k, size_t n, uint8_t *out, size_t capacity, size_t *len) {
    size_t bytes;
    const ts_index_stage *stage = ts_index_best_choose(index, k, n, &bytes);
    TS_REQUIRE(capacity >= NUMBER_BYTES + bytes, TERSE_ENOSPACE);
    TS_TRY(stage->encode(index, k, n, out + NUMBER_BYTES, capacity - NUMBER_BYTES, &bytes));
    out[0] = (uint8_t)ts_registry_index_number(stage);
    *len = NUMBER_BYTES + bytes;
    return TERSE_OK;
}

/* That no other pack would have been smaller is not checked: it would cost as much as encoding. */
static terse_status best_decode(const uint8_t *in, size_t len, size_t k, size_t n, uint32_t *index) {
    TS_REQUIRE(len >= NUMBER_BYTES, TERSE_ECORRUPT);
    const ts_index_stage *stage = ts_registry_index_by_number(in[0]);
    TS_REQUIRE(stage, TERSE_ECORRUPT);
    return stage->decode(in + NUMBER_BYTES, len - NUMBER_BYTES, k, n, index);
}

const ts_index_stage ts_index_best = {
    .info = {.name = "best",
             .args = "",
             .summary = "the pack that takes the fewest bytes for these indices; the default after a selector",
             .formula = "min over all index packs of their exact size",
             .source = "this project"},
    .bound = best_bound,
    .size = best_size,
    .encode = best_encode,
    .decode = best_decode,
};
