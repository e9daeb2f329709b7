/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeps, selection and what is element by element. */
#include <string.h>

#include "tests/cross/compare.h"

static const size_t sizes[] = {0, 1, 2, 3, 7, 8, 15, 16, 17,
                               31, 33, 63, 64, 65, 100, 127, 129, 200, 255, 257, 1000, 2049};
#define SIZES (sizeof sizes / sizeof sizes[0])

/* n floats and what stands behind them, which nobody may touch. */
#define BEHIND 32
static void twice(cross_floats *to, const float *x, size_t n) {
    memset(to->want + n, 0x5A, BEHIND * sizeof(float));
    memset(to->got + n, 0x5A, BEHIND * sizeof(float));
    memcpy(to->want, x, n * sizeof *x);
    memcpy(to->got, x, n * sizeof *x);
}

static bool equal(const cross_floats *x, size_t n) { return cross_same(x->want, x->got, (n + BEHIND) * sizeof(float)); }

static bool same_double(double a, double b) { return cross_same(&a, &b, sizeof a); }

/* shift: arrays need no alignment. */
static void plain(cross *c, unsigned kind, size_t n, size_t shift) {
    size_t detail = kind * 10 + shift;
    const float *b = c->gradient;
    cross_input(c, kind, c->input, CROSS_MOST);
    cross_input(c, kind == 4 ? 2 : kind, c->gradient, CROSS_MOST);
    twice(&c->x, c->input, n + shift);
    for (unsigned fresh = 0; fresh < 2; fresh++) {
        bool finite[2] = {c->reference->fp32_sum((const uint8_t *)b + shift, n, c->x.want + shift, fresh),
                          c->kernels->fp32_sum((const uint8_t *)b + shift, n, c->x.got + shift, fresh)};
        cross_expect(c, finite[0] == finite[1] && equal(&c->x, n + shift), "fp32_sum", n, detail + 10 * fresh);
    }
    c->reference->add(c->x.want + shift, b, n);
    c->kernels->add(c->x.got + shift, b, n);
    cross_expect(c, equal(&c->x, n + shift), "add", n, detail);
    twice(&c->x, c->input, n + shift);
    c->reference->sub(c->x.want + shift, b, c->x.want + shift, n);
    c->kernels->sub(c->x.got + shift, b, c->x.got + shift, n);
    cross_expect(c, equal(&c->x, n + shift), "sub", n, detail);
    twice(&c->x, c->input, n + shift);
    c->reference->scale(c->x.want + shift, 0.3f, n);
    c->kernels->scale(c->x.got + shift, 0.3f, n);
    cross_expect(c, equal(&c->x, n + shift), "scale", n, detail);
    twice(&c->x, c->input, n + shift);
    c->reference->descend(c->x.want + shift, b, 0.1f, n);
    c->kernels->descend(c->x.got + shift, b, 0.1f, n);
    cross_expect(c, equal(&c->x, n + shift), "descend", n, detail);
    const float *x = c->input + shift;
    bool same = same_double(c->reference->sum_squares(x, n), c->kernels->sum_squares(x, n));
    cross_expect(c, same, "sum_squares", n, detail);
    cross_expect(c, same_double(c->reference->sum_abs(x, n), c->kernels->sum_abs(x, n)), "sum_abs", n, detail);
    double squares = -1, abs = -1;
    c->kernels->sums(x, n, &squares, &abs);
    bool both = same_double(c->reference->sum_squares(x, n), squares) && same_double(c->reference->sum_abs(x, n), abs);
    cross_expect(c, both, "sums", n, detail);
    if (n == 0) return;
    float low[2], high[2];
    c->reference->min_max(x, n, &low[0], &high[0]);
    c->kernels->min_max(x, n, &low[1], &high[1]);
    same = cross_same(low, low + 1, sizeof *low) && cross_same(high, high + 1, sizeof *high);
    cross_expect(c, same, "min_max", n, detail);
}

static void search(cross *c, unsigned kind, size_t n, size_t shift) {
    size_t first[2] = {7, 7}, detail = kind * 10 + shift;
    cross_input(c, kind, c->input, CROSS_MOST);
    const float *x = c->input + shift;
    cross_expect(c, c->reference->max_abs(x, n) == c->kernels->max_abs(x, n), "max_abs", n, detail);
    size_t want = c->reference->nonfinite(x, n, &first[0]), got = c->kernels->nonfinite(x, n, &first[1]);
    cross_expect(c, want == got && first[0] == first[1], "nonfinite", n, detail);
}

/* Kinds of sweep: bit 0 scale, 1 velocity, 2 nesterov, 3 weight decay, 4 zero policy; 32 reads the residual alone. */
#define SWEEPS 33

static ts_sweep sweep_of(const cross *c, unsigned how, float *residual, float *velocity) {
    return (ts_sweep){.gradient = how == 32 ? NULL : c->gradient,
                      .scale = how & 1 ? 0.7f : 1.0f,
                      .residual = residual,
                      .velocity = how < 32 && (how & 2) ? velocity : NULL,
                      .momentum = 0.9f,
                      .nesterov = how & 4,
                      .params = how < 32 && (how & 8) ? c->params : NULL,
                      .weight_decay = 0.01f,
                      .policy = how & 16 ? TS_NONFINITE_ZERO : TS_NONFINITE_ERROR};
}

static void prepare(cross *c, unsigned kind, size_t n) {
    cross_input(c, kind < CROSS_FINITE ? kind : 2, c->input, n);
    cross_input(c, kind, c->gradient, n);
    cross_input(c, kind == 9 ? 9 : 2, c->velocity, n);
    cross_input(c, kind == 8 ? 8 : 2, c->params, n);
    if (kind == 9) cross_input(c, 9, c->input, n);
    twice(&c->x, c->input, n);
    twice(&c->y, c->velocity, n);
}

static bool same_counts(const ts_sweep *a, const ts_sweep *b) {
    return a->bad_count == b->bad_count && (a->bad_count == 0 || a->bad_first == b->bad_first);
}

/* Without a residual: what is written must be what zeros would have given. */
static void blank_sweeps(cross *c, unsigned kind, size_t n, unsigned how, size_t first) {
    static uint8_t out[3][4 * CROSS_ROOM];
    size_t beyond[3] = {0};
    ts_sweep sweep[3];
    prepare(c, kind, n);
    for (unsigned i = 0; i < 3; i++) {
        if (i == 2) memset(c->x.want, 0, n * sizeof *c->x.want);
        sweep[i] = sweep_of(c, how, c->x.want, c->y.want);
        sweep[i].blank = i < 2;
        (i == 1 ? c->kernels : c->reference)->sweep_floats(&sweep[i], first, n, TS_FLOAT32, out[i], &beyond[i]);
        if (i < 2) cross_expect(c, equal(&c->x, n), "blank sweep leaves the residual", n, kind * 1000 + how);
        bool same = beyond[i] == beyond[0] && same_counts(&sweep[i], &sweep[0]) && cross_same(out[i], out[0], 4 * (n - first));
        cross_expect(c, same, "blank sweep_floats", n, kind * 1000 + how * 10 + i);
    }
}

/* Whether a value lies exactly between two halves. */
static bool half_tie_in(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint16_t half = ts_half_from_float(x[i]);
        float at = ts_half_to_float(half), other = at + 2 * (x[i] - at); /* what would be as near */
        if (other != at && ts_half_to_float(ts_half_from_float(other)) == other) return true;
    }
    return false;
}

/* A block of another size beside the sweep. Sums are of what is finite. */
static void beside(cross *c, unsigned kind, size_t n, unsigned how, ts_beside_kind what) {
    static float x[2][768];
    static uint8_t out[2][768];
    static const size_t besides[] = {0, 97, 700};
    for (size_t i = 0; i < 4 * (sizeof besides / sizeof besides[0]); i++) {
        unsigned wanted = kind < CROSS_FINITE ? i % 4 : 0; /* of none, one and both sums */
        double sums[2][2] = {{0, 0}, {0, 0}};
        ts_beside work = {.kind = what, .scale = what == TS_BESIDE_SIGN ? 0.3f : 0.01f, .n = besides[i / 4]};
        work.how = (ts_stochastic){.key = 0x123456789ABCDEFu, .first = 77, .inverse = 3.3f, .step = 0.29f, .most = 1.0f};
        work.bits = wanted == TS_SUM_SQUARES ? 4 : wanted ? 2 : 3;
        prepare(c, kind, n);
        cross_input(c, 2, x[0], 768);
        memcpy(x[1], x[0], sizeof x[0]);
        ts_sweep want = sweep_of(c, how, c->x.want, c->y.want), got = sweep_of(c, how, c->x.got, c->y.got);
        work.x = x[0], work.out = out[0];
        uint32_t first = c->reference->sweep_beside(&want, 0, n, wanted, sums[0], &work);
        work.x = x[1], work.out = out[1];
        uint32_t second = c->kernels->sweep_beside(&got, 0, n, wanted, sums[1], &work);
        bool same = first == second && same_counts(&want, &got) && equal(&c->x, n) && equal(&c->y, n) &&
                    cross_same(x[0], x[1], sizeof x[0]) && cross_same(out[0], out[1], sizeof out[0]) &&
                    same_double(sums[0][0], sums[1][0]) && same_double(sums[0][1], sums[1][1]);
        cross_expect(c, same, "sweep_beside", n, kind * 10000 + how * 100 + i * 4 + what);
    }
}

static void sweeps(cross *c, unsigned kind, size_t n, unsigned how) {
    prepare(c, kind, n);
    ts_sweep want = sweep_of(c, how, c->x.want, c->y.want), got = sweep_of(c, how, c->x.got, c->y.got);
    size_t first = n > 5 ? 3 : 0;
    uint32_t top[2] = {c->reference->sweep(&want, first, n), c->kernels->sweep(&got, first, n)};
    bool same = top[0] == top[1] && same_counts(&want, &got) && equal(&c->x, n) && equal(&c->y, n);
    cross_expect(c, same, "sweep", n, kind * 100 + how);
    for (ts_float_kind floats = TS_FLOAT32; floats <= TS_BFLOAT16; floats++) {
        static uint8_t out[2][4 * CROSS_ROOM];
        size_t beyond[2] = {0, 0};
        prepare(c, kind, n);
        want = sweep_of(c, how, c->x.want, c->y.want), got = sweep_of(c, how, c->x.got, c->y.got);
        if (c->no_half_ties && floats == TS_FLOAT16) {
            ts_sweep look = want;
            (void)c->reference->sweep(&look, first, n);
            bool tie = half_tie_in(c->x.want + first, n - first);
            twice(&c->x, c->input, n);
            twice(&c->y, c->velocity, n);
            if (tie) continue;
        }
        c->reference->sweep_floats(&want, first, n, floats, out[0], &beyond[0]);
        c->kernels->sweep_floats(&got, first, n, floats, out[1], &beyond[1]);
        same = beyond[0] == beyond[1] && same_counts(&want, &got) && equal(&c->x, n) && equal(&c->y, n) &&
               cross_same(out[0], out[1], (n - first) * ts_float_bytes(floats));
        cross_expect(c, same, "sweep_floats", n, kind * 1000 + how * 10 + floats);
    }
    static const size_t blocks[] = {32, 64, 40};
    for (size_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++) {
        static uint8_t out[2][2 * CROSS_ROOM];
        const ts_stochastic chance = {.key = (uint64_t)cross_random(c) << 32 | cross_random(c), .first = cross_random(c)};
        prepare(c, kind, n);
        want = sweep_of(c, how, c->x.want, c->y.want), got = sweep_of(c, how, c->x.got, c->y.got);
        c->reference->sweep_natural(&want, first, n, &chance, blocks[b], out[0]);
        c->kernels->sweep_natural(&got, first, n, &chance, blocks[b], out[1]);
        same = same_counts(&want, &got) && equal(&c->x, n) && equal(&c->y, n) && cross_same(out[0], out[1], sizeof out[0]);
        cross_expect(c, same, "sweep_natural", n, kind * 1000 + how * 10 + b);
    }
    if ((how & ~17u) == 0) blank_sweeps(c, kind, n, how, first);
    bool some = how <= 2 || how == 16 || how == 32; /* each way through it */
    for (unsigned work = TS_BESIDE_NONE; some && work <= TS_BESIDE_CHANCE; work++) {
        beside(c, kind, n, how, (ts_beside_kind)work);
    }
    if (kind >= CROSS_FINITE) return; /* sums are asked for what is finite */
    for (unsigned wanted = TS_SUM_SQUARES; wanted <= (TS_SUM_SQUARES | TS_SUM_ABS); wanted++) {
        prepare(c, kind, n);
        double sums[2][2] = {{-1, -1}, {-2, -2}};
        want = sweep_of(c, how, c->x.want, c->y.want), got = sweep_of(c, how, c->x.got, c->y.got);
        top[0] = c->reference->sweep_sums(&want, first, n, wanted, sums[0]);
        top[1] = c->kernels->sweep_sums(&got, first, n, wanted, sums[1]);
        same = top[0] == top[1] && same_counts(&want, &got) && equal(&c->x, n) && equal(&c->y, n) &&
               same_double(sums[0][0], sums[1][0]) && same_double(sums[0][1], sums[1][1]);
        cross_expect(c, same, "sweep_sums", n, kind * 1000 + how * 10 + wanted);
    }
}

/* Runs a selection to its end, emptying the candidates each time they are full. Returns how many there were. */
static size_t drain(cross *c, const ts_kernels *kernels, ts_sweep *s, size_t n, uint32_t floor, size_t capacity,
                    int side) {
    ts_candidates found = {
        .index = c->index[0], .bits = c->bits[0], .order = c->order, .floor = floor, .capacity = capacity};
    size_t count = 0;
    for (size_t at = 0, turns = 0; turns < 2 * n + 2; turns++) {
        at = kernels->select(s, at, n, &found);
        memcpy(c->taken[side][0] + count, found.index, found.count * sizeof(uint32_t));
        memcpy(c->taken[side][1] + count, found.bits, found.count * sizeof(uint32_t));
        count += found.count;
        found.count = 0;
        if (at == n) return count;
    }
    return SIZE_MAX; /* it never got to the end */
}

static size_t drain_pair(cross *c, const ts_kernels *kernels, ts_sweep *s, size_t half, uint32_t floor, size_t capacity,
                         int side) {
    ts_candidates found[2];
    size_t count[2] = {0, CROSS_ROOM}; /* the halves apart from each other */
    for (int p = 0; p < 2; p++) {
        found[p] = (ts_candidates){
            .index = c->index[p], .bits = c->bits[p], .order = c->order, .floor = floor, .capacity = capacity};
    }
    for (size_t at = 0, turns = 0; turns < 2 * half + 2; turns++) {
        at = kernels->select_pair(s, at, half, half, found);
        for (int p = 0; p < 2; p++) {
            memcpy(c->taken[side][0] + count[p], found[p].index, found[p].count * sizeof(uint32_t));
            memcpy(c->taken[side][1] + count[p], found[p].bits, found[p].count * sizeof(uint32_t));
            count[p] += found[p].count;
            found[p].count = 0;
        }
        if (at == half) return count[0] * 65536 + count[1];
    }
    return SIZE_MAX;
}

static bool same_taken(const cross *c, size_t at, size_t n) {
    return cross_same(c->taken[0][0] + at, c->taken[1][0] + at, n * sizeof(uint32_t)) &&
           cross_same(c->taken[0][1] + at, c->taken[1][1] + at, n * sizeof(uint32_t));
}

static void selections(cross *c, unsigned kind, size_t n, unsigned how, bool in_pair) {
    static const uint32_t floors[] = {0, 1, TS_MIN_NORMAL_BITS, 0x3F000000u, 0x3FC00000u, 0x7F7FFFFFu};
    for (size_t f = 0; f < sizeof floors / sizeof floors[0]; f++) {
        for (size_t capacity = TS_SELECT_GROUP + 5; capacity < 4 * CROSS_ROOM; capacity = capacity * 8 + n) {
            prepare(c, kind, n);
            for (int side = 0; side < 2; side++) {
                for (int what = 0; what < 2; what++) {
                    memset(c->taken[side][what], 0, n * sizeof(uint32_t));
                    memset(c->taken[side][what] + CROSS_ROOM, 0, n * sizeof(uint32_t));
                }
            }
            ts_sweep want = sweep_of(c, how, c->x.want, c->y.want), got = sweep_of(c, how, c->x.got, c->y.got);
            size_t a, b;
            if (in_pair) {
                a = drain_pair(c, c->reference, &want, n / 2, floors[f], capacity, 0);
                b = drain_pair(c, c->kernels, &got, n / 2, floors[f], capacity, 1);
            } else {
                a = drain(c, c->reference, &want, n, floors[f], capacity, 0);
                b = drain(c, c->kernels, &got, n, floors[f], capacity, 1);
            }
            bool same = a == b && a != SIZE_MAX && same_taken(c, 0, n) && same_taken(c, CROSS_ROOM, n) &&
                        same_counts(&want, &got) && equal(&c->x, n) && equal(&c->y, n);
            cross_expect(c, same, in_pair ? "select_pair" : "select", n, (kind * 100 + how) * 10 + f);
        }
    }
}

static void between(cross *c, size_t n, uint32_t mask, uint32_t low, uint32_t high) {
    for (size_t room = TS_KEEP_SPARE; room < n + 3 * TS_KEEP_SPARE; room += 1 + room / 2) {
        size_t above[2] = {0, 0}, found[2];
        for (int side = 0; side < 2; side++) {
            const ts_kernels *kernels = side ? c->kernels : c->reference;
            found[side] = kernels->between(c->bits[0], n, mask, low, high, c->taken[side][0], room, &above[side]);
        }
        bool full = found[0] + TS_KEEP_SPARE > room, same = full == (found[1] + TS_KEEP_SPARE > room);
        if (same && !full) {
            same = found[0] == found[1] && above[0] == above[1] &&
                   cross_same(c->taken[0][0], c->taken[1][0], found[0] * sizeof(uint32_t));
        }
        cross_expect(c, same, "between", n, room);
    }
}

/* What is chosen among candidates. */
static void choices(cross *c, size_t n) {
    static const uint32_t limits[] = {0, 1, 0x3F000000u, TS_ABS_MASK, TS_ABS_MASK + 1, 0xC0000000u, UINT32_MAX};
    for (size_t i = 0; i < n; i++) {
        c->index[0][i] = cross_random(c);
        c->bits[0][i] = i % 9 == 0 ? limits[i / 9 % 7] : cross_random(c);
    }
    for (size_t low = 0; low < 7; low++) {
        for (size_t high = low; high < 7; high++) {
            between(c, n, UINT32_MAX, limits[low], limits[high]);
            between(c, n, TS_ABS_MASK, limits[low], limits[high]);
        }
        if (limits[low] > TS_ABS_MASK) continue;
        ts_candidates kept[2];
        for (int side = 0; side < 2; side++) {
            memcpy(c->taken[side][0], c->index[0], n * sizeof(uint32_t));
            memcpy(c->taken[side][1], c->bits[0], n * sizeof(uint32_t));
            kept[side] = (ts_candidates){.index = c->taken[side][0], .bits = c->taken[side][1], .count = n};
            (side ? c->kernels : c->reference)->keep_above(&kept[side], limits[low]);
        }
        cross_expect(c, kept[0].count == kept[1].count && same_taken(c, 0, kept[0].count), "keep_above", n, low);
    }
}

void cross_sweeps(cross *c) {
    static const size_t few[] = {0, 3, 65, 129, 700};
    for (size_t i = 0; i < SIZES; i++) choices(c, sizes[i]);
    static const unsigned hows[] = {0, 1, 2, 6, 9, 15, 16, 31, 32};
    for (unsigned kind = 0; kind < CROSS_KINDS; kind++) {
        for (size_t i = 0; i < SIZES; i++) {
            for (size_t shift = 0; shift < 4; shift += 3) {
                if (kind < CROSS_FINITE) plain(c, kind, sizes[i], shift);
                search(c, kind, sizes[i], shift);
            }
            for (unsigned how = 0; how < SWEEPS; how += sizes[i] > 300 ? 3 : 1) sweeps(c, kind, sizes[i], how);
        }
        for (size_t i = 0; i < sizeof few / sizeof few[0]; i++) {
            for (size_t how = 0; how < sizeof hows / sizeof hows[0]; how++) {
                selections(c, kind, few[i], hows[how], false);
                selections(c, kind, few[i], hows[how], true);
            }
        }
    }
}
