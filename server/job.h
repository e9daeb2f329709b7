/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One training job on this server: its contract, members, slices and rounds. With replicas (replica.h) a server has two of
 * them a job: its own part, and, hanging on that, the part which it stands in for.
 */
#ifndef TS_SERVER_JOB_H
#define TS_SERVER_JOB_H

#include "server/checkpoint.h"
#include "server/consistency.h"
#include "server/membership.h"
#include "server/outgoing.h"
#include "server/quorum.h"
#include "server/reduce.h"
#include "server/replica.h"
#include "server/reply.h"
#include "server/round.h"
#include "server/server_internal.h"
#include "server/store.h"
#include "server/worker_join.h"

typedef enum { TS_JOB_RUNNING, TS_JOB_FINISHED, TS_JOB_FAILED } ts_job_state;

typedef struct ts_job {
    ts_server *server;            /* [borrow] */
    uint32_t id;
    uint32_t part;                /* whose slices: the number of their server by the contract */
    struct ts_job *own;           /* [borrow] of a stand-in's part: this server's own part of the job; else NULL */
    struct ts_job *standin;       /* [own] of an own part: what it stands in for, once the contract is known; or NULL */
    bool mute;                    /* a stand-in's part whose owner lives: nothing is said to workers */
    ts_replica replica;
    char name[TS_JOB_NAME_CHARS];
    ts_job_state state;
    terse_status failure;         /* with TS_JOB_FAILED */
    ts_error message;
    uint64_t ended_us;
    bool released;                /* ended, and its memory is given back */
    bool closed;                  /* and the transport was told */
    uint64_t rounds_done;         /* when released */
    /* All from the first worker's contract; NULL until then. */
    ts_contract *contract;        /* [own] */
    uint32_t contract_worker;     /* who sent it */
    ts_config *config;            /* [own] the contract's settings under this server's limits */
    const ts_consistency *consistency;
    const ts_optimizer *optimizer;
    ts_membership members;
    ts_store store;               /* empty until the contract is known */
    ts_rounds rounds;
    ts_outgoing outgoing;
    ts_reduce reduce;
    ts_replies replies;
    ts_checkpoint checkpoint;
    ts_join join;
    uint64_t orphaned_us;         /* since when all of its workers are lost (worker_place.h); 0: they are not */
    uint64_t last_progress_us;    /* last attach, set or closed round */
    bool paced;                   /* some workers are held back (flow.h) */
    bool training;                /* all attached and all slices set: said once in the log */
    struct {                      /* with an upstream */
        uint32_t *summed;         /* [own] a tensor: slices whose sums are complete */
        uint8_t *offered;         /* [own] a slice: the workers' first values are there */
        uint32_t offers;
        bool started, done;
    } above;
    uint64_t turn, last_work;     /* see turns.h */
} ts_job;

/* server: [borrow]. id: of the transport's table. workers: that it begins with. Returns TERSE_ENOMEM. */
terse_status ts_job_create(ts_server *server, uint32_t id, uint32_t workers, ts_job **out) TERSE_NODISCARD;
void ts_job_destroy(ts_job *job); /* NULL is fine */

/*
 * Takes contract and config over and makes the slices. Returns TERSE_ENOMEM, TERSE_EINVAL, TERSE_EUNSUPPORTED (a mode or
 * an optimizer that this build has not); on failure the caller keeps both.
 */
terse_status ts_job_begin(ts_job *job, ts_contract *contract, ts_config *config, uint32_t worker) TERSE_NODISCARD;
/* What the job may take of this server's memory, by its own settings and the server's; 0: no limit. */
uint64_t ts_job_memory_limit(const ts_job *job);
/*
 * Ends the job, and no other: the first reason stays, its workers and the other servers are told by Abort. job: a part
 * that this server stands in for ends with its own.
 */
void ts_job_fail(ts_job *job, terse_status status, const char *format, ...) TERSE_PRINTF(3, 4);
/* The same, but for others it goes on: nobody is told. */
void ts_job_give_up(ts_job *job, terse_status status, const char *format, ...) TERSE_PRINTF(3, 4);
/* Whether every slice has its first values. */
bool ts_job_initialised(const ts_job *job);

/* Nothing of it is in the executor, nor of the part that hangs on it. */
bool ts_job_idle(const ts_job *job);

/* The flush's three parts; work goes out between the first two (turns.h). Decides what can be decided. */
void ts_job_prepare(ts_job *job);
/* Sends what has gathered. Returns whether that, or a decision, made slices ready: then there is more to do. */
bool ts_job_send(ts_job *job);
/* Answers what is owed and can be said. */
void ts_job_reply(ts_job *job);
/* Silence, acknowledgements, heartbeats, the end. */
void ts_job_tick(ts_job *job);
/* Whom the job waits for and since when. */
void ts_job_waiting(const ts_job *job, char *text, size_t capacity);
/* The lowest version whose round waits for this worker. Returns false when none does. */
bool ts_job_misses(const ts_job *job, uint32_t worker, uint64_t *version);
/* After a change of membership: rounds and sums that can close now. */
void ts_job_membership_changed(ts_job *job);

/* This server's own part, on which a stand-in's hangs. */
static inline ts_job *ts_job_own(ts_job *job) { return job->own ? job->own : job; }
/* Whether the whole job runs; a stand-in's part has no state of its own. */
static inline bool ts_job_runs(const ts_job *job) { return (job->own ? job->own : job)->state == TS_JOB_RUNNING; }
/* Whether nobody else does what one server does for all: sums over workers, decisions about them. */
static inline bool ts_job_leads(const ts_job *job) { return job->part == 0 && !job->mute; }
/* Job and part of a header. */
void ts_job_head(const ts_job *job, Terse__Header *header);
/* A heartbeat to a worker, to all that have not gone: at once. */
void ts_job_heartbeat(ts_job *job, uint32_t worker);
void ts_job_heartbeats(ts_job *job);

/* " of job b" where the server knows several, else "": for messages that name nobody. */
typedef struct {
    char text[TS_JOB_NAME_CHARS + 16];
} ts_job_label;
ts_job_label ts_job_labelled(const ts_job *job);

/* The peer number of a worker, and its name for messages. */
uint32_t ts_job_peer(const ts_job *job, uint32_t worker);
/*
 * Whether a server's part of the job, whose contract is known, stays below ts_job_memory_limit with so many workers. need:
 * [out] bytes, NULL is fine. Returns TERSE_OK, TERSE_ELIMIT, TERSE_ENOMEM.
 */
terse_status ts_job_memory_for(const ts_job *job, uint32_t server, uint32_t workers, uint64_t *need) TERSE_NODISCARD;
const char *ts_job_worker_name(const ts_job *job, uint32_t worker);

#endif
