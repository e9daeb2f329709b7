/* SPDX-License-Identifier: Apache-2.0 */
#define TS_LEVEL(name) name##_avx2
#define VECTOR_BYTES 32
#include "common/codec/low_rank_loops.h"
