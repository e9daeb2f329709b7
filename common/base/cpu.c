/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {"scalar", "neon", "avx2", "avx512"};

const char *ts_simd_name(ts_simd level) { return names[level]; }

terse_status ts_simd_parse(const char *name, ts_simd *level) {
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            *level = (ts_simd)i;
            return TERSE_OK;
        }
    }
    return TERSE_EINVAL;
}

/* Feature bits, by leaf and register of CPUID. */
#define LEAF1_ECX_AVX2 (1u << 12 | 1u << 20 | 1u << 23 | 1u << 27 | 1u << 28 | 1u << 29) /* FMA SSE4.2 POPCNT OSXSAVE AVX F16C */
#define LEAF7_EBX_AVX2 (1u << 5 | 1u << 8)                                              /* AVX2 BMI2 */
#define EXTENDED_ECX_AVX2 (1u << 5)                                                     /* LZCNT */
#define LEAF7_EBX_AVX512 (1u << 16 | 1u << 17 | 1u << 30 | 1u << 31)                    /* F DQ BW VL */
#define SAVED_AVX2 0x06u                                                                /* XMM YMM */
#define SAVED_AVX512 0xE6u                                                              /* … masks ZMM */

static bool all_of(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

bool ts_cpu_words_have(const ts_cpu_words *words, ts_simd level) {
    if (level == TS_SIMD_SCALAR) return true;
    if (level == TS_SIMD_NEON) return false;
    if (!all_of(words->leaf1_ecx, LEAF1_ECX_AVX2) || !all_of(words->leaf7_ebx, LEAF7_EBX_AVX2) ||
        !all_of(words->extended_ecx, EXTENDED_ECX_AVX2) || !all_of(words->saved, SAVED_AVX2)) {
        return false;
    }
    return level == TS_SIMD_AVX2 || (all_of(words->leaf7_ebx, LEAF7_EBX_AVX512) && all_of(words->saved, SAVED_AVX512));
}

#if defined(__x86_64__)
static ts_cpu_words words_of_this(void) {
    ts_cpu_words words = {0};
    uint32_t eax, ebx, ecx, edx;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx)) words.leaf1_ecx = ecx;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) words.leaf7_ebx = ebx;
    if (__get_cpuid(0x80000001u, &eax, &ebx, &ecx, &edx)) words.extended_ecx = ecx;
    if (words.leaf1_ecx & 1u << 27) { /* OSXSAVE: XCR0 may be read */
        __asm__ volatile("xgetbv" : "=a"(words.saved), "=d"(edx) : "c"(0));
    }
    return words;
}

/* The best level; looked up once, since virtual machines take their time over CPUID. */
static ts_simd best(void) {
    static atomic_int known; /* level + 1 */
    int level = atomic_load_explicit(&known, memory_order_relaxed);
    if (level == 0) {
        ts_cpu_words words = words_of_this();
        level = 1 + (ts_cpu_words_have(&words, TS_SIMD_AVX512) ? TS_SIMD_AVX512
                     : ts_cpu_words_have(&words, TS_SIMD_AVX2) ? TS_SIMD_AVX2
                                                               : TS_SIMD_SCALAR);
        atomic_store_explicit(&known, level, memory_order_relaxed);
    }
    return (ts_simd)(level - 1);
}

static ts_reach reach_of_this(void) {
    if (best() < TS_SIMD_AVX512) return TS_REACH_NEAR;
    return __builtin_cpu_is("amd") ? TS_REACH_FAR : TS_REACH_MIDDLE;
}
#else
static ts_reach reach_of_this(void) { return TS_REACH_NEAR; }
#endif

int ts_cpu_supports(ts_simd level) {
    switch (level) {
    case TS_SIMD_SCALAR: return 1;
#if defined(__x86_64__)
    case TS_SIMD_AVX2: return best() >= TS_SIMD_AVX2;
    case TS_SIMD_AVX512: return best() == TS_SIMD_AVX512;
    case TS_SIMD_NEON: return 0;
#elif defined(__aarch64__)
    case TS_SIMD_NEON: return 1;
    case TS_SIMD_AVX2:
    case TS_SIMD_AVX512: return 0;
#else
    default: return 0;
#endif
    }
    return 0;
}

ts_simd ts_cpu_simd_below(const char *text) {
    ts_simd wanted = TS_SIMD_AVX512;
    if (text && ts_simd_parse(text, &wanted) != TERSE_OK) wanted = TS_SIMD_AVX512;
    for (int level = (int)wanted; level > TS_SIMD_SCALAR; level--) {
        if (ts_cpu_supports((ts_simd)level)) return (ts_simd)level;
    }
    return TS_SIMD_SCALAR;
}

ts_simd ts_cpu_simd(void) {
    static atomic_int known; /* level + 1; of a process, not of a context: the CPU does not change */
    int level = atomic_load_explicit(&known, memory_order_relaxed);
    if (level == 0) {
        level = (int)ts_cpu_simd_below(getenv("TERSE_SIMD")) + 1;
        atomic_store_explicit(&known, level, memory_order_relaxed);
    }
    return (ts_simd)(level - 1);
}

unsigned ts_cpu_cores(void) {
    cpu_set_t set; /* too small on hosts of more than 1,024 processors: then the call fails */
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (sched_getaffinity(0, sizeof set, &set) == 0) return (unsigned)CPU_COUNT(&set);
    return online < 1 ? 1 : (unsigned)online;
}

ts_reach ts_cpu_reach(void) {
    static atomic_int known; /* reach + 1 */
    int reach = atomic_load_explicit(&known, memory_order_relaxed);
    if (reach == 0) {
        const char *text = getenv("TERSE_ASK");
        bool given = text && text[0] >= '0' && text[0] <= '2' && !text[1];
        reach = 1 + (given ? text[0] - '0' : (int)reach_of_this());
        atomic_store_explicit(&known, reach, memory_order_relaxed);
    }
    return (ts_reach)(reach - 1);
}
