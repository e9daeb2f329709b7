/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counted byte buffers: one frame, many readers. A received frame is held by
 * every slice packet inside it; an encoded reply goes to every worker.
 */
#ifndef TS_BASE_BUFFER_H
#define TS_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct ts_buffer_pool ts_buffer_pool;

typedef struct ts_buffer {
    uint8_t *data;
    size_t len;      /* bytes in use */
    size_t capacity; /* bytes allocated */
    int references;  /* atomic; do not touch */
    /* Of one owner that keeps books on what it holds: how many of its things lie in here, and their bytes. */
    uint32_t holders;
    size_t useful;
    ts_buffer_pool *pool; /* where it goes back to; NULL: nowhere */
    /* Of a frame to be sent: bytes that come behind the first outside_at of data, and lie where they are anyway. */
    const uint8_t *outside;
    size_t outside_at, outside_len;
    struct ts_buffer *outside_owner; /* a reference: they stay as they are as long as there is one */
} ts_buffer;

/* A new buffer with room for `capacity` bytes, len 0, one reference. Returns TERSE_ENOMEM. Thread: any. */
terse_status ts_buffer_create(size_t capacity, ts_buffer **out) TERSE_NODISCARD;
/* The same around memory of ts_mem_*, which becomes the buffer's: len and capacity are `len`. Returns TERSE_ENOMEM. */
terse_status ts_buffer_adopt(void *data, size_t len, ts_buffer **out) TERSE_NODISCARD;
/* One more reference. Thread: any. Returns: buffer. */
ts_buffer *ts_buffer_ref(ts_buffer *buffer);
/* One reference less; the last one frees. NULL is fine. Thread: any. */
void ts_buffer_unref(ts_buffer *buffer);
/* Whether the caller's reference is the only one, so that it may be written to. Thread: any. */
bool ts_buffer_sole(const ts_buffer *buffer);
/* Whether there are no more references than `count`. Thread: any. */
bool ts_buffer_held_by(const ts_buffer *buffer, int count);
/* Room for `more` bytes behind len; only while nobody else holds it. Returns TERSE_ENOMEM. */
terse_status ts_buffer_reserve(ts_buffer *buffer, size_t more) TERSE_NODISCARD;

/* All its bytes, those that lie elsewhere included. */
static inline size_t ts_buffer_bytes(const ts_buffer *buffer) { return buffer->len + buffer->outside_len; }
/*
 * `len` bytes that lie elsewhere come behind what the buffer holds so far; once, while nobody else holds it. bytes: [borrow]
 * and unchanged as long as owner has the reference that it is given here.
 */
void ts_buffer_put_outside(ts_buffer *buffer, const uint8_t *bytes, size_t len, ts_buffer *owner);
/* Takes a copy of what lies elsewhere and lets its owner go, while nobody reads it. Returns TERSE_ENOMEM (as before). */
terse_status ts_buffer_bring_in(ts_buffer *buffer) TERSE_NODISCARD;
/* All bytes in a row. out: the buffer itself with one more reference, or a copy. Returns TERSE_ENOMEM. */
terse_status ts_buffer_flat(ts_buffer *buffer, ts_buffer **out) TERSE_NODISCARD;
/* Empty again, for the sole holder. */
void ts_buffer_clear(ts_buffer *buffer);

/*
 * Spare memory for large buffers that come and go: what malloc gives back to the system costs a page fault for every
 * 4 KiB when it is had again, more than copying them does. Keeps at most `spare_bytes`.
 * Returns TERSE_ENOMEM.
 */
terse_status ts_buffer_pool_create(size_t spare_bytes, ts_buffer_pool **out) TERSE_NODISCARD;
/* Frees what is spare; buffers in use are freed by their last holder. NULL is fine. */
void ts_buffer_pool_destroy(ts_buffer_pool *pool);
/* Memory that is spare now. NULL: none. Thread: any. */
size_t ts_buffer_pool_bytes(ts_buffer_pool *pool);
/* As ts_buffer_create, from the pool when it has one that fits. pool: NULL is fine. Thread: any. */
terse_status ts_buffer_pool_take(ts_buffer_pool *pool, size_t capacity, ts_buffer **out) TERSE_NODISCARD;

#endif
