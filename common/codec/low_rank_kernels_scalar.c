/* SPDX-License-Identifier: Apache-2.0 */
#define TS_LEVEL(name) name##_scalar
#define VECTOR_BYTES 16
#include "common/codec/low_rank_loops.h"

const ts_low_rank_kernels *ts_low_rank_kernels_get(ts_simd level) {
#if defined(__x86_64__)
    if (level >= TS_SIMD_AVX512) return &ts_low_rank_kernels_avx512;
    if (level >= TS_SIMD_AVX2) return &ts_low_rank_kernels_avx2;
#else
    (void)level;
#endif
    return &ts_low_rank_kernels_scalar;
}
