/* SPDX-License-Identifier: Apache-2.0 */
/* What a server says of itself and its jobs, as JSON: for `terse status`. */
#ifndef TS_SERVER_STATUS_H
#define TS_SERVER_STATUS_H

#include "server/server.h"

/*
 * One JSON object, with its line end. draining: nobody is let in any more. text: [out] [own] free() it. bytes: [out].
 * Keys, stable: version, pid, time (seconds since 1970), server, servers, state (running | draining | finished | failed),
 * message, memory_bytes, and jobs, a list of those that run and the last ones that have ended: number, name, state
 * (running | finished | failed), workers, attached, done, gone, step, waiting ("" for nobody), message, orphaned
 * (all workers are lost) and orphan_s (so long it is still kept), lost: a list of worker, name, for_s, coming (a process is
 * just coming in its place), bring_back (a command; "" where there is none).
 * Returns TERSE_OK, TERSE_ENOMEM. Thread: the loop's.
 */
terse_status ts_server_status(const ts_server *server, bool draining, char **text, size_t *bytes) TERSE_NODISCARD;

#endif
