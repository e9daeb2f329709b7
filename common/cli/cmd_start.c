/* SPDX-License-Identifier: Apache-2.0 */
/* terse start CONFIG: servers in the background. */
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cli/commands.h"
#include "common/cli/daemon_keeper.h"
#include "common/cli/daemon_place.h"
#include "common/config/config.h"

#define WORDS_MOST 160
#define LOG_TAIL 2000
#define CONFIG_COPY_MOST ((size_t)4 << 20)

static void print_help(void) {
    puts("usage: terse start CONFIG [--servers N] [--run-dir DIR] [--set KEY=VALUE]... [--timeout SECONDS]\n"
         "                   [-- MPIRUN-OPTION...]\n"
         "\n"
         "Starts Open MPI's name server (ompi-server) and terse-server under an mpirun of its own, in the\n"
         "background, waits until they are up, and prints how jobs join. Jobs come and go, several at a time;\n"
         "one that is killed disturbs neither the servers nor the others.\n"
         "\n"
         "  --servers N        how many; 1 when not given\n"
         "  --run-dir DIR      where the daemon's files lie: daemon.dir of the config, else run/NAME in the\n"
         "                     current directory, NAME being the config's. Mode 0700, the user's own.\n"
         "  --set KEY=VALUE    overrides a key, for the servers\n"
         "  --timeout SECONDS  how long the servers may take to come up; 60 when not given\n"
         "  -- MPIRUN-OPTION   more words for the servers' mpirun, as `-- --host a,b`\n"
         "  --help, --version\n"
         "\n"
         "Files: log, daemon (by which workers find the servers), ompi-server.uri, status.json, attach (the\n"
         "line that is printed), config.yaml (a copy, for the record), keeper.pid.\n"
         "\n"
         "Exit codes: 0 they are up; 1 they could not be started (the end of the log is shown), or run already;\n"
         "2 the config or the command line is wrong; 4 they were not up in time, and were ended.");
}

typedef struct {
    ts_command_line line;
    const char *run_dir;
    unsigned servers;
    double timeout_s;
    char **more; /* NULL-terminated words for mpirun */
} start_options;

static int usage_error(const char *what) {
    fprintf(stderr, "terse start: %s\nterse start --help says more.\n", what);
    return TS_EXIT_CONFIG;
}

static const char *take_options(int argc, char **argv, start_options *options) {
    for (int i = 1; i < argc; i++) {
        char *end = NULL;
        if (strcmp(argv[i], "--") == 0) {
            options->more = argv + i + 1;
            return NULL;
        }
        if (strcmp(argv[i], "--servers") == 0 && i + 1 < argc) {
            unsigned long value = strtoul(argv[++i], &end, 10);
            if (*end || value < 1 || value > 4096) return "--servers: a number from 1 to 4096 belongs behind it";
            options->servers = (unsigned)value;
        } else if (strcmp(argv[i], "--run-dir") == 0 && i + 1 < argc) {
            options->run_dir = argv[++i];
        } else if (strcmp(argv[i], "--timeout") == 0 && i + 1 < argc) {
            if (!ts_daemon_seconds(argv[++i], &options->timeout_s)) return "--timeout: seconds from 0.1 to 86400 belong behind it";
        } else {
            return argv[i][0] == '-' ? "an option that does not exist, or lacks its value" : "one CONFIG at a time";
        }
    }
    return NULL;
}

/* ---- what is started --------------------------------------------------------------------------------------------------- */

typedef struct {
    char dir[TS_RUN_DIR_PATH_CHARS], server[TS_RUN_DIR_PATH_CHARS], uri[TS_RUN_DIR_PATH_CHARS + 8], place[TS_RUN_DIR_PATH_CHARS + 16],
        number[16];
    char *words[WORDS_MOST];
} launch;

/* terse-server lies where this program does. */
static bool find_server(char *path) {
    char own[TS_RUN_DIR_PATH_CHARS];
    ssize_t len = readlink("/proc/self/exe", own, sizeof own - 1);
    if (len <= 0) return false;
    own[len] = '\0';
    return ts_run_dir_path(dirname(own), "terse-server", path) == TERSE_OK && access(path, X_OK) == 0;
}

/* openmpi.conf for jobs: here, in the tree in which this program was built, or where it was installed. */
static void find_tune(char path[PATH_MAX]) {
    static const char *const places[] = {"../configs/openmpi.conf", "../share/terse/openmpi.conf"};
    char own[TS_RUN_DIR_PATH_CHARS], place[TS_RUN_DIR_PATH_CHARS];
    if (realpath("configs/openmpi.conf", path)) return;
    ssize_t len = readlink("/proc/self/exe", own, sizeof own - 1);
    own[len > 0 ? len : 0] = '\0';
    const char *folder = dirname(own);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (ts_run_dir_path(folder, places[i], place) == TERSE_OK && realpath(place, path)) return;
    snprintf(path, PATH_MAX, "configs/openmpi.conf");
}

/* The launcher's settings are those of configs/openmpi.conf, so that no file needs to be found; one more is a daemon's. */
static const char *make_words(launch *out, const start_options *options) {
    static const char *const settings[] = {"mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "orte_enable_recovery", "1",
                                           "--mca", "orte_startup_timeout", "30", "--mca", "async_mpi_finalize", "1", "--mca", "mpi_event_tick_rate", "100",
                                           /* The launcher forgets to give up what it asks a dead job's launcher for, unless
                                            * this divides ten seconds oddly (pmix_server.c, eviction_cbfunc). */
                                           "--mca", "pmix_server_max_wait", "1"};
    size_t count = 0;
    if (!find_server(out->server)) return "terse-server is not there: it must lie beside this program";
    snprintf(out->uri, sizeof out->uri, "file:%.4000s/%s", out->dir, TS_RUN_DIR_URI);
    snprintf(out->place, sizeof out->place, "daemon.dir=%.4000s", out->dir);
    snprintf(out->number, sizeof out->number, "%u", options->servers);
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) out->words[count++] = (char *)(uintptr_t)settings[i];
    for (char **more = options->more; more && *more; more++) {
        if (count + 40 > WORDS_MOST) return "too many words behind --";
        out->words[count++] = *more;
    }
    char *fixed[] = {"--ompi-server", out->uri, "-n", out->number, out->server, (char *)(uintptr_t)options->line.config, "--set", out->place};
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) out->words[count++] = fixed[i];
    for (unsigned o = 0; o < options->line.override_count; o++) {
        if (count + 3 > WORDS_MOST) return "too many words";
        out->words[count++] = (char *)(uintptr_t) "--set";
        out->words[count++] = (char *)(uintptr_t)options->line.overrides[o];
    }
    out->words[count] = NULL;
    return NULL;
}

static void copy_config(const char *config, const char *dir) {
    FILE *file = fopen(config, "re");
    char *text = file ? malloc(CONFIG_COPY_MOST) : NULL;
    size_t got = text ? fread(text, 1, CONFIG_COPY_MOST, file) : 0;
    if (file) fclose(file);
    if (got > 0 && ts_run_dir_write(dir, TS_RUN_DIR_CONFIG, text, got) != TERSE_OK)
        fprintf(stderr, "terse start: %s/%s cannot be written\n", dir, TS_RUN_DIR_CONFIG);
    free(text);
}

/* ---- waiting for it ------------------------------------------------------------------------------------------------------ */

static void show_log(const char *dir) {
    char path[TS_RUN_DIR_PATH_CHARS], tail[LOG_TAIL + 1];
    FILE *file = ts_run_dir_path(dir, TS_RUN_DIR_LOG, path) == TERSE_OK ? fopen(path, "re") : NULL;
    if (!file) return;
    if (fseek(file, -LOG_TAIL, SEEK_END) != 0) rewind(file);
    size_t got = fread(tail, 1, LOG_TAIL, file);
    fclose(file);
    tail[got] = '\0';
    const char *line = got == LOG_TAIL ? strchr(tail, '\n') : NULL;
    fprintf(stderr, "the end of %s:\n%s", path, line ? line + 1 : tail);
}

/* Waits until the servers have their card out, and have reported. Returns an exit code. */
static int await(const char *dir, pid_t keeper, const start_options *options) {
    ts_daemon_place place = {.dir = ""};
    double began = ts_daemon_clock(), said = began;
    char report[8];
    snprintf(place.dir, sizeof place.dir, "%s", dir);
    for (;;) {
        int status;
        ts_daemon_look(&place);
        if (place.leader.pid > 0 && ts_run_dir_read(dir, TS_RUN_DIR_STATUS, report, sizeof report, NULL) != TERSE_ENOTFOUND)
            return TS_EXIT_OK;
        if (waitpid(keeper, &status, WNOHANG) == keeper) {
            fprintf(stderr, "terse start: the servers have not come up; ");
            show_log(dir);
            return TS_EXIT_FAILED;
        }
        double now = ts_daemon_clock();
        if (now - began > options->timeout_s) break;
        if (now - said >= 2) {
            said = now;
            fprintf(stderr, "waiting for %u server%s (%.0f of %.0f s)\n", options->servers, options->servers > 1 ? "s" : "",
                    now - began, options->timeout_s);
        }
        ts_daemon_nap();
    }
    kill(keeper, SIGTERM);
    fprintf(stderr, "terse start: the servers were not up within %g s, and are ended; ", options->timeout_s);
    show_log(dir);
    for (double until = ts_daemon_clock() + 15; ts_daemon_clock() < until && waitpid(keeper, NULL, WNOHANG) == 0;) ts_daemon_nap();
    return TS_DAEMON_EXIT_LATE;
}

static void say_how(const launch *started, const start_options *options, bool usual_place) {
    char line[4 * TS_RUN_DIR_PATH_CHARS], tune[PATH_MAX];
    char set[TS_RUN_DIR_PATH_CHARS + 32] = "";
    if (!usual_place) snprintf(set, sizeof set, " --set daemon.dir=%s", started->dir);
    find_tune(tune);
    snprintf(line, sizeof line, "mpirun --tune %s --ompi-server %s -n 4 %.*s/terse-worker %s%s\n", tune, started->uri,
             (int)(strrchr(started->server, '/') - started->server), started->server, options->line.config, set);
    if (ts_run_dir_write(started->dir, TS_RUN_DIR_ATTACH, line, strlen(line)) != TERSE_OK)
        fprintf(stderr, "terse start: %s/%s cannot be written\n", started->dir, TS_RUN_DIR_ATTACH);
    printf("%u server%s up, files in %s\n\njobs join by\n  %s\nterse status %s\nterse stop %s\n", options->servers,
           options->servers > 1 ? "s are" : " is", started->dir, line, started->dir, started->dir);
}

/* Root may not start mpirun without saying so twice. */
static void allow_root(void) {
    if (geteuid() != 0) return;
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
}

/* Somebody may be starting a daemon there just now, or one may run. lock: [out] [own] */
static bool take_place(const char *dir, int *lock) {
    terse_status status = ts_run_dir_lock(dir, lock);
    if (status != TERSE_OK) {
        fprintf(stderr, "terse start: %s%s\n", dir, status == TERSE_ESTATE ? ": another terse start is at work there" : " cannot be opened");
        return false;
    }
    ts_daemon_place place = {.dir = ""};
    snprintf(place.dir, sizeof place.dir, "%s", dir);
    ts_daemon_look(&place);
    if (ts_daemon_lives(&place.keeper) || ts_daemon_lives(&place.leader)) {
        fprintf(stderr, "terse start: a daemon runs in %s already (process %ld); end it first: terse stop %s\n", dir,
                (long)(ts_daemon_lives(&place.keeper) ? place.keeper.pid : place.leader.pid), dir);
        close(*lock);
        return false;
    }
    if (place.keeper.pid || place.leader.pid) fprintf(stderr, "files of a daemon that has ended are replaced in %s\n", dir);
    ts_run_dir_remove(dir, TS_RUN_DIR_CARD);
    ts_run_dir_remove(dir, TS_RUN_DIR_STATUS);
    return true;
}

static int start_there(launch *started, const start_options *options, const ts_config *config) {
    const char *wrong = make_words(started, options);
    if (wrong) return usage_error(wrong);
    copy_config(options->line.config, started->dir);
    allow_root();
    ts_daemon_keeper keeper = {.dir = started->dir, .mpirun = started->words, .stop_s = config->daemon.drain_s + 15};
    pid_t pid;
    if (ts_daemon_keeper_fork(&keeper, &pid) != TERSE_OK) {
        fprintf(stderr, "terse start: no process can be had: %s\n", strerror(errno));
        return TS_EXIT_FAILED;
    }
    int code = await(started->dir, pid, options);
    if (code == TS_EXIT_OK) say_how(started, options, !options->run_dir && options->line.override_count == 0);
    return code;
}

static int start(const start_options *options, const ts_config *config) {
    char wanted[TS_RUN_DIR_PATH_CHARS];
    ts_error error = {""};
    launch started = {.dir = ""};
    if (options->run_dir) snprintf(wanted, sizeof wanted, "%s", options->run_dir);
    else if (ts_config_run_dir(config, options->line.config, wanted, sizeof wanted) != TERSE_OK) return usage_error("the run directory's name is too long");
    if (ts_run_dir_make(wanted, &error) != TERSE_OK || !realpath(wanted, started.dir)) {
        fprintf(stderr, "terse start: %s\n", error.text[0] ? error.text : strerror(errno));
        return TS_EXIT_FAILED;
    }
    int lock;
    if (!take_place(started.dir, &lock)) return TS_EXIT_FAILED;
    int code = start_there(&started, options, config);
    close(lock);
    return code;
}

int ts_cmd_start(int argc, char **argv) {
    start_options options = {.servers = 1, .timeout_s = 60};
    ts_error error = {""};
    if (ts_command_line_take(&argc, argv, &options.line, &error) != TERSE_OK) return usage_error(error.text);
    if (options.line.help || options.line.version) {
        if (options.line.version) printf("terse %s\n", TS_VERSION);
        else print_help();
        return TS_EXIT_OK;
    }
    const char *wrong = take_options(argc, argv, &options);
    if (wrong) return usage_error(wrong);
    if (!options.line.config) return usage_error("which CONFIG?");
    ts_config *config = NULL;
    terse_status status = ts_config_load(options.line.config, options.line.overrides, options.line.override_count, &config, &error);
    if (status != TERSE_OK) {
        fprintf(stderr, "%s\n", error.text);
        return status == TERSE_ENOMEM ? TS_EXIT_FAILED : TS_EXIT_CONFIG;
    }
    int code = start(&options, config);
    ts_config_free(config);
    return code;
}
