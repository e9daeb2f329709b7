/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exact: the elements whose bits differ from what the receiver has, and their new values, which replace the old ones. No
 * arithmetic is done on either side, so that -0, denormals and the payloads of NaN arrive as they are.
 */
#include <string.h>

#include "common/codec/selection.h"
#include "common/codec/stage_list.h"

#define RUN 16u /* elements that are compared at once: most of a tensor that changes in few places is skipped so */

/* Whether RUN values have the same bits. */
static inline bool same(const float *a, const float *b) {
    uint64_t x[RUN / 2], y[RUN / 2], differ = 0;
    memcpy(x, a, sizeof x);
    memcpy(y, b, sizeof y);
    for (unsigned i = 0; i < RUN / 2; i++) differ |= x[i] ^ y[i];
    return differ == 0;
}

static size_t exact_capacity(const ts_stage_args *args, size_t n) {
    (void)args;
    return n;
}

static void exact_select(ts_selection *s) {
    ts_candidates *c = &s->candidates;
    const float *value = s->sweep->gradient, *known = s->sweep->residual;
    size_t count = 0;
    for (size_t at = 0; value && at < s->n; at += RUN) {
        size_t end = s->n - at < RUN ? s->n : at + RUN;
        if (end - at == RUN && same(value + at, known + at)) continue;
        for (size_t i = at; i < end; i++) { /* count <= i, so there is room for one that does not count, too */
            uint32_t bits = ts_float_bits(value[i]);
            c->index[count] = (uint32_t)i;
            c->bits[count] = bits;
            count += bits != ts_float_bits(known[i]);
        }
    }
    c->count = count;
    s->sweep->gradient = NULL;
}

const ts_select_stage ts_select_exact = {
    .info = {.name = "exact",
             .args = "",
             .summary = "new values where the bits differ from the receiver's, for pulls; all values when that is shorter",
             .formula = "S = {i : bits(w_i) != bits(r_i)}; r_i = w_i for i in S",
             .source = "this project"},
    .sends_indices = true,
    .replaces = true,
    .capacity = exact_capacity,
    .select = exact_select,
};
