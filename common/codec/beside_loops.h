/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block is encoded in the cache while memory brings the next one: group by group in turn, so that the processor has
 * both to do at any time.
 */
#include "common/codec/codes_avx2.h"
#include "common/codec/quantise_kernels.h"
#include "common/codec/sums_avx2.h"

/* What is done: a kind, or by chance and that many bits. */
typedef enum { INT8, SIGN, CHANCE_2, CHANCE_4, CHANCE } work_kind;

/* 32 codes of four or two bits: neighbours are multiplied by powers of two and added. */
INLINE void pack_group(unsigned bits, const uint8_t *codes, uint8_t *out) {
    const __m256i low = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i code = _mm256_loadu_si256((const __m256i *)(const void *)codes);
    if (bits == 4) {
        code = _mm256_maddubs_epi16(_mm256_and_si256(code, _mm256_set1_epi8(0x0F)), _mm256_set1_epi16(0x1001));
        __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(code, code), 0xD8);
        _mm_storeu_si128((__m128i *)(void *)out, _mm256_castsi256_si128(bytes));
    } else {
        code = _mm256_maddubs_epi16(_mm256_and_si256(code, _mm256_set1_epi8(3)), _mm256_set1_epi16(0x0401));
        code = _mm256_madd_epi16(code, _mm256_set1_epi32(0x00100001));
        code = _mm256_packus_epi16(_mm256_packs_epi32(code, code), code);
        _mm_storel_epi64((__m128i *)(void *)out, _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(code, low)));
    }
}

INLINE void encode_group(const ts_beside *w, float inverse, size_t i, work_kind kind) {
    if (kind == INT8) {
        int_group(w->scale, inverse, 127.0f, w->x + i, w->out + i);
    } else if (kind == SIGN) {
        sign_bits_group(w->scale, w->x + i, w->out + i / 8);
    } else {
        const unsigned bits = kind == CHANCE_4 ? 4 : 2;
        uint8_t codes[GROUP];
        stochastic_group(&w->how, i, false, w->x + i, codes);
        pack_group(bits, codes, w->out + i / 8 * bits);
    }
}

/* A turn of them; the one that begins at element `next` was just taken in. */
INLINE void encode_turn(const ts_sweep *view, size_t next, const ts_beside *w, float inverse, size_t done,
                        work_kind kind) {
    for (size_t i = 0; i < TURN; i += GROUP) {
        ask_sweep(view, next + i, PLAIN, TURN_AHEAD);
        encode_group(w, inverse, done + i, kind);
    }
}

static void encode_rest(const ts_beside *w, size_t i) {
    if (w->kind == TS_BESIDE_INT8) TS_LEVEL(ts_int8_encode)(w->scale, w->x + i, w->n - i, w->out + i);
    if (w->kind == TS_BESIDE_SIGN) TS_LEVEL(ts_sign_bits)(w->scale, w->x + i, w->n - i, w->out + i / 8);
    if (w->kind == TS_BESIDE_CHANCE) {
        ts_stochastic rest = w->how;
        rest.first += i;
        ts_chance_write(&TS_LEVEL(ts_kernels), &rest, w->bits, w->x + i, w->n - i, w->out + i / 8 * w->bits);
    }
}

/* Goes over memory as the sweep alone. */
INLINE uint32_t beside_sweep(ts_sweep *s, size_t first, size_t end, const ts_beside *given, work_kind kind) {
    const ts_sweep view = *s;
    const ts_beside w = *given;
    const float inverse = w.scale > 0.0f ? 1.0f / w.scale : 0.0f;
    __m256i top = _mm256_setzero_si256();
    uint32_t most = 0;
    const places at = ts_cpu_turns() ? (places){0, 0} : places_of(end - first);
    size_t whole = w.n / 2 / GROUP * GROUP, i = 0, done, next;
    for (; i < at.half && i < whole; i += GROUP) {
        sweep_group(s, &view, first + i, at.ahead, &top, &most, PLAIN);
        encode_group(&w, inverse, 2 * i, kind);
        sweep_group(s, &view, first + at.half + i, at.ahead, &top, &most, PLAIN);
        encode_group(&w, inverse, 2 * i + GROUP, kind);
    }
    done = 2 * i;
    for (; i < at.half; i += GROUP) {
        sweep_group(s, &view, first + i, at.ahead, &top, &most, PLAIN);
        sweep_group(s, &view, first + at.half + i, at.ahead, &top, &most, PLAIN);
    }
    for (next = first + 2 * at.half; next + TURN <= end && done + TURN <= w.n; next += TURN, done += TURN) {
        for (i = 0; i < TURN; i += GROUP) sweep_group(s, &view, next + i, at.ahead, &top, &most, PLAIN);
        encode_turn(&view, next, &w, inverse, done, kind);
    }
    for (; next + GROUP <= end; next += GROUP) sweep_group(s, &view, next, at.ahead, &top, &most, PLAIN);
    encode_rest(&w, done);
    return finish_sweep(s, next, end, PLAIN, top, most);
}

INLINE uint32_t beside_sums(ts_sweep *s, size_t first, size_t end, unsigned wanted, double sums[2],
                            const ts_beside *given, work_kind kind) {
    const ts_sweep view = *s;
    const ts_beside w = *given;
    const float inverse = w.scale > 0.0f ? 1.0f / w.scale : 0.0f;
    sum_registers lanes = no_sums();
    __m256i top = _mm256_setzero_si256();
    const size_t ahead = ts_cpu_turns() ? 0 : AHEAD_ALONE;
    size_t i = first, done = 0;
    while (!ahead && i + TURN <= end && done + TURN <= w.n) {
        size_t stop = i + TURN;
        while (i < stop && sums_group(&view, i, ahead, PLAIN, wanted, &lanes, &top)) i += GROUP;
        if (i < stop) break;
        encode_turn(&view, stop - TURN, &w, inverse, done, kind);
        done += TURN;
    }
    while (ahead && i + GROUP <= end && done + GROUP <= w.n) {
        if (!sums_group(&view, i, ahead, PLAIN, wanted, &lanes, &top)) break;
        encode_group(&w, inverse, done, kind);
        i += GROUP;
        done += GROUP;
    }
    while (i + GROUP <= end && sums_group(&view, i, ahead, PLAIN, wanted, &lanes, &top)) i += GROUP;
    encode_rest(&w, done);
    return finish_sweep_sums(s, first, i, end, PLAIN, wanted, &lanes, top, sums);
}

static work_kind kind_of(const ts_beside *work) {
    if (work->kind == TS_BESIDE_INT8) return INT8;
    if (work->kind == TS_BESIDE_SIGN) return SIGN;
    return work->bits == 2 ? CHANCE_2 : work->bits == 4 ? CHANCE_4 : CHANCE;
}

/* The pairs that there are; all others are done one after the other. */
uint32_t TS_LEVEL(ts_sweep_beside)(ts_sweep *s, size_t first, size_t end, unsigned wanted, double sums[2],
                              const ts_beside *work) {
    const unsigned both = TS_SUM_SQUARES | TS_SUM_ABS;
    if (s->gradient && is_plain(s) && work->kind != TS_BESIDE_NONE) {
        work_kind kind = kind_of(work);
        if (kind == INT8 && !wanted) return beside_sweep(s, first, end, work, INT8);
        if (kind == SIGN && wanted == TS_SUM_ABS) return beside_sums(s, first, end, TS_SUM_ABS, sums, work, SIGN);
        if (kind == CHANCE_2 && wanted == both) return beside_sums(s, first, end, both, sums, work, CHANCE_2);
        if (kind == CHANCE_4 && wanted == TS_SUM_SQUARES) {
            return beside_sums(s, first, end, TS_SUM_SQUARES, sums, work, CHANCE_4);
        }
    }
    return ts_sweep_then_beside(&TS_LEVEL(ts_kernels), s, first, end, wanted, sums, work);
}
