/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/buffer_pool.h"

#include <pthread.h>

#include "common/base/mem.h"

#define LEAST_BYTES ((size_t)64 << 10) /* smaller ones malloc keeps at hand itself */
#define SPARES_AT_MOST 256u

struct ts_buffer_pool {
    pthread_mutex_t mutex;
    size_t limit_bytes, spare_bytes;
    uint32_t spares;
    uint32_t users; /* the owner, and each buffer in use */
    bool closed;
    ts_buffer *spare[SPARES_AT_MOST]; /* the last given is the first taken: it is the warmest */
};

terse_status ts_buffer_pool_create(size_t spare_bytes, ts_buffer_pool **out) {
    ts_buffer_pool *pool = ts_mem_calloc(1, sizeof *pool);
    TS_REQUIRE(pool, TERSE_ENOMEM);
    if (pthread_mutex_init(&pool->mutex, NULL) != 0) {
        ts_mem_free(pool);
        return TERSE_ENOMEM;
    }
    pool->limit_bytes = spare_bytes;
    pool->users = 1;
    *out = pool;
    return TERSE_OK;
}

/* One user less. Unlocks; the last one frees. */
static void leave(ts_buffer_pool *pool) {
    bool last = --pool->users == 0;
    pthread_mutex_unlock(&pool->mutex);
    if (!last) return;
    pthread_mutex_destroy(&pool->mutex);
    ts_mem_free(pool);
}

void ts_buffer_pool_destroy(ts_buffer_pool *pool) {
    if (!pool) return;
    pthread_mutex_lock(&pool->mutex);
    pool->closed = true;
    while (pool->spares > 0) {
        ts_buffer *buffer = pool->spare[--pool->spares];
        ts_mem_free(buffer->data);
        ts_mem_free(buffer);
    }
    leave(pool);
}

size_t ts_buffer_pool_bytes(ts_buffer_pool *pool) {
    if (!pool) return 0;
    pthread_mutex_lock(&pool->mutex);
    size_t bytes = pool->spare_bytes;
    pthread_mutex_unlock(&pool->mutex);
    return bytes;
}

/* Large enough, and not so large that it holds memory others could use. */
static bool fits(const ts_buffer *buffer, size_t capacity) {
    return buffer->capacity >= capacity && buffer->capacity - buffer->capacity / 4 <= capacity;
}

static ts_buffer *take_spare(ts_buffer_pool *pool, size_t capacity) {
    ts_buffer *found = NULL;
    pthread_mutex_lock(&pool->mutex);
    uint32_t at = pool->spares;
    while (at > 0 && !fits(pool->spare[at - 1], capacity)) at--;
    if (at > 0) {
        found = pool->spare[at - 1];
        pool->spares--;
        pool->spare_bytes -= found->capacity;
        for (; at <= pool->spares; at++) pool->spare[at - 1] = pool->spare[at];
    }
    pool->users++;
    pthread_mutex_unlock(&pool->mutex);
    return found;
}

terse_status ts_buffer_pool_take(ts_buffer_pool *pool, size_t capacity, ts_buffer **out) {
    if (!pool || capacity < LEAST_BYTES) return ts_buffer_create(capacity, out);
    ts_buffer *buffer = take_spare(pool, capacity);
    if (buffer) {
        uint8_t *data = buffer->data;
        size_t room = buffer->capacity;
        *buffer = (ts_buffer){.data = data, .capacity = room, .references = 1};
    } else if (ts_buffer_create(capacity, &buffer) != TERSE_OK) {
        pthread_mutex_lock(&pool->mutex);
        leave(pool);
        return TERSE_ENOMEM;
    }
    buffer->pool = pool;
    *out = buffer;
    return TERSE_OK;
}

bool ts_buffer_pool_give(ts_buffer_pool *pool, ts_buffer *buffer) {
    ts_buffer *surplus = NULL;
    pthread_mutex_lock(&pool->mutex);
    bool keeps = !pool->closed && buffer->capacity <= pool->limit_bytes;
    /* The oldest makes room: what sizes are wanted may have changed. */
    if (keeps && (pool->spares == SPARES_AT_MOST || pool->spare_bytes + buffer->capacity > pool->limit_bytes)) {
        surplus = pool->spare[0];
        pool->spare_bytes -= surplus->capacity;
        pool->spares--;
        for (uint32_t i = 0; i < pool->spares; i++) pool->spare[i] = pool->spare[i + 1];
        keeps = pool->spare_bytes + buffer->capacity <= pool->limit_bytes;
    }
    if (keeps) {
        pool->spare[pool->spares++] = buffer;
        pool->spare_bytes += buffer->capacity;
    }
    leave(pool);
    if (surplus) {
        ts_mem_free(surplus->data);
        ts_mem_free(surplus);
    }
    return keeps;
}
