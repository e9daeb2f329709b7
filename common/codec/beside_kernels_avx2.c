/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block is encoded in the cache while memory brings the next one: group by group in turn, so that the processor has
 * both to do at any time.
 */
#include "common/codec/codes_avx2.h"
#include "common/codec/quantise_kernels.h"
#include "common/codec/sums_avx2.h"

INLINE void encode_group(const ts_beside *w, float inverse, size_t i, ts_beside_kind kind) {
    if (kind == TS_BESIDE_INT8) int_group(w->scale, inverse, 127.0f, w->x + i, w->out + i);
    else sign_bits_group(w->scale, w->x + i, w->out + i / 8);
}

static void encode_rest(const ts_beside *w, size_t i, ts_beside_kind kind) {
    if (kind == TS_BESIDE_INT8) ts_int8_encode_avx2(w->scale, w->x + i, w->n - i, w->out + i);
    else ts_sign_bits_avx2(w->scale, w->x + i, w->n - i, w->out + i / 8);
}

/* From two places at once, as the sweep alone. */
INLINE uint32_t beside_sweep(ts_sweep *s, size_t first, size_t end, const ts_beside *given, ts_beside_kind kind) {
    const ts_sweep view = *s;
    const ts_beside w = *given;
    const float inverse = w.scale > 0.0f ? 1.0f / w.scale : 0.0f;
    __m256i top = _mm256_setzero_si256();
    uint32_t most = 0;
    size_t half = (end - first) / 2 / GROUP * GROUP, whole = w.n / 2 / GROUP * GROUP, i = 0, done;
    for (; i < half && i < whole; i += GROUP) {
        sweep_group(s, &view, first + i, &top, &most, PLAIN);
        encode_group(&w, inverse, 2 * i, kind);
        sweep_group(s, &view, first + half + i, &top, &most, PLAIN);
        encode_group(&w, inverse, 2 * i + GROUP, kind);
    }
    done = 2 * i;
    for (; i < half; i += GROUP) {
        sweep_group(s, &view, first + i, &top, &most, PLAIN);
        sweep_group(s, &view, first + half + i, &top, &most, PLAIN);
    }
    encode_rest(&w, done, kind);
    return finish_sweep(s, first + 2 * half, end, PLAIN, top, most);
}

INLINE uint32_t beside_sums(ts_sweep *s, size_t first, size_t end, unsigned wanted, double sums[2],
                            const ts_beside *given, ts_beside_kind kind) {
    const ts_sweep view = *s;
    const ts_beside w = *given;
    const float inverse = w.scale > 0.0f ? 1.0f / w.scale : 0.0f;
    sum_registers lanes = no_sums();
    __m256i top = _mm256_setzero_si256();
    size_t i = first, done = 0;
    while (i + GROUP <= end && sums_group(&view, i, PLAIN, wanted, &lanes, &top)) {
        i += GROUP;
        if (done + GROUP > w.n) continue;
        encode_group(&w, inverse, done, kind);
        done += GROUP;
    }
    encode_rest(&w, done, kind);
    return finish_sweep_sums(s, first, i, end, PLAIN, wanted, &lanes, top, sums);
}

uint32_t ts_sweep_beside_avx2(ts_sweep *s, size_t first, size_t end, unsigned wanted, double sums[2],
                              const ts_beside *work) {
    if (!s->gradient || !is_plain(s)) return ts_sweep_then_beside(&ts_kernels_avx2, s, first, end, wanted, sums, work);
    if (work->kind == TS_BESIDE_INT8 && !wanted) return beside_sweep(s, first, end, work, TS_BESIDE_INT8);
    if (work->kind == TS_BESIDE_SIGN && wanted == TS_SUM_ABS) {
        return beside_sums(s, first, end, TS_SUM_ABS, sums, work, TS_BESIDE_SIGN);
    }
    return ts_sweep_then_beside(&ts_kernels_avx2, s, first, end, wanted, sums, work);
}
