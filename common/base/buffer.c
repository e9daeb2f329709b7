/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/buffer.h"

#include <string.h>

#include "common/base/buffer_pool.h"
#include "common/base/mem.h"

terse_status ts_buffer_adopt(void *data, size_t len, ts_buffer **out) {
    ts_buffer *buffer = ts_mem_calloc(1, sizeof *buffer);
    TS_REQUIRE(buffer, TERSE_ENOMEM);
    *buffer = (ts_buffer){.data = data, .len = len, .capacity = len, .references = 1};
    *out = buffer;
    return TERSE_OK;
}

terse_status ts_buffer_create(size_t capacity, ts_buffer **out) {
    uint8_t *data = ts_mem_grow(NULL, 0, capacity);
    TS_REQUIRE(data, TERSE_ENOMEM);
    terse_status status = ts_buffer_adopt(data, capacity, out);
    if (status == TERSE_OK) (*out)->len = 0;
    else ts_mem_free(data);
    return status;
}

ts_buffer *ts_buffer_ref(ts_buffer *buffer) {
    __atomic_add_fetch(&buffer->references, 1, __ATOMIC_RELAXED);
    return buffer;
}

void ts_buffer_unref(ts_buffer *buffer) {
    if (!buffer || __atomic_sub_fetch(&buffer->references, 1, __ATOMIC_ACQ_REL) > 0) return;
    ts_buffer_clear(buffer);
    if (buffer->pool && ts_buffer_pool_give(buffer->pool, buffer)) return;
    ts_mem_free(buffer->data);
    ts_mem_free(buffer);
}

bool ts_buffer_sole(const ts_buffer *buffer) { return __atomic_load_n(&buffer->references, __ATOMIC_ACQUIRE) == 1; }

bool ts_buffer_held_by(const ts_buffer *buffer, int count) { return __atomic_load_n(&buffer->references, __ATOMIC_ACQUIRE) <= count; }

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

void ts_buffer_put_outside(ts_buffer *buffer, const uint8_t *bytes, size_t len, ts_buffer *owner) {
    buffer->outside = bytes;
    buffer->outside_at = buffer->len;
    buffer->outside_len = len;
    buffer->outside_owner = ts_buffer_ref(owner);
}

terse_status ts_buffer_bring_in(ts_buffer *buffer) {
    ts_buffer *copy;
    if (!buffer->outside) return TERSE_OK;
    TS_TRY(ts_buffer_create(buffer->outside_len, &copy));
    memcpy(copy->data, buffer->outside, buffer->outside_len);
    ts_buffer_unref(buffer->outside_owner);
    buffer->outside = copy->data;
    buffer->outside_owner = copy;
    return TERSE_OK;
}

terse_status ts_buffer_flat(ts_buffer *buffer, ts_buffer **out) {
    ts_buffer *flat;
    if (!buffer->outside) {
        *out = ts_buffer_ref(buffer);
        return TERSE_OK;
    }
    TS_TRY(ts_buffer_create(ts_buffer_bytes(buffer), &flat));
    uint8_t *behind = flat->data + buffer->outside_at;
    memcpy(flat->data, buffer->data, buffer->outside_at);
    memcpy(behind, buffer->outside, buffer->outside_len);
    memcpy(behind + buffer->outside_len, buffer->data + buffer->outside_at, buffer->len - buffer->outside_at);
    flat->len = flat->capacity;
    *out = flat;
    return TERSE_OK;
}

void ts_buffer_clear(ts_buffer *buffer) {
    ts_buffer_unref(buffer->outside_owner);
    buffer->outside = NULL;
    buffer->outside_owner = NULL;
    buffer->outside_at = buffer->outside_len = buffer->len = 0;
}
