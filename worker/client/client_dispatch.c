/* SPDX-License-Identifier: Apache-2.0 */
/* Frames from servers, to whom they concern. */
#include <stdio.h>

#include "worker/client/client_internal.h"

static void note_heard(ts_client *client, uint32_t peer) {
    for (uint32_t s = 0; s < client->server_count; s++)
        if (client->servers[s].peer == peer) client->servers[s].heard_us = ts_client_now(client);
}

static bool knows(const ts_client *client, uint32_t peer) {
    for (uint32_t s = 0; s < client->server_count; s++)
        if (client->servers[s].peer == peer) return true;
    return false;
}

static void on_ack(ts_client *client, ts_client_server *server, const Terse__Ack *ack) {
    if ((ack->incarnation ? ack->incarnation : 1) != client->incarnation) { /* what it says of a step, it says of another life's packet */
        client->counters.dropped_frames++;
        return;
    }
    if (server->requests & TS_REQUEST_SET) ts_client_on_set_ack(client, server, ack);
    else if (!ack->n_slices) ts_client_on_done_ack(client, server, ack);
    else if (client->slices) ts_client_on_push_ack(client, server, ack);
}

static void on_abort(ts_client *client, ts_client_server *server, const Terse__Abort *message) {
    terse_status status = message->status ? (terse_status)message->status : TERSE_EPEER;
    if (status == TERSE_ESTALE && ts_client_note_stale(client, server, message)) return;
    if (status == TERSE_ESTALE)
        ts_client_told_to_end(client, status, "%s has given this worker up: %s", ts_client_server_name(client, server), message->reason);
    else {
        ts_client_keep_job_ended(client);
        ts_client_told_to_end(client, status, "%s ended the job: %s", ts_client_server_name(client, server), message->reason);
    }
}

static void dispatch(ts_client *client, ts_client_server *server, ts_buffer *buffer, const ts_frame *frame) {
    const Terse__Header *header = frame->header;
    switch (header->body_case) {
    case TERSE__HEADER__BODY_WELCOME: ts_client_on_welcome(client, server, header->welcome); break;
    case TERSE__HEADER__BODY_DATA: ts_client_on_data(client, server, buffer, frame); break;
    case TERSE__HEADER__BODY_ACK: on_ack(client, server, header->ack); break;
    case TERSE__HEADER__BODY_REDUCED: ts_client_on_reduced(client, server, header->reduced); break;
    case TERSE__HEADER__BODY_STATS: ts_client_on_stats(client, server, header->stats); break;
    case TERSE__HEADER__BODY_ABORT: on_abort(client, server, header->abort); break;
    case TERSE__HEADER__BODY_HEARTBEAT:
        snprintf(server->waiting, sizeof server->waiting, "%s", header->heartbeat->waiting);
        ts_client_on_dead(client, header->heartbeat);
        break;
    case TERSE__HEADER__BODY_CHECKPOINT: ts_client_on_checkpoint(client, header->checkpoint); break;
    case TERSE__HEADER__BODY_MEMBERS: break; /* who takes part is the servers' business in BSP */
    default: client->counters.dropped_frames++; break;
    }
}

void ts_client_on_frame(void *context, uint32_t peer, ts_buffer *buffer) {
    ts_client *client = context;
    ts_frame frame = {0};
    if (!knows(client, peer) || client->state == TS_CLIENT_FAILED) return;
    client->counters.bytes_in += buffer->len;
    if (ts_frame_parse(buffer, &frame) != TERSE_OK) {
        client->counters.dropped_frames++; /* a frame that was damaged on its way is asked for again */
        return;
    }
    note_heard(client, peer);
    ts_client_server *server = ts_client_speaker(client, peer, frame.header);
    if (server && frame.header->job == client->job) dispatch(client, server, buffer, &frame);
    else client->counters.dropped_frames++;
    ts_frame_release(&frame);
}
