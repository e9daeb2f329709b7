/* SPDX-License-Identifier: Apache-2.0 */
/* blocktopk:R:B: the largest of each block of B elements, so that no part of the tensor starves. */
#include "common/codec/selection.h"
#include "common/codec/stage_list.h"

static size_t blocktopk_expected(const ts_stage_args *args, size_t n) {
    size_t elems = (size_t)args->value[1];
    return n / elems * ts_ratio_elems(args->value[0], elems) + ts_ratio_elems(args->value[0], n % elems);
}

/* The choice, and the block that is being looked at behind it. */
static size_t blocktopk_capacity(const ts_stage_args *args, size_t n) {
    size_t elems = (size_t)args->value[1];
    return blocktopk_expected(args, n) + (elems < n ? elems : n) + 2 * TS_SELECT_GROUP;
}

static void blocktopk_select(ts_selection *s) {
    ts_candidates *c = &s->candidates;
    size_t elems = (size_t)s->args->value[1];
    c->count = 0;
    for (size_t at = 0; at < s->n; at += elems) {
        size_t end = s->n - at < elems ? s->n : at + elems;
        ts_candidates block = {.index = c->index + c->count,
                               .bits = c->bits + c->count,
                               .order = c->order,
                               .capacity = c->capacity - c->count};
        (void)s->kernels->select(s->sweep, at, end, &block);
        ts_candidates_keep(s->kernels, &block, ts_ratio_elems(s->args->value[0], end - at), s->key, s->origin);
        c->count += block.count;
    }
    s->sweep->gradient = NULL;
}

const ts_select_stage ts_select_blocktopk = {
    .info = {.name = "blocktopk",
             .args = "R:B",
             .summary = "the ceil(R B) elements of largest magnitude in each block of B elements",
             .formula = "S = union over blocks b of arg max_{|S_b| = k_b} sum |g_i|",
             .source = "block-wise top-k; Zheng, Huang and Kwok 2019",
             .min_args = 2,
             .max_args = 2,
             .low = {0, 2},
             .high = {1, 1048576},
             .low_open = {true, false},
             .integral = {false, true}},
    .ranks = true,
    .sends_indices = true,
    .takes_ratio = true,
    .expected = blocktopk_expected,
    .capacity = blocktopk_capacity,
    .select = blocktopk_select,
};
