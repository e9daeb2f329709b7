/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/cpu.h"

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

int ts_cpu_supports(ts_simd level) {
    switch (level) {
    case TS_SIMD_SCALAR: return 1;
#if defined(__x86_64__)
    case TS_SIMD_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    case TS_SIMD_AVX512:
        return ts_cpu_supports(TS_SIMD_AVX2) && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq");
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

bool ts_cpu_asks(void) {
    static atomic_int known; /* 1: no, 2: yes */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == 0) {
        const char *text = getenv("TERSE_ASK");
        bool asks = text && (text[0] == '0' || text[0] == '1') && !text[1] ? text[0] == '1' : !ts_cpu_supports(TS_SIMD_AVX512);
        answer = 1 + asks;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == 2;
}
