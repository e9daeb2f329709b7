/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/frame.h"

#define XXH_STATIC_LINKING_ONLY /* a state inside another structure */
#if defined(__x86_64__) && defined(__has_include)
#if __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h> /* the same hash in vectors as wide as this CPU has: three times as fast in a cache */
#endif
#endif
#include <xxhash.h>

#include "common/base/bytes.h"
#include "common/base/mem.h"

#define CHECKSUM_BYTES 4u

static uint32_t checksum(const uint8_t *bytes, size_t len) { return (uint32_t)XXH3_64bits(bytes, len); }

/*
 * protobuf-c allocates what a header says. Two bytes can make it an empty submessage of a hundred, so it gets memory
 * in proportion to the header's own size; the densest honest header (Stats.hashes) needs about ten times.
 */
#define HEADER_MEMORY_FACTOR 16u
#define HEADER_MEMORY_BASE 4096u

typedef struct {
    size_t left;
    bool none; /* the system had none, which is not the sender's fault */
} header_memory;

static void *allocate_header(void *context, size_t bytes) {
    header_memory *memory = context;
    if (bytes > memory->left) return NULL;
    memory->left -= bytes;
    void *block = ts_mem_calloc(1, bytes);
    if (!block) memory->none = true;
    return block;
}

static void free_header(void *context, void *block) {
    (void)context;
    ts_mem_free(block);
}

static void destroy_header(Terse__Header *header) {
    ProtobufCAllocator allocator = {.alloc = allocate_header, .free = free_header};
    terse__header__free_unpacked(header, &allocator);
}

static terse_status unpack_header(const uint8_t *bytes, size_t len, Terse__Header **out) {
    header_memory memory = {.left = HEADER_MEMORY_BASE + HEADER_MEMORY_FACTOR * len};
    ProtobufCAllocator allocator = {.alloc = allocate_header, .free = free_header, .allocator_data = &memory};
    Terse__Header *header = terse__header__unpack(&allocator, len, bytes);
    if (!header) return memory.none ? TERSE_ENOMEM : TERSE_ECORRUPT;
    if (header->body_case == TERSE__HEADER__BODY__NOT_SET) {
        destroy_header(header);
        return TERSE_ECORRUPT;
    }
    *out = header;
    return TERSE_OK;
}

terse_status ts_frame_parse(const ts_buffer *buffer, ts_frame *out) {
    const uint8_t *data = buffer->data;
    size_t len = buffer->len;
    TS_REQUIRE(len >= 1 + 1 + CHECKSUM_BYTES, TERSE_ECORRUPT);
    size_t body = len - CHECKSUM_BYTES;
    TS_REQUIRE(ts_load_u32(data + body) == checksum(data, body), TERSE_ECORRUPT);
    TS_REQUIRE(data[0] == TS_WIRE_VERSION, TERSE_EVERSION);
    uint64_t header_bytes;
    size_t at = 1, took = ts_varint_get(data + at, body - at, &header_bytes);
    TS_REQUIRE(took > 0, TERSE_ECORRUPT);
    at += took;
    TS_REQUIRE(header_bytes <= TS_FRAME_HEADER_MAX_BYTES, TERSE_ELIMIT);
    TS_REQUIRE(header_bytes <= body - at, TERSE_ECORRUPT);
    Terse__Header *header;
    TS_TRY(unpack_header(data + at, (size_t)header_bytes, &header));
    at += (size_t)header_bytes;
    *out = (ts_frame){.header = header, .payload = data + at, .payload_bytes = body - at};
    return TERSE_OK;
}

void ts_frame_release(ts_frame *frame) {
    if (frame->header) destroy_header(frame->header);
    *frame = (ts_frame){0};
}

terse_status ts_frame_begin(const Terse__Header *header, size_t payload_hint, ts_buffer **out) {
    return ts_frame_begin_in(NULL, header, payload_hint, out);
}

static terse_status measure(const Terse__Header *header, size_t payload_hint, size_t *header_bytes, size_t *room) {
    *header_bytes = terse__header__get_packed_size(header);
    TS_REQUIRE(*header_bytes <= TS_FRAME_HEADER_MAX_BYTES, TERSE_ELIMIT);
    size_t around = 1 + TS_VARINT_MAX_BYTES + *header_bytes + CHECKSUM_BYTES;
    TS_REQUIRE(ts_mem_add(payload_hint, around, room), TERSE_ELIMIT);
    return TERSE_OK;
}

static void write_header(ts_buffer *frame, const Terse__Header *header, size_t header_bytes) {
    frame->data[0] = TS_WIRE_VERSION;
    frame->len = 1;
    frame->len += ts_varint_put(frame->data + frame->len, header_bytes);
    frame->len += terse__header__pack(header, frame->data + frame->len);
}

terse_status ts_frame_begin_in(ts_buffer_pool *pool, const Terse__Header *header, size_t payload_hint, ts_buffer **out) {
    size_t header_bytes, room;
    TS_TRY(measure(header, payload_hint, &header_bytes, &room));
    ts_buffer *frame;
    TS_TRY(ts_buffer_pool_take(pool, room, &frame));
    write_header(frame, header, header_bytes);
    *out = frame;
    return TERSE_OK;
}

terse_status ts_frame_begin_over(ts_buffer *frame, const Terse__Header *header, size_t payload_hint) {
    size_t header_bytes, room;
    TS_TRY(measure(header, payload_hint, &header_bytes, &room));
    ts_buffer_clear(frame);
    TS_TRY(ts_buffer_reserve(frame, room));
    write_header(frame, header, header_bytes);
    return TERSE_OK;
}

bool ts_frame_has_room(const ts_buffer *frame, size_t bytes) {
    size_t need;
    return ts_mem_add(frame->len + CHECKSUM_BYTES, bytes, &need) && need <= frame->capacity;
}

struct ts_frame_sum {
    XXH3_state_t state;
    size_t reached;
};

terse_status ts_frame_finish(ts_buffer *frame) {
    if (frame->outside) {
        ts_frame_sum sum;
        ts_frame_sum_begin(&sum);
        ts_frame_sum_reach(&sum, frame, frame->outside_at);
        ts_frame_sum_outside(&sum, frame->outside, frame->outside_len);
        return ts_frame_sum_finish(&sum, frame);
    }
    TS_TRY(ts_buffer_reserve(frame, CHECKSUM_BYTES));
    ts_store_u32(frame->data + frame->len, checksum(frame->data, frame->len));
    frame->len += CHECKSUM_BYTES;
    return TERSE_OK;
}

terse_status ts_frame_sum_create(ts_frame_sum **out) {
    ts_frame_sum *sum = ts_mem_aligned(1, sizeof *sum); /* the state asks for a cache line */
    TS_REQUIRE(sum, TERSE_ENOMEM);
    *out = sum;
    return TERSE_OK;
}

void ts_frame_sum_destroy(ts_frame_sum *sum) { ts_mem_free(sum); }

void ts_frame_sum_begin(ts_frame_sum *sum) {
    XXH3_64bits_reset(&sum->state);
    sum->reached = 0;
}

void ts_frame_sum_reach(ts_frame_sum *sum, const ts_buffer *frame, size_t bytes) {
    if (bytes <= sum->reached) return;
    XXH3_64bits_update(&sum->state, frame->data + sum->reached, bytes - sum->reached);
    sum->reached = bytes;
}

void ts_frame_sum_outside(ts_frame_sum *sum, const void *bytes, size_t len) { XXH3_64bits_update(&sum->state, bytes, len); }

terse_status ts_frame_sum_finish(ts_frame_sum *sum, ts_buffer *frame) {
    TS_TRY(ts_buffer_reserve(frame, CHECKSUM_BYTES));
    ts_frame_sum_reach(sum, frame, frame->len);
    ts_store_u32(frame->data + frame->len, (uint32_t)XXH3_64bits_digest(&sum->state));
    frame->len += CHECKSUM_BYTES;
    return TERSE_OK;
}

terse_status ts_frame_control(const Terse__Header *header, ts_buffer **out) {
    ts_buffer *frame;
    TS_TRY(ts_frame_begin(header, 0, &frame));
    terse_status status = ts_frame_finish(frame);
    if (status != TERSE_OK) {
        ts_buffer_unref(frame);
        return status;
    }
    *out = frame;
    return TERSE_OK;
}
