/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's core: a state machine over a transport. No MPI, no libuv, no
 * clock of its own, so whole clusters of it run in one process.
 *
 * Thread: every call from the owner's thread (the loop). Heavy work leaves
 * through the executor on buffers of its own and returns through its `done`.
 */
#ifndef TS_SERVER_H
#define TS_SERVER_H

#include <stdbool.h>

#include "common/base/executor.h"
#include "common/config/config.h"
#include "common/net/transport.h"

typedef struct ts_server ts_server;

/* What happens to a slice, in this order; from it alone the server's arithmetic can be done again, bit for bit. */
typedef enum {
    TS_RECEIPT_USED,   /* the packet of (worker, step) goes into the optimizer step that follows */
    TS_RECEIPT_STEP,   /* an optimizer step on all packets used since the last */
    TS_RECEIPT_VERSION,/* the slice reached `version`; workers can hold it */
    TS_RECEIPT_CUT,    /* SSP, ASP: the slice goes into a checkpoint as it is: all of its steps below `step`, at `version` */
    TS_RECEIPT_RETURNED/* the packet of (worker, step) was too late and is the worker's again; may be said twice */
} ts_receipt_kind;

typedef struct {
    ts_receipt_kind kind;
    uint32_t slice; /* of the job */
    uint32_t worker; /* of USED and RETURNED; of the others, in SSP and ASP: how many packets make a round's worth */
    uint32_t estimates; /* STEP with EF21: of how many workers the mean is */
    uint64_t step;
    uint64_t version;
} ts_receipt;

typedef enum {
    TS_SERVER_RUNNING,
    TS_SERVER_FINISHED, /* all jobs have ended well: their workers are done and served */
    TS_SERVER_FAILED    /* a job ended with an error, and now all have ended; ts_server_message says why */
} ts_server_state;

/*
 * Jobs are those of the transport: those that are there now, and each one that on_jobs adds (ts_transport_handler).
 * Each has its own contract, workers, rounds and settings, and ends alone; its memory goes with it.
 *
 * config, transport, executor: [borrow] until destroy. Installs itself as the transport's handler.
 * Returns TERSE_ENOMEM, TERSE_EUNSUPPORTED (a consistency mode or optimizer that this build has not). */
terse_status ts_server_create(const ts_config *config, ts_transport *transport, ts_executor *executor, ts_server **out)
    TERSE_NODISCARD;
void ts_server_destroy(ts_server *server); /* after the executor has nothing of it left (ts_server_idle) */

/*
 * The words of a command by which a worker comes into a running job, without its number; copied. With it a job whose workers
 * have all died is kept (daemon.orphan_s), and messages say how they come back. Without memory it stays as it was.
 */
void ts_server_set_join_command(ts_server *server, const char *command);
/* Ends the jobs whose workers have all died; reason: why they are not waited for any more. */
void ts_server_end_orphans(ts_server *server, const char *reason);

/*
 * Whether the server goes on when no job is left, waiting for the next, until ts_server_stop. Else, and so at first, it is
 * then FINISHED, or FAILED when one of the jobs failed.
 */
void ts_server_set_stays(ts_server *server, bool stays);

/* Whether it decides for all servers: server 0, or, with replicas, who stands in for it when it is dead. */
bool ts_server_leads(const ts_server *server);

/* note: gets every receipt, on the loop's thread, inside the server's calls; context: [borrow]. */
void ts_server_set_receipts(ts_server *server, void (*note)(void *context, const ts_receipt *receipt), void *context);

/* After each round of transport polling: closes what can be closed, sends what has gathered. */
void ts_server_flush(ts_server *server);
/* Deadlines and heartbeats, by transport->now_us. Call every 10 … 200 ms. */
void ts_server_tick(ts_server *server);

/* Jobs whose workers have not all left. */
uint32_t ts_server_jobs_running(const ts_server *server);

ts_server_state ts_server_get_state(const ts_server *server);
/* Ends all jobs in order: everybody is told. reason: [borrow], as "SIGTERM". */
void ts_server_stop(ts_server *server, const char *reason);
/*
 * The same after a last checkpoint, where checkpoints are on and the training has begun; a second call does not wait.
 * reason: [borrow].
 */
void ts_server_drain(ts_server *server, const char *reason);
/* A checkpoint of every job soon. Returns whether there will be one. */
bool ts_server_checkpoint(ts_server *server);
/* The last complete checkpoint in words: what a new start goes on from. "" when there is none. */
const char *ts_server_last_checkpoint(const ts_server *server);
/* Why it failed; TERSE_OK while it has not. */
terse_status ts_server_failure(const ts_server *server);
/* The first failure in words. Never NULL. */
const char *ts_server_message(const ts_server *server);
/* No work of this server is in the executor. */
bool ts_server_idle(const ts_server *server);
/* Whom it waits for and since when, "" for nobody; text of `capacity` bytes. */
void ts_server_waiting(const ts_server *server, char *text, size_t capacity);
/* Everything, for SIGUSR2: peers, rounds, queues, memory. */
void ts_server_dump(const ts_server *server, FILE *out);

#endif
