/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sweep that also collects candidates. Which elements reach the floor comes out as a bit each, 64 to a word; how
 * words are emptied depends on how full they are, since a branch that cannot be foretold costs as much as a few
 * elements, and stalls what would overlap with memory.
 */
#include <immintrin.h>
#include <string.h>

#include "common/codec/quantise_kernels.h"
#include "common/codec/waiting_hits.h"

#define BLOCK TS_SELECT_GROUP /* elements to a word of hits */
#define STRETCH 8192          /* elements between two looks at how many hits there are */
#define FIRST_STRETCH 256     /* and before the first one */
#define MANY 4                /* one hit in so many blocks and more: words are emptied without asking */
#define DENSE 16              /* so many hits in a word are taken by eights */
#define SURE 2                /* hits taken from a word without asking whether they are there */
#define WORDS_LISTED 16       /* words whose hits are taken together, behind all of them */

/* Magnitudes above it are taken; those that will be flushed only when all are. */
INLINE __m256i floor_of(const ts_candidates *c, sweep_kind kind) {
    int32_t below = (int32_t)c->floor - 1, flushed = (int32_t)TS_MIN_NORMAL_BITS - 1;
    return _mm256_set1_epi32(kind != SCAN && below >= 0 && below < flushed ? flushed : below);
}

/* A bit a lane, the first one lowest, of four masks. */
INLINE uint32_t hit_bits(const __m256i *hit) {
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(hit[0], hit[1]), _mm256_packs_epi32(hit[2], hit[3]));
    return (uint32_t)_mm256_movemask_epi8(
        _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}

/* Takes in 32 elements. False, with nothing changed, when one is not finite. `many`: hits are nothing unusual. */
INLINE bool take_group(const ts_sweep *view, size_t i, size_t ahead, __m256i below, sweep_kind kind, bool many,
                       uint32_t *hits) {
    swept x[4];
    __m256i a[4], hit[4];
    ask_sweep(view, i, kind, ahead);
    for (size_t j = 0; j < 4; j++) {
        x[j] = evaluate(view, i + 8 * j, kind);
        a[j] = abs_bits(x[j].r);
    }
    __m256i group = max4(a);
    if (!many && __builtin_expect(!any(_mm256_cmpgt_epi32(group, below)), 1)) {
        for (size_t j = 0; j < 4; j++) keep(view, i + 8 * j, x[j], a[j], kind);
        *hits = 0;
        return true;
    }
    if (__builtin_expect(any(_mm256_cmpgt_epi32(group, _mm256_set1_epi32((int)TS_INF_BITS - 1))), 0)) return false;
    for (size_t j = 0; j < 4; j++) {
        keep(view, i + 8 * j, x[j], a[j], kind);
        hit[j] = _mm256_cmpgt_epi32(a[j], below);
    }
    *hits = hit_bits(hit);
    return true;
}

INLINE void put_hit(const float *residual, size_t at, waiting_hits *w, size_t count) {
    memcpy(w->bits + count, residual + at, sizeof *w->bits);
    w->index[count] = (uint32_t)at;
}

/* Which lanes are set, one number a lane, the others behind them: bytes are gathered by a parallel extract. */
INLINE __m256i set_lanes(uint64_t mask) {
    uint64_t bytes = _pdep_u64(mask, 0x0101010101010101u) * 0xFF;
    uint64_t order = _pext_u64(0x0706050403020100u, bytes);
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)order));
}

INLINE uint32_t lane_mask(__m256i lanes) { return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(lanes)); }
INLINE __m256i load8(const uint32_t *from) { return _mm256_loadu_si256((const __m256i *)(const void *)from); }
INLINE void store8(uint32_t *to, __m256i v) { _mm256_storeu_si256((__m256i *)(void *)to, v); }

/* All eight lanes of a word's bytes, whatever is in them. */
INLINE void put_dense(const float *residual, size_t i, uint64_t hits, waiting_hits *w) {
    size_t count = w->count;
    for (size_t j = i; j < i + BLOCK; j += 8, hits >>= 8) {
        __m256i lanes = set_lanes(hits & 0xFF);
        store8(w->index + count, _mm256_add_epi32(_mm256_set1_epi32((int)(uint32_t)j), lanes));
        _mm256_storeu_ps((float *)(void *)(w->bits + count),
                         _mm256_permutevar8x32_ps(_mm256_loadu_ps(residual + j), lanes));
        count += (size_t)__builtin_popcountll(hits & 0xFF);
    }
    w->count = count;
}

/*
 * Takes the hits of the block that starts at element i. `many`: the first ones are written whether they are there or
 * not; what is written behind the last does not count.
 */
INLINE void empty_word(const float *residual, size_t i, uint64_t hits, waiting_hits *w, ts_candidates *c, bool many) {
    if (!many && __builtin_expect(hits == 0, 1)) return;
    if (__builtin_popcountll(hits) >= DENSE) {
        put_dense(residual, i, hits, w);
        list_hits(w, c);
        return;
    }
    size_t count = w->count;
    for (int j = 0; many && j < SURE; j++) {
        put_hit(residual, i + (size_t)__builtin_ctzll(hits | (uint64_t)1 << (BLOCK - 1)), w, count);
        count += hits != 0;
        hits &= hits - 1;
    }
    while (__builtin_expect(hits != 0, 0)) {
        put_hit(residual, i + (size_t)__builtin_ctzll(hits), w, count++);
        hits &= hits - 1;
    }
    w->count = count;
    list_hits(w, c);
}

/* What the vectors leave to the reference goes into the list itself. */
INLINE void take_scalar(ts_sweep *s, size_t i, size_t end, waiting_hits *w, ts_candidates *c) {
    end_waiting(w, c);
    (void)ts_select_scalar(s, i, end, c);
    begin_waiting(w, c);
}

/* Copies a block's old values aside. */
INLINE void save(const ts_sweep *s, const ts_undo *undo, size_t i, sweep_kind kind) {
    if (kind == SCAN || !undo) return;
    size_t at = i - undo->first;
    for (size_t j = 0; j < BLOCK; j += 8) _mm256_storeu_ps(undo->residual + at + j, _mm256_loadu_ps(s->residual + i + j));
    for (size_t j = 0; j < BLOCK && kind == GENERAL && s->velocity; j += 8)
        _mm256_storeu_ps(undo->velocity + at + j, _mm256_loadu_ps(s->velocity + i + j));
    ts_undo_note(undo, at + BLOCK);
}

/* Takes in one block, whose hits find room. */
INLINE void take_block(ts_sweep *s, const ts_sweep *view, const ts_undo *undo, size_t i, size_t ahead, waiting_hits *w,
                       ts_candidates *c, __m256i below, sweep_kind kind, bool many) {
    uint32_t low, high;
    save(view, undo, i, kind);
    if (__builtin_expect(!take_group(view, i, ahead, below, kind, many, &low), 0)) {
        take_scalar(s, i, i + BLOCK, w, c);
    } else if (__builtin_expect(!take_group(view, i + GROUP, ahead, below, kind, many, &high), 0)) {
        empty_word(view->residual, i, low, w, c, false);
        take_scalar(s, i + GROUP, i + BLOCK, w, c);
    } else {
        empty_word(view->residual, i, (uint64_t)high << GROUP | low, w, c, many);
    }
}

/*
 * Takes in a turn: first all of it, then its words are emptied while memory is asked for what comes after the next turn.
 * One element that is not finite, and the rest of the turn is the reference's.
 */
INLINE void take_turn(ts_sweep *s, const ts_sweep *view, const ts_undo *undo, size_t i, waiting_hits *w,
                      ts_candidates *c, __m256i below, sweep_kind kind) {
    uint32_t hits[TURN / GROUP] = {0};
    size_t done = 0;
    for (; done < TURN; done += GROUP) {
        if (done % BLOCK == 0) save(view, undo, i + done, kind);
        if (__builtin_expect(!take_group(view, i + done, 0, below, kind, true, &hits[done / GROUP]), 0)) break;
    }
    for (size_t at = 0; at < done; at += BLOCK) {
        ask_sweep(view, i + at, kind, TURN_AHEAD);
        ask_sweep(view, i + at + GROUP, kind, TURN_AHEAD);
        empty_word(view->residual, i + at, (uint64_t)hits[at / GROUP + 1] << GROUP | hits[at / GROUP], w, c, true);
    }
    if (__builtin_expect(done < TURN, 0)) take_scalar(s, i + done, i + TURN, w, c);
}

/* Words that hold something, and where their blocks start. */
typedef struct {
    uint64_t word[WORDS_LISTED];
    size_t at[WORDS_LISTED], count;
} listed_words;

INLINE void empty_listed(const float *residual, const listed_words *from, size_t i, waiting_hits *w, ts_candidates *c) {
    for (; i < from->count; i++) empty_word(residual, from->at[i], from->word[i], w, c, true);
}

/*
 * Takes in WORDS_LISTED blocks with hints, each followed by a word of those before: how many these are has long been
 * known, so that a branch on it that was foretold wrong is seen before memory is waited for. One element that is not
 * finite, and the rest of the blocks is the reference's.
 */
INLINE void take_listed(ts_sweep *s, const ts_sweep *view, const ts_undo *undo, size_t i, const listed_words *before,
                        listed_words *now, waiting_hits *w, ts_candidates *c, __m256i below, sweep_kind kind) {
    const size_t end = i + WORDS_LISTED * BLOCK;
    size_t emptied = 0;
    now->count = 0;
    for (; i < end; i += BLOCK) {
        uint32_t low, high = 0;
        save(view, undo, i, kind);
        if (__builtin_expect(!take_group(view, i, AHEAD_ALONE, below, kind, true, &low), 0)) break;
        bool finite = take_group(view, i + GROUP, AHEAD_ALONE, below, kind, true, &high);
        now->word[now->count] = (uint64_t)high << GROUP | low;
        now->at[now->count] = i;
        now->count += now->word[now->count] != 0;
        if (__builtin_expect(!finite, 0)) {
            i += GROUP;
            break;
        }
        if (emptied < before->count) {
            empty_word(view->residual, before->at[emptied], before->word[emptied], w, c, true);
            emptied++;
        }
    }
    if (__builtin_expect(i == end, 1)) return; /* as many steps as there can be words */
    empty_listed(view->residual, before, emptied, w, c);
    empty_listed(view->residual, now, 0, w, c);
    now->count = 0;
    take_scalar(s, i, end, w, c);
}

INLINE bool has_room(const ts_candidates *c, const waiting_hits *w, size_t elems) {
    return c->count + w->count + elems <= c->capacity;
}

/* Whole blocks of the elements from i to end - 1, in one place or in two that are `half` apart. */
INLINE size_t take_stretch(ts_sweep *s, const ts_sweep *view, size_t i, size_t end, size_t half, waiting_hits *w,
                           ts_candidates *c, sweep_kind kind, bool many) {
    const __m256i below0 = floor_of(&c[0], kind), below1 = half ? floor_of(&c[1], kind) : below0;
    const ts_undo *undo0 = view->undo, *undo1 = view->undo ? view->undo + 1 : NULL;
    const size_t ahead = half && ts_cpu_asks() ? AHEAD : ahead_alone();
    for (; many && !half && ts_cpu_turns() && i + TURN <= end && has_room(c, w, TURN); i += TURN) {
        take_turn(s, view, undo0, i, w, c, below0, kind);
    }
    for (; i + BLOCK <= end; i += BLOCK) {
        if (!has_room(&c[0], &w[0], BLOCK) || (half && !has_room(&c[1], &w[1], BLOCK))) return i;
        take_block(s, view, undo0, i, ahead, &w[0], &c[0], below0, kind, many);
        if (half) take_block(s, view, undo1, half + i, ahead, &w[1], &c[1], below1, kind, many);
    }
    return i;
}

/* As take_stretch; the way words are emptied follows what the stretch before had. */
INLINE size_t take_all(ts_sweep *s, const ts_sweep *view, size_t i, size_t end, size_t half, waiting_hits *w,
                       ts_candidates *c, sweep_kind kind) {
    bool many = false;
    for (size_t stretch = FIRST_STRETCH; i + BLOCK <= end; stretch = STRETCH) {
        size_t stop = end - i < stretch ? end : i + stretch, had = c[0].count + w[0].count;
        size_t next = many ? take_stretch(s, view, i, stop, half, w, c, kind, true)
                           : take_stretch(s, view, i, stop, half, w, c, kind, false);
        if (next + BLOCK <= stop) return next;
        many = (c[0].count + w[0].count - had) * MANY >= (next - i) / BLOCK;
        i = next;
    }
    return i;
}

INLINE size_t select_body(ts_sweep *s, size_t i, size_t end, ts_candidates *c, sweep_kind kind) {
    const ts_sweep view = *s; /* vector stores may alias anything but this */
    const __m256i below = floor_of(c, kind);
    const size_t listed = WORDS_LISTED * BLOCK;
    waiting_hits w;
    begin_waiting(&w, c);
    listed_words words[2];
    words[0].count = words[1].count = 0;
    unsigned turn = 0;
    for (; ts_cpu_reach() == TS_REACH_MIDDLE && i + listed <= end && has_room(c, &w, 2 * listed); i += listed, turn ^= 1) {
        take_listed(s, &view, view.undo, i, &words[turn], &words[turn ^ 1], &w, c, below, kind);
    }
    empty_listed(view.residual, &words[turn], 0, &w, c);
    i = take_all(s, &view, i, end, 0, &w, c, kind);
    end_waiting(&w, c);
    return c->count + BLOCK <= c->capacity ? ts_select_scalar(s, i, end, c) : i;
}

INLINE size_t pair_body(ts_sweep *s, size_t i, size_t end, size_t half, ts_candidates c[2], sweep_kind kind) {
    const ts_sweep view = *s;
    waiting_hits w[2];
    for (int p = 0; p < 2; p++) begin_waiting(&w[p], &c[p]);
    i = take_all(s, &view, i, end, half, w, c, kind);
    for (int p = 0; p < 2; p++) end_waiting(&w[p], &c[p]);
    return i + BLOCK <= end ? i : ts_kernels_scalar.select_pair(s, i, end, half, c);
}

size_t TS_LEVEL(ts_select)(ts_sweep *s, size_t first, size_t end, ts_candidates *c) {
    if (!s->gradient) return select_body(s, first, end, c, SCAN);
    return is_plain(s) ? select_body(s, first, end, c, PLAIN) : select_body(s, first, end, c, GENERAL);
}

size_t TS_LEVEL(ts_select_pair)(ts_sweep *s, size_t first, size_t end, size_t half, ts_candidates c[2]) {
    if (!s->gradient) return pair_body(s, first, end, half, c, SCAN);
    return is_plain(s) ? pair_body(s, first, end, half, c, PLAIN) : pair_body(s, first, end, half, c, GENERAL);
}

void TS_LEVEL(ts_keep_above)(ts_candidates *c, uint32_t level) {
    const __m256i magnitude = _mm256_set1_epi32((int)TS_ABS_MASK), below = _mm256_set1_epi32((int)level - 1);
    size_t n = c->count, i = 0, out = 0;
    for (; level > 0 && i + 8 <= n; i += 8) { /* what is written never overtakes what was read */
        __m256i bits = load8(c->bits + i), index = load8(c->index + i);
        uint32_t kept = lane_mask(_mm256_cmpgt_epi32(_mm256_and_si256(bits, magnitude), below));
        __m256i lanes = set_lanes(kept);
        store8(c->index + out, _mm256_permutevar8x32_epi32(index, lanes));
        store8(c->bits + out, _mm256_permutevar8x32_epi32(bits, lanes));
        out += (size_t)__builtin_popcount(kept);
    }
    ts_candidates rest = {.index = c->index + i, .bits = c->bits + i, .count = n - i};
    ts_keep_above_scalar(&rest, level);
    memmove(c->index + out, rest.index, rest.count * sizeof *c->index);
    memmove(c->bits + out, rest.bits, rest.count * sizeof *c->bits);
    c->count = out + rest.count;
}

/* Unsigned comparisons: signed ones of numbers with the highest bit flipped. */
size_t TS_LEVEL(ts_between)(const uint32_t *v, size_t n, uint32_t mask, uint32_t low, uint32_t high, uint32_t *between,
                       size_t room, size_t *above) {
    const __m256i flip = _mm256_set1_epi32(INT32_MIN), kept = _mm256_set1_epi32((int)mask);
    const __m256i least = _mm256_set1_epi32((int)(low ^ 0x80000000u)), most = _mm256_set1_epi32((int)(high ^ 0x80000000u));
    __m256i beyond = _mm256_setzero_si256();
    size_t i = 0, inside = 0;
    for (; i + 8 <= n && inside + TS_KEEP_SPARE <= room; i += 8) {
        __m256i x = _mm256_and_si256(load8(v + i), kept), order = _mm256_xor_si256(x, flip);
        __m256i over = _mm256_cmpgt_epi32(order, most), under = _mm256_cmpgt_epi32(least, order);
        uint32_t outside = lane_mask(_mm256_or_si256(over, under));
        beyond = _mm256_sub_epi32(beyond, over);
        store8(between + inside, _mm256_permutevar8x32_epi32(x, set_lanes(~outside & 0xFF)));
        inside += (size_t)__builtin_popcount(~outside & 0xFF);
    }
    uint32_t lanes[8];
    store8(lanes, beyond);
    size_t rest = ts_between_scalar(v + i, n - i, mask, low, high, between + inside, room - inside, above);
    for (size_t lane = 0; lane < 8; lane++) *above += lanes[lane];
    return inside + rest;
}
