/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MPI back end. Its files (mpi_*.c) alone include <mpi.h>. Nothing in it blocks once it is created; after a rank's
 * death requests may stay open for ever, so their buffers are set aside, never freed.
 */
#ifndef TS_NET_MPI_TRANSPORT_H
#define TS_NET_MPI_TRANSPORT_H

#include "common/net/transport.h"

typedef struct {
    ts_role role;
    const char *job;           /* a worker: its job's name, below TS_JOB_NAME_CHARS; NULL: "default" */
    const char *group;         /* of servers to which it belongs; NULL: "default" */
    const char *above;         /* a relay (role server): the group above, of which it is a worker, in job `job`; else NULL */
    uint64_t start_us;         /* how long the others are waited for: in the roll call, in joining; MPI_Init gets 4 s more */
    uint64_t deadline_us;      /* of a call into MPI that does not return, once all have met; 4 s at least */
    size_t window_bytes;       /* credits a peer: how much may be under way to it unread */
    uint64_t traffic_bytes;    /* a server: of messages that it holds for all its workers; 0 for no limit */
    size_t frame_limit_bytes;  /* larger frames are refused on both sides */
    bool needs_multiple;       /* the owner polls from another thread than the one that initialised MPI */
    const char *declines;      /* why this rank cannot take part, and so nobody can; NULL: it does */
    /*
     * [borrow] while creating. A server with no worker in its mpirun opens a door there, so that jobs can join later; a
     * worker with no server in its mpirun joins the daemon that has done so. NULL: neither.
     */
    const char *run_dir;
    uint32_t jobs_most;        /* a server with run_dir: how many jobs at a time */
    /* A worker with run_dir: the ranks come into a running job of that name, not as a job of their own. */
    bool joins;
    const uint32_t *wanted;    /* [borrow] by rank: which worker it would be, or TS_WORKER_ANY; as all after the last */
    uint32_t wanted_count;
    const uint32_t *kept;      /* [borrow] workers whose residual lies on this host and is in nobody's use */
    uint32_t kept_count;       /* at most TS_KEPT_MOST */
} ts_mpi_options;

/*
 * Initialises MPI when nobody has (with a watchdog: a process that never comes ends the program with a message and
 * exit code 4 instead of a hang), duplicates the world, and learns everybody's role by a roll call to rank 0.
 * error: [out] names who is missing. Collective: all ranks of MPI_COMM_WORLD.
 * Returns: TERSE_OK, TERSE_ETIMEDOUT, TERSE_EVERSION, TERSE_EMISMATCH (groups), TERSE_EPEER (a rank declines: its
 * reason), TERSE_ENOMEM, TERSE_EUNSUPPORTED.
 */
terse_status ts_mpi_transport_create(const ts_mpi_options *options, ts_transport **out, ts_error *error) TERSE_NODISCARD;

/* At a relay: the same ranks as a worker of the group above sees them (transport_view.h). [borrow], or NULL. */
ts_transport *ts_mpi_transport_above(const ts_transport *transport);
/* Whether jobs can join, or this is a worker of a job that has: it has a run directory and its mpirun only one side. */
bool ts_mpi_transport_attached(const ts_transport *transport);
/* A server lets nobody in any more. reason: in words, for those who come; copied. */
void ts_mpi_transport_shut(ts_transport *transport, const char *reason);

/* Whether server 0 of a daemon has ended in order, so that this one shall, too. */
bool ts_mpi_transport_told_to_end(const ts_transport *transport);

/* The run directory of a daemon's server, [borrow]; NULL for others. */
const char *ts_mpi_transport_run_dir(const ts_transport *transport);

/* Whether the thread level allows polling from a second thread. */
bool ts_mpi_transport_multiple(const ts_transport *transport);

/*
 * The communicator of the workers of one's own launch and job, made at the first call. comm: [out] points to an MPI_Comm.
 * Collective: all of them. Returns TERSE_OK, TERSE_ESTATE (a server calls), TERSE_EUNSUPPORTED.
 */
terse_status ts_mpi_transport_workers_comm(ts_transport *transport, void *comm) TERSE_NODISCARD;

/*
 * A descriptor that becomes readable when a sleeping owner should poll, or -1; and whether every peer is known to
 * ring it (then only a slow safety timer is needed). The pump uses both.
 */
int ts_mpi_transport_bell_fd(const ts_transport *transport);
/* (False for transports of other back ends, as busy is, and -1 above.) */
bool ts_mpi_transport_bell_complete(const ts_transport *transport);
/* Some request is open: MPI needs polling to carry it on, though nothing may complete for a while. */
bool ts_mpi_transport_in_flight(const ts_transport *transport);
/* Empties the bell. */
void ts_mpi_transport_bell_clear(ts_transport *transport);
/* Whether requests or queued frames need further polls, though nobody rings for them. */
bool ts_mpi_transport_busy(const ts_transport *transport);

/*
 * Whether the launcher lets the others live when one rank dies (mpirun --enable-recovery, or configs/openmpi.conf).
 * Call it when MPI is initialised.
 */
bool ts_mpi_recovery_on(void);

/*
 * Lets what is queued go out, until `deadline_us` from now at most, then finalises MPI if we initialised it, and frees
 * the transport. clean: all peers are known to leave in order. Otherwise the process ends here, since a finalise with
 * dead peers can hang: by _exit(0), or, with another exit code, by an abort; a server then ends the stopped processes of
 * its mpirun on its host, for which mpirun would wait for ever.
 * Returns only when clean.
 */
void ts_mpi_transport_finish(ts_transport *transport, uint64_t deadline_us, bool clean, int exit_code);

/*
 * For a program that cannot take part (its options are wrong, a file is missing): joins the roll call to say so, with
 * the reason, and ends with `exit_code`; all others end, too, instead of waiting until their deadline. Returns when
 * there is nobody to tell: not started by mpirun, or alone. Thread: the first to use MPI, which may be running already.
 */
void ts_mpi_decline(ts_role role, const char *reason, int exit_code);

/*
 * Ends a program whose transport could not be created: a plain return from main would leave mpirun waiting for the
 * ranks that did not join. Flushes stdio; does not return. Thread: the one that initialised MPI.
 */
_Noreturn void ts_mpi_abandon(int exit_code);

/* Whether mpirun lets the others live when a rank dies (configs/openmpi.conf does). Thread: any. */
bool ts_mpi_recovery_on(void);

#endif
