/* SPDX-License-Identifier: Apache-2.0 */
/* terse-relay: the server of one group and a worker of the group above. Command line, configs, MPI, loop, exit code. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/config/config.h"
#include "common/net/mpi_transport.h"
#include "common/relay/relay.h"
#include "server/loop.h"

#define FLUSH_US 1000000u /* so long the last messages may take to go out */

static const char usage[] =
    "usage: mpirun --tune configs/openmpi.conf -n 1 terse-server WORLD \\\n"
    "         : -n 1 terse-relay RACK-A : -n 2 terse-worker RACK-A \\\n"
    "         : -n 1 terse-relay RACK-B : -n 2 terse-worker RACK-B\n"
    "\n"
    "A server for the workers of one group (servers.group of RACK-A). It sums what they push, and\n"
    "pushes the sum as one worker to the servers above, with the pipelines and the error feedback\n"
    "of the file that upstream.config names; what comes back goes to its workers.\n"
    "\n"
    "  CONFIG            a YAML file; configs/README.md lists its keys\n"
    "  --set KEY=VALUE   overrides a key of CONFIG, as --set consistency.deadline_s=10\n"
    "  --log LEVEL       error, warn, info or debug\n"
    "  --help, --version\n"
    "\n"
    "Signals and exit codes are those of terse-server.\n";

/* What lives in the loop beside the server. */
typedef struct {
    const ts_config *above;
    ts_transport *transport;
    ts_relay *relay;
} guest;

static terse_status guest_begin(void *context, ts_server *server, ts_executor *executor, ts_error *error) {
    guest *here = context;
    TS_TRY(ts_relay_create(here->above, here->transport, executor, &here->relay));
    return ts_relay_bind(here->relay, server, error);
}

static void guest_flush(void *context) { ts_relay_flush(((guest *)context)->relay); }
static void guest_tick(void *context) { ts_relay_tick(((guest *)context)->relay); }
static bool guest_idle(const void *context) { return ts_relay_idle(((const guest *)context)->relay); }

/* Returns the exit code; does not return when the job failed with MPI running. */
static int serve(const ts_config *config, const ts_config *above) {
    ts_mpi_options options = {
        .role = TS_ROLE_SERVER,
        .group = config->servers.group,
        .above = above->servers.group,
        .job = above->job.name,
        .start_us = ts_config_start_us(config),
        .deadline_us = (uint64_t)(config->consistency.deadline_s * 1e6),
        .window_bytes = (size_t)config->limits.window_bytes,
        .traffic_bytes = config->limits.traffic_bytes,
        .frame_limit_bytes = (size_t)config->limits.frame_bytes,
    };
    ts_transport *transport = NULL;
    ts_error error = {""};
    terse_status status = ts_mpi_transport_create(&options, &transport, &error);
    if (status != TERSE_OK) {
        ts_log(TS_LOG_ERROR, "main", "cannot join the job", "status=%s reason=\"%s\"", terse_status_name(status),
               error.text);
        ts_mpi_abandon(ts_exit_code(status));
    }
    char name[TS_JOB_NAME_CHARS + 16];
    snprintf(name, sizeof name, "relay/%s", config->servers.group);
    ts_log_set_name(name);
    guest here = {.above = above, .transport = ts_mpi_transport_above(transport)};
    ts_log(TS_LOG_INFO, "main", "relay starts", "version=%s workers=%u servers_above=%u", TS_VERSION, transport->workers,
           here.transport->servers);
    const ts_loop_guest visitor = {.context = &here, .begin = guest_begin, .flush = guest_flush, .tick = guest_tick,
                                   .idle = guest_idle};
    ts_loop_end end = {.state = TS_SERVER_FAILED};
    status = ts_loop_run(config, transport, &visitor, &end);
    if (status != TERSE_OK) {
        ts_log(TS_LOG_ERROR, "main", "cannot serve", "status=%s reason=\"%s\"", terse_status_name(status), end.message.text);
        end.failure = status;
    }
    ts_relay_destroy(here.relay);
    bool clean = end.state == TS_SERVER_FINISHED;
    int code = clean ? TS_EXIT_OK : ts_exit_code(end.failure);
    ts_mpi_transport_finish(transport, FLUSH_US, clean, code);
    return code;
}

/* What is wrong goes to standard error, and to the others, who would wait for this process until their deadline. */
static int decline(const char *what, int code) {
    fprintf(stderr, "%s\n", what);
    ts_mpi_decline(TS_ROLE_SERVER, what, code);
    return code;
}

/* Both files. Returns the exit code, or -1 when all is well. */
static int load(const ts_command_line *line, ts_config **config, ts_config **above) {
    ts_error error = {""};
    terse_status status = ts_config_load(line->config, line->overrides, line->override_count, config, &error);
    if (status == TERSE_OK) status = ts_config_load_above(*config, line->config, above, &error);
    if (status == TERSE_OK) return -1;
    return decline(error.text, status == TERSE_ENOMEM ? TS_EXIT_FAILED : TS_EXIT_CONFIG);
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); /* Open MPI leaves it deadly: a peer's death would take this process along */
    ts_command_line line;
    int code = ts_command_line_begin(argc, argv, "terse-relay", usage, decline, &line);
    if (code >= 0) return code;
    ts_config *config = NULL, *above = NULL;
    code = load(&line, &config, &above);
    if (code < 0) {
        ts_log_level level;
        if (ts_log_level_parse(config->log.level, &level) == TERSE_OK) ts_log_set_level(level);
        code = serve(config, above);
    }
    ts_config_free(config);
    ts_config_free(above);
    return code;
}
