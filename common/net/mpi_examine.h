/* SPDX-License-Identifier: Apache-2.0 */
/* What `terse doctor` asks of MPI: its settings as they came to be, and a byte to every rank. */
#ifndef TS_NET_MPI_EXAMINE_H
#define TS_NET_MPI_EXAMINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct {
    int rank, size;
    char host[64];
    bool multiple;               /* MPI_THREAD_MULTIPLE is provided */
    bool recovery, async_finalize, shared_memory, sockets_looked_at;
    size_t tcp_eager_bytes, shared_eager_bytes; /* 0: not known */
    char interfaces[256];        /* btl_tcp_if_include; "" when not given */
} ts_mpi_findings;

/* One rank, as heard. */
typedef struct {
    char host[64];
    bool heard;
    double seconds; /* until its byte was here */
} ts_mpi_contact;

/*
 * Initialises MPI (with MPI_THREAD_MULTIPLE, under a watchdog of the deadline that ends the program with exit code 4 and a
 * sentence). Collective: all ranks. Returns TERSE_OK, TERSE_EUNSUPPORTED.
 */
terse_status ts_mpi_examine(uint64_t deadline_us, ts_mpi_findings *out, ts_error *error) TERSE_NODISCARD;
/*
 * Sends its host's name to all ranks and waits for theirs. contacts: [out] findings.size entries. Returns TERSE_OK (some may
 * not have been heard), TERSE_ENOMEM. Collective, but never longer than the deadline.
 */
terse_status ts_mpi_examine_contacts(const ts_mpi_findings *findings, uint64_t deadline_us, ts_mpi_contact *contacts)
    TERSE_NODISCARD;
/* Ends MPI; all_heard: whether all ranks were heard, else the process leaves without finalising. Flushes stdio first. */
void ts_mpi_examine_end(bool all_heard, int exit_code);

#endif
