/* SPDX-License-Identifier: Apache-2.0 */
/* A server that dies, and the stand-in that takes its place (servers.replicas). */
#include <inttypes.h>

#include "common/base/log.h"
#include "worker/client/client_internal.h"

/* The servers decide at the deadline; so long their word may take to us, when a message or two of theirs is lost. */
#define WORD_US 4000000u

/* The others decide, at one deadline, or at two, when the one that leads them dies, too; as long as there are others. */
uint64_t ts_client_patience_us(const ts_client *client, const ts_client_server *server) {
    uint64_t own = client->state == TS_CLIENT_ATTACHING ? ts_config_start_us(client->config) : client->deadline_us;
    uint64_t now = ts_client_now(client), once = own + WORD_US;
    if (!client->replicas) return own;
    for (uint32_t s = 0; s < client->server_count; s++) {
        const ts_client_server *other = &client->servers[s];
        if (other->peer != server->peer && now - other->heard_us < client->deadline_us) return 2 * once;
    }
    return once;
}

ts_client_server *ts_client_speaker(ts_client *client, uint32_t peer, const Terse__Header *header) {
    for (uint32_t s = 0; s < client->server_count; s++) {
        ts_client_server *server = &client->servers[s];
        bool meant = header->part ? header->part - 1 == s : server->home == peer;
        if (meant) return server->peer == peer ? server : NULL;
    }
    return NULL;
}

void ts_client_head(const ts_client *client, const ts_client_server *server, Terse__Header *header) {
    header->job = client->job;
    header->part = server->peer == server->home ? 0 : (uint32_t)(server - client->servers) + 1;
}

void ts_client_list_dead(const ts_client *client, Terse__Heartbeat *beat, uint32_t *list) {
    beat->dead = list;
    for (uint32_t s = 0; s < client->server_count && beat->n_dead < client->dead_count; s++)
        if (client->servers[s].dead && beat->n_dead < TS_CLIENT_DEAD_LISTED) list[beat->n_dead++] = s;
}

/* Who stands in for a server; itself when there is one server. */
static const ts_client_server *standin_of(const ts_client *client, uint32_t number) {
    return &client->servers[(number + 1) % client->server_count];
}

void ts_client_find_standins(ts_client *client) {
    const ts_dead_set *absent = &client->transport->absent;
    for (uint32_t s = 0; s < client->server_count && absent->count > 0; s++) {
        ts_client_server *server = &client->servers[s];
        if (!ts_dead_set_has(absent, s)) continue;
        server->dead = client->replicas = true;
        client->dead_count++;
        server->peer = standin_of(client, s)->home;
        ts_log(TS_LOG_WARN, "client", "a server was dead before this worker came; its stand-in is in its place", "server=%" PRIu32
               " standin=\"%s\"", s, ts_client_server_name(client, server));
    }
}

void ts_client_greet_standin(ts_client *client, const ts_client_server *server) {
    if (server->peer != server->home || client->returning) return;
    for (uint32_t s = 0; s < client->server_count; s++) {
        ts_client_server *other = &client->servers[s];
        if (other != server && other->peer == server->home && (other->requests & TS_REQUEST_HELLO)) ts_client_send_hello(client, other);
    }
}

/* Should it live after all, it must not go on with some of the workers: they tell it. */
static void say_farewell(ts_client *client, ts_client_server *server) {
    Terse__Heartbeat beat = TERSE__HEARTBEAT__INIT;
    uint32_t list[TS_CLIENT_DEAD_LISTED];
    ts_client_list_dead(client, &beat, list);
    ts_client_send_control(client, server, TERSE__HEADER__BODY_HEARTBEAT, &beat);
    if (client->transport->ops->drop_peer) client->transport->ops->drop_peer(client->transport, server->home);
}

static void bury(ts_client *client, uint32_t number) {
    ts_client_server *server = &client->servers[number];
    const ts_client_server *standin = standin_of(client, number);
    uint64_t now = ts_client_now(client);
    server->dead = true;
    client->dead_count++;
    client->buried_us = now;
    ts_log(TS_LOG_WARN, "client", "a server is dead; its stand-in takes its place", "server=\"%s\" standin=\"%s\" step=%" PRIu64,
           ts_client_server_name(client, server), ts_client_server_name(client, standin), ts_client_step(client));
    say_farewell(client, server);
    if (standin->dead || standin == server) return; /* the servers end the job */
    ts_client_gather_forget(server); /* its header names the one that is dead */
    server->peer = standin->home;
    server->heard_us = server->asked_us = now;
    server->crowded = false;
    server->proven = standin->proven;
}

void ts_client_on_dead(ts_client *client, const Terse__Heartbeat *heartbeat) {
    if (heartbeat->replicas || heartbeat->n_dead > 0) client->replicas = true; /* it may not have been welcomed yet */
    for (size_t i = 0; i < heartbeat->n_dead; i++) {
        uint32_t number = heartbeat->dead[i];
        if (number >= client->server_count || client->servers[number].dead) continue;
        bury(client, number);
        for (uint32_t s = 0; s < client->server_count; s++) {
            client->servers[s].sent_us = 0; /* they hear that we know */
            /* Whose stand-in has died may have held an answer back for it, and we may have come to ask seldom. */
            client->servers[s].rto_us = TS_CLIENT_RTO_US;
            client->servers[s].rto_at_us = ts_client_now(client);
        }
    }
}
