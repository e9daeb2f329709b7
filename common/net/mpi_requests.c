/* SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/net/mpi_internal.h"

/*
 * Each array grows alone: what has grown already is merely larger than needed when a later one fails.
 * place: the address of the array's pointer, whatever its type.
 */
static bool grow(void *place, size_t room, size_t size) {
    void *array;
    memcpy(&array, place, sizeof array);
    array = ts_mem_realloc(array, room, size);
    if (array) memcpy(place, &array, sizeof array);
    return array != NULL;
}

terse_status ts_mpi_requests_reserve(ts_mpi_requests *requests) {
    if (requests->count < requests->room) return TERSE_OK;
    TS_REQUIRE(requests->room < INT32_MAX / 2, TERSE_ENOMEM);
    int room = requests->room ? requests->room * 2 : 64;
    size_t n = (size_t)room;
    bool whole = grow(&requests->request, n, sizeof *requests->request) &&
                 grow(&requests->owner, n, sizeof *requests->owner) &&
                 grow(&requests->index, n, sizeof *requests->index) &&
                 grow(&requests->status, n, sizeof *requests->status) &&
                 grow(&requests->done, n, sizeof *requests->done) &&
                 grow(&requests->failed, n, sizeof *requests->failed);
    TS_REQUIRE(whole, TERSE_ENOMEM);
    requests->room = room;
    return TERSE_OK;
}

void ts_mpi_requests_add(ts_mpi_requests *requests, MPI_Request request, const ts_mpi_owner *owner) {
    requests->request[requests->count] = request;
    requests->owner[requests->count++] = *owner;
}

int ts_mpi_requests_test(ts_mpi_requests *requests) {
    int done = 0;
    if (requests->count == 0) return 0;
    int result = MPI_Testsome(requests->count, requests->request, &done, requests->index, requests->status);
    if (done == MPI_UNDEFINED || done <= 0 || (result != MPI_SUCCESS && result != MPI_ERR_IN_STATUS)) return 0;
    for (int i = 0; i < done; i++) {
        requests->done[i] = requests->owner[requests->index[i]];
        requests->failed[i] = result == MPI_ERR_IN_STATUS && requests->status[i].MPI_ERROR != MPI_SUCCESS;
    }
    int kept = 0;
    for (int i = 0; i < requests->count; i++) { /* completed ones have become MPI_REQUEST_NULL */
        if (requests->request[i] == MPI_REQUEST_NULL) continue;
        requests->request[kept] = requests->request[i];
        requests->owner[kept++] = requests->owner[i];
    }
    requests->count = kept;
    return done;
}

void ts_mpi_requests_move(ts_mpi_requests *from, ts_mpi_requests *to, uint32_t peer) {
    int kept = 0;
    for (int i = 0; i < from->count; i++) {
        if (from->owner[i].peer == peer && ts_mpi_requests_reserve(to) == TERSE_OK) {
            ts_mpi_requests_add(to, from->request[i], &from->owner[i]);
            continue;
        }
        from->request[kept] = from->request[i];
        from->owner[kept++] = from->owner[i];
    }
    from->count = kept;
}

void ts_mpi_requests_free(ts_mpi_requests *requests) {
    ts_mem_free(requests->request);
    ts_mem_free(requests->owner);
    ts_mem_free(requests->index);
    ts_mem_free(requests->status);
    ts_mem_free(requests->done);
    ts_mem_free(requests->failed);
    *requests = (ts_mpi_requests){0};
}
