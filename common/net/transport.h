/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transport: frames between numbered peers. Back ends: MPI (mpi_transport) and
 * in-process with faults (sim_transport). Never blocks; reliable back ends keep
 * the order between two peers, but no user may rely on reliability or order.
 *
 * Thread: all calls on one transport from one thread at a time.
 */
#ifndef TS_NET_TRANSPORT_H
#define TS_NET_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buffer.h"
#include "common/base/status.h"
#include "common/net/dead_set.h"

typedef struct ts_transport ts_transport;

typedef enum { TS_ROLE_SERVER = 0, TS_ROLE_WORKER = 1, TS_ROLE_NONE = 2 } ts_role;

#define TS_AWAKE_US 100u /* after traffic a process polls for so long before it sleeps */

#define TS_JOB_NAME_CHARS 32 /* the end included */

typedef struct {
    ts_role role;
    uint32_t index; /* of a server: its number; of a worker: its number within its job; from 0 */
    uint32_t job;   /* of a worker: its job's number; 0 for servers */
    bool relay;     /* a worker that is the server of others */
    char name[128]; /* "worker 2 (rank 4 on h1)", with several jobs "worker 2 of job b (rank 4 on h1)": for messages */
} ts_peer;

/* The workers that train one model together. */
typedef struct {
    char name[TS_JOB_NAME_CHARS];
    uint32_t workers; /* how many it was launched with: all of them are among the peers; at a server, and those who have come since */
    bool numbered;    /* the name is made of the job's number: its own is that of another, or it has none */
} ts_transport_job;

#define TS_WORKER_ANY UINT32_MAX
#define TS_KEPT_MOST 32u

/* What a process says that would come into a job which runs: in the place of a worker that was lost, or as a new one. */
typedef struct {
    char job[TS_JOB_NAME_CHARS]; /* its name; "default": the one that has no name of its own */
    uint32_t wanted;             /* which worker it would be; TS_WORKER_ANY: whichever there is a place for */
    uint32_t kept_count, kept[TS_KEPT_MOST]; /* workers whose residual lies on its host and is in nobody's use */
} ts_transport_wish;

/* What it is told. */
typedef struct {
    uint32_t job, worker;
    uint32_t incarnation; /* which life of the worker it is, at least */
    uint32_t workers;     /* how many the job began with */
} ts_transport_place;

/* Called from inside poll. */
typedef struct {
    void *context;
    /* frame: [borrow]; take a reference to keep it. */
    void (*on_frame)(void *context, uint32_t peer, ts_buffer *frame);
    /*
     * A job has been added, with all its workers: peers, peer_count, jobs and job_count of the transport are new. Comes
     * before the first frame of any of them. NULL for owners that deal with the jobs of the beginning alone.
     */
    void (*on_jobs)(void *context);
    /* A peer's process is known to have ended. What it sent may still come. NULL: its silence will tell. */
    void (*on_lost)(void *context, uint32_t peer);
    /*
     * Who leads, so server 0: processes of one launch would come into a running job. place: [out] one each. Returns TERSE_OK, or why none
     * of them comes in, with a sentence. NULL: nobody ever does.
     */
    terse_status (*on_wish)(void *context, const ts_transport_wish *wish, uint32_t count, ts_transport_place *place,
                            ts_error *reason);
    /*
     * Peers from `first` on are new: processes that are now those workers of a job (ts_peer.job, index), whoever was before.
     * Comes before the first frame of any of them. NULL as on_wish.
     */
    void (*on_workers)(void *context, uint32_t first);
    /* Whether the owner still runs a job, though its workers may all be gone. NULL: it does not. */
    bool (*job_runs)(void *context, uint32_t job);
    /* Who leads: whether a new job can be served. Returns TERSE_OK, or why not, with a sentence. NULL: it can. */
    terse_status (*on_ask)(void *context, ts_error *reason);
    /*
     * A server: which servers are dead, and their stand-ins in their place. dead: [out] empty before; never less than the time
     * before. Returns the number of the server that leads now, that of all servers when none does. NULL: none is dead, and
     * server 0 leads.
     */
    uint32_t (*who_leads)(void *context, ts_dead_set *dead);
} ts_transport_handler;

typedef struct {
    uint64_t bytes_out, bytes_in;   /* every byte handed to or got from the back end, chunks and credits included */
    uint64_t frames_out, frames_in;
    uint64_t dropped;               /* over a limit, or of a peer that is not there */
    uint64_t queued_bytes;          /* accepted by send, not yet taken by the back end */
} ts_transport_counters;

typedef struct {
    /*
     * Queues a frame. frame: takes its own reference; must not be changed afterwards.
     * Returns TERSE_OK; TERSE_EPEER (no such peer, or it was dropped); TERSE_ENOMEM.
     */
    terse_status (*send)(ts_transport *transport, uint32_t peer, ts_buffer *frame);
    /* Moves bytes and calls the handler. Returns whether anything moved. */
    bool (*poll)(ts_transport *transport);
    /* Bytes queued for a peer and not yet handed on: back-pressure for whoever produces. */
    size_t (*queued)(const ts_transport *transport, uint32_t peer);
    /* Stops dealing with a peer: its queue is set aside, its frames are ignored. */
    void (*drop_peer)(ts_transport *transport, uint32_t peer);
    /* Monotonic microseconds (the simulation's fake clock there). */
    uint64_t (*now_us)(const ts_transport *transport);
    void (*counters)(const ts_transport *transport, ts_transport_counters *out);
    void (*destroy)(ts_transport *transport);
    /*
     * The job has ended here: what is queued for its workers may still go out, nothing more will be sent to them, and
     * what comes from them is of no interest. Their numbers stay theirs. NULL: nothing needs to be done.
     */
    void (*end_job)(ts_transport *transport, uint32_t job);
    /*
     * A peer is ahead of the others of its job: what it sends may wait while something comes of those that are not. Till
     * it is said otherwise. NULL: everybody sends as fast as the way lets him.
     */
    void (*hold_back)(ts_transport *transport, uint32_t peer, bool ahead);
} ts_transport_ops;

struct ts_transport {
    const ts_transport_ops *ops;
    ts_transport_handler handler; /* set by the owner before the first poll */
    /*
     * Peers and jobs, self included. At a server both tables may grow, by whole jobs (handler.on_jobs) or by workers that
     * come into one (handler.on_workers), and move then; a number is never used again. All servers number jobs alike.
     */
    const ts_peer *peers;
    uint32_t peer_count;
    const ts_transport_job *jobs; /* by number */
    uint32_t job_count;
    uint32_t self;
    uint32_t servers;             /* how many there are, dead ones included */
    ts_dead_set absent;           /* at a worker: servers that were dead when it came; nothing can be sent to them */
    uint32_t workers;             /* at a worker those that its job began with, at a server those of all jobs */
    uint32_t incarnation;         /* at a worker that comes into a running job: which life of its number it is; else 0 */
    size_t near_bytes;            /* all peers are on this host, and to have more than this under way gains nothing; 0: not so */
    uint32_t neighbours;          /* peers that share this host, self included, as far as is known; 0: it is not */
    ts_buffer_pool *pool;         /* [borrow] for frames, those that come in and those to be sent; may be NULL */
};

/* The peer number of server `index`, or of worker `index` of the owner's job (at a server: job 0); peer_count: none. */
uint32_t ts_transport_find(const ts_transport *transport, ts_role role, uint32_t index);
/*
 * Whether the processes of this host have less than two cores each. Then all cores are busy with one thread a process, and
 * a second one would only take the core from somebody, and find in its cache what it has to read. The environment decides
 * otherwise with TERSE_THREADS=one (always so) or several (never). Thread: any.
 */
bool ts_transport_crowded(const ts_transport *transport);
/* Whether they have one each, all the same. TERSE_THREADS as above. Thread: any. */
bool ts_transport_one_each(const ts_transport *transport);
/* The peer number of a job's worker; peer_count when there is none. */
uint32_t ts_transport_worker(const ts_transport *transport, uint32_t job, uint32_t index);

#endif
