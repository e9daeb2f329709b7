/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A relay: the upstream (server/upstream.h) of one server, and a client (worker/client) of the servers above it. Its
 * pushes have the pipeline, the residual and the schedule of its own config, so that the slow link between two sites
 * says less than the fast ones inside.
 *
 * Thread: all calls on the loop's, which owns both transports. Encoding and decoding run in the executor, one work at a
 * time, on arrays that are the relay's meanwhile.
 */
#ifndef TS_RELAY_H
#define TS_RELAY_H

#include "common/base/executor.h"
#include "common/config/config.h"
#include "common/net/transport.h"
#include "server/server.h"
#include "server/upstream.h"

typedef struct ts_relay ts_relay;

/*
 * config: how it talks to the servers above; transport: to them, as a worker of theirs, its handler is the relay's from
 * now on. All: [borrow] until destroy. out: [own], ts_relay_destroy. Returns TERSE_ENOMEM.
 */
terse_status ts_relay_create(const ts_config *config, ts_transport *transport, ts_executor *executor, ts_relay **out)
    TERSE_NODISCARD;
void ts_relay_destroy(ts_relay *relay); /* when it is idle; after the server; NULL is fine */

/* Makes it the server's upstream. server: [borrow]. Returns as ts_server_set_upstream. */
terse_status ts_relay_bind(ts_relay *relay, ts_server *server, ts_error *error) TERSE_NODISCARD;

/* After each round of polling: what is ready goes up, what came back goes to the server. */
void ts_relay_flush(ts_relay *relay);
/* Deadlines and heartbeats above; passes on failures, from either side to the other. Every 10 … 200 ms. */
void ts_relay_tick(ts_relay *relay);
/* No work of it is in the executor. */
bool ts_relay_idle(const ts_relay *relay);
/* The client above, for its counters. [borrow] */
struct ts_client;
const struct ts_client *ts_relay_client(const ts_relay *relay);

#endif
