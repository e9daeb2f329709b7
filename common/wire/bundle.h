/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bundle: slice packets of one frame, in ascending slice order.
 *
 *   entry = varint(len << 1 | gap) [varint(slice - previous - 1) when gap] len bytes
 *
 * Slice numbers are the server's own (ts_slice.local). `previous` starts at -1; gap = 0 means previous + 1, so a
 * frame with all slices of a server spends one or two bytes on each.
 */
#ifndef TS_WIRE_BUNDLE_H
#define TS_WIRE_BUNDLE_H

#include <stdbool.h>

#include "common/base/buffer.h"
#include "common/base/status.h"

#define TS_BUNDLE_ENTRY_MAX_BYTES 16 /* in front of a packet */

/* Writer: appends to a frame under construction. */
typedef struct {
    ts_buffer *frame; /* [borrow] */
    int64_t previous;
} ts_bundle_writer;

ts_bundle_writer ts_bundle_write(ts_buffer *frame);
/* Appends a packet by copy. slice ids must ascend. Returns TERSE_OK, TERSE_ENOMEM, TERSE_EINVAL (order). */
terse_status ts_bundle_add(ts_bundle_writer *writer, uint32_t slice, const uint8_t *packet, size_t len) TERSE_NODISCARD;

/*
 * The same for a packet of `len` bytes that is written by the caller: room is [out] inside the frame, until something
 * else is appended to it. Returns as ts_bundle_add.
 */
terse_status ts_bundle_room(ts_bundle_writer *writer, uint32_t slice, size_t len, uint8_t **room) TERSE_NODISCARD;

/*
 * The same for a packet that lies elsewhere, and stays as it is as long as owner has the reference that it is given. Once a
 * frame, and the last of it. Returns as ts_bundle_add.
 */
terse_status ts_bundle_outside(ts_bundle_writer *writer, uint32_t slice, const uint8_t *packet, size_t len,
                               ts_buffer *owner) TERSE_NODISCARD;

/* Reader: checks as it goes. */
typedef struct {
    const uint8_t *at, *end;
    int64_t previous;
    uint32_t slices; /* ids must be below */
} ts_bundle_reader;

ts_bundle_reader ts_bundle_read(const uint8_t *payload, size_t bytes, uint32_t slices);
/* The next entry. Returns TERSE_OK; TERSE_EAGAIN at the clean end; TERSE_ECORRUPT. */
terse_status ts_bundle_next(ts_bundle_reader *reader, uint32_t *slice, const uint8_t **packet, size_t *len) TERSE_NODISCARD;

#endif
