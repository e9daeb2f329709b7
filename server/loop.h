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

/*
 * Serves until all workers are done, or the job fails, or a signal ends it. config, transport: [borrow].
 * end: [out] filled when TERSE_OK is returned, whatever became of the job.
 * Thread: the caller's becomes the loop's. Returns: TERSE_OK; TERSE_ENOMEM, TERSE_EIO, TERSE_EUNSUPPORTED (nothing
 * was served).
 */
terse_status ts_loop_run(const ts_config *config, ts_transport *transport, ts_loop_end *end) TERSE_NODISCARD;

#endif
