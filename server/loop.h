/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's loop: libuv around the server's core. The pump moves bytes, the
 * thread pool runs the heavy work, a timer ticks, signals end or dump.
 */
#ifndef TS_SERVER_LOOP_H
#define TS_SERVER_LOOP_H

#include "common/config/config.h"
#include "common/net/transport.h"
#include "server/server.h"

/* How a run ended. */
typedef struct {
    ts_server_state state;
    terse_status failure;
    ts_error message;
} ts_loop_end;

/* Who lives in the loop beside the server: a relay's upper half. Thread: the loop's, for all. */
typedef struct {
    void *context; /* [borrow] */
    /* The server exists and has not heard a frame. executor: [borrow] until ts_loop_run returns. */
    terse_status (*begin)(void *context, ts_server *server, ts_executor *executor, ts_error *error);
    void (*flush)(void *context); /* after each round of polling */
    void (*tick)(void *context);
    bool (*idle)(const void *context); /* nothing of it is in the executor */
} ts_loop_guest;

/*
 * Serves until all workers are done, or the job fails, or a signal ends it. config, transport: [borrow].
 * guest: [borrow], or NULL.
 * end: [out] filled when TERSE_OK is returned, whatever became of the job.
 * Thread: the caller's becomes the loop's. Returns: TERSE_OK; TERSE_ENOMEM, TERSE_EIO, TERSE_EUNSUPPORTED (nothing
 * was served).
 */
terse_status ts_loop_run(const ts_config *config, ts_transport *transport, const ts_loop_guest *guest, ts_loop_end *end)
    TERSE_NODISCARD;

#endif
