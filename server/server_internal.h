/* SPDX-License-Identifier: Apache-2.0 */
/* The server's own state, shared by its modules; nobody outside server/ includes this. */
#ifndef TS_SERVER_INTERNAL_H
#define TS_SERVER_INTERNAL_H

#include "common/wire/frame.h"
#include "common/wire/secret.h"
#include "server/replica.h"
#include "server/server.h"

struct ts_job;
struct ts_upstream;

#define TS_SERVER_FRAME_BYTES ((size_t)1 << 20) /* replies are cut into frames of about this size */

/* What is known of one peer of the transport, whatever its role. Counters are 64 bits wide and only grow. */
typedef struct {
    uint64_t frames_in, frames_out, bytes_in, bytes_out;
    bool steady;                        /* its pushes are past the warm-up */
    uint64_t steady_in_base, steady_out_base;
    uint64_t last_heard_us, last_sent_us;
    uint64_t lost_us;                   /* since when its process is known to have ended; 0: it is not */
    uint64_t corrupt, other_version, rejected;
    uint64_t denied;                    /* proofs of the secret that were wrong or missing */
    bool proven;                        /* it knows the secret */
    uint64_t suing_us;                  /* it came for a worker's place at this time, and gets it with its proof; 0: it has, or is none */
    struct {
        bool made;
        uint8_t own_nonce[TS_NONCE_BYTES], nonce[TS_NONCE_BYTES]; /* this server's, and what its last Hello said */
        uint8_t digest[16];
    } challenge;
    uint64_t quarantined;               /* slice packets of NaN or infinity, left out of their rounds */
    uint64_t send_failures;
    uint64_t no_room;                   /* slice packets refused because the worker's share was full */
    uint64_t withheld;                  /* answers that were not queued, since the peer does not read */
    uint64_t last_abort_us;
    uint32_t dead_known;                /* a worker: how many dead servers it has said to know of */
    uint64_t dead_told_us;              /* when it was told last */
} ts_link;

struct ts_server {
    const ts_config *config;
    ts_transport *transport;
    ts_executor *executor;
    ts_secret *secret;  /* [own] or NULL: all are let in */
    struct ts_upstream *upstream; /* [borrow] or NULL: this server sums for others (upstream.h) */
    uint32_t index; /* this server's number */
    ts_link *links; /* [own] one a peer */
    uint32_t link_count;
    struct ts_job **jobs; /* [own] job_count of them, found by number; those that have ended, too */
    uint32_t job_count, running_jobs;
    uint64_t turn;  /* see turns.h */
    uint32_t running; /* works in the executor, of all jobs */
    uint32_t suitors; /* links with suing_us */
    bool flushing;
    terse_status job_failure; /* of the first job that failed, and why */
    ts_error job_message;
    uint64_t last_tick_us;
    ts_replica_watch watch; /* over the other servers, with replicas */
    bool stays;     /* without jobs, too */
    char *join_command; /* [own] how a worker comes into a running job, but for which; NULL: nobody does */
    bool draining;  /* the end has been asked for */
    char last_checkpoint[512];
    ts_server_state state;
    terse_status failure;
    ts_error message;
    void (*receipt)(void *context, const ts_receipt *receipt); /* or NULL */
    void *receipt_context;
};

static inline uint64_t ts_server_now(const ts_server *server) {
    return server->transport->ops->now_us(server->transport);
}
uint64_t ts_server_deadline_us(const ts_server *server);
/* How long another server may be silent: the deadline, or, until its first word, consistency.start_s. */
uint64_t ts_link_patience_us(const ts_server *server, const ts_link *link);
/* "worker 2 (rank 4, host h1)". */
const char *ts_server_peer_name(const ts_server *server, uint32_t peer);

/* All parts of all jobs, own ones and those it stands in for; NULL where there is none. i: below 2 * job_count. */
struct ts_job *ts_server_part(const ts_server *server, uint32_t i);
/* After a job's end: perhaps the server's own. */
void ts_server_job_ended(ts_server *server, const struct ts_job *job);
/* Ends all jobs and the server: the first reason stays, everybody else is told by Abort. */
void ts_server_fail(ts_server *server, terse_status status, const char *format, ...) TERSE_PRINTF(3, 4);
/* The same, but the jobs go on without this server: nobody is told. */
void ts_server_give_up(ts_server *server, terse_status status, const char *format, ...) TERSE_PRINTF(3, 4);

#endif
