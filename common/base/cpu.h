/* SPDX-License-Identifier: Apache-2.0 */
/* Which vector instructions the kernels may use. */
#ifndef TS_BASE_CPU_H
#define TS_BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

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

/* Whether this CPU, and the system on it, run kernels of that level. */
int ts_cpu_supports(ts_simd level);

/* What an x86 CPU says of itself: words of CPUID, and which registers the system saves (the low half of XCR0). */
typedef struct { uint32_t leaf1_ecx, leaf7_ebx, extended_ecx, saved; } ts_cpu_words;
/*
 * Whether these words have all that the compiler may use in kernels of that level (the Makefile's -m flags): what emulates
 * a CPU, or hides parts of it, may offer AVX2 without the rest.
 */
bool ts_cpu_words_have(const ts_cpu_words *words, ts_simd level);

/* How many processors this process may use: those that are online, fewer when it is bound to some. Thread: any. */
unsigned ts_cpu_cores(void);

/*
 * How loops go over memory; results are the same bits (ARCHITECTURE.md, "Three ways over memory", has the figures):
 *   far     straight on, and work beside a sweep in turns with it: AMD's CPUs with AVX-512, which hints delay
 *   middle  bare loops over two places at once and with hints, work in turns: other CPUs with AVX-512
 *   near    two places and hints in all loops: the rest
 * TERSE_ASK=0|1|2 in the environment chooses the first, second or third, for tests and measurements; read once.
 * Thread: any.
 */
typedef enum { TS_REACH_FAR = 0, TS_REACH_MIDDLE = 1, TS_REACH_NEAR = 2 } ts_reach;
ts_reach ts_cpu_reach(void);
static inline bool ts_cpu_asks(void) { return ts_cpu_reach() != TS_REACH_FAR; }  /* hints */
static inline bool ts_cpu_turns(void) { return ts_cpu_reach() != TS_REACH_NEAR; } /* work beside a sweep goes in turns */

const char *ts_simd_name(ts_simd level);
terse_status ts_simd_parse(const char *name, ts_simd *level) TERSE_NODISCARD;

#endif
