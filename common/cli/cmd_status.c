/* SPDX-License-Identifier: Apache-2.0 */
/* terse status: what a daemon does. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "common/cli/commands.h"
#include "common/cli/daemon_place.h"
#include "common/config/config.h"

#define STATUS_CHARS ((size_t)4 << 20)
#define LATE_S 10.0 /* it reports each second */

static void print_help(void) {
    puts("usage: terse status [DIR | CONFIG] [--json] [--set KEY=VALUE]...\n"
         "\n"
         "Says which jobs the servers serve that `terse start` has started, how far they are, whom they wait\n"
         "for, and since when. Server 0, or who stands in for it, reports each second.\n"
         "\n"
         "  DIR | CONFIG  the run directory, or the config that names it; without one, the only daemon below\n"
         "                ./run\n"
         "  --json        the report itself. Keys: version, pid, time, server, servers, dead, state (running,\n"
         "                draining, finished, failed), message, memory_bytes, and jobs: number, name, state\n"
         "                (running, finished, failed), workers, attached, done, gone, step, waiting, message,\n"
         "                orphaned, orphan_s, lost: worker, name, for_s, coming, bring_back\n"
         "  --help, --version\n"
         "\n"
         "Exit codes: 0 it runs; 1 failed; 2 the command line is wrong; 3 no daemon is there; 4 it lives,\n"
         "but has not reported for 10 s.");
}

static int usage_error(const char *what) {
    fprintf(stderr, "terse status: %s\nterse status --help says more.\n", what);
    return TS_EXIT_CONFIG;
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static long long number_of(const json_t *object, const char *key) { return json_integer_value(json_object_get(object, key)); }

/* Who is lost, and how they come back. */
static void print_lost(const json_t *job) {
    const json_t *lost = json_object_get(job, "lost");
    for (size_t i = 0; i < json_array_size(lost); i++) {
        const json_t *one = json_array_get(lost, i);
        printf("               lost for %.0f s: %s%s\n", json_real_value(json_object_get(one, "for_s")), text_of(one, "name"),
               json_is_true(json_object_get(one, "coming")) ? ", in whose place a process is coming" : "");
        if (text_of(one, "bring_back")[0]) printf("                 bring it back: %s\n", text_of(one, "bring_back"));
    }
    if (json_is_true(json_object_get(job, "orphaned")))
        printf("               all workers are lost; the job ends in %.0f s unless one comes back (daemon.orphan_s)\n",
               json_real_value(json_object_get(job, "orphan_s")));
}

static void print_job(const json_t *job) {
    long long workers = number_of(job, "workers");
    printf("  %-12s %-9s step %lld, %lld worker%s", text_of(job, "name"), text_of(job, "state"), number_of(job, "step"), workers,
           workers == 1 ? "" : "s");
    if (number_of(job, "attached") < workers) printf(", %lld attached", number_of(job, "attached"));
    if (number_of(job, "done") > 0) printf(", %lld done", number_of(job, "done"));
    printf("\n");
    print_lost(job);
    if (text_of(job, "waiting")[0]) printf("               waits for %s\n", text_of(job, "waiting"));
    if (text_of(job, "message")[0]) printf("               %s\n", text_of(job, "message"));
}

static void print_dead(const json_t *root) {
    const json_t *dead = json_object_get(root, "dead");
    for (size_t i = 0; i < json_array_size(dead); i++) {
        long long number = json_integer_value(json_array_get(dead, i)), servers = number_of(root, "servers");
        printf("  server %lld is dead; server %lld is in its place\n", number, (number + 1) % servers);
    }
}

static void print_report(const ts_daemon_place *place, const json_t *root, double age_s) {
    const json_t *jobs = json_object_get(root, "jobs");
    printf("%s: %s, %lld server%s, server %lld is process %lld with %.0f MB, reported %.0f s ago\n", place->dir, text_of(root, "state"),
           number_of(root, "servers"), number_of(root, "servers") == 1 ? "" : "s", number_of(root, "server"), number_of(root, "pid"),
           (double)number_of(root, "memory_bytes") / 1e6, age_s > 0 ? age_s : 0);
    print_dead(root);
    if (text_of(root, "message")[0]) printf("  %s\n", text_of(root, "message"));
    if (json_array_size(jobs) == 0) printf("  no job has joined\n");
    for (size_t j = 0; j < json_array_size(jobs); j++) print_job(json_array_get(jobs, j));
}

static int show(const ts_daemon_place *place, bool as_json) {
    if (!ts_daemon_lives(&place->leader)) {
        bool coming = ts_daemon_lives(&place->keeper);
        fprintf(stderr, "terse status: %s: %s\n", place->dir, coming ? "the server that leads is not up: the servers come up, or are ending"
                : "the daemon has ended without tidying up (terse stop removes its files)");
        return TS_DAEMON_EXIT_ABSENT;
    }
    char *text = malloc(STATUS_CHARS);
    json_error_t wrong;
    json_t *root = NULL;
    if (text && ts_run_dir_read(place->dir, TS_RUN_DIR_STATUS, text, STATUS_CHARS, NULL) == TERSE_OK) root = json_loads(text, 0, &wrong);
    int code = TS_EXIT_OK;
    if (root) {
        double age_s = (double)time(NULL) - json_real_value(json_object_get(root, "time"));
        if (as_json) fputs(text, stdout);
        else print_report(place, root, age_s);
        if (age_s > LATE_S) {
            fprintf(stderr, "terse status: the server that leads lives, but has not reported for %.0f s: it is stopped, or hangs\n", age_s);
            code = TS_DAEMON_EXIT_LATE;
        }
    } else {
        fprintf(stderr, "terse status: %s holds no report; the server that leads (process %ld) lives\n", place->dir, (long)place->leader.pid);
        code = TS_EXIT_FAILED;
    }
    json_decref(root);
    free(text);
    return code;
}

int ts_cmd_status(int argc, char **argv) {
    ts_command_line line;
    ts_error error = {""};
    bool as_json = false;
    if (ts_command_line_take(&argc, argv, &line, &error) != TERSE_OK) return usage_error(error.text);
    if (line.help || line.version) {
        if (line.version) printf("terse %s\n", TS_VERSION);
        else print_help();
        return TS_EXIT_OK;
    }
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") != 0) return usage_error("an option that does not exist, or more than one place");
        as_json = true;
    }
    struct stat info;
    const char *config = line.config, *dir = NULL;
    if (config && (stat(config, &info) != 0 || S_ISDIR(info.st_mode))) {
        dir = config;
        config = NULL;
    }
    ts_daemon_place place;
    terse_status status = ts_daemon_find(dir, config, line.overrides, line.override_count, &place, &error);
    if (status == TERSE_OK) return show(&place, as_json);
    fprintf(stderr, "terse status: %s\n", error.text);
    return status == TERSE_ENOTFOUND ? TS_DAEMON_EXIT_ABSENT
           : status == TERSE_ECONFIG || status == TERSE_EINVAL ? TS_EXIT_CONFIG : TS_EXIT_FAILED;
}
