/* SPDX-License-Identifier: Apache-2.0 */
/* Byte packs around a packet. */
#include <string.h>

#include "common/base/bytes.h"
#include "common/codec/packet.h"

static size_t wrapped_bound(const ts_pipeline *p, size_t bytes) {
    for (int i = 0; i < TS_PIPELINE_BYTE_STAGES; i++) {
        if (!p->bytes[i]) continue;
        size_t packed = p->bytes[i]->bound(bytes, &p->bytes_args[i]);
        bytes = TS_VARINT_MAX_BYTES + (packed > bytes ? packed : bytes);
    }
    return bytes;
}

size_t ts_packet_bound(const ts_packet_slice *slice, size_t k) {
    return wrapped_bound(slice->pipeline, ts_packet_inner_bound(slice, k));
}

/* One pack; what it cannot shrink is stored. */
static terse_status wrap_once(ts_scratch *scratch, const ts_bytes_stage *stage, const ts_stage_args *args,
                              const uint8_t *in, size_t in_len, uint8_t *out, size_t capacity, size_t *len) {
    uint64_t stored = (uint64_t)in_len << 1;
    size_t head = ts_varint_bytes(stored), packed;
    TS_REQUIRE(capacity >= head + stage->bound(in_len, args) && capacity >= head + in_len, TERSE_ENOSPACE);
    TS_TRY(stage->encode(scratch, args, in, in_len, out + head, capacity - head, &packed));
    if (packed >= in_len) {
        memcpy(out + head, in, in_len);
        packed = in_len;
    } else {
        stored |= 1;
    }
    *len = ts_varint_put(out, stored) + packed;
    return TERSE_OK;
}

terse_status ts_packet_wrap(const ts_packet_slice *slice, ts_scratch *scratch, const uint8_t *inner, size_t inner_len,
                            uint8_t *out, size_t capacity, size_t *len) {
    const ts_pipeline *p = slice->pipeline;
    *len = 0;
    if (inner_len == 0) return TERSE_OK;
    if (!p->bytes[1]) {
        return wrap_once(scratch, p->bytes[0], &p->bytes_args[0], inner, inner_len, out, capacity, len);
    }
    size_t room = p->bytes[0]->bound(inner_len, &p->bytes_args[0]), between;
    if (room < inner_len) room = inner_len;
    room += TS_VARINT_MAX_BYTES;
    uint8_t *swap = ts_scratch_reserve(scratch, TS_SLOT_STAGED_SWAP, room);
    TS_REQUIRE(swap, TERSE_ENOMEM);
    TS_TRY(wrap_once(scratch, p->bytes[0], &p->bytes_args[0], inner, inner_len, swap, room, &between));
    return wrap_once(scratch, p->bytes[1], &p->bytes_args[1], swap, between, out, capacity, len);
}

/* One pack undone into `slot`, or a look into `in` when it was stored. */
static terse_status unwrap_once(ts_scratch *scratch, const ts_bytes_stage *stage, const ts_stage_args *args,
                                const uint8_t *in, size_t in_len, size_t limit, ts_scratch_slot slot,
                                const uint8_t **out, size_t *out_len) {
    uint64_t said;
    size_t head = ts_varint_get(in, in_len, &said);
    TS_REQUIRE(head > 0 && head == ts_varint_bytes(said), TERSE_ECORRUPT);
    uint64_t raw = said >> 1;
    TS_REQUIRE(raw > 0 && raw <= limit, TERSE_ECORRUPT);
    if (!(said & 1)) {
        TS_REQUIRE(in_len - head == raw, TERSE_ECORRUPT);
        *out = in + head;
        *out_len = (size_t)raw;
        return TERSE_OK;
    }
    TS_REQUIRE(in_len - head < raw, TERSE_ECORRUPT);
    uint8_t *to = ts_scratch_reserve(scratch, slot, (size_t)raw);
    TS_REQUIRE(to, TERSE_ENOMEM);
    TS_TRY(stage->decode(scratch, args, in + head, in_len - head, to, (size_t)raw));
    *out = to;
    *out_len = (size_t)raw;
    return TERSE_OK;
}

terse_status ts_packet_unwrap(const ts_packet_slice *slice, ts_scratch *scratch, const uint8_t *packet, size_t len,
                              const uint8_t **inner, size_t *inner_len) {
    const ts_pipeline *p = slice->pipeline;
    if (!p->bytes[0] || len == 0) {
        *inner = packet;
        *inner_len = len;
        return TERSE_OK;
    }
    size_t limit = ts_packet_inner_bound(slice, slice->n);
    if (p->bytes[1]) {
        size_t between = p->bytes[0]->bound(limit, &p->bytes_args[0]);
        between = (between > limit ? between : limit) + TS_VARINT_MAX_BYTES;
        TS_TRY(unwrap_once(scratch, p->bytes[1], &p->bytes_args[1], packet, len, between, TS_SLOT_STAGED_SWAP, &packet,
                           &len));
    }
    return unwrap_once(scratch, p->bytes[0], &p->bytes_args[0], packet, len, limit, TS_SLOT_STAGED, inner, inner_len);
}
