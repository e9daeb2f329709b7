/* SPDX-License-Identifier: Apache-2.0 */
/* What the AVX2 sweeps share; only AVX2 files include this. */
#ifndef TS_CODEC_SWEEP_AVX2_H
#define TS_CODEC_SWEEP_AVX2_H

#include <immintrin.h>

#include "common/base/cpu.h"
#include "common/codec/kernels.h"
#include "common/codec/stage.h"

#define GROUP 32
#define AHEAD 128 /* floats; asked for that early, two places at once come as fast as memory gives */
#define AHEAD_ALONE (2 * AHEAD) /* and one place alone */
#define INLINE static inline __attribute__((always_inline))

typedef enum { SCAN, PLAIN, GENERAL, BLANK } sweep_kind; /* BLANK: sweep_floats alone */
typedef struct { __m256 r, u; } swept; /* r is not flushed yet */

INLINE __m256i abs_bits(__m256 x) {
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32((int)TS_ABS_MASK));
}

INLINE __m256 flush(__m256 x) {
    __m256i normal = _mm256_cmpgt_epi32(abs_bits(x), _mm256_set1_epi32((int)TS_MIN_NORMAL_BITS - 1));
    return _mm256_and_ps(x, _mm256_castsi256_ps(normal));
}

INLINE swept evaluate(const ts_sweep *s, size_t i, sweep_kind kind) {
    swept out = {kind == BLANK ? _mm256_setzero_ps() : _mm256_loadu_ps(s->residual + i), _mm256_setzero_ps()};
    if (kind == SCAN) return out;
    __m256 v = _mm256_loadu_ps(s->gradient + i);
    if (kind == BLANK) v = _mm256_mul_ps(v, _mm256_set1_ps(s->scale));
    if (kind == GENERAL) {
        v = _mm256_mul_ps(v, _mm256_set1_ps(s->scale));
        if (s->params) {
            __m256 decay = _mm256_mul_ps(_mm256_set1_ps(s->weight_decay), _mm256_loadu_ps(s->params + i));
            v = _mm256_add_ps(v, decay);
        }
        if (s->velocity) {
            __m256 momentum = _mm256_set1_ps(s->momentum);
            out.u = flush(_mm256_add_ps(_mm256_mul_ps(momentum, _mm256_loadu_ps(s->velocity + i)), v));
            v = s->nesterov ? _mm256_add_ps(v, _mm256_mul_ps(momentum, out.u)) : out.u;
        }
    }
    out.r = _mm256_add_ps(out.r, v);
    return out;
}

/*
 * How a bare loop goes over memory (ts_cpu_reach()). Where asking pays from two places at once, half a run apart, and
 * with hints; elsewhere half and ahead are 0: straight on, and the CPU sees by itself what comes next.
 */
typedef struct { size_t half, ahead; } places;

INLINE places places_of(size_t n) {
    return ts_cpu_asks() ? (places){n / 2 / GROUP * GROUP, AHEAD} : (places){0, 0};
}

/*
 * Where ts_cpu_turns(), work beside the sweep goes in turns of that many elements: a turn is taken in, then the work is
 * done, and meanwhile the turn after the next one is asked for, which the CPU then does not see coming. From group to
 * group instead, neither is hidden behind the other.
 */
#define TURN 256
#define TURN_AHEAD (5 * TURN / 2)

INLINE size_t ahead_alone(void) { return ts_cpu_asks() ? AHEAD_ALONE : 0; }

INLINE void ask(const float *x, size_t ahead) {
    if (ahead == 0) return;
    _mm_prefetch((const char *)(x + ahead), _MM_HINT_T0);
    _mm_prefetch((const char *)(x + ahead + GROUP / 2), _MM_HINT_T0);
}

INLINE void ask_sweep(const ts_sweep *s, size_t i, sweep_kind kind, size_t ahead) {
    if (kind != BLANK) ask(s->residual + i, ahead);
    if (kind != SCAN) ask(s->gradient + i, ahead);
    if (kind == GENERAL && s->velocity) ask(s->velocity + i, ahead);
}

INLINE void keep(const ts_sweep *s, size_t i, swept x, __m256i magnitude, sweep_kind kind) {
    if (kind == SCAN) return;
    __m256i normal = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32((int)TS_MIN_NORMAL_BITS - 1));
    _mm256_storeu_ps(s->residual + i, _mm256_and_ps(x.r, _mm256_castsi256_ps(normal)));
    if (kind == GENERAL && s->velocity) _mm256_storeu_ps(s->velocity + i, x.u);
}

INLINE int any(__m256i mask) { return !_mm256_testz_si256(mask, mask); }

INLINE __m256i max4(const __m256i *a) {
    return _mm256_max_epi32(_mm256_max_epi32(a[0], a[1]), _mm256_max_epi32(a[2], a[3]));
}

INLINE bool is_plain(const ts_sweep *s) { return !s->velocity && !s->params && s->scale == 1.0f; }

/*
 * Quantisers with a scale run over a block that is in the cache already, while memory would idle: they ask for the same
 * place of the next block. Behind a tensor's end nothing is there, and nothing happens.
 */
INLINE void ask_next_block(const float *x, bool asks) {
    if (asks) _mm_prefetch((const char *)(x + TS_BLOCK_ELEMS), _MM_HINT_T1);
}

/* Bits of eight bfloat16 in the upper halves of the lanes, to nearest even, never infinite. */
INLINE __m256i bf16_bits(__m256 v) {
    __m256i abs = abs_bits(v), sign = _mm256_xor_si256(_mm256_castps_si256(v), abs);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(abs, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(abs, _mm256_set1_epi32(0x7FFF)), odd);
    rounded = _mm256_or_si256(sign, _mm256_min_epu32(rounded, _mm256_set1_epi32(0x7F7FFFFF)));
    return _mm256_and_si256(rounded, _mm256_set1_epi32((int)0xFFFF0000u));
}

INLINE __m128i upper_halves(__m256i v) {
    __m256i top = _mm256_srli_epi32(v, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
}

#endif
