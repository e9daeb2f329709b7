/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The roll call: each rank tells rank 0 who it is; rank 0 answers all of them with the table, or with the reason why
 * there is none. Point to point on MPI_COMM_WORLD, under a tag of its own, so that a rank which never calls is named
 * instead of waited for: a collective call could only hang.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/mem.h"
#include "common/net/card.h"
#include "common/net/mpi_internal.h"

#define ROLL_MAGIC 0x6c6c6f72u
#define ANSWER_GRACE_US 1000000u /* rank 0 answers at the deadline; that answer must still be heard */
#define NAP_NS 100000

/* Rank 0's answer; on TERSE_OK the entries follow. */
typedef struct {
    uint32_t magic, status;
    ts_error error;
} roll_answer;

typedef struct {
    ts_mpi *mpi;
    int rank, size;
    uint64_t until_us;
    ts_mpi_entry *entries; /* size of them; magic 0: not heard of yet */
    uint8_t *answer;       /* roll_answer and entries */
    size_t answer_bytes;
} roll;

static void nap(void) {
    struct timespec pause = {.tv_nsec = NAP_NS};
    nanosleep(&pause, NULL);
}

static ts_mpi_entry own_entry(const ts_mpi *mpi, const ts_mpi_options *options, uint16_t door) {
    ts_mpi_entry entry = {.magic = ROLL_MAGIC, .version = TS_MPI_WIRE_VERSION, .member.role = (uint32_t)options->role,
                          .shared_memory = ts_mpi_shared_memory_on(), .window_bytes = options->window_bytes,
                          .traffic_bytes = options->traffic_bytes, .frame_limit_bytes = options->frame_limit_bytes,
                          .door = door};
    char host[MPI_MAX_PROCESSOR_NAME + 1] = "";
    int len = 0;
    MPI_Get_processor_name(host, &len);
    ts_group_member *member = &entry.member;
    snprintf(member->host, sizeof member->host, "%.*s", (int)sizeof member->host - 1, host);
    snprintf(member->group, sizeof member->group, "%s", options->group ? options->group : "default");
    snprintf(member->above, sizeof member->above, "%s", options->above ? options->above : "");
    if (options->role == TS_ROLE_WORKER || options->above)
        snprintf(member->job, sizeof member->job, "%s", options->job ? options->job : "default");
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    entry.wish.wanted = (uint32_t)rank < options->wanted_count ? options->wanted[rank] : TS_WORKER_ANY;
    for (; entry.wish.kept_count < options->kept_count && entry.wish.kept_count < TS_KEPT_MOST; entry.wish.kept_count++)
        entry.wish.kept[entry.wish.kept_count] = options->kept[entry.wish.kept_count];
    snprintf(entry.wish.job, sizeof entry.wish.job, "%s", member->job);
    ts_bell_own_address(mpi->bell, &entry.bell);
    if (options->declines) snprintf(entry.declines, sizeof entry.declines, "%s", options->declines[0] ? options->declines : "?");
    return entry;
}

static bool finished(MPI_Request *requests, int count, uint64_t until_us) {
    for (int done = 0; !done;) {
        if (MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) return false;
        if (!done && ts_mpi_clock_us() > until_us) return false;
        if (!done) nap();
    }
    return true;
}

/* ---- rank 0 ------------------------------------------------------------------------------------------------------------ */

/* Receives one entry if there is one. Returns whether it did. */
static bool hear_one(roll *call) {
    int flag = 0, bytes = 0;
    MPI_Message message;
    MPI_Status status;
    if (MPI_Improbe(MPI_ANY_SOURCE, TS_TAG_ROLL, MPI_COMM_WORLD, &flag, &message, &status) != MPI_SUCCESS || !flag) return false;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    ts_mpi_entry entry = {0};
    /* Eager, and matched: it is here already. Anything of another size is a rank of another build. */
    int room = bytes == (int)sizeof entry ? bytes : 0;
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Imrecv(&entry, room, MPI_BYTE, &message, &request) == MPI_SUCCESS) MPI_Wait(&request, MPI_STATUS_IGNORE);
    entry.magic = ROLL_MAGIC;
    entry.member.host[sizeof entry.member.host - 1] = 0;
    entry.member.job[sizeof entry.member.job - 1] = 0;
    entry.member.group[sizeof entry.member.group - 1] = 0;
    entry.member.above[sizeof entry.member.above - 1] = 0;
    entry.declines[sizeof entry.declines - 1] = 0;
    call->entries[status.MPI_SOURCE] = entry;
    return true;
}

static terse_status name_missing(const roll *call, double seconds, ts_error *error) {
    char list[700] = "";
    size_t at = 0;
    int missing = 0;
    for (int r = 0; r < call->size; r++) {
        if (call->entries[r].magic) continue;
        if (at < sizeof list - 16) at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", missing ? ", " : "", r);
        missing++;
    }
    return ts_error_set(error, TERSE_ETIMEDOUT, "%s %s of %d did not join within %g s: stuck before it opened Terse, or no "
                        "program of Terse at all", missing == 1 ? "rank" : "ranks", list, call->size, seconds);
}

static terse_status check_versions(const roll *call, ts_error *error) {
    for (int r = 0; r < call->size; r++) {
        if (call->entries[r].version == TS_MPI_WIRE_VERSION) continue;
        return ts_error_set(error, TERSE_EVERSION, "rank %d speaks version %u of the transport, rank 0 version %u", r,
                            call->entries[r].version, TS_MPI_WIRE_VERSION);
    }
    return TERSE_OK;
}

/* One rank that cannot take part is enough: the others were to work with it. */
static terse_status check_willing(const roll *call, ts_error *error) {
    int first = -1, more = -1;
    for (int r = 0; r < call->size; r++) {
        if (!call->entries[r].declines[0]) continue;
        if (first < 0) first = r;
        more++;
    }
    if (first < 0) return TERSE_OK;
    char others[32] = "";
    if (more > 0) snprintf(others, sizeof others, " (and %d more)", more);
    return ts_error_set(error, TERSE_EPEER, "rank %d (%s on %s)%s cannot take part: %s", first,
                        call->entries[first].member.role == TS_ROLE_WORKER ? "worker" : "server",
                        call->entries[first].member.host, others, call->entries[first].declines);
}

static terse_status check_groups(const roll *call, ts_error *error) {
    ts_group_member *members = ts_mem_calloc((size_t)call->size, sizeof *members);
    TS_REQUIRE(members, TERSE_ENOMEM);
    for (int r = 0; r < call->size; r++) members[r] = call->entries[r].member;
    terse_status status = ts_groups_check(members, (uint32_t)call->size, error);
    ts_mem_free(members);
    return status;
}

/* Tells all that have called. Whoever has not may come later: its answer is left to MPI. */
static terse_status answer_all(roll *call, terse_status status, const ts_error *error) {
    roll_answer head = {.magic = ROLL_MAGIC, .status = (uint32_t)status};
    if (status != TERSE_OK) head.error = *error;
    memcpy(call->answer, &head, sizeof head);
    memcpy(call->answer + sizeof head, call->entries, (size_t)call->size * sizeof *call->entries);
    MPI_Request *requests = ts_mem_calloc((size_t)call->size, sizeof *requests);
    TS_REQUIRE(requests, TERSE_ENOMEM);
    int bytes = (int)(status == TERSE_OK ? call->answer_bytes : sizeof head), count = 0;
    for (int r = 1; r < call->size; r++) {
        if (!call->entries[r].magic) continue;
        if (MPI_Isend(call->answer, bytes, MPI_BYTE, r, TS_TAG_ROLL, MPI_COMM_WORLD, &requests[count]) == MPI_SUCCESS) count++;
    }
    bool all = finished(requests, count, ts_mpi_clock_us() + ANSWER_GRACE_US);
    ts_mem_free(requests);
    if (!all) call->answer = NULL; /* still being read from */
    return all || status != TERSE_OK ? TERSE_OK : TERSE_EPEER;
}

/* A daemon's rank 0 is server 0. Found here, the reason reaches all servers, and they end in order. */
static terse_status check_place(const roll *call, const ts_mpi_options *options, ts_error *error) {
    bool daemon = options->run_dir && options->role == TS_ROLE_SERVER;
    for (int r = 0; r < call->size; r++) daemon = daemon && call->entries[r].member.role == TS_ROLE_SERVER;
    return daemon ? ts_card_vacant(options->run_dir, &call->entries[0].bell, error) : TERSE_OK;
}

static terse_status lead(roll *call, const ts_mpi_options *options, ts_error *error) {
    int heard = 1;
    while (heard < call->size && ts_mpi_clock_us() < call->until_us) {
        if (hear_one(call)) heard++;
        else nap();
    }
    terse_status status = TERSE_OK;
    if (heard < call->size) status = name_missing(call, (double)options->start_us * 1e-6, error);
    else status = check_versions(call, error);
    if (status == TERSE_OK) status = check_willing(call, error);
    if (status == TERSE_OK) status = check_groups(call, error);
    if (status == TERSE_OK) status = check_place(call, options, error);
    terse_status told = answer_all(call, status, error);
    if (status == TERSE_OK && told != TERSE_OK) {
        return ts_error_set(error, told, "a rank has answered the roll call and then fallen silent");
    }
    call->mpi->all_leave = status != TERSE_OK && heard == call->size && told == TERSE_OK && call->answer;
    return status;
}

/* ---- the others ---------------------------------------------------------------------------------------------------------- */

static terse_status follow(roll *call, const ts_mpi_options *options, ts_error *error) {
    MPI_Request request;
    int flag = 0, bytes = 0;
    MPI_Message message;
    MPI_Status status;
    uint64_t until_us = call->until_us + ANSWER_GRACE_US;
    if (MPI_Isend(&call->entries[call->rank], (int)sizeof *call->entries, MPI_BYTE, 0, TS_TAG_ROLL, MPI_COMM_WORLD,
                  &request) != MPI_SUCCESS) return ts_error_set(error, TERSE_EPEER, "rank 0 cannot be reached");
    while (!flag && ts_mpi_clock_us() < until_us) {
        if (MPI_Improbe(0, TS_TAG_ROLL, MPI_COMM_WORLD, &flag, &message, &status) != MPI_SUCCESS) break;
        if (!flag) nap();
    }
    if (!flag || !finished(&request, 1, until_us)) {
        call->entries = NULL; /* the request may still read it */
        return ts_error_set(error, TERSE_ETIMEDOUT, "rank 0 did not answer the roll call within %g s: it is stuck before it "
                            "opened Terse, or no program of Terse at all", (double)options->start_us * 1e-6);
    }
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    TS_REQUIRE(bytes >= (int)sizeof(roll_answer) && (size_t)bytes <= call->answer_bytes,
               ts_error_set(error, TERSE_EVERSION, "rank 0 is of another version: its roll call is malformed"));
    bool came = MPI_Imrecv(call->answer, bytes, MPI_BYTE, &message, &request) == MPI_SUCCESS;
    if (!came || !finished(&request, 1, until_us)) {
        call->answer = NULL;
        return ts_error_set(error, TERSE_ETIMEDOUT, "rank 0 fell silent in the roll call");
    }
    roll_answer head;
    memcpy(&head, call->answer, sizeof head);
    head.error.text[sizeof head.error.text - 1] = 0;
    call->mpi->all_leave = head.status != TERSE_OK && head.status != TERSE_ETIMEDOUT; /* then somebody is missing */
    if (head.status != TERSE_OK) return ts_error_set(error, (terse_status)head.status, "%s", head.error.text);
    TS_REQUIRE((size_t)bytes == call->answer_bytes,
               ts_error_set(error, TERSE_EVERSION, "rank 0 is of another version: its roll call is malformed"));
    memcpy(call->entries, call->answer + sizeof head, (size_t)call->size * sizeof *call->entries);
    return TERSE_OK;
}

static terse_status make_room(roll *call) {
    size_t size = (size_t)call->size;
    call->entries = ts_mem_calloc(size, sizeof *call->entries);
    call->answer_bytes = sizeof(roll_answer) + size * sizeof *call->entries;
    call->answer = ts_mem_calloc(call->answer_bytes, 1);
    TS_REQUIRE(call->entries && call->answer, TERSE_ENOMEM);
    return TERSE_OK;
}

terse_status ts_mpi_roll_call(ts_mpi *mpi, const ts_mpi_options *options, uint16_t door, ts_mpi_roll *out,
                              ts_error *error) {
    roll call = {.mpi = mpi, .until_us = ts_mpi_clock_us() + options->start_us};
    MPI_Errhandler before;
    MPI_Comm_rank(MPI_COMM_WORLD, &call.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &call.size);
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before); /* the world is the user's: it is left as it was found */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    terse_status status = make_room(&call);
    if (status == TERSE_OK) {
        call.entries[call.rank] = own_entry(mpi, options, door);
        status = call.rank == 0 ? lead(&call, options, error) : follow(&call, options, error);
    } else {
        status = ts_error_set(error, status, "no memory for the roll call");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, before);
    if (before != MPI_ERRHANDLER_NULL) MPI_Errhandler_free(&before);
    ts_mem_free(call.answer);
    if (status != TERSE_OK) {
        ts_mem_free(call.entries);
        return status;
    }
    *out = (ts_mpi_roll){.entries = call.entries, .size = (uint32_t)call.size, .rank = (uint32_t)call.rank};
    return TERSE_OK;
}
