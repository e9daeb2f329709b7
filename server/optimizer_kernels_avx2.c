/* SPDX-License-Identifier: Apache-2.0 */
#define TS_LEVEL(name) name##_avx2
#include "server/optimizer_loops.h"
