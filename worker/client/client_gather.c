/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small packets wait for others of their server, and travel together. Where lengths are known before and slices ascend they
 * are written into the frame itself, and the outbox refers to them there. A frame that cannot go on (a slice before the last
 * one, another step, a packet of unknown length) is given up: its packets stay where they are, and are copied with the others.
 */
#include <stdlib.h>

#include "worker/client/client_internal.h"

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

void ts_client_gather_forget(ts_client_server *server) {
    ts_buffer_unref(server->filling.frame);
    server->filling.frame = NULL;
}

void ts_client_flush_server(ts_client *client, ts_client_server *server) {
    if (!server->gathered_count || client->state == TS_CLIENT_FAILED) return;
    ts_buffer *frame = server->filling.frame;
    size_t faded = server->gathers_bytes - server->gathers_bytes / 8;
    server->gathers_bytes = server->gathered_bytes > faded ? server->gathered_bytes : faded;
    server->filling.frame = NULL;
    if (!frame) qsort(server->gathered, server->gathered_count, sizeof *server->gathered, ascending);
    for (uint32_t i = 0; i < server->gathered_count; i++)
        client->outbox.slots[server->slices[server->gathered[i]]].state = TS_SLOT_SENT;
    if (frame && ts_frame_finish(frame) == TERSE_OK) {
        ts_client_send(client, server, frame);
        ts_client_asked(client, server, 0);
    } else {
        ts_buffer_unref(frame);
        ts_client_send_packets(client, server, server->gathered, server->gathered_count);
    }
    server->gathered_count = 0;
    server->gathered_bytes = 0;
}

void ts_client_flush(ts_client *client) {
    for (uint32_t s = 0; s < client->server_count; s++) ts_client_flush_server(client, &client->servers[s]);
}

static bool has_room(const ts_client_server *server, size_t bytes) {
    return server->gathered_bytes + bytes <= TS_CLIENT_GATHER_BYTES;
}

static void join(ts_client *client, uint32_t slice) {
    ts_outbox_slot *slot = &client->outbox.slots[slice];
    ts_client_server *server = &client->servers[client->contract->slices[slice].server];
    size_t bytes = slot->len + TS_BUNDLE_ENTRY_MAX_BYTES;
    if (!has_room(server, bytes)) ts_client_flush_server(client, server);
    slot->state = TS_SLOT_GATHERED;
    client->tensors[client->contract->slices[slice].tensor].unanswered++;
    client->counters.push_payload_bytes += slot->len;
    if (!server->gathered_count) server->gathered_since_us = ts_client_now(client);
    server->gathered[server->gathered_count++] = client->contract->slices[slice].local;
    server->gathered_bytes += bytes;
    if (!has_room(server, bytes)) ts_client_flush_server(client, server); /* for another one like it */
}

void ts_client_gather(ts_client *client, uint32_t slice) {
    ts_client_gather_forget(&client->servers[client->contract->slices[slice].server]);
    join(client, slice);
}

/* Whether the slice's packet can come behind those that are in the frame. */
static bool goes_on(const ts_client *client, const ts_client_server *server, uint32_t slice, size_t bytes) {
    const ts_bundle_writer *writer = &server->filling;
    const ts_slice *place = &client->contract->slices[slice];
    if (!writer->frame || (int64_t)place->local <= writer->previous) return false;
    uint32_t first = server->slices[server->gathered[0]];
    const ts_outbox_slot *slot = &client->outbox.slots[first];
    const ts_client_tensor *theirs = &client->tensors[client->contract->slices[first].tensor];
    const ts_client_tensor *tensor = &client->tensors[place->tensor];
    return slot->step == tensor->step && slot->samples == client->samples && theirs->on_demand == tensor->on_demand &&
           ts_frame_has_room(writer->frame, bytes + TS_BUNDLE_ENTRY_MAX_BYTES); /* what is in it is referred to */
}

/* Of the next frame; 0: a packet of so many will be alone in it, as others lately were, and is copied as fast. */
static size_t frame_bytes(const ts_client_server *server, size_t bytes) {
    size_t likely = server->gathers_bytes + server->gathers_bytes / 4;
    if (likely > TS_CLIENT_GATHER_BYTES) likely = TS_CLIENT_GATHER_BYTES;
    return likely < 2 * bytes ? 0 : likely;
}

bool ts_client_gather_open(ts_client *client, uint32_t slice, size_t bytes, ts_gathering *out) {
    const ts_slice *place = &client->contract->slices[slice];
    ts_client_server *server = &client->servers[place->server];
    size_t entry = bytes + TS_BUNDLE_ENTRY_MAX_BYTES;
    if (!ts_client_in_rounds(client) || client->settles) return false; /* the header says what is held of each slice */
    if (!has_room(server, entry)) ts_client_flush_server(client, server);
    if (server->gathered_count == 0) {
        size_t room = frame_bytes(server, entry);
        ts_buffer *frame;
        if (room == 0 || ts_client_begin_together(client, server, slice, room, &frame) != TERSE_OK) return false;
        server->filling = ts_bundle_write(frame);
    } else if (!goes_on(client, server, slice, bytes)) {
        return false;
    }
    *out = (ts_gathering){.writer = server->filling, .before = server->gathered_count, .peer = server->peer};
    server->filling.frame = NULL;
    if (ts_bundle_room(&out->writer, place->local, bytes, &out->packet) == TERSE_OK) return true;
    ts_buffer_unref(out->writer.frame);
    return false;
}

void ts_client_gather_close(ts_client *client, uint32_t slice, ts_gathering *gathering) {
    ts_client_server *server = &client->servers[client->contract->slices[slice].server];
    /* Else those before it have been sent meanwhile, or it is for a server that is dead. */
    if (server->gathered_count == gathering->before && server->peer == gathering->peer) server->filling = gathering->writer;
    else ts_buffer_unref(gathering->writer.frame);
    join(client, slice);
}
