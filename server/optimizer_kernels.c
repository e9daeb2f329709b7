/* SPDX-License-Identifier: Apache-2.0 */
#include "server/optimizer_kernels.h"

const ts_optimizer_kernels *ts_optimizer_kernels_get(ts_simd level) {
#if defined(__x86_64__)
    if (level >= TS_SIMD_AVX512) return &ts_optimizer_kernels_avx512;
    if (level >= TS_SIMD_AVX2) return &ts_optimizer_kernels_avx2;
#else
    (void)level;
#endif
    return &ts_optimizer_kernels_scalar;
}
