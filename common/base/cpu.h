/* SPDX-License-Identifier: Apache-2.0 */
/* Which vector instructions the kernels may use. */
#ifndef TS_BASE_CPU_H
#define TS_BASE_CPU_H

#include <stdbool.h>

#include "common/base/status.h"

typedef enum {
    TS_SIMD_SCALAR = 0, /* the plain C reference */
    TS_SIMD_NEON = 1,
    TS_SIMD_AVX2 = 2,
    TS_SIMD_AVX512 = 3
} ts_simd;

/*
 * The best level of this CPU, unless TERSE_SIMD=scalar|neon|avx2|avx512 in the environment lowers it; which is read once
 * and then stays. Thread: any.
 */
ts_simd ts_cpu_simd(void);
/* The best level of this CPU that is not above the one named; text: NULL, or no level's name, for any. */
ts_simd ts_cpu_simd_below(const char *text);

/* Whether this CPU runs kernels of that level. */
int ts_cpu_supports(ts_simd level);

/* How many processors this process may use: those that are online, fewer when it is bound to some. Thread: any. */
unsigned ts_cpu_cores(void);

/*
 * Whether loops over memory should ask for what comes next, and go over two places at once: it pays where a CPU sees
 * less far ahead than memory is away. Those with AVX-512 see far enough, and hints delay them (Zen 4: a sixth of the
 * bare sweep's time). TERSE_ASK=0|1 in the environment overrules it, for tests and measurements; read once. Thread: any.
 */
bool ts_cpu_asks(void);

const char *ts_simd_name(ts_simd level);
terse_status ts_simd_parse(const char *name, ts_simd *level) TERSE_NODISCARD;

#endif
