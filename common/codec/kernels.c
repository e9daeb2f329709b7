/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/kernels.h"

uint32_t ts_sweep_then_sums(const ts_kernels *kernels, ts_sweep *s, size_t first, size_t end, unsigned wanted,
                            double sums[2]) {
    uint32_t bits = kernels->sweep(s, first, end);
    const float *x = s->residual + first;
    sums[0] = wanted & TS_SUM_SQUARES ? kernels->sum_squares(x, end - first) : 0;
    sums[1] = wanted & TS_SUM_ABS ? kernels->sum_abs(x, end - first) : 0;
    return bits;
}

#define RUN 256u /* codes held between the two */

void ts_chance_write(const ts_kernels *kernels, const ts_stochastic *how, unsigned bits, float *x, size_t n,
                     uint8_t *out) {
    uint8_t codes[RUN];
    ts_stochastic from = *how;
    for (size_t at = 0; at < n; at += RUN, out += RUN / 8 * bits) {
        size_t run = n - at < RUN ? n - at : RUN;
        kernels->stochastic_codes(&from, x + at, run, codes);
        kernels->pack(bits, codes, run, out);
        if (from.index) from.index += run;
        else from.first += run;
    }
}

uint32_t ts_sweep_then_beside(const ts_kernels *kernels, ts_sweep *s, size_t first, size_t end, unsigned wanted,
                              double sums[2], const ts_beside *work) {
    uint32_t bits = wanted ? kernels->sweep_sums(s, first, end, wanted, sums) : kernels->sweep(s, first, end);
    if (work->kind == TS_BESIDE_INT8) kernels->int8_encode(work->scale, work->x, work->n, work->out);
    if (work->kind == TS_BESIDE_SIGN) kernels->sign_bits(work->scale, work->x, work->n, work->out);
    if (work->kind == TS_BESIDE_CHANCE) ts_chance_write(kernels, &work->how, work->bits, work->x, work->n, work->out);
    return bits;
}

void ts_sweep_then_natural(const ts_kernels *kernels, ts_sweep *s, size_t first, size_t end, const ts_stochastic *how,
                           size_t block, uint8_t *out) {
    ts_stochastic from = *how;
    for (size_t at = first; at < end;) {
        size_t n = end - at < block ? end - at : block;
        (void)kernels->sweep(s, at, at + n);
        kernels->natural_codes(&from, s->residual + at, n, out, out + n);
        out += n + (n + 7) / 8;
        from.first += n;
        at += n;
    }
}

const ts_kernels *ts_kernels_get(ts_simd level) {
#if defined(__x86_64__)
    if (level >= TS_SIMD_AVX512) return &ts_kernels_avx512;
    if (level >= TS_SIMD_AVX2) return &ts_kernels_avx2;
#elif defined(__aarch64__)
    if (level >= TS_SIMD_NEON) return &ts_kernels_neon;
#else
    (void)level;
#endif
    return &ts_kernels_scalar;
}
