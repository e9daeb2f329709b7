/* SPDX-License-Identifier: Apache-2.0 */
#define TS_LEVEL(name) name##_avx512
#include "common/codec/quantise_loops.h"
