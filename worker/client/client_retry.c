/* SPDX-License-Identifier: Apache-2.0 */
/* Time: heartbeats, retransmission, and peers that fell silent. */
#include <inttypes.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "worker/client/client_internal.h"

/* Sends again what a server has not answered for. */
static void repeat_pushes(ts_client *client, ts_client_server *server) {
    uint32_t *locals = ts_mem_calloc(server->slice_count ? server->slice_count : 1, sizeof *locals);
    if (!locals) return;
    uint32_t count = 0;
    size_t bytes = 0, most = server->crowded ? TS_CLIENT_CROWDED_BYTES : SIZE_MAX;
    server->crowded = false; /* unless this is not all, or the server says so again */
    for (uint32_t i = 0; i < server->slice_count && !server->crowded; i++) {
        const ts_outbox_slot *slot = &client->outbox.slots[server->slices[i]];
        if (slot->state != TS_SLOT_SENT) continue;
        if (count > 0 && slot->len > most - bytes) {
            server->crowded = true;
            break;
        }
        bytes += slot->len;
        locals[count++] = i;
    }
    if (count) {
        client->counters.retransmits++;
        ts_client_send_packets(client, server, locals, count);
    }
    ts_mem_free(locals);
}

static void repeat_requests(ts_client *client, ts_client_server *server) {
    unsigned requests = server->requests;
    if (requests) client->counters.retransmits++;
    if (requests & TS_REQUEST_HELLO) ts_client_send_hello(client, server);
    if (requests & TS_REQUEST_CONTRACT) ts_client_send_contract(client, server);
    if (requests & TS_REQUEST_SET) ts_client_send_set(client, server);
    if (requests & TS_REQUEST_SNAPSHOT) ts_client_send_snapshot_pull(client, server);
    if (requests & TS_REQUEST_DONE) ts_client_send_done(client, server);
    if (requests & TS_REQUEST_STATS) ts_client_send_stats_request(client, server);
    if (requests & TS_REQUEST_REDUCE) ts_client_send_reduce(client);
    if (requests & TS_REQUEST_FETCH) ts_client_send_fetches(client, server);
}

/* Who has not come in yet asks often enough that a bad network does not use up consistency.start_s in a few words. */
static uint64_t longest_rto_us(const ts_client *client) {
    uint64_t tenth = ts_config_start_us(client->config) / 10;
    if (client->state != TS_CLIENT_ATTACHING || tenth > TS_CLIENT_RTO_MAX_US) return TS_CLIENT_RTO_MAX_US;
    return tenth > TS_CLIENT_RTO_US ? tenth : TS_CLIENT_RTO_US;
}

static void retransmit(ts_client *client, ts_client_server *server, uint64_t now) {
    if (now < server->rto_at_us || !ts_client_owes(client, server)) return;
    /* While our own bytes still stand in the queue nothing can be said of the other side. */
    if (client->transport->ops->queued(client->transport, server->peer) > 0) {
        server->rto_at_us = now + server->rto_us;
        return;
    }
    uint64_t asked_us = server->asked_us, longest = longest_rto_us(client);
    server->rto_us = server->rto_us * 2 < longest ? server->rto_us * 2 : longest;
    repeat_requests(client, server);
    if (client->state != TS_CLIENT_ATTACHING) {
        repeat_pushes(client, server);
        ts_client_pull_missing(client, server);
    }
    server->asked_us = asked_us;
    server->rto_at_us = now + server->rto_us;
}

void ts_client_send_heartbeat(ts_client *client, ts_client_server *server) {
    char waiting[200];
    Terse__Heartbeat beat = TERSE__HEARTBEAT__INIT;
    ts_client_waiting(client, waiting, sizeof waiting);
    beat.step = ts_client_step(client);
    beat.waiting = waiting;
    beat.leaving = client->rest.leaving;
    uint32_t dead[TS_CLIENT_DEAD_LISTED];
    ts_client_list_dead(client, &beat, dead);
    ts_client_send_control(client, server, TERSE__HEADER__BODY_HEARTBEAT, &beat);
    server->sent_us = ts_client_now(client); /* also when it could not be sent: not again at once */
}

static void heartbeat(ts_client *client, ts_client_server *server, uint64_t now) {
    if (now - server->sent_us >= ts_heartbeat_us(client->deadline_us)) ts_client_send_heartbeat(client, server);
}

/* Whether a server has been silent too long; then the client fails and says so. */
static bool silent(ts_client *client, ts_client_server *server, uint64_t now) {
    if (client->state == TS_CLIENT_DECLARING || now - server->heard_us < ts_client_patience_us(client, server)) return false;
    char awaited[200], advice[160] = "";
    uint64_t version;
    ts_client_awaited(client, server, awaited, sizeof awaited);
    if (ts_client_last_checkpoint(client, &version))
        snprintf(advice, sizeof advice, "; the last checkpoint is at step %" PRIu64 ": the same mpirun command goes on from it",
                 version);
    else if (client->checkpoint.epoch[0])
        snprintf(advice, sizeof advice, "; there is no complete checkpoint yet: the same mpirun command begins anew");
    bool starts = client->state == TS_CLIENT_ATTACHING;
    uint64_t allowed_us = starts ? ts_config_start_us(client->config) : client->deadline_us;
    ts_client_fail(client, TERSE_ETIMEDOUT, "%s has been silent for %.1f s (consistency.%s is %g); awaited from it: %s%s",
                   ts_client_server_name(client, server), (double)(now - server->heard_us) / 1e6,
                   starts ? "start_s" : "deadline_s", (double)allowed_us / 1e6, awaited, advice);
    return true;
}

/* Nobody looked for a long while (no communication thread, or the process was stopped): what came may still be unread. */
static void forgive_own_absence(ts_client *client, uint64_t now) {
    uint64_t absent = now - client->ticked_us;
    client->ticked_us = now;
    if (absent < client->deadline_us / 4 || absent < TS_CLIENT_ABSENT_US) return;
    for (uint32_t s = 0; s < client->server_count; s++) {
        uint64_t *heard_us = &client->servers[s].heard_us;
        *heard_us = now - *heard_us > absent ? *heard_us + absent : now;
    }
}

void ts_client_tick(ts_client *client) {
    uint64_t now = ts_client_now(client);
    forgive_own_absence(client, now);
    for (uint32_t s = 0; s < client->server_count && client->state != TS_CLIENT_FAILED; s++) {
        ts_client_server *server = &client->servers[s];
        if (silent(client, server, now)) return;
        if (server->gathered_count && now - server->gathered_since_us >= TS_CLIENT_GATHER_US)
            ts_client_flush_server(client, server);
        if (client->state != TS_CLIENT_DECLARING) retransmit(client, server, now);
    }
    /* Behind all of these: one server may speak for two, and what is queued for it holds back what is sent again. */
    for (uint32_t s = 0; s < client->server_count && client->state != TS_CLIENT_FAILED; s++)
        heartbeat(client, &client->servers[s], now);
    if (client->state != TS_CLIENT_FAILED && client->server_count > 0) ts_client_checkpoint_tick(client);
}
