/* SPDX-License-Identifier: Apache-2.0 */
/* terse stop: ends a daemon. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cli/commands.h"
#include "common/cli/daemon_place.h"
#include "common/config/config.h"

#define FORCE_S 8.0 /* what ends by force may take so long */

static void print_help(void) {
    puts("usage: terse stop [DIR | CONFIG] [--now] [--set KEY=VALUE]... [--timeout SECONDS]\n"
         "\n"
         "Ends the servers that `terse start` has started: nobody is let in any more, jobs may end by\n"
         "themselves for daemon.drain_s, those that have not are told to, then all ends.\n"
         "\n"
         "  DIR | CONFIG       the run directory, or the config that names it; without one, the only daemon\n"
         "                     below ./run\n"
         "  --now              jobs are told at once\n"
         "  --timeout SECONDS  after that all is ended by force; 60 when not given\n"
         "  --help, --version\n"
         "\n"
         "Exit codes: 0 it has ended; 1 failed (another user's, or open to others); 2 the command line is\n"
         "wrong; 3 no daemon is there (stale files are removed); 4 it had to be ended by force.");
}

static int usage_error(const char *what) {
    fprintf(stderr, "terse stop: %s\nterse stop --help says more.\n", what);
    return TS_EXIT_CONFIG;
}

static bool lives(const ts_daemon_place *place) { return ts_daemon_lives(&place->keeper) || ts_daemon_lives(&place->leader); }

/* Waits until nothing of it lives. Returns whether that came about. */
static bool wait_for_end(ts_daemon_place *place, double seconds) {
    ts_daemon_place now = *place;
    for (double until = ts_daemon_clock() + seconds; ts_daemon_clock() < until;) {
        if (!lives(&now)) return true;
        ts_daemon_nap();
    }
    return !lives(&now);
}

static void remove_stale(const char *dir) {
    ts_run_dir_remove(dir, TS_RUN_DIR_CARD);
    ts_run_dir_remove(dir, TS_RUN_DIR_KEEPER);
    ts_run_dir_remove(dir, TS_RUN_DIR_STATUS);
    ts_run_dir_remove(dir, TS_RUN_DIR_URI);
    ts_run_dir_remove(dir, TS_RUN_DIR_ATTACH);
}

static int stop(ts_daemon_place *place, bool now, double timeout_s) {
    bool kept = ts_daemon_lives(&place->keeper), led = ts_daemon_lives(&place->leader);
    if (!kept && !led) {
        fprintf(stderr, "terse stop: the daemon in %s has ended already, without tidying up; its files are removed\n", place->dir);
        remove_stale(place->dir);
        return TS_DAEMON_EXIT_ABSENT;
    }
    /* SIGINT ends a server at once, SIGTERM after daemon.drain_s. Who is not up yet is ended by the keeper. */
    if (led) kill(place->leader.pid, now ? SIGINT : SIGTERM);
    else kill(place->keeper.pid, SIGTERM);
    if (wait_for_end(place, timeout_s)) {
        printf("the daemon in %s has ended\n", place->dir);
        return TS_EXIT_OK;
    }
    fprintf(stderr, "terse stop: the daemon in %s has not ended within %g s, and is ended by force\n", place->dir, timeout_s);
    if (ts_daemon_lives(&place->leader)) kill(place->leader.pid, SIGKILL);
    if (ts_daemon_lives(&place->keeper)) kill(place->keeper.pid, SIGTERM);
    if (!wait_for_end(place, FORCE_S) && ts_daemon_lives(&place->keeper)) kill(place->keeper.pid, SIGKILL); /* mpirun ends with it */
    if (!wait_for_end(place, FORCE_S)) fprintf(stderr, "terse stop: something of it lives still\n");
    else remove_stale(place->dir);
    return TS_DAEMON_EXIT_LATE;
}

int ts_cmd_stop(int argc, char **argv) {
    ts_command_line line;
    ts_error error = {""};
    bool now = false;
    double timeout_s = 60;
    const char *dir = NULL;
    if (ts_command_line_take(&argc, argv, &line, &error) != TERSE_OK) return usage_error(error.text);
    if (line.help || line.version) {
        if (line.version) printf("terse %s\n", TS_VERSION);
        else print_help();
        return TS_EXIT_OK;
    }
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--now") == 0) now = true;
        else if (strcmp(argv[i], "--timeout") == 0 && i + 1 < argc && ts_daemon_seconds(argv[i + 1], &timeout_s)) i++;
        else return usage_error("an option that does not exist, or lacks its value, or more than one place");
    }
    struct stat info;
    const char *config = line.config;
    if (config && (stat(config, &info) != 0 || S_ISDIR(info.st_mode))) { /* what is no file is meant as the directory */
        dir = config;
        config = NULL;
    }
    ts_daemon_place place;
    terse_status status = ts_daemon_find(dir, config, line.overrides, line.override_count, &place, &error);
    if (status != TERSE_OK) {
        fprintf(stderr, "terse stop: %s\n", error.text);
        return status == TERSE_ENOTFOUND ? TS_DAEMON_EXIT_ABSENT
               : status == TERSE_ECONFIG || status == TERSE_EINVAL ? TS_EXIT_CONFIG : TS_EXIT_FAILED;
    }
    return stop(&place, now, timeout_s);
}
