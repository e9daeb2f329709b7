/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counter-based randomness: a value is a pure function of its key, so neither
 * thread count nor order of calls can change a result.
 *
 * Algorithm: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers:
 * as easy as 1, 2, 3", SC 2011).
 */
#ifndef TS_BASE_RANDOM_H
#define TS_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint32_t word[4];
} ts_philox_block;

/* One block of four 32-bit words for (key, counter). Thread: any. */
ts_philox_block ts_philox(uint64_t key, uint64_t counter_high, uint64_t counter_low);

/* Mixes 64 bits (the SplitMix64 finaliser, Steele, Lea, Flood 2014). Thread: any. */
static inline uint64_t ts_mix64(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* A stream key from its parts, in the order seed, step, tensor, worker, purpose. */
uint64_t ts_random_key(uint64_t seed, uint64_t step, uint64_t tensor, uint64_t worker, uint64_t purpose);

/* Uniform in [0, 1) with 24 bits from one word. */
static inline float ts_random_unit(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }

/* A sequential reader over a key, for shuffles and initial values. */
typedef struct {
    uint64_t key;
    uint64_t position;
    ts_philox_block block;
} ts_random;

ts_random ts_random_start(uint64_t key);
uint32_t ts_random_u32(ts_random *random);
/* Uniform in [0, bound) without modulo bias (Lemire 2019); bound > 0. */
uint32_t ts_random_below(ts_random *random, uint32_t bound);
/* Standard normal (Box and Muller 1958). */
float ts_random_normal(ts_random *random);

#endif
