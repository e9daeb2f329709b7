/* SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/process.h"
#include "common/net/mpi_internal.h"

#define SIBLINGS_MOST 256u
#define OTHERS_US 3000000u /* servers of one failed job leave within this */
#define LOOK_NS 20000000l
#define AGAIN_NS 1000000000l

/* Who a process of our mpirun on this host is; NULL: none of the peers. */
static const ts_peer *who(const ts_mpi *mpi, pid_t pid) {
    char text[16];
    if (!ts_process_variable(pid, "OMPI_COMM_WORLD_RANK", text, sizeof text)) return NULL;
    long rank = strtol(text, NULL, 10);
    for (uint32_t p = 0; p < mpi->base.peer_count; p++)
        if (!mpi->peers[p].attached && mpi->peers[p].rank == rank) return &mpi->base.peers[p];
    return NULL;
}

typedef enum { OURS, ANOTHERS, NOT_YET } turn;

/* Whose it is to end them: of the servers on this host that run, the first; when the others have left. */
static turn whose_turn(const ts_mpi *mpi, const ts_process *siblings, size_t count) {
    turn verdict = OURS;
    for (size_t i = 0; i < count; i++) {
        if (siblings[i].pid == getpid() || siblings[i].state == 'T') continue;
        const ts_peer *peer = who(mpi, siblings[i].pid);
        if (!peer || peer->role != TS_ROLE_SERVER) continue;
        if (peer->index < mpi->base.peers[mpi->base.self].index) return ANOTHERS;
        verdict = NOT_YET;
    }
    return verdict;
}

static void nap(long nanoseconds) {
    struct timespec pause = {.tv_sec = nanoseconds / 1000000000l, .tv_nsec = nanoseconds % 1000000000l};
    nanosleep(&pause, NULL);
}

/*
 * A server that was replaced ends while the others go on: it waits for them in vain, and leaves everybody alone. Who is
 * found stopped twice is no process that is just being woken together with all others.
 */
void ts_mpi_end_stopped(const ts_mpi *mpi) {
    ts_process siblings[SIBLINGS_MOST];
    pid_t launcher = getppid();
    if (!ts_process_launches(launcher)) return;
    size_t count = ts_process_children(launcher, siblings, SIBLINGS_MOST);
    uint64_t until_us = ts_mpi_clock_us() + OTHERS_US;
    for (turn now; (now = whose_turn(mpi, siblings, count)) != OURS;) {
        if (now == ANOTHERS || ts_mpi_clock_us() > until_us) return;
        nap(LOOK_NS);
        count = ts_process_children(launcher, siblings, SIBLINGS_MOST);
    }
    size_t stopped = 0;
    for (size_t i = 0; i < count; i++)
        if (siblings[i].state == 'T') siblings[stopped++] = siblings[i];
    if (!stopped) return;
    nap(AGAIN_NS);
    for (size_t i = 0; i < stopped; i++) {
        ts_process again;
        const ts_peer *peer = who(mpi, siblings[i].pid);
        bool same = ts_process_look(siblings[i].pid, &again) && again.birth == siblings[i].birth && again.state == 'T';
        if (!same || !peer || kill(again.pid, SIGKILL) != 0) continue;
        ts_log(TS_LOG_WARN, "mpi", "a stopped process is killed: mpirun would wait for it for ever", "peer=\"%s\" pid=%ld", peer->name,
               (long)again.pid);
    }
}
