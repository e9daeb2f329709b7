/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread pool in fake time: works are done in the order of their coming, as libuv's are, each on the thread that is free
 * first, and take as long as their bytes say. The computing itself happens at once; `done` is called when it is due.
 */
#ifndef TS_SIM_TIMED_POOL_H
#define TS_SIM_TIMED_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/executor.h"
#include "common/base/random.h"

#define TIMED_POOL_WORKS 64
#define TIMED_POOL_THREADS 4

typedef struct {
    ts_executor executor; /* first: the executor is the pool */
    uint64_t now_us, ns_a_byte, most_us;
    ts_random random;
    uint64_t free_us[TIMED_POOL_THREADS];
    uint64_t longest_us;  /* work so far */
    struct {
        ts_executor_fn done;
        void *argument;
        uint64_t due_us;
    } works[TIMED_POOL_WORKS];
    unsigned count;
} timed_pool;

/* threads: at most TIMED_POOL_THREADS. Only for a server's rounds (ts_round_item). */
void timed_pool_start(timed_pool *pool, unsigned threads, uint64_t ns_a_byte);
/* Works of any kind, each of which takes up to `most_us`, by the seed. */
void timed_pool_start_random(timed_pool *pool, unsigned threads, uint64_t most_us, uint64_t seed);
/* When the next work is done; UINT64_MAX for none. */
uint64_t timed_pool_next(const timed_pool *pool);
/* Moves the clock, and finishes what is due. Returns whether anything was. */
bool timed_pool_run(timed_pool *pool, uint64_t now_us);

#endif
