/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the k-th largest magnitude will be, from lines of memory drawn one from each of equal strata. Where these are further
 * apart than pages are long, several lines are drawn from one page in a stratum so many times as large: finding a page costs
 * more than reading a line of it.
 */
#include <math.h>
#include <string.h>

#include "common/base/random.h"
#include "common/codec/selection.h"

#define LINE 16            /* floats; a line of memory costs the same whatever is read of it */
#define PAGE 1024         /* floats */
#define PAGE_LINES 4      /* drawn from a page, each from a part of its own */
#define CHUNK (64 * LINE)  /* taken in together */
#define FEWEST_ELEMS 4096u /* below, everything is a candidate */
#define MOST_WANTED 4      /* as where more than one of so many are wanted */
#define MOST_SHARE 32      /* at most one line of so many is read … */
#define LEAST_SHARE 1024   /* … and at least one of so many, which costs next to nothing */
#define WANTED_HITS 32.0   /* of the k largest, in the sample */
#define DEVIATIONS 3.0     /* of their number, on the safe side */
#define ROOM 1024          /* for candidates of the sample, beyond what is wanted */

/* Lines gathered from all over the tensor, and a sweep over them that leaves the tensor alone. */
typedef struct {
    float gradient[CHUNK], residual[CHUNK], velocity[CHUNK], params[CHUNK];
} gathered;

static size_t gather(const ts_sweep *from, const size_t *at, size_t lines, gathered *to) {
    for (size_t i = 0; i < lines; i++) memcpy(to->residual + i * LINE, from->residual + at[i], LINE * sizeof(float));
    if (from->gradient) {
        for (size_t i = 0; i < lines; i++) memcpy(to->gradient + i * LINE, from->gradient + at[i], LINE * sizeof(float));
    }
    if (from->velocity) {
        for (size_t i = 0; i < lines; i++) memcpy(to->velocity + i * LINE, from->velocity + at[i], LINE * sizeof(float));
    }
    if (from->params) {
        for (size_t i = 0; i < lines; i++) memcpy(to->params + i * LINE, from->params + at[i], LINE * sizeof(float));
    }
    return lines * LINE;
}

static void take_in(const ts_selection *s, gathered *lines, size_t n, size_t keep, ts_candidates *c) {
    ts_sweep sweep = *s->sweep;
    sweep.residual = lines->residual;
    sweep.gradient = sweep.gradient ? lines->gradient : NULL;
    sweep.velocity = sweep.velocity ? lines->velocity : NULL;
    sweep.params = sweep.params ? lines->params : NULL;
    for (size_t at = 0; (at = s->kernels->select(&sweep, at, n, c)) < n;) ts_candidates_keep(s->kernels, c, keep, s->key, s->origin);
}

/* What is drawn, chunk by chunk. */
typedef struct {
    size_t strata, stride, next; /* the first stratum that is not drawn from yet */
    size_t a_page;               /* strata whose lines lie in one page */
} draw;

/* A line's place from each of the next strata, which memory is asked for. Returns how many. */
static size_t draw_lines(const ts_selection *s, draw *from, size_t at[CHUNK / LINE]) {
    const float *arrays[] = {s->sweep->residual, s->sweep->gradient, s->sweep->velocity, s->sweep->params};
    const size_t wide = from->a_page * from->stride, page = from->a_page > 1 ? PAGE : LINE, part = page / from->a_page;
    size_t lines = 0;
    for (; lines < CHUNK / LINE && from->next < from->strata; lines++, from->next++) {
        size_t first = from->next / from->a_page, line = from->next % from->a_page;
        uint64_t place = ts_mix64(s->key ^ first) >> 32, within = ts_mix64(~s->key ^ from->next) >> 32;
        at[lines] = (first * wide + (size_t)(place * (wide - page) >> 32)) / page * page;
        at[lines] += line * part + (size_t)(within * (part / LINE) >> 32) * LINE;
        for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
            if (arrays[i]) __builtin_prefetch(arrays[i] + at[lines]);
        }
    }
    return lines;
}

uint32_t ts_sample_floor(ts_selection *s, size_t k) {
    if (s->n < FEWEST_ELEMS || k > s->n / MOST_WANTED) return 1;
    double n = (double)s->n, elems = fmin(fmax(WANTED_HITS * n / (double)k, n / LEAST_SHARE), n / MOST_SHARE);
    size_t strata = (size_t)(elems / LINE), stride = s->n / strata, a_page = stride > PAGE ? PAGE_LINES : 1;
    strata = strata / a_page * a_page;
    double hits = (double)(strata * LINE) * (double)k / n;
    size_t rank = (size_t)ceil(hits + DEVIATIONS * sqrt(hits) + 1);
    ts_candidates c = s->candidates;
    c.count = 0;
    c.floor = 1;
    if (c.capacity > rank + ROOM) c.capacity = rank + ROOM;
    gathered lines;
    draw from = {.strata = strata, .stride = stride, .a_page = a_page};
    size_t at[2][CHUNK / LINE], turn = 0;
    for (size_t count = draw_lines(s, &from, at[0]); count > 0; turn ^= 1) {
        size_t next = draw_lines(s, &from, at[turn ^ 1]); /* on their way while these are looked at */
        take_in(s, &lines, gather(s->sweep, at[turn], count, &lines), rank, &c);
        count = next;
    }
    if (c.count < rank) return 1;
    ts_candidates_keep(s->kernels, &c, rank, s->key, s->origin);
    return c.floor > 1 ? c.floor : 1;
}
