/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's core: the worker's side of the protocol as a state machine over
 * a transport; never waits. terse.h's calls wrap it (threads, deadlines), the
 * simulation drives it directly.
 *
 * Thread: every call under one lock of the owner's.
 */
#ifndef TS_CLIENT_H
#define TS_CLIENT_H

#include <stdbool.h>

#include "common/config/config.h"
#include "common/contract/contract.h"
#include "common/net/transport.h"

typedef struct ts_client ts_client;

typedef enum {
    TS_CLIENT_DECLARING,
    TS_CLIENT_ATTACHING,  /* Hello … Welcome from every server, parameters made equal */
    TS_CLIENT_TRAINING,
    TS_CLIENT_LEAVING,    /* Done sent, not yet acknowledged */
    TS_CLIENT_DONE,
    TS_CLIENT_FAILED      /* ts_client_message says why, ts_client_failure the status */
} ts_client_state;

/* config, transport: [borrow] until destroy. Installs itself as the transport's handler. */
terse_status ts_client_create(const ts_config *config, ts_transport *transport, ts_client **out) TERSE_NODISCARD;
void ts_client_destroy(ts_client *client);

terse_status ts_client_declare(ts_client *client, const char *name, const int64_t *shape, unsigned ndim, float *param,
                               uint32_t *tensor) TERSE_NODISCARD;
terse_status ts_client_set_total_steps(ts_client *client, uint64_t steps) TERSE_NODISCARD;
/* Starts attaching; the state becomes TRAINING when done. */
terse_status ts_client_start(ts_client *client) TERSE_NODISCARD;

/* Encodes now and queues the packets. TERSE_EAGAIN: the tensor's last version has not come yet (BSP): poll first. */
terse_status ts_client_push(ts_client *client, uint32_t tensor, const float *gradient) TERSE_NODISCARD;
terse_status ts_client_push_sparse(ts_client *client, uint32_t tensor, const uint32_t *index, const float *value,
                                   size_t count) TERSE_NODISCARD;
/* Whether the servers have acknowledged all of the tensor's pushes. */
bool ts_client_pushed(const ts_client *client, uint32_t tensor);
/* Wants the version after the last push. */
terse_status ts_client_pull(ts_client *client, uint32_t tensor) TERSE_NODISCARD;
/* Whether that version is here; decodes into param what has come, so call it when param may change. */
bool ts_client_pulled(ts_client *client, uint32_t tensor);
/* Sends what has gathered (small tensors share a frame). */
void ts_client_flush(ts_client *client);

terse_status ts_client_reduce(ts_client *client, const double *values, size_t count, uint64_t *sequence) TERSE_NODISCARD;
bool ts_client_reduced(ts_client *client, uint64_t sequence, double *values, size_t count);
terse_status ts_client_fetch(ts_client *client, uint32_t tensor, float *out) TERSE_NODISCARD; /* out: [borrow] until fetched */
bool ts_client_fetched(const ts_client *client, uint32_t tensor);
terse_status ts_client_request_stats(ts_client *client) TERSE_NODISCARD;
struct terse_stats;
bool ts_client_stats(ts_client *client, struct terse_stats *stats);
terse_status ts_client_done(ts_client *client) TERSE_NODISCARD;
/* Tells all servers the job must end, and why. */
void ts_client_abort(ts_client *client, terse_status status, const char *reason);

/* Deadlines, retransmission and heartbeats, by transport->now_us. Call every 10 … 200 ms. */
void ts_client_tick(ts_client *client);

ts_client_state ts_client_get_state(const ts_client *client);
terse_status ts_client_failure(const ts_client *client);
const char *ts_client_message(const ts_client *client);
void ts_client_waiting(const ts_client *client, char *text, size_t capacity);
uint64_t ts_client_step(const ts_client *client);
/* For audits and tests: the residual of a tensor, n elements. */
const float *ts_client_residual(const ts_client *client, uint32_t tensor);
const ts_contract *ts_client_contract(const ts_client *client);

#endif
