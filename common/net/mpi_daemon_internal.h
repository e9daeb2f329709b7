/* SPDX-License-Identifier: Apache-2.0 */
/* Between mpi_daemon.c (who knocks, who has ended), mpi_daemon_lead.c (which server lets in) and mpi_accept.c (letting a whole job in). */
#ifndef TS_NET_MPI_DAEMON_INTERNAL_H
#define TS_NET_MPI_DAEMON_INTERNAL_H

#include "common/base/run_dir.h"
#include "common/net/mpi_internal.h"

/* Numbers are never used again, and neither are MPI's context ids: a daemon has let in so many when it is full. */
#define TS_MPI_DAEMON_PEERS 65536u
#define TS_MPI_DAEMON_JOBS 32768u
#define TS_MPI_JOB_WORKERS 65536u /* numbers of workers that come into a running job are below */

struct ts_mpi_daemon {
    ts_door *door;
    char dir[TS_RUN_DIR_PATH_CHARS];
    ts_mpi_entry own;
    uint8_t token[TS_DOOR_TOKEN_BYTES];
    uint64_t start_us, looked_us;
    uint32_t jobs_most;   /* at a time */
    ts_bell_address *doors; /* [own] of all servers; port is the door's */
    uint32_t servers, index; /* how many they are, and which this is */
    ts_dead_set dead;     /* servers, as the owner knows */
    uint32_t leader;      /* gives numbers: server 0, or who stands in for it; `servers`: nobody is left to */
    int to_leader;        /* the lifeline to it, or -1: this is it, or it has ended */
    uint32_t leaving;     /* attached peers that are lost or whose job has ended, not yet dropped */
    bool told_to_end;     /* by who leads */
    bool shut;
    ts_error reason;      /* why it is shut */
    struct {
        bool open;
        uint32_t job;
        uint8_t party[TS_DOOR_PARTY_BYTES];
        uint64_t since_us;
    } grant;              /* one job joins at a time, so that all servers number jobs alike */
};

/* Whether all workers of a guest's job have knocked. */
bool ts_mpi_party_complete(const ts_mpi_daemon *daemon, const ts_door_guest *one);
/* The party's guests by rank, as many as the knock's size. Returns NULL when two have the same, or without memory. */
ts_door_guest **ts_mpi_gather(const ts_mpi_daemon *daemon, const ts_door_guest *one);
/* How many jobs have workers here. */
uint32_t ts_mpi_live_jobs(const ts_mpi *mpi);
/* Whether the owner still runs the job. */
bool ts_mpi_job_runs(const ts_mpi *mpi, uint32_t job);
/* Whether a job that is being served has the name by which a new one would go, or that one has none. */
bool ts_mpi_name_taken(const ts_mpi *mpi, const ts_door_guest *asker);
/* Lets the job of a complete party in, or turns it away. Blocks as long as an accept takes. */
void ts_mpi_let_in(ts_mpi *mpi, const ts_door_guest *one);
/* The peer's process has ended: the owner is told, once. */
void ts_mpi_lose(ts_mpi *mpi, uint32_t peer);
/* Tells all guests of the party why not, and lets go of them. */
void ts_mpi_turn_away(ts_mpi *mpi, const uint8_t party[TS_DOOR_PARTY_BYTES], terse_status status, const char *reason);

/* ---- mpi_daemon_lead ---- */
bool ts_mpi_daemon_leads(const ts_mpi_daemon *daemon);
/* The leader's card, with who is dead. Returns as ts_card_write. */
terse_status ts_mpi_write_card(const ts_mpi_daemon *daemon) TERSE_NODISCARD;
/* A lifeline to the leader. Waits until it has one. Returns as ts_door_visit. */
terse_status ts_mpi_call_leader(ts_mpi_daemon *daemon, uint64_t patience_us) TERSE_NODISCARD;
/* Asks the owner who is dead, and follows whoever leads now. */
void ts_mpi_note_deaths(ts_mpi *mpi);
/* There is a line to the leader: whether it ends in order, or has ended. */
void ts_mpi_listen_to_leader(ts_mpi *mpi);

#endif
