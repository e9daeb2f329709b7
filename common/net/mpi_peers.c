/* SPDX-License-Identifier: Apache-2.0 */
/* The table of peers: who has which number, name and window, and which communicator leads to it. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/net/mpi_internal.h"

terse_status ts_mpi_make_tables(ts_mpi *mpi, size_t peers, size_t jobs) {
    /* Not moved later: requests under way refer to them. What is not used of them takes no memory. */
    mpi->names = ts_mem_calloc(2 * peers, sizeof *mpi->names); /* a relay has two views */
    mpi->peers = ts_mem_calloc(peers, sizeof *mpi->peers);
    mpi->jobs = ts_mem_calloc(2 * jobs, sizeof *mpi->jobs);
    mpi->links = ts_mem_calloc(4, sizeof *mpi->links);
    TS_REQUIRE(mpi->names && mpi->jobs && mpi->peers && mpi->links, TERSE_ENOMEM);
    mpi->link_room = 4;
    mpi->peer_room = (uint32_t)peers;
    mpi->job_room = (uint32_t)jobs;
    mpi->base.near_bytes = TS_MPI_NEAR_BYTES;
    mpi->base.peers = mpi->names;
    mpi->base.jobs = mpi->jobs;
    return TERSE_OK;
}

terse_status ts_mpi_reserve_link(ts_mpi *mpi) {
    if (mpi->link_count < mpi->link_room) return TERSE_OK;
    ts_mpi_link *links = ts_mem_realloc(mpi->links, mpi->link_room * 2, sizeof *links);
    TS_REQUIRE(links, TERSE_ENOMEM);
    mpi->links = links;
    mpi->link_room *= 2;
    return TERSE_OK;
}

/*
 * What a server can spare for one direction of one worker: jobs share alike, and so do the workers of a job; of a
 * worker's share a quarter is for what is under way.
 */
static uint64_t most_of(const ts_mpi_entry *entry, uint64_t shares) {
    return entry->traffic_bytes > 0 ? entry->traffic_bytes / (8u * (shares ? shares : 1)) : UINT64_MAX;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Both ends come to the same result. */
static void set_window(ts_mpi_peer *peer, const ts_mpi_entry *own, const ts_mpi_entry *entry, uint64_t shares) {
    uint64_t window = least(own->window_bytes, entry->window_bytes);
    window = least(window, least(most_of(own, shares), most_of(entry, shares)));
    if (window < TS_WINDOW_FIRST_BYTES) window = TS_WINDOW_FIRST_BYTES;
    /* Open MPI uses shared memory within one mpirun only (btl_vader_module.c). */
    bool paced = peer->attached || !peer->same_host || !own->shared_memory || !entry->shared_memory;
    ts_window_open(&peer->to, &peer->from, paced, (size_t)window);
}

void ts_mpi_set_peer(ts_mpi *mpi, uint32_t number, const ts_mpi_way *way, const ts_mpi_entry *own, const ts_mpi_entry *entry) {
    ts_mpi_peer *peer = &mpi->peers[number];
    peer->last = &peer->first;
    peer->comm = way->comm;
    peer->rank = way->rank;
    peer->attached = way->lifeline >= 0;
    peer->lifeline = way->lifeline;
    peer->same_host = ts_bell_same_host(&own->bell, &entry->bell);
    peer->heard_us = ts_mpi_clock_us();
    if (!peer->same_host || peer->attached) mpi->base.near_bytes = 0;
    if (peer->same_host) mpi->base.neighbours++;
    set_window(peer, own, entry, way->shares);
    if (peer->to.paced && mpi->base.near_bytes) mpi->base.near_bytes = TS_MPI_NEAR_SOCKETS_BYTES;
}

void ts_mpi_set_absent(ts_mpi *mpi, uint32_t server) {
    ts_mpi_peer *peer = &mpi->peers[server];
    peer->last = &peer->first;
    peer->comm = MPI_COMM_NULL;
    peer->lifeline = -1;
    peer->attached = peer->lost = peer->dropped = true;
    mpi->base.near_bytes = 0;
    mpi->names[server] = (ts_peer){.role = TS_ROLE_SERVER, .index = server};
    snprintf(mpi->names[server].name, sizeof mpi->names[server].name, "server %u (dead)", server);
}

void ts_mpi_name_peer(ts_mpi *mpi, uint32_t number, ts_peer peer, bool says_job, uint32_t rank, const char *host) {
    static const char *const roles[] = {"server", "worker", "rank"};
    char job[TS_JOB_NAME_CHARS + 8] = "";
    if (says_job) snprintf(job, sizeof job, " of job %s", mpi->jobs[peer.job].name);
    snprintf(peer.name, sizeof peer.name, "%s %u%s (rank %u on %.32s)", roles[peer.role], peer.index, job, rank, host);
    mpi->names[number] = peer;
}

/* Both views of a relay, the one view of all others. */
static terse_status number_world(ts_mpi *mpi, const ts_mpi_roll *roll) {
    uint32_t size = roll->size, self = roll->rank;
    ts_group_member *members = ts_mem_calloc(size, sizeof *members);
    TS_REQUIRE(members, TERSE_ENOMEM);
    for (uint32_t r = 0; r < size; r++) members[r] = roll->entries[r].member;
    ts_group_view view = {.peers = mpi->names, .jobs = mpi->jobs};
    ts_groups_view(members, size, self, false, &view);
    mpi->base.job_count = view.job_count;
    mpi->base.self = self;
    mpi->base.servers = view.servers;
    mpi->base.workers = view.workers;
    mpi->base.peer_count = size;
    terse_status status = TERSE_OK;
    if (members[self].above[0]) {
        ts_group_view above = {.peers = mpi->names + size, .jobs = mpi->jobs + size};
        ts_groups_view(members, size, self, true, &above);
        status = ts_transport_view_create(&mpi->base, &above, &mpi->above);
    }
    ts_mem_free(members);
    return status;
}

/* In how many shares the traffic of the server of the two is cut. */
static uint64_t shares_of(const ts_transport *transport, uint32_t rank) {
    const ts_peer *peer = &transport->peers[rank], *self = &transport->peers[transport->self];
    const ts_peer *worker = peer->role == TS_ROLE_WORKER ? peer : self;
    if (worker->role != TS_ROLE_WORKER) return 1;
    return (uint64_t)transport->jobs[worker->job].workers * transport->job_count;
}

terse_status ts_mpi_meet_world(ts_mpi *mpi, const ts_mpi_roll *roll) {
    const ts_mpi_entry *own = &roll->entries[roll->rank];
    TS_TRY(number_world(mpi, roll));
    for (uint32_t r = 0; r < roll->size; r++) {
        const ts_mpi_entry *entry = &roll->entries[r];
        bool above = mpi->above && mpi->names[r].role == TS_ROLE_NONE;
        ts_mpi_way way = {.comm = mpi->comm, .rank = (int)r, .lifeline = -1,
                          .shares = shares_of(above ? mpi->above : &mpi->base, r)};
        ts_mpi_set_peer(mpi, r, &way, own, entry);
        TS_TRY(ts_bell_add(mpi->bell, &entry->bell, roll->rank, r == roll->rank));
    }
    mpi->links[mpi->link_count++] = (ts_mpi_link){.comm = mpi->comm, .first = 0, .open = roll->size};
    return TERSE_OK;
}
