/* SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <time.h>

#include "common/base/mem.h"
#include "common/net/mpi_daemon_internal.h"

#define LINGER_US 20000u          /* after the last request: so long MPI may need to empty its own queues */
#define FINALIZE_US 5000000u
#define ABORT_US 2000000u
#define DECLINE_US 30000000u      /* the config is not known; as consistency.start_s by default */

static const ts_transport_ops mpi_ops;

static ts_mpi *of(const ts_transport *transport) { return (ts_mpi *)(uintptr_t)transport; }

/* The pump is given any transport; only this back end has bells. */
static bool is_mpi(const ts_transport *transport) { return transport->ops == &mpi_ops; }

uint64_t ts_mpi_clock_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

/* ---- operations ------------------------------------------------------------------------------------------------------ */

static terse_status mpi_send(ts_transport *transport, uint32_t number, ts_buffer *frame) {
    ts_mpi *mpi = of(transport);
    TS_REQUIRE(number < transport->peer_count && !mpi->peers[number].dropped && !mpi->peers[number].lost, TERSE_EPEER);
    if (ts_buffer_bytes(frame) > mpi->frame_limit_bytes) {
        mpi->counters.dropped++;
        return TERSE_ELIMIT;
    }
    TS_TRY(ts_mpi_queue_frame(mpi, number, frame));
    mpi->counters.frames_out++;
    ts_mpi_push_out(mpi, number);
    return TERSE_OK;
}

static bool finish_requests(ts_mpi *mpi, ts_mpi_requests *requests) {
    ts_mpi_enter(mpi);
    int done = ts_mpi_requests_test(requests);
    ts_mpi_leave(mpi);
    for (int i = 0; i < done; i++) {
        ts_mpi_owner owner = requests->done[i]; /* a handler may send, and the table may move */
        bool failed = requests->failed[i];
        if (owner.sends) {
            ts_mpi_send_completed(mpi, &owner);
            if (failed) ts_mpi_drop(mpi, owner.peer);
        } else {
            ts_mpi_receive_completed(mpi, &owner, failed);
        }
    }
    return done > 0;
}

/*
 * A probe that finds nothing drives MPI once, and what that brings in only the next probe finds; so what a poll finds
 * came after the beginning of the last but one that found everything.
 */
static bool mpi_poll(ts_transport *transport) {
    ts_mpi *mpi = of(transport);
    uint64_t now = ts_mpi_clock_us();
    mpi->sent_after_us = mpi->drained_us[0];
    mpi->polled_us = now;
    bool moved = mpi->backlog && ts_mpi_push_out_all(mpi);
    if (mpi->daemon) moved = ts_mpi_daemon_poll(mpi, now) || moved;
    bool drained = true;
    int found = 0, most = TS_MPI_PROBES_PER_POLL / (int)(mpi->link_count ? mpi->link_count : 1) + 1;
    for (uint32_t l = 0; l < mpi->link_count; l++) { /* a job's flood takes nothing from the others' turns */
        int here = 0;
        while (here < most && l < mpi->link_count && ts_mpi_probe(mpi, l)) here++;
        drained = drained && here < most;
        found += here;
    }
    if (mpi->active.count) moved = finish_requests(mpi, &mpi->active) || moved;
    if (mpi->held_back) ts_mpi_ease(mpi);
    if (mpi->aside.count && ++mpi->polls % TS_MPI_ASIDE_EVERY == 0) finish_requests(mpi, &mpi->aside);
    if (drained) {
        mpi->drained_us[0] = mpi->drained_us[1];
        mpi->drained_us[1] = now;
    }
    return moved || found > 0;
}

static size_t mpi_queued(const ts_transport *transport, uint32_t number) {
    return number < transport->peer_count ? of(transport)->peers[number].queued_bytes : 0;
}

/*
 * Requests of the peer may never complete, and MPI may write to their buffers as long as they have not: they are set
 * aside and looked at now and then.
 */
void ts_mpi_drop(ts_mpi *mpi, uint32_t number) {
    ts_mpi_peer *peer = &mpi->peers[number];
    if (peer->dropped) return;
    ts_mpi_hold_back(mpi, number, false);
    peer->dropped = true;
    if (peer->same_host) mpi->base.neighbours--;
    ts_mpi_forget_queue(mpi, number);
    ts_mpi_forget_incoming(mpi, number);
    ts_mpi_requests_move(&mpi->active, &mpi->aside, number);
    if (peer->attached) ts_mpi_daemon_dropped(mpi, number);
}

static void mpi_drop_peer(ts_transport *transport, uint32_t number) {
    if (number < transport->peer_count) ts_mpi_drop(of(transport), number);
}

static uint64_t mpi_now_us(const ts_transport *transport) {
    (void)transport;
    return ts_mpi_clock_us();
}

static void mpi_counters(const ts_transport *transport, ts_transport_counters *out) { *out = of(transport)->counters; }

static void mpi_destroy(ts_transport *transport) { ts_mpi_free(of(transport)); }

static void mpi_end_job(ts_transport *transport, uint32_t job) {
    if (of(transport)->daemon) ts_mpi_daemon_end_job(of(transport), job);
}

static void mpi_hold_back(ts_transport *transport, uint32_t number, bool ahead) {
    if (number < transport->peer_count) ts_mpi_hold_back(of(transport), number, ahead);
}

static const ts_transport_ops mpi_ops = {mpi_send, mpi_poll, mpi_queued, mpi_drop_peer,
                                         mpi_now_us, mpi_counters, mpi_destroy, mpi_end_job, mpi_hold_back};

/* ---- life -------------------------------------------------------------------------------------------------------------- */

/* Frees all but what requests under way refer to. */
void ts_mpi_free(ts_mpi *mpi) {
    if (!mpi) return;
    ts_mpi_stall_stop(mpi->stall);
    for (uint32_t p = 0; mpi->peers && p < mpi->base.peer_count; p++) {
        ts_mpi_forget_queue(mpi, p);
        ts_mpi_forget_incoming(mpi, p);
        ts_mem_free(mpi->peers[p].queue);
    }
    while (mpi->spare) {
        ts_mpi_incoming *next = mpi->spare->next;
        ts_mem_free(mpi->spare);
        mpi->spare = next;
    }
    bool stuck = mpi->active.count || mpi->aside.count;
    ts_mpi_requests_free(&mpi->active);
    ts_mpi_requests_free(&mpi->aside);
    ts_mpi_daemon_destroy(mpi->daemon);
    ts_bell_destroy(mpi->bell);
    ts_buffer_pool_destroy(mpi->base.pool); /* frames that others hold, or MPI writes to, stay theirs */
    if (mpi->above) mpi->above->ops->destroy(mpi->above);
    ts_mem_free(mpi->names);
    ts_mem_free(mpi->jobs);
    ts_mem_free(mpi->links);
    if (stuck) return; /* a CREDIT under way is read from the peer table */
    ts_mem_free(mpi->peers);
    ts_mem_free(mpi);
}

/* A communicator of one's own, so that nobody else's messages are ever matched. */
static terse_status duplicate_world(ts_mpi *mpi, uint64_t until_us, ts_error *error) {
    MPI_Request request;
    int done = 0;
    if (MPI_Comm_idup(MPI_COMM_WORLD, &mpi->comm, &request) != MPI_SUCCESS) {
        return ts_error_set(error, TERSE_EUNSUPPORTED, "MPI cannot duplicate MPI_COMM_WORLD");
    }
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
        if (ts_mpi_clock_us() > until_us) {
            return ts_error_set(error, TERSE_ETIMEDOUT, "a rank has answered the roll call and then fallen silent");
        }
        sched_yield();
    }
    TS_REQUIRE(done, ts_error_set(error, TERSE_EUNSUPPORTED, "MPI cannot duplicate MPI_COMM_WORLD"));
    MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN);
    return TERSE_OK;
}

/* Only when all ranks are known to do the same; one that dies now would let it hang, and then the process ends. */
static void finalise(int exit_code) {
    ts_mpi_watchdog *watchdog = ts_mpi_watchdog_arm(FINALIZE_US, exit_code, NULL);
    MPI_Finalize();
    ts_mpi_watchdog_disarm(watchdog);
}

static bool has_role(const ts_mpi_roll *roll, ts_role role) {
    for (uint32_t r = 0; r < roll->size; r++) {
        if (roll->entries[r].member.role == (uint32_t)role) return true;
    }
    return false;
}

/* Who is there becomes the table of peers; who is alone with its role, and has a run directory, opens it to the other. */
static terse_status meet(ts_mpi *mpi, const ts_mpi_options *options, const ts_mpi_roll *roll, ts_error *error) {
    bool servers = has_role(roll, TS_ROLE_SERVER), workers = has_role(roll, TS_ROLE_WORKER);
    if (options->joins && servers)
        return ts_error_set(error, TERSE_EINVAL, "worker.id is for coming into a job of a daemon, and this mpirun has servers of its own");
    if (options->run_dir && options->role == TS_ROLE_WORKER && !servers) return ts_mpi_attach(mpi, options, roll, error);
    if (workers) {
        ts_mpi_daemon_destroy(mpi->daemon); /* one job, as ever */
        mpi->daemon = NULL;
    }
    size_t peers = mpi->daemon ? TS_MPI_DAEMON_PEERS : 0, jobs = mpi->daemon ? TS_MPI_DAEMON_JOBS : 0;
    terse_status status = ts_mpi_make_tables(mpi, peers + roll->size, jobs + roll->size);
    if (status == TERSE_OK) status = ts_mpi_meet_world(mpi, roll);
    if (status != TERSE_OK) return ts_error_set(error, status, "no memory for the tables of peers");
    return mpi->daemon ? ts_mpi_daemon_open(mpi, options, roll, error) : TERSE_OK;
}

terse_status ts_mpi_transport_create(const ts_mpi_options *options, ts_transport **out, ts_error *error) {
    uint64_t until_us = ts_mpi_clock_us() + options->start_us;
    ts_mpi *mpi = ts_mem_calloc(1, sizeof *mpi);
    TS_REQUIRE(mpi, ts_error_set(error, TERSE_ENOMEM, "no memory for the transport"));
    mpi->base.ops = &mpi_ops;
    mpi->comm = mpi->workers = MPI_COMM_NULL;
    mpi->frame_limit_bytes = options->frame_limit_bytes;
    terse_status status = ts_bell_create(&mpi->bell);
    if (status == TERSE_OK) status = ts_buffer_pool_create(TS_MPI_POOL_BYTES, &mpi->base.pool);
    bool opens = options->run_dir && options->role == TS_ROLE_SERVER;
    ts_mpi_roll roll = {0};
    if (status == TERSE_OK) status = ts_mpi_start(options, mpi, error);
    if (status == TERSE_OK && opens) status = ts_mpi_daemon_create(options, &mpi->daemon, error);
    if (status == TERSE_OK)
        status = ts_mpi_roll_call(mpi, options, mpi->daemon ? ts_mpi_daemon_port(mpi->daemon) : 0, &roll, error);
    if (status == TERSE_OK) status = duplicate_world(mpi, until_us + options->start_us, error);
    if (status == TERSE_OK) status = meet(mpi, options, &roll, error);
    ts_mem_free(roll.entries);
    if (status == TERSE_OK) mpi->stall = ts_mpi_stall_start(mpi);
    if (status != TERSE_OK) {
        if (mpi->all_leave && mpi->initialised_mpi) finalise(EXIT_FAILURE);
        ts_mpi_free(mpi);
        return status;
    }
    *out = &mpi->base;
    return TERSE_OK;
}

static bool all_sent(const ts_mpi *mpi) {
    if (mpi->backlog) return false;
    for (int i = 0; i < mpi->active.count; i++) {
        if (mpi->active.owner[i].sends) return false;
    }
    return true;
}

static void flush(ts_mpi *mpi, uint64_t deadline_us) {
    uint64_t until_us = ts_mpi_clock_us() + deadline_us;
    while (!all_sent(mpi) && ts_mpi_clock_us() < until_us) {
        if (!mpi_poll(&mpi->base)) sched_yield();
    }
    until_us = ts_mpi_clock_us() + LINGER_US;
    while (ts_mpi_clock_us() < until_us) {
        if (!mpi_poll(&mpi->base)) sched_yield();
    }
}

/*
 * With recovery on, an abort ends no running rank but this one. mpirun counts it twice or more among those that have
 * ended, and so ends the others early, if the count happens to come out.
 */
void ts_mpi_abandon(int exit_code) {
    int initialised = 0, finalised = 0;
    fflush(NULL);
    MPI_Initialized(&initialised);
    MPI_Finalized(&finalised);
    if (!initialised || finalised) exit(exit_code);
    ts_mpi_watchdog *watchdog = ts_mpi_watchdog_arm(ABORT_US, exit_code, NULL);
    if (watchdog) MPI_Abort(MPI_COMM_WORLD, exit_code);
    _exit(exit_code);
}

void ts_mpi_decline(ts_role role, const char *reason, int exit_code) {
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    if (!size || strtol(size, NULL, 10) < 2) return;
    fflush(NULL);
    ts_mpi_options options = {.role = role, .start_us = DECLINE_US, .deadline_us = DECLINE_US, .declines = reason};
    ts_transport *transport = NULL;
    ts_error others = {""}; /* the roll call's verdict, which is our own reason or somebody else's */
    (void)!ts_mpi_transport_create(&options, &transport, &others);
    ts_mpi_abandon(exit_code);
}

/*
 * Frees the ways to servers of another mpirun. Open MPI's free is local, and without it a finalise, which may be the
 * user's, waits for the servers.
 */
static void leave_daemon(ts_mpi *mpi) {
    for (uint32_t p = 0; p < mpi->base.peer_count; p++) {
        ts_mpi_peer *peer = &mpi->peers[p];
        if (!peer->attached || peer->dropped) continue;
        MPI_Comm comm = peer->comm;
        ts_mpi_drop(mpi, p); /* closes the lifeline */
        MPI_Comm_free(&comm);
    }
}

void ts_mpi_transport_finish(ts_transport *transport, uint64_t deadline_us, bool clean, int exit_code) {
    ts_mpi *mpi = of(transport);
    transport->handler = (ts_transport_handler){0}; /* its owner may be gone already */
    if (mpi->above) mpi->above->handler = (ts_transport_handler){0};
    flush(mpi, deadline_us);
    bool launched = !mpi->daemon; /* with its workers, by one mpirun */
    if (mpi->daemon) { /* what other servers are still at is no concern of the run directory's */
        if (exit_code == 0) ts_mpi_daemon_say_ending(mpi->daemon);
        ts_mpi_daemon_destroy(mpi->daemon);
        mpi->daemon = NULL;
        clean = false; /* a finalise would wait for jobs that are long gone */
    }
    if (!launched && exit_code != 0) { /* the other servers may go on, and an abort counts for two of them (ts_mpi_abandon) */
        fflush(NULL);
        _exit(exit_code);
    }
    if (!clean && exit_code != 0) {
        if (launched && transport->peers[transport->self].role == TS_ROLE_SERVER) ts_mpi_end_stopped(mpi);
        ts_mpi_abandon(exit_code);
    }
    if (!clean) { /* this rank has succeeded, others have died: a finalise could hang */
        fflush(NULL);
        _exit(exit_code);
    }
    bool finalises = mpi->initialised_mpi;
    leave_daemon(mpi);
    if (!finalises) {
        if (mpi->workers != MPI_COMM_NULL) MPI_Comm_free(&mpi->workers);
        if (!mpi->active.count && !mpi->aside.count) MPI_Comm_free(&mpi->comm);
    }
    ts_mpi_free(mpi);
    if (!finalises) return;
    finalise(exit_code);
}

/* ---- what else is asked of it --------------------------------------------------------------------------------------------- */

ts_transport *ts_mpi_transport_above(const ts_transport *transport) { return of(transport)->above; }
bool ts_mpi_transport_attached(const ts_transport *transport) {
    const ts_mpi *mpi = of(transport);
    return is_mpi(transport) && (mpi->daemon || (mpi->base.peer_count && mpi->peers[0].attached)); /* a dead server, too */
}

void ts_mpi_transport_shut(ts_transport *transport, const char *reason) {
    if (is_mpi(transport) && of(transport)->daemon) ts_mpi_daemon_shut(of(transport), reason);
}

bool ts_mpi_transport_told_to_end(const ts_transport *transport) {
    return is_mpi(transport) && of(transport)->daemon && of(transport)->daemon->told_to_end;
}

const char *ts_mpi_transport_run_dir(const ts_transport *transport) {
    return is_mpi(transport) && of(transport)->daemon ? of(transport)->daemon->dir : NULL;
}

bool ts_mpi_transport_multiple(const ts_transport *transport) { return of(transport)->multiple; }

terse_status ts_mpi_transport_workers_comm(ts_transport *transport, void *comm) {
    ts_mpi *mpi = of(transport);
    TS_REQUIRE(transport->peers[transport->self].role == TS_ROLE_WORKER, TERSE_ESTATE);
    if (mpi->workers == MPI_COMM_NULL) {
        int *ranks = ts_mem_calloc(transport->peer_count, sizeof *ranks);
        TS_REQUIRE(ranks, TERSE_ENOMEM);
        int count = 0;
        for (uint32_t p = 0; p < transport->peer_count; p++) {
            const ts_peer *peer = &transport->peers[p];
            if (peer->role == TS_ROLE_WORKER && peer->job == transport->peers[transport->self].job) ranks[count++] = mpi->peers[p].rank;
        }
        MPI_Group world, workers;
        MPI_Comm_group(MPI_COMM_WORLD, &world);
        MPI_Group_incl(world, count, ranks, &workers);
        ts_mem_free(ranks);
        ts_mpi_watchdog *watchdog =
            ts_mpi_watchdog_arm(mpi->start_us, 4, "not all workers have called terse_comm within consistency.start_s");
        int result = MPI_Comm_create_group(MPI_COMM_WORLD, workers, TS_TAG_ROLL + 1, &mpi->workers);
        ts_mpi_watchdog_disarm(watchdog);
        MPI_Group_free(&workers);
        MPI_Group_free(&world);
        TS_REQUIRE(result == MPI_SUCCESS, TERSE_EUNSUPPORTED);
    }
    memcpy(comm, &mpi->workers, sizeof mpi->workers);
    return TERSE_OK;
}

int ts_mpi_transport_bell_fd(const ts_transport *transport) {
    return is_mpi(transport) ? ts_bell_fd(of(transport)->bell) : -1;
}

bool ts_mpi_transport_bell_complete(const ts_transport *transport) {
    return is_mpi(transport) && ts_bell_complete(of(transport)->bell, ts_mpi_clock_us());
}

void ts_mpi_transport_bell_clear(ts_transport *transport) {
    if (is_mpi(transport)) ts_bell_clear(of(transport)->bell, ts_mpi_clock_us());
}

bool ts_mpi_transport_busy(const ts_transport *transport) {
    return is_mpi(transport) && (of(transport)->active.count || of(transport)->backlog);
}
