/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/bundle.h"

#include <string.h>

#include "common/base/bytes.h"

ts_bundle_writer ts_bundle_write(ts_buffer *frame) { return (ts_bundle_writer){.frame = frame, .previous = -1}; }

/* What comes in front of a packet of `len` bytes, and room for `more` behind it. */
static terse_status announce(ts_bundle_writer *writer, uint32_t slice, size_t len, size_t more) {
    TS_REQUIRE((int64_t)slice > writer->previous, TERSE_EINVAL);
    TS_REQUIRE(len <= UINT32_MAX, TERSE_EINVAL);
    TS_TRY(ts_buffer_reserve(writer->frame, TS_BUNDLE_ENTRY_MAX_BYTES + more));
    uint8_t *at = writer->frame->data + writer->frame->len;
    uint64_t skipped = (uint64_t)((int64_t)slice - writer->previous - 1);
    size_t used = ts_varint_put(at, (uint64_t)len << 1 | (skipped > 0));
    if (skipped > 0) used += ts_varint_put(at + used, skipped);
    writer->frame->len += used;
    writer->previous = slice;
    return TERSE_OK;
}

terse_status ts_bundle_room(ts_bundle_writer *writer, uint32_t slice, size_t len, uint8_t **room) {
    TS_TRY(announce(writer, slice, len, len));
    *room = writer->frame->data + writer->frame->len;
    writer->frame->len += len;
    return TERSE_OK;
}

terse_status ts_bundle_outside(ts_bundle_writer *writer, uint32_t slice, const uint8_t *packet, size_t len, ts_buffer *owner) {
    TS_REQUIRE(!writer->frame->outside, TERSE_EINVAL);
    TS_TRY(announce(writer, slice, len, 0));
    ts_buffer_put_outside(writer->frame, packet, len, owner);
    return TERSE_OK;
}

terse_status ts_bundle_add(ts_bundle_writer *writer, uint32_t slice, const uint8_t *packet, size_t len) {
    uint8_t *room;
    TS_TRY(ts_bundle_room(writer, slice, len, &room));
    if (len) memcpy(room, packet, len);
    return TERSE_OK;
}

ts_bundle_reader ts_bundle_read(const uint8_t *payload, size_t bytes, uint32_t slices) {
    return (ts_bundle_reader){.at = payload, .end = payload + bytes, .previous = -1, .slices = slices};
}

/* A varint in its only spelling: no superfluous zero byte at its end. */
static bool take_varint(ts_bundle_reader *reader, uint64_t *value) {
    size_t took = ts_varint_get(reader->at, (size_t)(reader->end - reader->at), value);
    if (took == 0 || took != ts_varint_bytes(*value)) return false;
    reader->at += took;
    return true;
}

terse_status ts_bundle_next(ts_bundle_reader *reader, uint32_t *slice, const uint8_t **packet, size_t *len) {
    if (reader->at == reader->end) return TERSE_EAGAIN;
    uint64_t tag, skipped = 0;
    TS_REQUIRE(take_varint(reader, &tag), TERSE_ECORRUPT);
    if (tag & 1) {
        TS_REQUIRE(take_varint(reader, &skipped), TERSE_ECORRUPT);
        TS_REQUIRE(skipped > 0, TERSE_ECORRUPT);
    }
    uint64_t bytes = tag >> 1;
    TS_REQUIRE(skipped < reader->slices, TERSE_ECORRUPT);
    int64_t number = reader->previous + 1 + (int64_t)skipped;
    TS_REQUIRE(number < (int64_t)reader->slices, TERSE_ECORRUPT);
    TS_REQUIRE(bytes <= (uint64_t)(reader->end - reader->at), TERSE_ECORRUPT);
    *slice = (uint32_t)number;
    *packet = reader->at;
    *len = (size_t)bytes;
    reader->at += bytes;
    reader->previous = number;
    return TERSE_OK;
}
