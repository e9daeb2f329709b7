/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose work goes to the executor next, when several jobs have some: start-time fair queueing (Goyal 1996). Each job's next
 * work carries a tag, which grows with the bytes of work the job was given; the lowest tag goes first, and one that had
 * nothing to do starts from the tag last served, so that waiting earns no credit. The executor holds no more works than it
 * has threads: so a job that comes with little waits for one work of another at most, however much that one has ready.
 * A work is at most servers.slice_elems of one job (a tensor, where tensors are not cut). With one job: its order.
 */
#ifndef TS_SERVER_TURNS_H
#define TS_SERVER_TURNS_H

#include "server/server_internal.h"

/* Submits ready work of all jobs while the executor has room. Thread: the loop's, from ts_server_flush alone. */
void ts_turns_take(ts_server *server);

#endif
