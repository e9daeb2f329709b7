/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing: configuration, MPI, servers, the communication thread, the goodbye. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/run_dir.h"
#include "common/net/mpi_transport.h"
#include "worker/client/keep_orphans.h"
#include "worker/client/terse_internal.h"

#define GOODBYE_US 5000000u /* how long queued frames may take to leave */
#define RANKS_NAMED 64u       /* of a launch that comes into a running job: as many can be told which worker they are */
#define GIVING_UP_US 1000000u /* the same when the job has failed: a dead peer's queue never empties */

static void lock(void *context) {
    terse *client = context;
    pthread_mutex_lock(&client->mutex);
    if (client->drivers > 0) ts_terse_moved(client);
}

/* For news, a millisecond at most. The mutex is held. */
static void pause_a_little(void *context) {
    terse *client = context;
    if (!client->comm) {
        ts_terse_progress(client);
        return;
    }
    ts_terse_await(client, 1000000L);
}

/* Something long follows: what has come and what is to go moves before, where nobody else moves it. */
static void unlock(void *context) {
    terse *client = context;
    bool drives = client->drivers > 0;
    pthread_mutex_unlock(&client->mutex);
    if (drives) (void)ts_comm_thread_poll(client->comm);
}

static void tick(void *context) { ts_client_tick(((terse *)context)->client); }

/* The configuration from a path, or from the command line; where: [in/out] the path. */
static terse_status load_config(terse *client, const char **where, int *argc, char ***argv) {
    ts_command_line line = {0};
    const char *path = *where;
    if (!path) {
        if (!argc || !argv) return ts_error_set(&client->message, TERSE_EINVAL, "terse_open needs a config or argc and argv");
        terse_status taken = ts_command_line_take(argc, *argv, &line, &client->message);
        if (taken != TERSE_OK) return taken == TERSE_EINVAL ? TERSE_ECONFIG : taken;
        path = line.config;
        const char *program = *argc > 0 && (*argv)[0] ? (*argv)[0] : "PROGRAM";
        if (!path || line.help)
            return ts_error_set(&client->message, TERSE_ECONFIG, "usage: %s CONFIG [--set a.b=c ...]", program);
    }
    *where = path;
    terse_status status = ts_config_load(path, line.overrides, line.override_count, &client->config, &client->message);
    return status == TERSE_EIO ? TERSE_ECONFIG : status; /* a file that is not there is the user's to mend, too */
}

/* The run directory that the config names; without a name the usual one, if a daemon is there. */
static bool finds_daemon(const terse *client, const char *path, char run_dir[TS_RUN_DIR_PATH_CHARS]) {
    char card[TS_RUN_DIR_PATH_CHARS];
    if (ts_config_run_dir(client->config, path, run_dir, TS_RUN_DIR_PATH_CHARS) != TERSE_OK) return false;
    if (client->config->daemon.dir) return true;
    return ts_run_dir_path(run_dir, TS_RUN_DIR_CARD, card) == TERSE_OK && access(card, F_OK) == 0;
}

/* Of whom it would be in a job that runs: what it is told, and what it finds. */
typedef struct {
    uint32_t wanted[RANKS_NAMED], kept[TS_KEPT_MOST];
} wish_lists;

static void make_wish(const ts_config *config, wish_lists *lists, ts_mpi_options *options) {
    if (!ts_config_joins(config)) return;
    for (uint32_t r = 0; r < RANKS_NAMED; r++) lists->wanted[r] = ts_config_worker_id(config, r);
    options->joins = true;
    options->wanted = lists->wanted;
    options->wanted_count = RANKS_NAMED;
    options->kept = lists->kept;
    if (ts_config_keeps(config)) options->kept_count = (uint32_t)ts_keep_orphans(config->keep, lists->kept, TS_KEPT_MOST);
}

static terse_status open_transport(terse *client, const char *path) {
    const ts_config *config = client->config;
    wish_lists lists;
    ts_mpi_options options = {.role = TS_ROLE_WORKER,
                              .group = config->servers.group,
                              .job = config->job.name,
                              .start_us = ts_config_start_us(config),
                              .deadline_us = (uint64_t)(config->consistency.deadline_s * 1e6),
                              .window_bytes = (size_t)config->limits.window_bytes,
                              .frame_limit_bytes = (size_t)config->limits.frame_bytes,
                              .needs_multiple = true};
    char run_dir[TS_RUN_DIR_PATH_CHARS];
    if (finds_daemon(client, path, run_dir)) options.run_dir = run_dir;
    make_wish(config, &lists, &options);
    client->joining = true;
    TS_TRY(ts_mpi_transport_create(&options, &client->transport, &client->message));
    if (!client->transport->servers)
        return ts_error_set(&client->message, TERSE_EPEER, options.joins ? "worker.id: no daemon was found whose job this worker could "
                            "come into; daemon.dir names its run directory" : "no terse-server in this job: launch as "
                            "mpirun -n 2 terse-server c.yaml : -n 4 ..., or start a daemon (terse start)");
    const ts_transport *transport = client->transport;
    const ts_peer *self = &transport->peers[transport->self];
    char name[TS_JOB_NAME_CHARS + 32];
    snprintf(name, sizeof name, "%s%sworker%" PRIu32, transport->job_count > 1 ? transport->jobs[self->job].name : "",
             transport->job_count > 1 ? "/" : "", self->index);
    ts_log_set_name(name);
    return TERSE_OK;
}

/* The core, on the transport itself or, with a thread, on the thread's stand-in for it. */
static terse_status open_core(terse *client) {
    ts_transport *transport = client->transport;
    if (ts_mpi_transport_multiple(transport)) {
        ts_comm_options options = {.transport = transport, .mutex = &client->mutex, .moved = &client->moved};
        TS_TRY(ts_comm_thread_create(&options, &client->comm));
        transport = ts_comm_thread_transport(client->comm);
    }
    TS_TRY(ts_client_create(client->config, transport, &client->client));
    ts_client_set_pause(client->client, pause_a_little, client);
    if (!client->comm) return TERSE_OK;
    ts_terse_choose(client);
    ts_client_set_lock(client->client, lock, unlock, client);
    return ts_comm_thread_start(client->comm, tick, client);
}

static void make_lock(terse *client) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&client->mutex, NULL);
    pthread_cond_init(&client->moved, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* A peer's death must come back as a status, not as a signal; a handler of the user's own stays. */
static void ignore_sigpipe(void) {
    struct sigaction now;
    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
}

terse_status terse_open(terse **out, const char *config, int *argc, char ***argv) {
    *out = NULL;
    terse *client = ts_mem_calloc(1, sizeof *client);
    TS_REQUIRE(client, TERSE_ENOMEM);
    make_lock(client);
    ignore_sigpipe();
    const char *path = config;
    terse_status status = load_config(client, &path, argc, argv);
    if (status == TERSE_OK) status = open_transport(client, path);
    if (status == TERSE_OK) {
        status = open_core(client);
        if (status != TERSE_OK) {
            terse_status said = ts_error_set(&client->message, status, "terse_open: %s", terse_strerror(status));
            (void)said;
        }
    }
    client->failure = status;
    if (status != TERSE_OK && !client->message.text[0])
        status = ts_error_set(&client->message, status, "terse_open: %s", terse_strerror(status));
    *out = client;
    return status;
}

static bool saved(terse *client, void *argument) {
    (void)argument;
    return !ts_client_checkpoint_pending(client->client);
}

void terse_decline(const char *reason, int exit_code) {
    ts_mpi_decline(TS_ROLE_WORKER, reason ? reason : "no reason given", exit_code);
}

/* Leaves in order when that is possible, else tells the servers that the job cannot go on. The mutex is held. */
static terse_status say_goodbye(terse *client) {
    ts_client *core = client->client;
    ts_client_state state = ts_client_get_state(core);
    if (state == TS_CLIENT_FAILED) return ts_client_failure(core);
    if (state == TS_CLIENT_DECLARING || state == TS_CLIENT_ATTACHING) {
        ts_client_abort(core, TERSE_ESHUTDOWN, "closed before it had started");
        return TERSE_ESHUTDOWN;
    }
    terse_status status = ts_terse_be_done(client);
    if (status == TERSE_ESTATE) {
        char reason[TS_ERROR_CHARS];
        snprintf(reason, sizeof reason, "%s", ts_client_message(core));
        ts_client_abort(core, TERSE_ESTATE, reason);
    }
    if (status == TERSE_OK) status = ts_terse_wait(client, saved, NULL);
    if (status == TERSE_OK) ts_client_bye(core);
    return status;
}

terse_status terse_close(terse *client) {
    if (!client) return TERSE_OK;
    terse_status status = TERSE_OK;
    if (client->client) {
        pthread_mutex_lock(&client->mutex);
        status = client->failure != TERSE_OK ? client->failure : say_goodbye(client);
        pthread_mutex_unlock(&client->mutex);
    }
    if (client->comm) ts_comm_thread_stop(client->comm);
    ts_client_destroy(client->client);
    ts_comm_thread_destroy(client->comm);
    if (client->joining && !client->transport) ts_mpi_abandon(ts_exit_code(client->failure));
    if (client->transport) {
        /* Without servers all workers leave alike, which is in order. */
        bool clean = status == TERSE_OK;
        ts_mpi_transport_finish(client->transport, clean ? GOODBYE_US : GIVING_UP_US, clean, ts_exit_code(status)); /* frees it */
    }
    ts_config_free(client->config);
    pthread_cond_destroy(&client->moved);
    pthread_mutex_destroy(&client->mutex);
    ts_mem_free(client);
    return status;
}
