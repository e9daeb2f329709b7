/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose work goes to the executor next, when several jobs have some: fair queueing by bytes of work (after Demers, Keshav
 * and Shenker 1989, with the virtual time of Goyal 1996). A job's turn is the tag at which its next work would begin: it
 * grows by the bytes of what the job is given, and the work that would end first goes first. Virtual time is the lowest
 * turn of the jobs that have something to do; who had nothing starts from there, so that waiting earns no credit.
 *
 * The executor holds no more works than it has threads. So a job that comes with little waits until a thread is free, for
 * one work of another job at most, however much others have ready; and jobs that always have some share alike. A work is
 * at most servers.slice_elems of one job (a tensor, where tensors are not cut). One job alone goes in its own order.
 */
#ifndef TS_SERVER_TURNS_H
#define TS_SERVER_TURNS_H

#include "server/server_internal.h"

/* Submits ready work of all jobs while the executor has room. Thread: the loop's, from ts_server_flush alone. */
void ts_turns_take(ts_server *server);

#endif
