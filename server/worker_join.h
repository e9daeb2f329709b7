/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker comes back: one that was given up and talks again, or a new process in its place (a later incarnation). Server 0
 * chooses the step from which on it takes part, ahead of all rounds, and tells the other servers; when all have agreed, the
 * worker is let in, is told which packets of its former lives are used, and starts from a snapshot. So a round has it in
 * every slice or in none.
 *
 * In SSP and ASP there are no rounds to agree on: it goes on at the step of the slowest, or at its own when that is further.
 */
#ifndef TS_SERVER_WORKER_JOIN_H
#define TS_SERVER_WORKER_JOIN_H

#include "common/wire/frame.h"

struct ts_job;

/* At server 0: the worker that is being let in. */
typedef struct {
    bool active;
    bool further; /* it is one more than there were */
    bool here;    /* it is let in at this server */
    uint32_t worker, incarnation;
    uint64_t from, gap;
    uint64_t began_us, resend_us;
    bool *agreed; /* [own] by part */
} ts_join;

void ts_join_free(ts_join *join); /* zeroed is fine */

/*
 * With replicas: whoever speaks for a part agrees for it. A server lets a worker in at all the parts that it speaks for, or at
 * none, and agrees when its own part's stand-in knows: so whoever takes a part over knows of all who may be in. The leading
 * server's stand-in knows before any other server does. A life that is half in when a server dies is given up, and comes as the
 * life after; who is in, as far as the one knows that takes the lead over, but has not heard so, is agreed upon once more.
 */
/* Thread: the loop's, for all of these. job: this server's own part, where nothing else is said. */
/* Whether a Hello is that of a worker who would come back: then the next function is for it. */
bool ts_join_is_return(const struct ts_job *job, uint32_t worker, const Terse__Hello *hello);
/* Why nobody can come back into the job, or NULL: what does not depend on the worker. Not before the contract is known. */
const char *ts_join_objection(const struct ts_job *job);
/* The contract of one that would come in, and was asked for it: what differs is said, to it alone. Returns TERSE_OK, TERSE_ENOMEM. */
terse_status ts_join_contract(struct ts_job *job, uint32_t worker, const ts_frame *frame) TERSE_NODISCARD;
/* Lets it in, at once or later, when it asks again; says it when that cannot be. job: the part that is asked. Returns TERSE_OK. */
terse_status ts_join_hello(struct ts_job *job, uint32_t worker, const Terse__Hello *hello) TERSE_NODISCARD;
/* Between servers. Returns TERSE_OK, TERSE_EPEER, TERSE_ECORRUPT. */
terse_status ts_join_message(struct ts_job *job, uint32_t peer, const Terse__Header *header) TERSE_NODISCARD;
/* What a Welcome says to one that has come back: joined and next (room for a number a slice) are filled in. */
void ts_join_welcome(const struct ts_job *job, uint32_t worker, Terse__Joined *joined, uint64_t *next);
/* Repeats what was not answered. */
void ts_join_tick(struct ts_job *job);
/* A life takes part in a part's rounds from a step on, or from another than before: the part's members and slots, no more. */
void ts_join_enter(struct ts_job *part, uint32_t worker, uint32_t incarnation, uint64_t from);
/* The stand-in knows that the worker has come in. */
void ts_join_confirmed(struct ts_job *job, uint32_t worker);
/* This server speaks for a part now, of which it may know other lives than of its own. */
void ts_join_take_over(struct ts_job *part);

#endif
