/* SPDX-License-Identifier: Apache-2.0 */
#define TS_LEVEL(name) name##_avx512
#define TS_LEVEL_SIMD TS_SIMD_AVX512
#define TS_LEVEL_ENTRIES TS_QUANTISE_KERNEL_ENTRIES(avx512)
#include "common/codec/kernels_loops.h"
