/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who of a daemon's servers lets jobs in: server 0, or, when it is dead and there are replicas, who stands in for it. The
 * card says where that one is; the others are on the line with it, so that one's end is noticed at once.
 */
#include <mpi.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/process.h"
#include "common/net/card.h"
#include "common/net/mpi_daemon_internal.h"

#define CALL_US 2000000u /* the kernel answers for a process that only sleeps */

bool ts_mpi_daemon_leads(const ts_mpi_daemon *daemon) { return daemon->leader == daemon->index; }

terse_status ts_mpi_write_card(const ts_mpi_daemon *daemon) {
    ts_card card = {.wire = TS_MPI_WIRE_VERSION, .pid = (uint64_t)getpid(), .birth = ts_process_birth(getpid()), .doors = daemon->doors,
                    .servers = daemon->servers, .leader = daemon->index, .dead = daemon->dead};
    memcpy(card.token, daemon->token, sizeof card.token);
    return ts_card_write(daemon->dir, &card);
}

terse_status ts_mpi_call_leader(ts_mpi_daemon *daemon, uint64_t patience_us) {
    const ts_bell_address *door = &daemon->doors[daemon->leader];
    ts_door_knock knock = {.version = TS_MPI_WIRE_VERSION, .job = TS_DOOR_SERVER, .rank = daemon->index, .size = daemon->servers,
                           .worker = TS_DOOR_NO_WORKER, .entry_bytes = sizeof daemon->own};
    memcpy(knock.token, daemon->token, sizeof knock.token);
    uint32_t address = ts_bell_way(&daemon->own.bell, door);
    TS_REQUIRE(address, TERSE_EPEER);
    return ts_door_visit(address, door->port, &knock, &daemon->own, ts_mpi_clock_us() + patience_us, &daemon->to_leader);
}

/* Another server leads from now on. */
static void follow(ts_mpi_daemon *daemon) {
    if (daemon->to_leader >= 0) close(daemon->to_leader);
    daemon->to_leader = -1;
    if (ts_mpi_daemon_leads(daemon)) {
        ts_log(TS_LOG_WARN, "daemon", "this server lets jobs in from now on", "server=%u dir=\"%s\"", daemon->index, daemon->dir);
        return;
    }
    terse_status status = daemon->leader < daemon->servers ? ts_mpi_call_leader(daemon, CALL_US) : TERSE_EPEER;
    if (status != TERSE_OK) /* its silence will tell that it has ended */
        ts_log(TS_LOG_WARN, "daemon", "no line to the server that leads now", "leader=%u status=%s", daemon->leader,
               terse_status_name(status));
}

void ts_mpi_note_deaths(ts_mpi *mpi) {
    ts_mpi_daemon *daemon = mpi->daemon;
    const ts_transport_handler *handler = &mpi->base.handler;
    ts_dead_set dead = {0};
    if (!handler->who_leads) return;
    uint32_t leader = handler->who_leads(handler->context, &dead);
    if (dead.count == daemon->dead.count) return;
    daemon->dead = dead;
    if (leader != daemon->leader) {
        daemon->leader = leader;
        follow(daemon);
    }
    if (!ts_mpi_daemon_leads(daemon)) return;
    terse_status status = ts_mpi_write_card(daemon);
    if (status != TERSE_OK) /* who comes finds this door none the less, behind that of server 0 */
        ts_log(TS_LOG_WARN, "daemon", "the daemon's card cannot be written anew", "dir=\"%s\" status=%s", daemon->dir,
               terse_status_name(status));
}

void ts_mpi_listen_to_leader(ts_mpi *mpi) {
    ts_mpi_daemon *daemon = mpi->daemon;
    char word;
    ssize_t got = recv(daemon->to_leader, &word, 1, MSG_DONTWAIT);
    if (got > 0) {
        daemon->told_to_end = daemon->told_to_end || word == TS_DOOR_ENDING;
    } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        close(daemon->to_leader);
        daemon->to_leader = -1;
        if (!daemon->told_to_end) ts_mpi_lose(mpi, daemon->leader);
    }
}
