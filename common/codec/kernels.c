/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/kernels.h"

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
