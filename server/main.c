/* SPDX-License-Identifier: Apache-2.0 */
/* terse-server: command line, config, MPI, loop, exit code. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/run_dir.h"
#include "common/config/config.h"
#include "common/net/mpi_transport.h"
#include "server/loop.h"

#define FLUSH_US 1000000u /* so long the last messages may take to go out; the queue of a dead peer never empties */

static const char usage[] =
    "usage: mpirun --tune configs/openmpi.conf -n SERVERS terse-server CONFIG [--set KEY=VALUE]... \\\n"
    "         : -n WORKERS terse-worker CONFIG [--set KEY=VALUE]...\n"
    "\n"
    "The parameter server: holds a share of the parameters, sums what the workers push, and\n"
    "ends with 0 when all workers are done.\n"
    "\n"
    "  CONFIG            a YAML file; configs/README.md lists its keys\n"
    "  --set KEY=VALUE   overrides a key, as --set consistency.deadline_s=10\n"
    "  --log LEVEL       error, warn, info or debug\n"
    "  --help, --version\n"
    "\n"
    "Without workers in its mpirun, and with daemon.dir or mpirun --ompi-server, it is a daemon\n"
    "which jobs join and leave (terse start does all that): SIGTERM then lets nobody in any more,\n"
    "and ends what has not ended after daemon.drain_s, or at the second SIGTERM.\n"
    "\n"
    "SIGTERM ends the job in order, with checkpoint.dir after a last checkpoint; a second one, and SIGINT, at\n"
    "once. SIGUSR1 writes a checkpoint, SIGUSR2 the whole state to standard error. The same command goes on\n"
    "from the last checkpoint.\n"
    "\n"
    "Exit codes: 0 all workers were done; 1 failed; 2 the config is not valid; 3 a worker or server\n"
    "ended the job or is not what was agreed; 4 somebody was silent past consistency.deadline_s.\n";

static void say_note(void *context, const char *text) {
    (void)context;
    ts_log(TS_LOG_WARN, "config", "accepted, but", "note=\"%s\"", text);
}

static void set_log_level(const ts_config *config) {
    ts_log_level level;
    if (ts_log_level_parse(config->log.level, &level) == TERSE_OK) ts_log_set_level(level);
}

static int exit_code(terse_status failure) {
    switch (failure) {
    case TERSE_OK: return TS_EXIT_OK;
    case TERSE_ETIMEDOUT: return TS_EXIT_DEADLINE;
    case TERSE_ECONFIG: return TS_EXIT_CONFIG;
    case TERSE_ENOMEM:
    case TERSE_EIO:
    case TERSE_EUNSUPPORTED:
    case TERSE_ESHUTDOWN: return TS_EXIT_FAILED;
    default: return TS_EXIT_PEER;
    }
}

/* Returns the exit code; does not return when the job failed with MPI running. */
static int serve(const ts_config *config, const char *path) {
    char run_dir[TS_RUN_DIR_PATH_CHARS];
    ts_mpi_options options = {
        .role = TS_ROLE_SERVER,
        .group = config->servers.group,
        .start_us = ts_config_start_us(config),
        .deadline_us = (uint64_t)(config->consistency.deadline_s * 1e6),
        .window_bytes = (size_t)config->limits.window_bytes,
        .traffic_bytes = config->limits.traffic_bytes,
        .frame_limit_bytes = (size_t)config->limits.frame_bytes,
        .jobs_most = config->limits.jobs,
    };
    /* Without a name server nobody could join. */
    bool may_be_joined = config->daemon.dir || getenv("OMPI_MCA_pmix_server_uri");
    if (may_be_joined && ts_config_run_dir(config, path, run_dir, sizeof run_dir) == TERSE_OK) options.run_dir = run_dir;
    ts_transport *transport = NULL;
    ts_error error = {""};
    terse_status status = ts_mpi_transport_create(&options, &transport, &error);
    if (status != TERSE_OK) {
        ts_log(TS_LOG_ERROR, "main", "cannot join the job", "status=%s reason=\"%s\"", terse_status_name(status),
               error.text);
        ts_mpi_abandon(status == TERSE_ESTATE ? TS_EXIT_FAILED : exit_code(status));
    }
    const ts_peer *self = &transport->peers[transport->self];
    char name[32];
    snprintf(name, sizeof name, "server%u", self->index);
    ts_log_set_name(name);
    if (self->index == 0) ts_config_notes(config, say_note, NULL);
    ts_log(TS_LOG_INFO, "main", "server starts", "version=%s servers=%u workers=%u deadline_s=%g", TS_VERSION,
           transport->servers, transport->workers, config->consistency.deadline_s);
    if (self->index == 0 && !ts_mpi_recovery_on())
        ts_log(TS_LOG_WARN, "main", "recovery is off: one dead rank kills all", "use=\"mpirun --tune %s\"",
               "configs/openmpi.conf");
    bool daemon = ts_mpi_transport_attached(transport);
    if (transport->workers == 0 && !daemon) {
        ts_log(TS_LOG_ERROR, "main", "there is no worker in this job", "launch=\"%s\" or=\"%s\"",
               "mpirun --tune configs/openmpi.conf -n 2 terse-server CONFIG : -n 4 terse-worker CONFIG",
               "terse start CONFIG, and workers join later");
        ts_mpi_transport_finish(transport, FLUSH_US, true, TS_EXIT_PEER);
        return TS_EXIT_PEER;
    }
    ts_loop_end end = {.state = TS_SERVER_FAILED};
    status = ts_loop_run(config, transport, NULL, &end);
    if (status != TERSE_OK) {
        ts_log(TS_LOG_ERROR, "main", "cannot serve", "status=%s", terse_status_name(status));
        end.failure = status;
    }
    /* A daemon's jobs end alone; being told to stop is its ordinary end. */
    bool clean = end.state == TS_SERVER_FINISHED || (daemon && end.failure == TERSE_ESHUTDOWN);
    int code = clean ? TS_EXIT_OK : exit_code(end.failure);
    ts_mpi_transport_finish(transport, FLUSH_US, clean, code);
    return code;
}

/* What is wrong goes to standard error, and to the others, who would wait for this process until their deadline. */
static int decline(const char *what, int code) {
    fprintf(stderr, "%s\n", what);
    ts_mpi_decline(TS_ROLE_SERVER, what, code);
    return code;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); /* Open MPI leaves it deadly: a peer's death would take this process along */
    ts_command_line line;
    int code = ts_command_line_begin(argc, argv, "terse-server", usage, decline, &line);
    if (code >= 0) return code;
    ts_config *config = NULL;
    ts_error error = {""};
    terse_status status = ts_config_load(line.config, line.overrides, line.override_count, &config, &error);
    if (status != TERSE_OK) {
        return decline(error.text, status == TERSE_ENOMEM ? TS_EXIT_FAILED : TS_EXIT_CONFIG);
    }
    if (config->upstream.config) { /* it would train without the servers above */
        (void)ts_error_set(&error, TERSE_ECONFIG, "%s: upstream.config: \"%s\": this is the file of a relay; allowed: terse-relay "
                           "in the place of terse-server, or a file without upstream.config", line.config, config->upstream.config);
        ts_config_free(config);
        return decline(error.text, TS_EXIT_CONFIG);
    }
    set_log_level(config);
    code = serve(config, line.config);
    ts_config_free(config);
    return code;
}
