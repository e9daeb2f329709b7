/* SPDX-License-Identifier: Apache-2.0 */
/* The object behind terse.h: the client's core, its thread, its lock. */
#ifndef TS_TERSE_INTERNAL_H
#define TS_TERSE_INTERNAL_H

#include <pthread.h>

#include "worker/client/client.h"
#include "worker/client/comm_thread.h"
#include "worker/terse.h"

struct terse {
    ts_config *config;
    bool joining; /* MPI may be running, whether or not there is a transport */
    ts_transport *transport;
    ts_comm_thread *comm;   /* NULL: progress happens inside the calls */
    ts_client *client;      /* NULL after a failed open */
    pthread_mutex_t mutex;  /* the core's lock */
    pthread_cond_t moved;   /* frames came, or time passed */
    uint64_t ticked_us;     /* without a thread */
    uint64_t wait_us;
    bool may_drive;         /* its own threads move bytes while they wait (terse_drive.c) */
    bool may_drive_large;   /* … when its packets are large */
    unsigned drivers;       /* calls in which they do */
    uint64_t moved_us;      /* when bytes moved last in them, or something else was done */
    terse_status failure;   /* of open */
    ts_error message;
};

/* Moves bytes once, without a thread; the mutex is held. Returns whether any moved. */
bool ts_terse_progress(terse *client);
/* ---- terse_drive.c; the mutex is held on entry and return, and may be let go of in between ---- */
/* Once, when it is known who is there. */
void ts_terse_choose(terse *client);
/* From here until rest, which may be nested, this thread moves the bytes: in await, and whenever the core lets go of its lock. */
void ts_terse_drive(terse *client);
void ts_terse_rest(terse *client);
void ts_terse_moved(terse *client);
/* For news, about so long at most. */
void ts_terse_await(terse *client, long most_ns);

/*
 * terse_leave.c: what is left of the residual is pushed, the servers are told that this was all, and all is answered. Who is
 * given up meanwhile comes back first. The mutex is held. Returns TERSE_OK or the failure.
 */
terse_status ts_terse_be_done(terse *client) TERSE_NODISCARD;

/* Waits until ready(client, argument), with the mutex held on entry and return. Returns TERSE_OK or the failure. */
terse_status ts_terse_wait(terse *client, bool (*ready)(terse *client, void *argument), void *argument) TERSE_NODISCARD;
/* Keeps the core's sentence for terse_message and lets go of the mutex. Returns: status. */
terse_status ts_terse_leave(terse *client, terse_status status);

#endif
