/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outbox: the packet of each slice, kept from its encoding until the server
 * has answered for it. In BSP a slice has at most one packet under way, so a
 * slot a slice is enough; its memory grows to the largest packet and is reused.
 * A packet that is a frame of its own lies in that frame, which is reused, too.
 */
#ifndef TS_OUTBOX_H
#define TS_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buffer.h"
#include "common/base/status.h"

typedef enum {
    TS_SLOT_FREE,     /* nothing, or answered for */
    TS_SLOT_GATHERED, /* encoded, not handed to the transport yet */
    TS_SLOT_SENT,     /* no answer yet: retransmitted */
    TS_SLOT_ACKED,    /* the server holds it, the round is still open; or it is of a former life, and the server will say */
    TS_SLOT_REFUSED   /* the server will never take it: goes back into the residual */
} ts_slot_state;

typedef struct {
    uint8_t *bytes;   /* inside frame when there is one, else its own memory */
    size_t capacity, len;
    ts_buffer *frame; /* a reference: large packets are written where they travel */
    uint64_t step;
    uint32_t samples; /* that the gradient was a mean of; 0 when nobody said */
    uint32_t corrupt; /* how often the server has refused it as corrupt */
    bool restart;     /* `delta`: what the server holds is not what we think */
    uint64_t whole_from; /* `delta`: the step of the last packet that began anew after a restart */
    ts_slot_state state;
} ts_outbox_slot;

typedef struct {
    ts_outbox_slot *slots; /* one a slice of the job, by global slice number */
    uint32_t count;
    bool borrowed;         /* the packets' memory is somebody else's (keep.h) */
} ts_outbox;

/* out: zeroed before. Returns TERSE_OK or TERSE_ENOMEM. */
terse_status ts_outbox_create(uint32_t slices, ts_outbox *out) TERSE_NODISCARD;
void ts_outbox_destroy(ts_outbox *outbox); /* a zeroed one is fine */
/* Room for a packet of `bytes`; a frame that it lay in goes. Returns TERSE_OK or TERSE_ENOMEM (the slot is as before). */
terse_status ts_outbox_reserve(ts_outbox_slot *slot, size_t bytes) TERSE_NODISCARD;
/* Its packet lies in a frame from now on. frame: takes the reference. */
void ts_outbox_frame(ts_outbox_slot *slot, ts_buffer *frame, uint8_t *packet, size_t len);
/* Gives the frame up, and the packet with it. Returns: the reference; NULL when there is none. */
ts_buffer *ts_outbox_take_frame(ts_outbox_slot *slot);
/* Whether the packet still needs an answer. */
static inline bool ts_outbox_unanswered(const ts_outbox_slot *slot) {
    return slot->state == TS_SLOT_GATHERED || slot->state == TS_SLOT_SENT;
}

#endif
