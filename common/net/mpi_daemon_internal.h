/* SPDX-License-Identifier: Apache-2.0 */
/* Between mpi_daemon.c (who knocks, who has ended) and mpi_accept.c (letting a whole job in). */
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
    int to_leader;        /* the lifeline to server 0, or -1: this is it */
    uint32_t leaving;     /* attached peers that are lost or whose job has ended, not yet dropped */
    bool leads;           /* server 0: gives numbers */
    bool told_to_end;     /* by server 0 */
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
/* Lets the job of a complete party in, or turns it away. Blocks as long as an accept takes. */
void ts_mpi_let_in(ts_mpi *mpi, const ts_door_guest *one);
/* Tells all guests of the party why not, and lets go of them. */
void ts_mpi_turn_away(ts_mpi *mpi, const uint8_t party[TS_DOOR_PARTY_BYTES], terse_status status, const char *reason);

#endif
