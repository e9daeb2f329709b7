/* SPDX-License-Identifier: Apache-2.0 */
/* A server lets a whole job in: MPI_Comm_accept, and its workers become peers. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/mpi_daemon_internal.h"

#define PATIENCE_US 1500000u /* those who were invited connect at once: who has not by then is stopped */
#define ACCEPT_US 20000000u  /* an accept that hangs for so long can be rescued by nothing */

bool ts_mpi_party_complete(const ts_mpi_daemon *daemon, const ts_door_guest *one) {
    size_t count;
    uint32_t here = 0;
    ts_door_guest **guests = ts_door_guests(daemon->door, &count);
    for (size_t g = 0; g < count; g++) {
        const ts_door_guest *guest = guests[g];
        here += guest->known && !guest->gone && guest->peer == UINT32_MAX && guest->knock.job == one->knock.job &&
                guest->knock.size == one->knock.size && memcmp(guest->knock.party, one->knock.party, TS_DOOR_PARTY_BYTES) == 0;
    }
    return here == one->knock.size;
}

ts_door_guest **ts_mpi_gather(const ts_mpi_daemon *daemon, const ts_door_guest *one) {
    size_t count;
    ts_door_guest **guests = ts_door_guests(daemon->door, &count);
    ts_door_guest **party = ts_mem_calloc(one->knock.size, sizeof(ts_door_guest *));
    for (size_t g = 0; party && g < count; g++) {
        ts_door_guest *guest = guests[g];
        if (!guest->known || guest->peer != UINT32_MAX || memcmp(guest->knock.party, one->knock.party, TS_DOOR_PARTY_BYTES) != 0)
            continue;
        if (guest->knock.rank >= one->knock.size || party[guest->knock.rank]) {
            ts_mem_free(party);
            return NULL;
        }
        party[guest->knock.rank] = guest;
    }
    for (uint32_t r = 0; party && r < one->knock.size; r++) {
        if (party[r]) continue;
        ts_mem_free(party);
        return NULL;
    }
    return party;
}

static void invite(ts_mpi *mpi, ts_door_guest **party, uint32_t size, const char *port, uint64_t shares) {
    ts_mpi_invitation invitation = {.shares = shares, .first = mpi->base.peer_count, .server = mpi->daemon->own};
    snprintf(invitation.port, sizeof invitation.port, "%s", port);
    for (uint32_t r = 0; r < size; r++) {
        party[r]->told = true;
        ts_door_tell(party[r], TS_DOOR_OPEN, TERSE_OK, &invitation, sizeof invitation);
    }
}

/* The intercommunicator, or MPI_COMM_NULL when the other side died on the way or fell silent. */
static MPI_Comm accept_party(ts_door_guest **party, uint32_t size, const char *port) {
    MPI_Comm comm = MPI_COMM_NULL;
    ts_mpi_rescue *rescue = NULL;
    int *lifelines = ts_mem_calloc(size, sizeof *lifelines);
    bool alive = lifelines != NULL;
    for (uint32_t r = 0; alive && r < size; r++) {
        lifelines[r] = party[r]->fd;
        alive = !party[r]->gone && !ts_door_is_cut(party[r]->fd);
    }
    if (!alive || ts_mpi_rescue_begin(lifelines, size, port, PATIENCE_US, &rescue) != TERSE_OK) {
        ts_mem_free(lifelines);
        return MPI_COMM_NULL;
    }
    ts_mpi_watchdog *watchdog =
        ts_mpi_watchdog_arm(ACCEPT_US, 4, "MPI_Comm_accept does not return, though the other side has ended: is this Open MPI 4.1, and does ompi-server answer?");
    int result = MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &comm);
    ts_mpi_watchdog_disarm(watchdog);
    bool rescued = ts_mpi_rescue_end(rescue);
    ts_mem_free(lifelines);
    if (result != MPI_SUCCESS || rescued) return MPI_COMM_NULL; /* what there is of it is left to MPI (mpi_daemon.c) */
    int remote = 0;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_remote_size(comm, &remote);
    return remote == (int)size ? comm : MPI_COMM_NULL;
}

/* Numbers that other servers have given, and this one has not seen: such jobs ended while they joined. */
static void fill_gaps(ts_mpi *mpi, uint32_t job) {
    while (mpi->base.job_count < job) {
        mpi->jobs[mpi->base.job_count] = (ts_transport_job){.name = "", .workers = 0};
        mpi->base.job_count++;
    }
}

bool ts_mpi_job_runs(const ts_mpi *mpi, uint32_t job) {
    const ts_transport_handler *handler = &mpi->base.handler;
    return handler->job_runs && job < mpi->base.job_count && handler->job_runs(handler->context, job);
}

static void wanted_name(const ts_door_guest *guest, char name[TS_JOB_NAME_CHARS]) {
    ts_mpi_entry entry;
    memcpy(&entry, guest->entry, sizeof entry);
    snprintf(name, TS_JOB_NAME_CHARS, "%.*s", TS_JOB_NAME_CHARS - 1, entry.member.job);
}

/* Asked of one server alone: another may have seen the last of the job with that name a moment earlier, or later. */
bool ts_mpi_name_taken(const ts_mpi *mpi, const ts_door_guest *asker) {
    char wanted[TS_JOB_NAME_CHARS];
    wanted_name(asker, wanted);
    bool taken = !wanted[0] || strcmp(wanted, "default") == 0;
    for (uint32_t p = 0; !taken && p < mpi->base.peer_count; p++) {
        const ts_peer *peer = &mpi->names[p];
        bool served = !mpi->peers[p].dropped || ts_mpi_job_runs(mpi, peer->job); /* its workers may all be lost */
        taken = peer->role == TS_ROLE_WORKER && served && strcmp(mpi->jobs[peer->job].name, wanted) == 0;
    }
    return taken;
}

static bool is_join(const ts_door_guest *guest) { return guest->knock.worker != TS_DOOR_NO_WORKER; }

static void begin_job(ts_mpi *mpi, const ts_door_guest *first, uint32_t size) {
    uint32_t number = first->knock.job;
    fill_gaps(mpi, number);
    ts_transport_job *job = &mpi->jobs[number];
    *job = (ts_transport_job){.workers = size, .numbered = first->knock.numbered != 0};
    if (job->numbered) snprintf(job->name, sizeof job->name, "job%u", number);
    else wanted_name(first, job->name);
    mpi->base.job_count = number + 1;
}

/* The party's processes become peers: all workers of a new job, or some of one that runs. */
static terse_status add_peers(ts_mpi *mpi, ts_door_guest **party, uint32_t size, MPI_Comm comm, uint64_t shares) {
    uint32_t number = party[0]->knock.job, first = mpi->base.peer_count;
    ts_mpi_entry entry;
    TS_TRY(ts_mpi_reserve_link(mpi));
    TS_TRY(ts_bell_reserve(mpi->bell, size));
    if (!is_join(party[0])) begin_job(mpi, party[0], size);
    for (uint32_t r = 0; r < size; r++) {
        uint32_t worker = is_join(party[0]) ? party[r]->knock.worker : r;
        memcpy(&entry, party[r]->entry, sizeof entry);
        entry.member.host[sizeof entry.member.host - 1] = 0;
        ts_mpi_way way = {.comm = comm, .rank = (int)r, .lifeline = party[r]->fd, .shares = shares};
        ts_mpi_set_peer(mpi, first + r, &way, &mpi->daemon->own, &entry);
        ts_mpi_name_peer(mpi, first + r, (ts_peer){.role = TS_ROLE_WORKER, .index = worker, .job = number}, true, r, entry.member.host);
        TS_TRY(ts_bell_add(mpi->bell, &entry.bell, mpi->names[mpi->base.self].index, false)); /* room is reserved */
        party[r]->peer = first + r;
        if (worker >= mpi->jobs[number].workers) mpi->jobs[number].workers = worker + 1;
    }
    mpi->links[mpi->link_count++] = (ts_mpi_link){.comm = comm, .first = first, .open = size};
    mpi->base.peer_count += size;
    mpi->base.workers += size;
    return TERSE_OK;
}

/* In how many shares the traffic is cut: all workers of all jobs, were they as large as this one. */
static uint64_t share_count(const ts_mpi *mpi, ts_door_guest **party, uint32_t size) {
    uint32_t jobs = ts_mpi_live_jobs(mpi), workers = size;
    if (!is_join(party[0])) return (uint64_t)workers * (jobs + 1);
    workers = mpi->jobs[party[0]->knock.job].workers;
    for (uint32_t r = 0; r < size; r++)
        if (party[r]->knock.worker >= workers) workers = party[r]->knock.worker + 1;
    return (uint64_t)workers * (jobs ? jobs : 1);
}

/* Whether the workers of a party that comes into a running job are said in earnest. */
static bool is_sound(ts_door_guest **party, uint32_t size) {
    for (uint32_t r = 0; r < size; r++) {
        if (is_join(party[r]) != is_join(party[0])) return false;
        if (is_join(party[r]) && party[r]->knock.worker >= TS_MPI_JOB_WORKERS) return false;
    }
    return true;
}

static void tell_owner(ts_mpi *mpi, uint32_t first, bool join) {
    ts_transport_handler *handler = &mpi->base.handler;
    if (join && handler->on_workers) handler->on_workers(handler->context, first);
    if (!join && handler->on_jobs) handler->on_jobs(handler->context);
}

void ts_mpi_let_in(ts_mpi *mpi, const ts_door_guest *one) {
    char port[MPI_MAX_PORT_NAME];
    uint8_t which[TS_DOOR_PARTY_BYTES];
    uint32_t size = one->knock.size, first = mpi->base.peer_count;
    uint64_t began_us = ts_mpi_clock_us();
    memcpy(which, one->knock.party, sizeof which);
    ts_door_guest **party = ts_mpi_gather(mpi->daemon, one);
    bool fits = party && is_sound(party, size) && size <= mpi->peer_room - mpi->base.peer_count;
    if (!fits || MPI_Open_port(MPI_INFO_NULL, port) != MPI_SUCCESS) {
        ts_mem_free(party);
        ts_mpi_turn_away(mpi, which, TERSE_EUNSUPPORTED, "the server cannot let the job in: two workers of one rank, or no port");
        return;
    }
    bool join = is_join(party[0]);
    uint64_t shares = share_count(mpi, party, size);
    invite(mpi, party, size, port, shares);
    MPI_Comm comm = accept_party(party, size, port);
    MPI_Close_port(port);
    terse_status status = comm == MPI_COMM_NULL ? TERSE_EPEER : add_peers(mpi, party, size, comm, shares);
    uint32_t number = party[0]->knock.job;
    ts_mem_free(party);
    if (status != TERSE_OK) {
        ts_mpi_turn_away(mpi, which, status, "a worker of the job ended, or did not connect, while it was joining");
        return;
    }
    ts_log(TS_LOG_INFO, "daemon", join ? "workers have come into a job" : "a job has joined", "job=%s number=%u workers=%u ms=%.1f",
           mpi->jobs[number].name, number, size, (double)(ts_mpi_clock_us() - began_us) * 1e-3);
    tell_owner(mpi, first, join);
}
