/* SPDX-License-Identifier: Apache-2.0 */
/*
 * randomk:R: both ends draw the same indices from a counter-based stream that does not know the worker, so none are
 * sent. Each slice has its share of k and is drawn alone, by Floyd's sampling (Bentley and Floyd 1987) into a bitmap.
 */
#include <string.h>

#include "common/base/random.h"
#include "common/codec/selection.h"
#include "common/codec/stage_list.h"

static size_t randomk_expected(const ts_stage_args *args, size_t n) { return ts_ratio_elems(args->value[0], n); }

static size_t randomk_capacity(const ts_stage_args *args, size_t n) { return ts_ratio_elems(args->value[0], n); }

static void randomk_regenerate(uint64_t key, size_t k, size_t n, uint64_t *bitmap, uint32_t *index) {
    size_t words = (n + 63) / 64, drawn = k <= n / 2 ? k : n - k, out = 0;
    uint64_t flip = drawn == k ? 0 : UINT64_MAX;
    ts_random random = ts_random_start(key);
    memset(bitmap, 0, words * sizeof *bitmap);
    for (size_t j = n - drawn; j < n; j++) {
        size_t pick = ts_random_below(&random, (uint32_t)(j + 1));
        if (bitmap[pick / 64] >> (pick % 64) & 1) pick = j;
        bitmap[pick / 64] |= (uint64_t)1 << (pick % 64);
    }
    for (size_t w = 0; w < words; w++) {
        uint64_t bits = bitmap[w] ^ flip;
        if (w == words - 1 && n % 64) bits &= ((uint64_t)1 << (n % 64)) - 1;
        for (; bits; bits &= bits - 1) index[out++] = (uint32_t)(w * 64 + (size_t)__builtin_ctzll(bits));
    }
}

/* Takes the gradient in; the encoder draws the indices slice by slice. */
static void randomk_select(ts_selection *s) {
    (void)s->kernels->sweep(s->sweep, 0, s->n);
    s->sweep->gradient = NULL;
    s->candidates.count = ts_ratio_elems(s->args->value[0], s->n);
}

const ts_select_stage ts_select_randomk = {
    .info = {.name = "randomk",
             .args = "R",
             .summary = "k random elements that the receiver draws too, so no indices are sent",
             .formula = "S uniform among the sets of k = max(1, ceil(R n)) elements",
             .source = "Stich, Cordonnier and Jaggi 2018",
             .min_args = 1,
             .max_args = 1,
             .low = {0},
             .high = {1},
             .low_open = {true}},
    .sends_indices = false,
    .takes_ratio = true,
    .expected = randomk_expected,
    .capacity = randomk_capacity,
    .select = randomk_select,
    .regenerate = randomk_regenerate,
};
