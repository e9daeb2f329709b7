/* SPDX-License-Identifier: Apache-2.0 */
/* One training job on this server: its contract, members, slices and rounds. */
#ifndef TS_SERVER_JOB_H
#define TS_SERVER_JOB_H

#include "server/consistency.h"
#include "server/membership.h"
#include "server/outgoing.h"
#include "server/quorum.h"
#include "server/reduce.h"
#include "server/reply.h"
#include "server/round.h"
#include "server/server_internal.h"
#include "server/store.h"

typedef struct ts_job {
    ts_server *server;            /* [borrow] */
    uint32_t id;
    ts_contract *contract;        /* [own] NULL until the first worker has sent it */
    uint32_t contract_worker;     /* who sent it */
    const ts_consistency *consistency;
    const ts_optimizer *optimizer;
    ts_membership members;
    ts_store store;               /* empty until the contract is known */
    ts_rounds rounds;
    ts_outgoing outgoing;
    ts_reduce reduce;
    ts_replies replies;
    uint64_t last_progress_us;    /* last attach, set or closed round */
    bool training;                /* all attached and all slices set: said once in the log */
    struct {                      /* with an upstream */
        uint32_t *summed;         /* [own] a tensor: slices whose sums are complete */
        uint8_t *offered;         /* [own] a slice: the workers' first values are there */
        uint32_t offers;
        bool started, done;
    } above;
} ts_job;

/* server: [borrow]. Returns TERSE_ENOMEM, TERSE_EUNSUPPORTED (mode or optimizer not in this build). */
terse_status ts_job_create(ts_server *server, uint32_t id, ts_job **out) TERSE_NODISCARD;
void ts_job_destroy(ts_job *job); /* NULL is fine */

/* Takes the contract over and makes the slices. Returns TERSE_ENOMEM, TERSE_EINVAL; on failure the caller keeps it. */
terse_status ts_job_begin(ts_job *job, ts_contract *contract, uint32_t worker) TERSE_NODISCARD;
/* Whether every slice has its first values. */
bool ts_job_initialised(const ts_job *job);

/* Closes what can close, sends what has gathered or is owed. */
void ts_job_flush(ts_job *job);
/* Silence, acknowledgements, heartbeats, the end. */
void ts_job_tick(ts_job *job);
/* Whom the job waits for and since when. */
void ts_job_waiting(const ts_job *job, char *text, size_t capacity);
/* The lowest version whose round waits for this worker. Returns false when none does. */
bool ts_job_misses(const ts_job *job, uint32_t worker, uint64_t *version);
/* After a change of membership: rounds and sums that can close now. */
void ts_job_membership_changed(ts_job *job);

/* The peer number of a worker, and its name for messages. */
uint32_t ts_job_peer(const ts_job *job, uint32_t worker);
const char *ts_job_worker_name(const ts_job *job, uint32_t worker);

#endif
