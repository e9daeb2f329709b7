/* SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/mpi_internal.h"

#define EXIT_DEADLINE 4

struct ts_mpi_watchdog {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t disarmed_now;
    bool disarmed;
    struct timespec until;
    int code;
    const char *what;
};

static void *watch(void *argument) {
    ts_mpi_watchdog *watchdog = argument;
    int over = 0;
    pthread_mutex_lock(&watchdog->mutex);
    while (!watchdog->disarmed && over == 0) {
        over = pthread_cond_timedwait(&watchdog->disarmed_now, &watchdog->mutex, &watchdog->until);
    }
    bool disarmed = watchdog->disarmed;
    pthread_mutex_unlock(&watchdog->mutex);
    if (disarmed) return NULL;
    if (watchdog->what) ts_log(TS_LOG_ERROR, "mpi", "deadline passed", "reason=\"%s\"", watchdog->what);
    fflush(NULL);
    _exit(watchdog->code); /* no exit handlers: those of MPI may hang as the call itself does */
}

ts_mpi_watchdog *ts_mpi_watchdog_arm(uint64_t after_us, int code, const char *what) {
    ts_mpi_watchdog *watchdog = ts_mem_calloc(1, sizeof *watchdog);
    if (!watchdog) return NULL;
    watchdog->code = code;
    watchdog->what = what;
    clock_gettime(CLOCK_MONOTONIC, &watchdog->until);
    uint64_t nanoseconds = (uint64_t)watchdog->until.tv_nsec + after_us % 1000000u * 1000u;
    watchdog->until.tv_sec += (time_t)(after_us / 1000000u + nanoseconds / 1000000000u);
    watchdog->until.tv_nsec = (long)(nanoseconds % 1000000000u);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&watchdog->disarmed_now, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&watchdog->mutex, NULL);
    if (pthread_create(&watchdog->thread, NULL, watch, watchdog) == 0) return watchdog;
    ts_mem_free(watchdog);
    return NULL;
}

void ts_mpi_watchdog_disarm(ts_mpi_watchdog *watchdog) {
    if (!watchdog) return;
    pthread_mutex_lock(&watchdog->mutex);
    watchdog->disarmed = true;
    pthread_cond_signal(&watchdog->disarmed_now);
    pthread_mutex_unlock(&watchdog->mutex);
    pthread_join(watchdog->thread, NULL);
    pthread_mutex_destroy(&watchdog->mutex);
    pthread_cond_destroy(&watchdog->disarmed_now);
    ts_mem_free(watchdog);
}

/* ---- calls that do not return --------------------------------------------------------------------------------------- */

#define LOOK_EVERY_MS 500u
/* The others do without this process as soon as it is silent; what it waits for may be a busy machine's scheduler. */
#define STALL_LEAST_US 4000000u

struct ts_mpi_stall {
    ts_mpi *mpi;
    pthread_t thread;
    atomic_bool stop;
};

/* The process is lost, so other threads' data may be read. */
static void report_stall(const ts_mpi *mpi) {
    const char *silent = "nobody";
    uint64_t oldest = UINT64_MAX;
    for (uint32_t p = 0; p < mpi->base.peer_count; p++) {
        if (p == mpi->base.self || mpi->peers[p].dropped || mpi->peers[p].heard_us >= oldest) continue;
        oldest = mpi->peers[p].heard_us;
        silent = mpi->names[p].name;
    }
    ts_log(TS_LOG_ERROR, "mpi", "an MPI call does not return", "seconds=%g silent_longest=\"%s\"",
           (double)mpi->deadline_us * 1e-6, silent);
}

/* Counted in naps, not in time: a stopped process must not wake up to its end. */
static void *watch_calls(void *argument) {
    ts_mpi_stall *stall = argument;
    const struct timespec pause = {.tv_nsec = LOOK_EVERY_MS * 1000000l};
    uint64_t limit = stall->mpi->deadline_us / (LOOK_EVERY_MS * 1000u) + 1, naps = 0;
    unsigned before = 0;
    while (!atomic_load(&stall->stop)) {
        nanosleep(&pause, NULL);
        unsigned calls = atomic_load_explicit(&stall->mpi->calls, memory_order_relaxed);
        naps = calls == before && calls % 2 ? naps + 1 : 0;
        before = calls;
        if (naps < limit) continue;
        report_stall(stall->mpi);
        fflush(NULL);
        _exit(EXIT_DEADLINE);
    }
    return NULL;
}

ts_mpi_stall *ts_mpi_stall_start(ts_mpi *mpi) {
    ts_mpi_stall *stall = ts_mem_calloc(1, sizeof *stall);
    if (!stall) return NULL;
    stall->mpi = mpi;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the owner's threads */
    int failed = pthread_create(&stall->thread, NULL, watch_calls, stall);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed) return stall;
    ts_mem_free(stall);
    return NULL;
}

void ts_mpi_stall_stop(ts_mpi_stall *stall) {
    if (!stall) return;
    atomic_store(&stall->stop, true);
    pthread_join(stall->thread, NULL);
    ts_mem_free(stall);
}

/* ---- MPI_Init --------------------------------------------------------------------------------------------------------- */

/*
 * MPI_Init may take so much longer than the start: where a host's own name does not resolve it takes over 3 s, and
 * nobody can be silent yet. The job still ends within start and 5 s.
 */
#define INIT_EXTRA_US 4000000u

/* Open MPI leaves SIGPIPE deadly: one peer's death would take this process along. A handler of the user's own stays. */
static void ignore_sigpipe(void) {
    struct sigaction now;
    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
}

/* Before MPI_Init only the launcher's variables can say who this is. */
static void describe_hang(char *text, size_t capacity, double seconds) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *size = getenv("OMPI_COMM_WORLD_SIZE");
    char host[64] = "this host";
    gethostname(host, sizeof host - 1);
    snprintf(text, capacity,
             "rank %s of %s on %s: MPI_Init did not return within %g s: some rank never called it (is a program of this "
             "mpirun no MPI program, or stuck before it?), hosts cannot reach each other (see btl_tcp_if_include), or a "
             "host's own name does not resolve (is %s in its /etc/hosts?)",
             rank ? rank : "?", size ? size : "?", host, seconds, host);
}

static terse_status initialise(const ts_mpi_options *options, ts_error *error) {
    char what[500];
    uint64_t limit_us = options->start_us + INIT_EXTRA_US;
    /*
     * Not FUNNELED, though there are other threads: in Open MPI the two differ in nothing but the locks around its
     * lists, and one of those locks itself out when a peer dies (see mpi_internal.h).
     */
    int wanted = options->needs_multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, provided;
    describe_hang(what, sizeof what, (double)limit_us * 1e-6);
    ts_mpi_watchdog *watchdog = ts_mpi_watchdog_arm(limit_us, EXIT_DEADLINE, what);
    int result = MPI_Init_thread(NULL, NULL, wanted, &provided);
    ts_mpi_watchdog_disarm(watchdog);
    TS_REQUIRE(result == MPI_SUCCESS, ts_error_set(error, TERSE_EUNSUPPORTED, "MPI_Init_thread failed (%d)", result));
    return TERSE_OK;
}

terse_status ts_mpi_start(const ts_mpi_options *options, ts_mpi *mpi, ts_error *error) {
    int initialised = 0, finalised = 0, level = MPI_THREAD_SINGLE;
    ignore_sigpipe();
    mpi->start_us = options->start_us;
    mpi->deadline_us = options->deadline_us < STALL_LEAST_US ? STALL_LEAST_US : options->deadline_us;
    MPI_Finalized(&finalised);
    TS_REQUIRE(!finalised, ts_error_set(error, TERSE_EUNSUPPORTED, "MPI has been finalised; it cannot start again"));
    MPI_Initialized(&initialised);
    if (!initialised && options->run_dir) {
        /*
         * How long connecting waits for the other side; ten minutes by default. A server's loop stands still meanwhile.
         * The launcher halves it (pmix_server.c, eviction_cbfunc), and must get multiples of 4 to count down to 0.
         */
        setenv("OMPI_MCA_pmix_base_exchange_timeout", options->role == TS_ROLE_SERVER ? "4" : "8", 0);
    }
    if (!initialised) {
        TS_TRY(initialise(options, error));
        mpi->initialised_mpi = true;
    }
    MPI_Query_thread(&level);
    mpi->multiple = level == MPI_THREAD_MULTIPLE;
    mpi->large = ts_mpi_sockets_looked_at();
    return TERSE_OK;
}
