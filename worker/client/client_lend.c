/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients that go out from where they lie. A step's gradients stay as they are until it is over, and by then the servers
 * have answered for them as a rule, so a copy would only cost time. What is still needed then (the step has failed) is copied.
 *
 * Only where nobody but the server that a frame is queued for can answer for it: else frames could stay queued for a dead one.
 */
#include <inttypes.h>

#include "common/base/mem.h"
#include "common/codec/kernels.h"
#include "worker/client/client_internal.h"

#define PART_ELEMS 4096u /* are looked at and summed while they are in the nearest cache */

static terse_status prepare(ts_client *client) {
    if (!client->lent.owner) TS_TRY(ts_buffer_create(1, &client->lent.owner));
    if (!client->lent.sum) TS_TRY(ts_frame_sum_create(&client->lent.sum));
    if (client->lent.count < client->lent.room) return TERSE_OK;
    uint32_t room = client->lent.room ? client->lent.room * 2 : 64;
    ts_buffer **frames = ts_mem_realloc(client->lent.frames, room, sizeof(ts_buffer *));
    TS_REQUIRE(frames, TERSE_ENOMEM);
    client->lent.frames = frames;
    uint32_t *slices = ts_mem_realloc(client->lent.slices, room, sizeof *slices);
    TS_REQUIRE(slices, TERSE_ENOMEM);
    client->lent.slices = slices;
    client->lent.room = room;
    return TERSE_OK;
}

/* The checksum of a frame of floats as they are. Returns TERSE_EUNSUPPORTED where an encoder would change some. */
static terse_status sum_up(ts_frame_sum *sum, const float *x, size_t n) {
    const ts_kernels *kernels = ts_kernels_get(ts_cpu_simd());
    for (size_t at = 0, count; at < n; at += count) {
        count = n - at < PART_ELEMS ? n - at : PART_ELEMS;
        TS_REQUIRE(kernels->plain(x + at, count), TERSE_EUNSUPPORTED);
        ts_frame_sum_outside(sum, x + at, count * sizeof *x);
    }
    return TERSE_OK;
}

static terse_status fill(ts_client *client, uint32_t slice, const float *x, ts_buffer *frame) {
    const ts_slice *place = &client->contract->slices[slice];
    ts_bundle_writer writer = ts_bundle_write(frame);
    TS_TRY(ts_bundle_outside(&writer, place->local, (const uint8_t *)x, place->n * sizeof *x, client->lent.owner));
    ts_frame_sum_begin(client->lent.sum);
    ts_frame_sum_reach(client->lent.sum, frame, frame->len);
    TS_TRY(sum_up(client->lent.sum, x, place->n));
    return ts_frame_sum_finish(client->lent.sum, frame);
}

terse_status ts_client_lend(ts_client *client, uint32_t t, uint32_t slice, size_t bytes, ts_buffer **out) {
    const ts_client_tensor *tensor = &client->tensors[t];
    const ts_slice *place = &client->contract->slices[slice];
    bool answered = ts_client_in_rounds(client) && !client->settles && !client->replicas && !tensor->on_demand;
    if (!tensor->lends || !answered) return TERSE_EUNSUPPORTED;
    const float *x = ts_encoder_unchanged(tensor->encoder, slice - client->contract->tensors[t].first_slice);
    if (!x || bytes != place->n * sizeof *x) return TERSE_EUNSUPPORTED;
    TS_TRY(prepare(client));
    ts_buffer *frame;
    TS_TRY(ts_client_begin_alone(client, &client->servers[place->server], slice, 0, &frame));
    ts_client_let_go(client);
    terse_status status = fill(client, slice, x, frame);
    ts_client_take_back(client);
    if (status != TERSE_OK) {
        ts_buffer_unref(frame);
        return status;
    }
    client->lent.slices[client->lent.count] = slice;
    client->lent.frames[client->lent.count++] = ts_buffer_ref(frame);
    *out = frame;
    return TERSE_OK;
}

bool ts_client_has_lent(ts_client *client) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < client->lent.count; i++) {
        ts_buffer *frame = client->lent.frames[i];
        if (ts_buffer_sole(frame)) ts_buffer_unref(frame);
        else client->lent.slices[kept] = client->lent.slices[i], client->lent.frames[kept++] = frame;
    }
    client->lent.count = kept;
    return kept > 0;
}

bool ts_client_lent_under_way(const ts_client *client) {
    for (uint32_t i = 0; i < client->lent.count; i++) {
        const ts_buffer *frame = client->lent.frames[i];
        int here = client->outbox.slots[client->lent.slices[i]].frame == frame ? 2 : 1; /* the outbox, and this list */
        if (!ts_buffer_held_by(frame, here)) return true;
    }
    return false;
}

terse_status ts_client_recall(ts_client *client) {
    terse_status status = TERSE_OK;
    if (!ts_client_has_lent(client)) return TERSE_OK;
    for (uint32_t i = 0; i < client->lent.count; i++) {
        terse_status copied = ts_buffer_bring_in(client->lent.frames[i]);
        if (copied != TERSE_OK) status = copied;
        ts_buffer_unref(client->lent.frames[i]);
    }
    client->lent.count = 0;
    for (uint32_t i = 0; i < client->outbox.count; i++) {
        ts_outbox_slot *slot = &client->outbox.slots[i];
        if (slot->frame && slot->frame->outside) slot->bytes = (uint8_t *)(uintptr_t)slot->frame->outside; /* only read */
    }
    if (status != TERSE_OK) return ts_client_fail(client, status, "no memory for gradients that the servers have not acknowledged");
    return TERSE_OK;
}

void ts_client_lent_free(ts_client *client) {
    for (uint32_t i = 0; i < client->lent.count; i++) ts_buffer_unref(client->lent.frames[i]);
    ts_mem_free(client->lent.frames);
    ts_mem_free(client->lent.slices);
    ts_frame_sum_destroy(client->lent.sum);
    ts_buffer_unref(client->lent.owner);
}
