/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames: what is handed to a transport. Layout (WIRE.md is normative):
 *
 *   u8  version (TS_WIRE_VERSION)
 *   varint header_bytes
 *   header_bytes of a protobuf Header
 *   payload, raw, up to the checksum
 *   u32 checksum: the low 32 bits of XXH3-64 of all before
 */
#ifndef TS_WIRE_FRAME_H
#define TS_WIRE_FRAME_H

#include <stdbool.h>

#include "common/base/buffer.h"
#include "common/base/status.h"
#include "terse.pb-c.h"

#define TS_WIRE_VERSION 1u
#define TS_PROTOCOL_VERSION 2u
#define TS_REDUCE_VALUES_MAX 65536u /* of one Reduce */
#define TS_FRAME_HEADER_MAX_BYTES (16u << 20) /* contracts of very many tensors are headers too */

/* A side that has sent a peer nothing for so long sends a Heartbeat. deadline_us: consistency.deadline_s. */
static inline uint64_t ts_heartbeat_us(uint64_t deadline_us) {
    return deadline_us / 4 < 1000000u ? deadline_us / 4 : 1000000u;
}

/* A parsed frame. header is owned (free with ts_frame_release); payload points into the buffer it came from. */
typedef struct {
    Terse__Header *header;
    const uint8_t *payload;
    size_t payload_bytes;
} ts_frame;

/*
 * Parses and checks a frame from outside. buffer: [borrow], must outlive the frame.
 * Returns TERSE_OK; TERSE_EVERSION; TERSE_ECORRUPT (short, checksum, protobuf, no body); TERSE_ELIMIT; TERSE_ENOMEM.
 */
terse_status ts_frame_parse(const ts_buffer *buffer, ts_frame *out) TERSE_NODISCARD;
void ts_frame_release(ts_frame *frame); /* a zeroed frame is fine */

/*
 * Builds a frame: begin writes version and header, then the payload is appended behind buffer->len (directly, or
 * with ts_bundle_*), then finish appends the checksum. payload_hint: bytes to make room for.
 * Returns TERSE_OK, TERSE_ENOMEM, TERSE_ELIMIT.
 */
terse_status ts_frame_begin(const Terse__Header *header, size_t payload_hint, ts_buffer **out) TERSE_NODISCARD;
/* The same with memory from a pool, which may be NULL. */
terse_status ts_frame_begin_in(ts_buffer_pool *pool, const Terse__Header *header, size_t payload_hint,
                               ts_buffer **out) TERSE_NODISCARD;
/* The same in a buffer that is there and that nobody else holds: what it held is gone, also on failure. */
terse_status ts_frame_begin_over(ts_buffer *frame, const Terse__Header *header, size_t payload_hint) TERSE_NODISCARD;
/* Whether so many bytes more of payload, and the checksum, leave what was written where it is. */
bool ts_frame_has_room(const ts_buffer *frame, size_t bytes);
/* Returns TERSE_ENOMEM. What lies outside (ts_buffer.outside) is read once. */
terse_status ts_frame_finish(ts_buffer *frame) TERSE_NODISCARD;

/*
 * The checksum of a frame under way, of large parts while they are in the nearest caches. begin: for a frame that was just
 * begun. reach: the first `bytes` of its data will not change any more; less than before changes nothing. outside: so much more
 * of what lies outside of it, in order, after all data that comes before. finish: as ts_frame_finish, of the frame that was
 * begun last, when all that lies outside was told. One frame at a time.
 */
typedef struct ts_frame_sum ts_frame_sum;
/* Returns TERSE_ENOMEM. */
terse_status ts_frame_sum_create(ts_frame_sum **out) TERSE_NODISCARD;
void ts_frame_sum_destroy(ts_frame_sum *sum); /* NULL is fine */
void ts_frame_sum_begin(ts_frame_sum *sum);
void ts_frame_sum_reach(ts_frame_sum *sum, const ts_buffer *frame, size_t bytes);
void ts_frame_sum_outside(ts_frame_sum *sum, const void *bytes, size_t len);
terse_status ts_frame_sum_finish(ts_frame_sum *sum, ts_buffer *frame) TERSE_NODISCARD;

/* A frame without payload. Returns as begin. */
terse_status ts_frame_control(const Terse__Header *header, ts_buffer **out) TERSE_NODISCARD;

#endif
