/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker job joins a daemon: the other side of mpi_daemon.c. Rank 0 reads the card, finds the server that leads, and gets
 * the job's number; then all ranks knock at the door of each server that lives, as the leading one says, and when all are
 * there, they and the server make an intercommunicator. Everything here waits, under deadlines: MPI's own calls under a
 * watchdog, which ends the process with code 4.
 */
#include <mpi.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/net/card.h"
#include "common/net/mpi_internal.h"

#define LEADERS 2u          /* server 0, and its stand-in */
#define SECOND_US 5000000u  /* a host that is gone says nothing: so long the door of the first may take to open */
#define AGAIN "; where servers.replicas is 1 the same command joins without it"

/* What rank 0 tells the others; the doors follow. */
typedef struct {
    uint32_t status, servers, leader;
    ts_mpi_grant granted; /* with options->joins each rank hears it itself */
    uint8_t token[TS_DOOR_TOKEN_BYTES], party[TS_DOOR_PARTY_BYTES];
    ts_error error;
} plan;

typedef struct {
    ts_mpi *mpi;
    const ts_mpi_options *options;
    const ts_mpi_roll *roll;
    uint64_t until_us;
    plan plan;
    ts_bell_address *doors;        /* [own] plan.servers of them */
    ts_mpi_invitation *invitation; /* [own] of each server */
    MPI_Comm *comm;
    int *lifeline;                 /* -1: none */
    ts_error *error;
} joining;

static const ts_mpi_entry *own_entry(const joining *join) { return &join->roll->entries[join->roll->rank]; }

/* Knocks at a door; the others are told nothing. */
static terse_status knock(joining *join, uint32_t server, uint32_t job, uint64_t until_us) {
    const ts_mpi_entry *own = own_entry(join);
    const ts_bell_address *door = &join->doors[server];
    ts_door_knock knock = {.version = TS_MPI_WIRE_VERSION, .job = job, .rank = join->roll->rank, .size = join->roll->size,
                           .worker = join->options->joins && job != TS_DOOR_JOIN ? join->plan.granted.place.worker : TS_DOOR_NO_WORKER,
                           .numbered = join->plan.granted.numbered, .entry_bytes = sizeof *own};
    memcpy(knock.token, join->plan.token, sizeof knock.token);
    memcpy(knock.party, join->plan.party, sizeof knock.party);
    uint32_t address = ts_bell_way(&own->bell, door);
    terse_status status = address ? TERSE_OK : TERSE_EPEER;
    if (status == TERSE_OK) status = ts_door_visit(address, door->port, &knock, own, until_us, &join->lifeline[server]);
    if (status == TERSE_OK) return TERSE_OK;
    return ts_error_set(join->error, status, "server %u of the daemon in %s cannot be reached from %.32s: %s; has it ended?%s", server,
                        join->options->run_dir, own->member.host, terse_strerror(status), join->plan.servers > 1 ? AGAIN : "");
}

/* The next answer of a server. A refusal's words become the error. */
static terse_status hear(joining *join, uint32_t server, ts_door_answer_kind kind, void *payload, size_t bytes) {
    uint8_t text[TS_ERROR_CHARS + sizeof(ts_mpi_invitation)] = {0};
    ts_door_answer answer;
    terse_status status = ts_door_hear(join->lifeline[server], join->until_us, &answer, text, sizeof text - 1);
    if (status == TERSE_ETIMEDOUT)
        return ts_error_set(join->error, status, "server %u of the daemon in %s did not let this job in within %g s: another job "
                            "is joining, not all ranks of this one have knocked, or it is stopped", server,
                            join->options->run_dir, (double)join->options->start_us * 1e-6);
    if (status != TERSE_OK)
        return ts_error_set(join->error, status, "server %u of the daemon in %s ended while this job was joining%s", server,
                            join->options->run_dir, join->plan.servers > 1 ? AGAIN : "");
    if (answer.kind == TS_DOOR_REFUSED)
        return ts_error_set(join->error, answer.status ? (terse_status)answer.status : TERSE_EPEER,
                            "server %u of the daemon in %s: %.700s", server, join->options->run_dir, (const char *)text);
    TS_REQUIRE(answer.kind == (uint32_t)kind && answer.bytes == bytes,
               ts_error_set(join->error, TERSE_EVERSION, "server %u of the daemon in %s is of another version", server,
                            join->options->run_dir));
    memcpy(payload, text, bytes);
    return TERSE_OK;
}

static terse_status make_tables(joining *join, uint32_t servers) {
    join->invitation = ts_mem_calloc(servers, sizeof *join->invitation);
    join->comm = ts_mem_calloc(servers, sizeof *join->comm);
    join->lifeline = ts_mem_calloc(servers, sizeof *join->lifeline);
    TS_REQUIRE(join->invitation && join->comm && join->lifeline, ts_error_set(join->error, TERSE_ENOMEM, "no memory for joining"));
    for (uint32_t s = 0; s < servers; s++) {
        join->lifeline[s] = -1;
        join->comm[s] = MPI_COMM_NULL;
    }
    return TERSE_OK;
}

/* Rank 0 asks a server for a number; who comes into a running job waits there until all ranks ask. */
static terse_status ask(joining *join, uint32_t server, uint64_t until_us, bool *heard) {
    terse_status status = knock(join, server, join->options->joins ? TS_DOOR_JOIN : TS_DOOR_NO_JOB, until_us);
    *heard = status == TERSE_OK;
    if (status != TERSE_OK || join->options->joins) return status;
    return hear(join, server, TS_DOOR_GRANTED, &join->plan.granted, sizeof join->plan.granted);
}

/*
 * Server 0, or its stand-in when nobody opens there: it leads then, or will in a moment. The card may be an old one, where
 * servers of other hosts do not see the run directory.
 */
static terse_status find_leader(joining *join, const ts_dead_set *dead) {
    uint32_t count = join->plan.servers < LEADERS ? join->plan.servers : LEADERS;
    terse_status first = TERSE_OK;
    ts_error why = {""};
    for (uint32_t s = 0; s < count; s++) {
        bool heard = false, others = s + 1 < count;
        uint64_t soon_us = ts_mpi_clock_us() + SECOND_US;
        if (others && ts_dead_set_has(dead, s)) continue;
        join->plan.leader = s;
        terse_status status = ask(join, s, others && soon_us < join->until_us ? soon_us : join->until_us, &heard);
        if (status == TERSE_OK || (heard && status != TERSE_EPEER && status != TERSE_EAGAIN)) return status;
        if (heard && status == TERSE_EPEER && !others) return status;
        if (first == TERSE_OK) {
            first = status;
            why = *join->error;
        }
    }
    *join->error = why; /* of the first: the second leads only without it */
    return first;
}

/* Rank 0: the card, and the job's number. */
static terse_status make_plan(joining *join) {
    ts_card card;
    TS_TRY(ts_card_read(join->options->run_dir, &card, join->error));
    join->doors = card.doors;
    join->plan.servers = card.servers;
    memcpy(join->plan.token, card.token, sizeof card.token);
    if (card.wire != TS_MPI_WIRE_VERSION)
        return ts_error_set(join->error, TERSE_EVERSION, "the daemon in %s speaks version %" PRIu32 " of the transport, this "
                            "program version %u", join->options->run_dir, card.wire, TS_MPI_WIRE_VERSION);
    if (getrandom(join->plan.party, sizeof join->plan.party, 0) != (ssize_t)sizeof join->plan.party)
        return ts_error_set(join->error, TERSE_EIO, "the system gives no random bytes");
    TS_TRY(make_tables(join, card.servers));
    return find_leader(join, &card.dead);
}

/* All ranks have the plan, or the reason why there is none. */
static terse_status share_plan(joining *join) {
    bool leads = join->roll->rank == 0;
    terse_status status = TERSE_OK;
    if (leads) {
        status = make_plan(join);
        join->plan.status = (uint32_t)status;
        if (status != TERSE_OK) join->plan.error = *join->error;
    }
    ts_mpi_watchdog *watchdog = ts_mpi_watchdog_arm(join->options->start_us * 2, 4, "rank 0 does not tell how to join the daemon");
    MPI_Bcast(&join->plan, sizeof join->plan, MPI_BYTE, 0, join->mpi->comm);
    if (join->plan.status == TERSE_OK && !leads) {
        join->doors = ts_mem_calloc(join->plan.servers, sizeof *join->doors);
        status = join->doors ? make_tables(join, join->plan.servers) : TERSE_ENOMEM;
    }
    /* Without memory the others would wait for this rank: it ends, and they with their deadlines. */
    if (join->plan.status == TERSE_OK && status == TERSE_OK)
        MPI_Bcast(join->doors, (int)(join->plan.servers * sizeof *join->doors), MPI_BYTE, 0, join->mpi->comm);
    ts_mpi_watchdog_disarm(watchdog);
    if (join->plan.status == TERSE_OK || leads) return status;
    return ts_error_set(join->error, (terse_status)join->plan.status, "%s", join->plan.error.text);
}

/* Which worker of which job this rank becomes. */
static terse_status ask_place(joining *join) {
    uint32_t leader = join->plan.leader;
    if (join->lifeline[leader] < 0) TS_TRY(knock(join, leader, TS_DOOR_JOIN, join->until_us));
    return hear(join, leader, TS_DOOR_GRANTED, &join->plan.granted, sizeof join->plan.granted);
}

/* Says what MPI itself does not: Open MPI prints a page, and some of it is of no help. */
static terse_status explain_connect(joining *join, uint32_t server, int result) {
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int len = 0;
    MPI_Error_string(result, text, &len);
    const char *uri = getenv("OMPI_MCA_pmix_server_uri");
    return ts_error_set(join->error, TERSE_EPEER, "MPI cannot connect to server %u of the daemon in %s: %s. Launch the workers with "
                        "`mpirun --ompi-server file:%s/%s …`%s", server, join->options->run_dir, text, join->options->run_dir,
                        TS_RUN_DIR_URI, uri ? " (some --ompi-server was given: is it this daemon's, and does it live?)" : "");
}

static terse_status join_server(joining *join, uint32_t server) {
    if (ts_dead_set_has(&join->plan.granted.dead, server)) return TERSE_OK;
    if (join->lifeline[server] < 0) TS_TRY(knock(join, server, join->plan.granted.place.job, join->until_us));
    TS_TRY(hear(join, server, TS_DOOR_OPEN, &join->invitation[server], sizeof join->invitation[server]));
    join->invitation[server].port[sizeof join->invitation[server].port - 1] = 0;
    char what[400];
    snprintf(what, sizeof what, "MPI_Comm_connect to server %u of the daemon in %.150s did not return within %g s: a rank of this "
             "job has died, the server is stopped, or the ompi-server that %.40s names does not live", server,
             join->options->run_dir, (double)join->options->start_us * 1e-6, "--ompi-server");
    ts_mpi_watchdog *watchdog = ts_mpi_watchdog_arm(join->options->start_us, 4, what);
    int result = MPI_Comm_connect(join->invitation[server].port, MPI_INFO_NULL, 0, join->mpi->comm, &join->comm[server]);
    ts_mpi_watchdog_disarm(watchdog);
    if (result != MPI_SUCCESS) return explain_connect(join, server, result);
    MPI_Comm_set_errhandler(join->comm[server], MPI_ERRORS_RETURN);
    return TERSE_OK;
}

static terse_status add_server(joining *join, uint32_t server) {
    static const ts_bell_address none;
    ts_mpi *mpi = join->mpi;
    const ts_mpi_invitation *invitation = &join->invitation[server];
    if (ts_dead_set_has(&join->plan.granted.dead, server)) {
        ts_mpi_set_absent(mpi, server);
        return ts_bell_add(mpi->bell, &none, 0, true); /* its number is taken, and nobody waits for it */
    }
    ts_mpi_way way = {.comm = join->comm[server], .rank = 0, .lifeline = join->lifeline[server], .shares = invitation->shares};
    ts_mpi_set_peer(mpi, server, &way, own_entry(join), &invitation->server);
    mpi->peers[server].spoke = true; /* it waits for our first word */
    ts_peer peer = {.role = TS_ROLE_SERVER, .index = server};
    ts_mpi_name_peer(mpi, server, peer, false, server, invitation->server.member.host);
    TS_TRY(ts_bell_add(mpi->bell, &invitation->server.bell, invitation->first + join->roll->rank, false));
    TS_TRY(ts_mpi_reserve_link(mpi));
    mpi->links[mpi->link_count++] = (ts_mpi_link){.comm = join->comm[server], .first = server, .open = 1};
    join->lifeline[server] = -1; /* the peer's */
    return TERSE_OK;
}

/* Which workers of the job the ranks of this launch are. numbers: [out] one each. */
static terse_status number_ranks(const joining *join, uint32_t *numbers) {
    for (uint32_t r = 0; r < join->roll->size; r++) numbers[r] = r;
    if (!join->options->joins) return TERSE_OK;
    ts_mpi_watchdog *watchdog = ts_mpi_watchdog_arm(join->options->start_us, 4, "another rank of this launch has not come into the job");
    int result = MPI_Allgather(&join->plan.granted.place.worker, 1, MPI_UINT32_T, numbers, 1, MPI_UINT32_T, join->mpi->comm);
    ts_mpi_watchdog_disarm(watchdog);
    return result == MPI_SUCCESS ? TERSE_OK : TERSE_EPEER;
}

/* Servers first, then the ranks of this launch. */
static terse_status fill_tables(joining *join, const uint32_t *numbers) {
    ts_mpi *mpi = join->mpi;
    const ts_mpi_entry *own = own_entry(join);
    const ts_transport_place *place = &join->plan.granted.place;
    uint32_t servers = join->plan.servers, workers = join->roll->size, rank = join->roll->rank;
    TS_TRY(ts_mpi_make_tables(mpi, (size_t)servers + workers, (size_t)place->job + 1));
    TS_TRY(ts_bell_reserve(mpi->bell, servers + workers));
    ts_transport_job *job = &mpi->jobs[place->job];
    job->workers = join->options->joins ? place->workers : workers;
    snprintf(job->name, sizeof job->name, "%s", own->member.job);
    for (uint32_t s = 0; s < servers; s++) TS_TRY(add_server(join, s));
    for (uint32_t r = 0; r < workers; r++) { /* nothing is ever sent to them: they are there to be counted and named */
        const ts_mpi_entry *entry = &join->roll->entries[r];
        ts_mpi_way way = {.comm = mpi->comm, .rank = (int)r, .lifeline = -1, .shares = 1};
        ts_mpi_set_peer(mpi, servers + r, &way, own, entry);
        ts_peer peer = {.role = TS_ROLE_WORKER, .index = numbers[r], .job = place->job};
        ts_mpi_name_peer(mpi, servers + r, peer, false, r, entry->member.host);
        TS_TRY(ts_bell_add(mpi->bell, &entry->bell, servers + rank, r == rank));
    }
    mpi->base.self = servers + rank;
    mpi->base.servers = servers;
    mpi->base.workers = job->workers;
    mpi->base.absent = join->plan.granted.dead;
    mpi->base.incarnation = place->incarnation;
    mpi->base.job_count = place->job + 1;
    mpi->base.peer_count = servers + workers;
    return TERSE_OK;
}

terse_status ts_mpi_attach(ts_mpi *mpi, const ts_mpi_options *options, const ts_mpi_roll *roll, ts_error *error) {
    joining join = {.mpi = mpi, .options = options, .roll = roll, .error = error,
                    .until_us = ts_mpi_clock_us() + options->start_us};
    terse_status status = share_plan(&join);
    if (status == TERSE_OK && options->joins) status = ask_place(&join);
    for (uint32_t s = 0; status == TERSE_OK && s < join.plan.servers; s++) status = join_server(&join, s);
    if (status == TERSE_OK && roll->rank == 0) ts_door_say(join.lifeline[join.plan.leader], TS_DOOR_ATTACHED);
    uint32_t *numbers = status == TERSE_OK ? ts_mem_calloc(roll->size, sizeof *numbers) : NULL;
    if (status == TERSE_OK) {
        status = numbers ? number_ranks(&join, numbers) : TERSE_ENOMEM;
        if (status == TERSE_OK) status = fill_tables(&join, numbers);
        if (status != TERSE_OK) status = ts_error_set(error, status, "no memory for the tables of peers, or a rank of this launch is gone");
    }
    ts_mem_free(numbers);
    for (uint32_t s = 0; join.lifeline && s < join.plan.servers; s++) {
        if (join.lifeline[s] >= 0) close(join.lifeline[s]);
    }
    ts_mem_free(join.doors);
    ts_mem_free(join.invitation);
    ts_mem_free(join.comm);
    ts_mem_free(join.lifeline);
    return status;
}
