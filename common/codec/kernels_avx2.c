/* SPDX-License-Identifier: Apache-2.0 */
#define TS_LEVEL(name) name##_avx2
#define TS_LEVEL_SIMD TS_SIMD_AVX2
#define TS_LEVEL_ENTRIES TS_QUANTISE_KERNEL_ENTRIES(avx2)
#include "common/codec/kernels_loops.h"
