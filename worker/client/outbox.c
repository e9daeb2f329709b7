/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/client/outbox.h"

#include "common/base/mem.h"

terse_status ts_outbox_create(uint32_t slices, ts_outbox *out) {
    ts_outbox_slot *slots = ts_mem_calloc(slices ? slices : 1, sizeof *slots);
    TS_REQUIRE(slots, TERSE_ENOMEM);
    *out = (ts_outbox){.slots = slots, .count = slices};
    return TERSE_OK;
}

static void release(ts_outbox_slot *slot) {
    if (slot->frame) ts_buffer_unref(slot->frame);
    else ts_mem_free(slot->bytes);
    slot->frame = NULL;
    slot->bytes = NULL;
    slot->capacity = 0;
}

void ts_outbox_destroy(ts_outbox *outbox) {
    for (uint32_t i = 0; i < outbox->count && !outbox->borrowed; i++) release(&outbox->slots[i]);
    ts_mem_free(outbox->slots);
    *outbox = (ts_outbox){0};
}

terse_status ts_outbox_reserve(ts_outbox_slot *slot, size_t bytes) {
    if (slot->frame) release(slot);
    if (slot->capacity >= bytes) return TERSE_OK;
    uint8_t *grown = ts_mem_realloc(slot->bytes, bytes, 1);
    TS_REQUIRE(grown, TERSE_ENOMEM);
    slot->bytes = grown;
    slot->capacity = bytes;
    return TERSE_OK;
}

void ts_outbox_frame(ts_outbox_slot *slot, ts_buffer *frame, uint8_t *packet, size_t len) {
    release(slot);
    slot->frame = frame;
    slot->bytes = packet;
    slot->capacity = slot->len = len;
}

ts_buffer *ts_outbox_take_frame(ts_outbox_slot *slot) {
    ts_buffer *frame = slot->frame;
    if (!frame) return NULL;
    slot->frame = NULL;
    slot->bytes = NULL;
    slot->capacity = 0;
    return frame;
}
