/* SPDX-License-Identifier: Apache-2.0 */
#define TS_LEVEL(name) name##_scalar
#include "server/optimizer_loops.h"
