/* SPDX-License-Identifier: Apache-2.0 */
#define TS_LEVEL(name) name##_avx2
#include "common/codec/sweep_loops.h"
