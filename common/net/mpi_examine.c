/* SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/net/mpi_examine.h"
#include "common/net/mpi_internal.h"

#define TAG 29815
#define NAP_NS 200000
#define FINALIZE_US 5000000u

terse_status ts_mpi_examine(uint64_t deadline_us, ts_mpi_findings *out, ts_error *error) {
    ts_mpi mpi = {.deadline_us = deadline_us};
    const ts_mpi_options options = {.start_us = deadline_us, .deadline_us = deadline_us, .needs_multiple = true};
    TS_TRY(ts_mpi_start(&options, &mpi, error));
    memset(out, 0, sizeof *out);
    MPI_Comm_rank(MPI_COMM_WORLD, &out->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &out->size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    char host[MPI_MAX_PROCESSOR_NAME + 1] = "";
    int len = 0;
    MPI_Get_processor_name(host, &len);
    snprintf(out->host, sizeof out->host, "%.*s", (int)sizeof out->host - 1, host);
    out->multiple = mpi.multiple;
    out->recovery = ts_mpi_recovery_on();
    out->shared_memory = ts_mpi_shared_memory_on();
    out->async_finalize = ts_mpi_setting_on("async_mpi_finalize");
    out->sockets_looked_at = ts_mpi_sockets_looked_at();
    out->tcp_eager_bytes = ts_mpi_setting_bytes("btl_tcp_eager_limit");
    out->shared_eager_bytes = ts_mpi_setting_bytes("btl_vader_eager_limit");
    ts_mpi_setting_text("btl_tcp_if_include", out->interfaces, sizeof out->interfaces);
    return TERSE_OK;
}

/* Receives one name, if there is one. Returns whether it did. */
static bool hear_one(const ts_mpi_findings *findings, ts_mpi_contact *contacts, uint64_t began_us) {
    int flag = 0, bytes = 0;
    MPI_Message message;
    MPI_Status status;
    MPI_Request request;
    if (MPI_Improbe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &flag, &message, &status) != MPI_SUCCESS || !flag) return false;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    char host[sizeof contacts->host] = "";
    /* Eager, so it is here already. */
    if (bytes != (int)sizeof host || MPI_Imrecv(host, bytes, MPI_BYTE, &message, &request) != MPI_SUCCESS) return false;
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (status.MPI_SOURCE < 0 || status.MPI_SOURCE >= findings->size) return false;
    ts_mpi_contact *from = &contacts[status.MPI_SOURCE];
    memcpy(from->host, host, sizeof host);
    from->host[sizeof host - 1] = '\0';
    from->heard = true;
    from->seconds = (double)(ts_mpi_clock_us() - began_us) * 1e-6;
    return true;
}

terse_status ts_mpi_examine_contacts(const ts_mpi_findings *findings, uint64_t deadline_us, ts_mpi_contact *contacts) {
    uint64_t began_us = ts_mpi_clock_us();
    const struct timespec pause = {.tv_nsec = NAP_NS};
    size_t size = (size_t)findings->size;
    MPI_Request *requests = ts_mem_calloc(size, sizeof *requests);
    char *name = ts_mem_calloc(1, sizeof findings->host); /* a send that is never taken may read it for ever */
    TS_REQUIRE(requests && name, TERSE_ENOMEM);
    memcpy(name, findings->host, sizeof findings->host);
    memset(contacts, 0, size * sizeof *contacts);
    for (int r = 0; r < findings->size; r++)
        if (MPI_Isend(name, (int)sizeof findings->host, MPI_BYTE, r, TAG, MPI_COMM_WORLD, &requests[r]) != MPI_SUCCESS)
            requests[r] = MPI_REQUEST_NULL;
    int heard = 0, sent = 0;
    while ((heard < findings->size || !sent) && ts_mpi_clock_us() - began_us < deadline_us) {
        while (hear_one(findings, contacts, began_us)) heard++;
        if (MPI_Testall(findings->size, requests, &sent, MPI_STATUSES_IGNORE) != MPI_SUCCESS) break;
        if (heard < findings->size || !sent) nanosleep(&pause, NULL);
    }
    ts_mem_free(requests);
    if (sent) ts_mem_free(name);
    return TERSE_OK;
}

void ts_mpi_examine_end(bool all_heard, int exit_code) {
    fflush(NULL);
    if (!all_heard) _exit(exit_code);
    ts_mpi_watchdog *watchdog = ts_mpi_watchdog_arm(FINALIZE_US, exit_code, NULL);
    MPI_Finalize();
    ts_mpi_watchdog_disarm(watchdog);
}
