/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/buffer.h"

#include "common/base/buffer_pool.h"
#include "common/base/mem.h"

terse_status ts_buffer_create(size_t capacity, ts_buffer **out) {
    ts_buffer *buffer = ts_mem_calloc(1, sizeof *buffer);
    if (!buffer) return TERSE_ENOMEM;
    buffer->data = ts_mem_grow(NULL, 0, capacity);
    if (!buffer->data) {
        ts_mem_free(buffer);
        return TERSE_ENOMEM;
    }
    buffer->capacity = capacity;
    buffer->references = 1;
    *out = buffer;
    return TERSE_OK;
}

ts_buffer *ts_buffer_ref(ts_buffer *buffer) {
    __atomic_add_fetch(&buffer->references, 1, __ATOMIC_RELAXED);
    return buffer;
}

void ts_buffer_unref(ts_buffer *buffer) {
    if (!buffer || __atomic_sub_fetch(&buffer->references, 1, __ATOMIC_ACQ_REL) > 0) return;
    if (buffer->pool && ts_buffer_pool_give(buffer->pool, buffer)) return;
    ts_mem_free(buffer->data);
    ts_mem_free(buffer);
}

bool ts_buffer_sole(const ts_buffer *buffer) { return __atomic_load_n(&buffer->references, __ATOMIC_ACQUIRE) == 1; }

terse_status ts_buffer_reserve(ts_buffer *buffer, size_t more) {
    size_t need;
    if (!ts_mem_add(buffer->len, more, &need)) return TERSE_ENOMEM;
    if (need <= buffer->capacity) return TERSE_OK;
    size_t grown = buffer->capacity + buffer->capacity / 2;
    if (grown < need) grown = need;
    uint8_t *data = ts_mem_grow(buffer->data, buffer->len, grown);
    if (!data) return TERSE_ENOMEM;
    buffer->data = data;
    buffer->capacity = grown;
    return TERSE_OK;
}
