/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coming back (WIRE.md, "Coming back"): a worker that was given up, or one whose process is a new one with what the former
 * has kept. Server 0 is asked first, and says at which step; each server says which packets it has used, and the others go
 * back to the residual before the next gradient enters; then snapshots, as at the beginning.
 */
#include <inttypes.h>

#include "common/base/log.h"
#include "worker/client/client_internal.h"

/* Whether no step is half pushed: every tensor was pushed as often. */
static bool is_between(const ts_client *client) {
    uint64_t first = client->tensors[0].step + (client->tensors[0].phase != TS_TENSOR_IDLE);
    for (uint32_t t = 1; t < client->contract->tensor_count; t++)
        if (client->tensors[t].step + (client->tensors[t].phase != TS_TENSOR_IDLE) != first) return false;
    return client->deferred_tensors == 0;
}

/* Also who is on its way back is given up, when some server does not hear it, or dies; it may not know yet that it comes back. */
static bool is_on_its_way(const ts_client *client) {
    return client->state == TS_CLIENT_ATTACHING && (client->returning || client->incarnation > 1);
}

/* Also who has said that it is done, and was not heard: it has to say so again, in a later life. */
static bool may_return(const ts_client *client) {
    bool in_turn = client->state == TS_CLIENT_TRAINING || client->state == TS_CLIENT_LEAVING || is_on_its_way(client);
    return in_turn && client->config->optimizer.name != TS_OPTIMIZER_NONE;
}

bool ts_client_note_stale(ts_client *client, const ts_client_server *server, const Terse__Abort *message) {
    bool other = message->incarnation > 0 && message->incarnation != client->incarnation;
    if (other || client->stale) return true; /* said of a former life, or known */
    if (!may_return(client)) return false;
    client->stale = true;
    ts_log(TS_LOG_WARN, "client", "given up by the servers: this worker will come back", "server=\"%s\" step=%" PRIu64 " reason=\"%s\"",
           ts_client_server_name(client, server), ts_client_step(client), message->reason);
    return true;
}

/* Nothing is under way any more; what was pushed stays in the outbox until the servers have said what became of it. */
static void put_down(ts_client *client) {
    for (uint32_t s = 0; s < client->server_count; s++) {
        ts_client_server *server = &client->servers[s];
        server->requests &= TS_REQUEST_REDUCE | TS_REQUEST_STATS | TS_REQUEST_FETCH;
        server->unsettled = server->slice_count;
        ts_client_gather_forget(server);
        server->gathered_count = 0;
        server->gathered_bytes = 0;
        server->crowded = false;
    }
    for (uint32_t i = 0; i < client->contract->slice_count; i++) {
        ts_client_drop_arrivals(client, &client->slices[i]);
        client->slices[i].settled = false;
        /* No answer is counted on: one that is still on its way would be counted twice, since none is left to come. */
        if (ts_outbox_unanswered(&client->outbox.slots[i])) client->outbox.slots[i].state = TS_SLOT_ACKED;
    }
    for (uint32_t t = 0; t < client->contract->tensor_count; t++) {
        ts_client_tensor *tensor = &client->tensors[t];
        tensor->phase = TS_TENSOR_IDLE;
        tensor->unanswered = 0;
        tensor->arrived = tensor->asked = false;
    }
    client->pushed_tensors = 0;
    client->unanswered_bytes = client->undecoded_bytes = 0;
}

void ts_client_begin_return(ts_client *client) {
    client->returning = true;
    client->return_told = false;
    client->state = TS_CLIENT_ATTACHING;
    ts_client_send_hello(client, &client->servers[0]); /* the others when it has said that they know */
}

bool ts_client_comes_back(ts_client *client) {
    if (!client->stale || client->state == TS_CLIENT_FAILED) return false;
    if (!may_return(client)) return false; /* all that it waited for has come meanwhile */
    if (!is_on_its_way(client) && !is_between(client)) {
        ts_client_told_to_end(client, TERSE_ESTALE, "the servers have given this worker up in the middle of a step");
        return false;
    }
    client->stale = false;
    put_down(client);
    client->incarnation++;
    if (client->keep) ts_keep_set_incarnation(client->keep, client->incarnation);
    ts_client_checkpoint_forget_cut(client);
    ts_client_begin_return(client);
    return true;
}

void ts_client_come_back_due(ts_client *client) {
    if (client->stale) (void)ts_client_comes_back(client);
}

/* What became of a packet of a former life: it is the server's, or ours again. */
static void settle_packet(ts_client *client, uint32_t slice, uint64_t next) {
    ts_outbox_slot *slot = &client->outbox.slots[slice];
    if (ts_pipeline_is_stateful(&client->contract->tensors[client->contract->slices[slice].tensor].push)) slot->restart = true;
    if (slot->state == TS_SLOT_FREE || slot->state == TS_SLOT_REFUSED) return;
    if (slot->step < next) {
        ts_client_slot_settled(client, slice);
        return;
    }
    slot->state = TS_SLOT_REFUSED;
    client->counters.refused_packets++;
}

bool ts_client_on_joined(ts_client *client, ts_client_server *server, const Terse__Joined *joined) {
    bool first = server == &client->servers[0];
    if (joined->incarnation != client->incarnation || joined->n_next != server->slice_count || (!first && !client->return_told)) {
        client->counters.dropped_frames++;
        return false;
    }
    for (uint32_t i = 0; i < server->slice_count; i++) settle_packet(client, server->slices[i], joined->next[i]);
    if (!first || client->return_told) return true;
    client->return_told = true;
    client->return_from = joined->from;
    for (uint32_t s = 1; s < client->server_count; s++) ts_client_send_hello(client, &client->servers[s]);
    return true;
}

void ts_client_has_returned(ts_client *client) {
    client->returning = false;
    client->returns++;
    ts_log(TS_LOG_INFO, "client", "back in the job", "life=%" PRIu32 " step=%" PRIu64, client->incarnation, ts_client_step(client));
}

uint32_t ts_client_returns(const ts_client *client) { return client->returns; }

bool ts_client_gives_back(const ts_client *client, uint32_t slice, uint64_t *step) {
    if (!client->outbox.slots || client->outbox.slots[slice].state != TS_SLOT_REFUSED) return false;
    *step = client->outbox.slots[slice].step;
    return true;
}
