/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The communication thread: owns a libuv loop, the pump and every call on the
 * real transport. The client works on a stand-in that only queues frames, so
 * that nobody holds the mutex while bytes move. While the user's thread waits
 * it can move the bytes itself, and the communication thread then stands aside:
 * where cores are few, handing every frame from thread to thread costs more
 * than moving it. One of the few modules that include <uv.h>.
 */
#ifndef TS_COMM_THREAD_H
#define TS_COMM_THREAD_H

#include <pthread.h>

#include "common/net/transport.h"

typedef struct ts_comm_thread ts_comm_thread;

typedef struct {
    ts_transport *transport; /* [borrow] until destroy; nobody else may use it while the thread runs */
    pthread_mutex_t *mutex;  /* [borrow] held around the stand-in's handler and around tick */
    pthread_cond_t *moved;   /* [borrow] signalled when frames came and after each tick */
} ts_comm_options;

/* Makes the stand-in; no thread runs yet. Returns TERSE_ENOMEM. */
terse_status ts_comm_thread_create(const ts_comm_options *options, ts_comm_thread **out) TERSE_NODISCARD;
/* The transport for the client. Its ops are called with the mutex held. [borrow] until destroy. */
ts_transport *ts_comm_thread_transport(ts_comm_thread *comm);
/* tick: called with the mutex held, every 50 ms. Returns TERSE_EIO, TERSE_ENOMEM. */
terse_status ts_comm_thread_start(ts_comm_thread *comm, void (*tick)(void *context), void *context) TERSE_NODISCARD;
/*
 * The caller moves bytes from here on, by ts_comm_thread_poll, until it says rest. Several may. Thread: any but the
 * communication thread, with the mutex held or not.
 */
void ts_comm_thread_drive(ts_comm_thread *comm);
/* Moves bytes once and hands on what came. The mutex is not held. Returns whether any moved. */
bool ts_comm_thread_poll(ts_comm_thread *comm);
/* Until the release nobody moves bytes. The mutex is not held when it is called. */
void ts_comm_thread_hold(ts_comm_thread *comm);
void ts_comm_thread_release(ts_comm_thread *comm);
/* hurry: whatever happens next is for the communication thread to notice; else it takes over at once only when something is under way. */
void ts_comm_thread_rest(ts_comm_thread *comm, bool hurry);
/* Hands all frames on to the real transport and ends the thread; the mutex is not held. Harmless when not started. */
void ts_comm_thread_stop(ts_comm_thread *comm);
void ts_comm_thread_destroy(ts_comm_thread *comm); /* stops it; NULL is fine */

#endif
