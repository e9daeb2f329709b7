/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/selection.h"

#include <math.h>
#include <string.h>

#include "common/base/random.h"

#define SMALL 48
#define RADIX_BINS 2048
#define SAMPLE 2048u
#define BETWEEN 32768u
#define RUN 64                /* candidates looked at together for ties */
#define SAMPLED_ELEMS 16384u
#define HALVES_ELEMS 65536u

size_t ts_ratio_elems(double ratio, size_t n) {
    double wanted = ceil(ratio * (double)n);
    if (n == 0) return 0;
    if (!(wanted >= 1.0)) return 1;
    return wanted >= (double)n ? n : (size_t)wanted;
}

/* One buffer: k and as much again twice, so that thinning out is paid for by what it removes. */
static size_t one_room(size_t k, size_t n) {
    size_t spare = (k < 2048 ? 4096 : 2 * k) + 2 * TS_SELECT_GROUP;
    return spare > n - k ? n + 2 * TS_SELECT_GROUP : k + spare;
}

/* Two halves side by side pay for large tensors only, and where all loops go over two places at once. */
static bool in_halves(size_t k, size_t n) { return !ts_cpu_turns() && n >= HALVES_ELEMS && k <= n / 16; }

size_t ts_candidates_room(size_t k, size_t n) { return in_halves(k, n) ? 2 * one_room(k, n) : one_room(k, n); }

unsigned ts_select_largest(ts_selection *s, size_t k, uint32_t floor) {
    ts_candidates *c = &s->candidates;
    size_t n = s->n, half = n / 2, room = one_room(k, n);
    unsigned overflows = 0;
    c->count = 0;
    c->floor = floor;
    ts_candidates part[2] = {*c, *c};
    if (!in_halves(k, n)) {
        for (size_t at = 0; (at = s->kernels->select(s->sweep, at, n, c)) < n; overflows++) {
            ts_candidates_keep(s->kernels, c, k, s->key, s->origin);
        }
        return overflows;
    }
    part[0].capacity = room;
    part[1].capacity = room;
    part[1].index += room;
    part[1].bits += room;
    for (size_t at = 0; (at = s->kernels->select_pair(s->sweep, at, half, half, part)) < half; overflows++) {
        ts_candidates *full = part[0].count > part[1].count ? &part[0] : &part[1];
        ts_candidates_keep(s->kernels, full, k, s->key, s->origin);
        /* k elements reach that floor, whichever half they are in. */
        part[0].floor = part[1].floor = part[0].floor > part[1].floor ? part[0].floor : part[1].floor;
    }
    for (size_t at = 2 * half; (at = s->kernels->select(s->sweep, at, n, &part[1])) < n; overflows++) {
        ts_candidates_keep(s->kernels, &part[1], k, s->key, s->origin);
    }
    memmove(c->index + part[0].count, part[1].index, part[1].count * sizeof *c->index);
    memmove(c->bits + part[0].count, part[1].bits, part[1].count * sizeof *c->bits);
    c->count = part[0].count + part[1].count;
    return overflows;
}

/* A handful: sort downwards by insertion, as far as k goes. */
static uint32_t kth_of_few(const uint32_t *v, size_t m, size_t k, uint32_t mask, size_t *greater, size_t *equal) {
    uint32_t best[SMALL] = {0};
    size_t have = 0, same = 0;
    for (size_t i = 0; i < m; i++) {
        uint32_t x = v[i] & mask;
        if (have == k && x <= best[k - 1]) continue;
        size_t at = have < k ? have++ : k - 1;
        for (; at > 0 && best[at - 1] < x; at--) best[at] = best[at - 1];
        best[at] = x;
    }
    size_t above = 0;
    while (best[above] > best[k - 1]) above++;
    for (size_t i = 0; i < m; i++) same += (v[i] & mask) == best[k - 1];
    *greater = above;
    *equal = same;
    return best[k - 1];
}

/* The k-th largest by radix, from the top. */
static uint32_t kth_by_radix(const uint32_t *v, size_t m, size_t k, uint32_t mask, size_t *greater, size_t *equal) {
    static const unsigned shift[3] = {21, 10, 0}, width[3] = {11, 11, 10};
    uint32_t prefix = 0;
    size_t above = 0, same = 0;
    for (int level = 0; level < 3; level++) {
        uint32_t bins[RADIX_BINS];
        memset(bins, 0, sizeof bins);
        uint32_t last = (1u << width[level]) - 1;
        unsigned upper = shift[level] + width[level];
        for (size_t i = 0; i < m; i++) {
            uint32_t x = v[i] & mask;
            if (level == 0 || x >> upper == prefix) bins[(x >> shift[level]) & last]++;
        }
        uint32_t bin = last;
        while (above + bins[bin] < k) above += bins[bin--];
        prefix = (prefix << width[level]) | bin;
        same = bins[bin];
    }
    *greater = above;
    *equal = same;
    return prefix;
}

/*
 * A sample tells between which two values the k-th largest lies almost surely; one pass counts what is above and sets
 * aside what is between, so that three passes run over few. False when the sample was wrong or too much is between.
 * Algorithm: after Floyd and Rivest 1975.
 */
static bool kth_by_sample(const ts_kernels *kernels, const uint32_t *v, size_t m, size_t k, uint32_t mask,
                          ts_work work, size_t *greater, size_t *equal, uint32_t *kth) {
    uint32_t sample[SAMPLE];
    size_t above, unused[2], room = work.room < BETWEEN ? work.room : BETWEEN;
    for (size_t i = 0; i < SAMPLE; i++) sample[i] = v[(uint64_t)i * m / SAMPLE];
    size_t rank = (size_t)((uint64_t)k * SAMPLE / m), slack = SAMPLE / 32;
    size_t upper = rank > slack ? rank - slack : 1, lower = rank + slack < SAMPLE ? rank + slack : SAMPLE;
    uint32_t high = rank > slack ? kth_by_radix(sample, SAMPLE, upper, mask, &unused[0], &unused[1]) : UINT32_MAX;
    uint32_t low = kth_by_radix(sample, SAMPLE, lower, mask, &unused[0], &unused[1]);
    size_t inside = kernels->between(v, m, mask, low, high, work.at, room, &above);
    if (inside + TS_KEEP_SPARE > room || above >= k || above + inside < k) return false;
    *kth = kth_by_radix(work.at, inside, k - above, UINT32_MAX, greater, equal);
    *greater += above;
    return true;
}

uint32_t ts_kth_largest(const ts_kernels *kernels, const uint32_t *v, size_t m, size_t k, uint32_t mask, ts_work work,
                        size_t *greater, size_t *equal) {
    uint32_t kth;
    if (k <= SMALL && (m <= 256 || k <= 2)) return kth_of_few(v, m, k, mask, greater, equal);
    if (m >= SAMPLED_ELEMS && kth_by_sample(kernels, v, m, k, mask, work, greater, equal, &kth)) return kth;
    return kth_by_radix(v, m, k, mask, greater, equal);
}

static uint32_t tie_order(uint64_t key, size_t element) { return (uint32_t)(ts_mix64(key ^ element) >> 32); }

/* Moves candidates first to end - 1 down to *out. */
static void move_run(ts_candidates *c, size_t first, size_t end, size_t *out) {
    if (*out != first) {
        memmove(c->index + *out, c->index + first, (end - first) * sizeof *c->index);
        memmove(c->bits + *out, c->bits + first, (end - first) * sizeof *c->bits);
    }
    *out += end - first;
}

/* The next candidate from number i on whose magnitude is `level`, or how many candidates there are. */
static size_t next_tie(const ts_candidates *c, size_t i, uint32_t level) {
    for (; i + RUN <= c->count; i += RUN) {
        uint32_t ties = 0;
        for (size_t j = 0; j < RUN; j++) ties += (c->bits[i + j] & TS_ABS_MASK) == level;
        if (ties > 0) break;
    }
    while (i < c->count && (c->bits[i] & TS_ABS_MASK) != level) i++;
    return i;
}

/* Among candidates equal to `level` keeps `wanted` by the smaller hash; all above stay, those below go. */
static void keep_with_ties(const ts_kernels *kernels, ts_candidates *c, uint32_t level, size_t wanted, uint64_t key, size_t origin) {
    size_t ties = 0, above = 0, unused;
    kernels->keep_above(c, level);
    for (size_t i = next_tie(c, 0, level); i < c->count; i = next_tie(c, i + 1, level)) {
        c->order[ties++] = ~tie_order(key, origin + c->index[i]); /* the smaller hash is the larger number */
    }
    ts_work work = {c->order + ties, c->capacity - ties};
    uint32_t limit = ts_kth_largest(kernels, c->order, ties, wanted, UINT32_MAX, work, &above, &unused);
    size_t equal = wanted - above, out = 0, tie = 0, run = 0;
    for (size_t i = next_tie(c, 0, level); i < c->count; i = next_tie(c, i + 1, level)) {
        uint32_t order = c->order[tie++];
        if (order > limit) continue;
        if (order == limit && equal > 0) {
            equal--;
            continue;
        }
        move_run(c, run, i, &out);
        run = i + 1;
    }
    move_run(c, run, c->count, &out);
    c->count = out;
}

void ts_candidates_keep(const ts_kernels *kernels, ts_candidates *c, size_t k, uint64_t key, size_t origin) {
    if (k == 0 || c->count < k) return;
    size_t greater, equal;
    ts_work work = {c->order, c->capacity};
    uint32_t level = ts_kth_largest(kernels, c->bits, c->count, k, TS_ABS_MASK, work, &greater, &equal);
    c->floor = level;
    if (c->count == k) return;
    if (greater + equal != k) {
        keep_with_ties(kernels, c, level, k - greater, key, origin);
        return;
    }
    kernels->keep_above(c, level);
}
