/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker that fell silent, and a job that goes on without it (consistency.on_worker_loss). Server 0 decides, so that no
 * server drops a worker which the others wait for: servers tell it of whom they hear nothing, and it tells them whom the
 * job has given up. What such a worker has delivered is used, since it may have been acknowledged; nothing more of it is
 * taken, and when it talks again it is told so.
 */
#ifndef TS_SERVER_WORKER_LOSS_H
#define TS_SERVER_WORKER_LOSS_H

#include "common/wire/frame.h"

struct ts_job;

/* Thread: the loop's, for all of these. */
/*
 * Nothing is heard of the worker any more; why: in words, for the log. Returns whether the job can go on: it does without
 * the worker then, or will when server 0 says so. Otherwise nothing has changed, and the job has to end.
 */
bool ts_loss_note(struct ts_job *job, uint32_t worker, const char *why);
/* Gives it up here, unless that was done before. */
void ts_loss_give_up(struct ts_job *job, uint32_t worker, const char *why);
/* Tells the other servers of whom this one leads, or the one that does, that the worker is lost. */
void ts_loss_say(struct ts_job *job, uint32_t worker);
/* From another server. Returns TERSE_OK, TERSE_ECORRUPT. */
terse_status ts_loss_message(struct ts_job *job, uint32_t peer, const Terse__Lost *message) TERSE_NODISCARD;
/* The same for a job that has ended here: another server has still to learn of whom it was without. */
void ts_loss_late(struct ts_job *job, uint32_t peer, const Terse__Lost *message);
/* A frame of a worker that was given up: it is told, now and then. */
void ts_loss_tell(struct ts_job *job, uint32_t worker);

#endif
