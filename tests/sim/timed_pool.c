/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/timed_pool.h"

#include <string.h>

#include "server/round.h"

/* What the work moves: packets, and the slices' parameters. */
static uint64_t bytes_of(const ts_round_item *item) {
    uint64_t bytes = 0;
    for (uint32_t c = 0; c < item->contribution_count; c++) bytes += item->contributions[c].len;
    for (uint32_t e = 0; e < item->entry_count; e++) bytes += item->entries[e].slice->n * sizeof(float);
    return bytes;
}

static terse_status submit(ts_executor *executor, ts_executor_fn work, ts_executor_fn done, void *argument) {
    timed_pool *pool = (timed_pool *)executor;
    TS_REQUIRE(pool->count < TIMED_POOL_WORKS, TERSE_ENOMEM);
    unsigned first = 0;
    for (unsigned t = 1; t < executor->threads; t++)
        if (pool->free_us[t] < pool->free_us[first]) first = t;
    uint64_t begins = pool->free_us[first] > pool->now_us ? pool->free_us[first] : pool->now_us;
    uint64_t takes = pool->most_us ? 1 + ts_random_below(&pool->random, (uint32_t)pool->most_us)
                                   : bytes_of(argument) * pool->ns_a_byte / 1000 + 1;
    if (takes > pool->longest_us) pool->longest_us = takes;
    pool->free_us[first] = begins + takes;
    work(argument);
    pool->works[pool->count].done = done;
    pool->works[pool->count].argument = argument;
    pool->works[pool->count++].due_us = begins + takes;
    return TERSE_OK;
}

void timed_pool_start(timed_pool *pool, unsigned threads, uint64_t ns_a_byte) {
    *pool = (timed_pool){.executor = {.submit = submit, .threads = threads}, .ns_a_byte = ns_a_byte};
}

void timed_pool_start_random(timed_pool *pool, unsigned threads, uint64_t most_us, uint64_t seed) {
    timed_pool_start(pool, threads, 0);
    pool->most_us = most_us;
    pool->random = ts_random_start(ts_random_key(seed, threads, 0, 0, 602));
}

static unsigned next(const timed_pool *pool) {
    unsigned first = 0;
    for (unsigned i = 1; i < pool->count; i++)
        if (pool->works[i].due_us < pool->works[first].due_us) first = i;
    return first;
}

uint64_t timed_pool_next(const timed_pool *pool) { return pool->count ? pool->works[next(pool)].due_us : UINT64_MAX; }

bool timed_pool_run(timed_pool *pool, uint64_t now_us) {
    bool any = false;
    if (now_us > pool->now_us) pool->now_us = now_us;
    while (timed_pool_next(pool) <= pool->now_us) {
        unsigned first = next(pool);
        ts_executor_fn done = pool->works[first].done;
        void *argument = pool->works[first].argument;
        pool->works[first] = pool->works[--pool->count];
        done(argument);
        any = true;
    }
    return any;
}
