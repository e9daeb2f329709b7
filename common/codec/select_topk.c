/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topk:R, exactly, in one sweep over memory.
 *
 * The sweep that adds the gradient also stores the elements at or above a floor. The floor is guessed from the last
 * steps, a little below the k-th magnitude to come. A guess that is too low costs nothing but candidates: when the
 * buffer is full, the k best of it become its content and the k-th of them the new floor, which no element below can
 * pass any more; so even without a guess (first step, jump of level) about k·(1 + ln(n/k)) elements are stored and the
 * sweep stays one sweep. Only a guess that was too high costs another pass, over the residual alone.
 * What is chosen never depends on the guess: order is by magnitude, then by the keyed hash of the index.
 */
#include <float.h>

#include "common/codec/selection.h"
#include "common/codec/stage_list.h"

#define MARGIN 0.985f      /* of the guess below the most careful forecast */
#define FIRST_GROWTH 0.9f  /* forecast before anything is known */
#define MOST_GROWTH 1.5f

static size_t topk_expected(const ts_stage_args *args, size_t n) { return ts_ratio_elems(args->value[0], n); }

static size_t topk_capacity(const ts_stage_args *args, size_t n) {
    return ts_candidates_room(ts_ratio_elems(args->value[0], n), n);
}

/*
 * The floor as bits; 1 takes all but zeros. The level of residuals grows from step to step until they are in balance,
 * and then swings with the gradients: forecast is the last level times the smallest growth seen lately.
 */
static uint32_t guess(const ts_select_memory *m, size_t k) {
    if (m->level == 0.0f || k > m->k + m->k / 16) return 1;
    float growth = m->known ? m->growth[0] : FIRST_GROWTH;
    for (unsigned i = 1; i < m->known; i++) growth = m->growth[i] < growth ? m->growth[i] : growth;
    float floor = m->level * (growth < MOST_GROWTH ? growth : MOST_GROWTH) * MARGIN;
    return floor >= FLT_MIN && floor <= FLT_MAX ? ts_float_bits(floor) : 1;
}

static void learn(ts_select_memory *m, size_t k, float level) {
    if (m->level > 0.0f && k == m->k) {
        m->growth[m->next] = level / m->level;
        m->next = (m->next + 1) % TS_RECENT_STEPS;
        if (m->known < TS_RECENT_STEPS) m->known++;
    }
    m->level = level >= FLT_MIN ? level : 0.0f;
    m->k = k;
}

static void topk_select(ts_selection *s) {
    ts_candidates *c = &s->candidates;
    size_t k = ts_ratio_elems(s->args->value[0], s->n);
    uint32_t floor = guess(s->memory, k);
    (void)ts_select_largest(s, k, floor);
    s->sweep->gradient = NULL; /* taken in */
    if (s->sweep->bad_count > 0 && s->sweep->policy != TS_NONFINITE_ZERO) return;
    if (c->count < k && floor > 1) {
        float lower = ts_bits_float(floor) * 0.5f;
        (void)ts_select_largest(s, k, lower >= FLT_MIN ? ts_float_bits(lower) : 1);
        if (c->count < k) (void)ts_select_largest(s, k, 1);
    }
    if (c->count < k) (void)ts_select_largest(s, k, 0);
    ts_candidates_keep(c, k, s->key, s->origin);
    learn(s->memory, k, ts_bits_float(c->floor));
}

const ts_select_stage ts_select_topk = {
    .info = {.name = "topk",
             .args = "R",
             .summary = "the k elements of largest magnitude, exactly; k = max(1, ceil(R n))",
             .formula = "S = arg max_{|S| = k} sum |g_i|",
             .source = "Aji and Heafield 2017; Lin et al. 2018",
             .min_args = 1,
             .max_args = 1,
             .low = {0},
             .high = {1},
             .low_open = {true}},
    .ranks = true,
    .sends_indices = true,
    .takes_ratio = true,
    .expected = topk_expected,
    .capacity = topk_capacity,
    .select = topk_select,
};
