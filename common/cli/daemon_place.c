/* SPDX-License-Identifier: Apache-2.0 */
#include "common/cli/daemon_place.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "common/base/process.h"
#include "common/config/config.h"

#define CARD_CHARS ((size_t)1 << 20)

bool ts_daemon_lives(const ts_daemon_process *process) {
    return process->pid > 0 && process->birth > 0 && ts_process_birth(process->pid) == process->birth;
}

double ts_daemon_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void ts_daemon_nap(void) {
    struct timespec pause = {.tv_nsec = 50000000};
    nanosleep(&pause, NULL);
}

bool ts_daemon_seconds(const char *text, double *seconds) {
    char *end = NULL;
    double value = text ? strtod(text, &end) : 0;
    if (!text || end == text || *end || !(value >= 0.1 && value <= 86400)) return false;
    *seconds = value;
    return true;
}

static void read_process(const char *dir, const char *name, const char *format, ts_daemon_process *process) {
    char *text = malloc(CARD_CHARS);
    long pid = 0;
    *process = (ts_daemon_process){0};
    if (text && ts_run_dir_read(dir, name, text, CARD_CHARS, NULL) == TERSE_OK) {
        const char *at = strstr(text, "pid ");
        if (at && sscanf(at, format, &pid, &process->birth) == 2 && pid > 0) process->pid = (pid_t)pid;
    }
    free(text);
}

void ts_daemon_look(ts_daemon_place *place) {
    read_process(place->dir, TS_RUN_DIR_KEEPER, "pid %ld %" SCNu64, &place->keeper);
    read_process(place->dir, TS_RUN_DIR_CARD, "pid %ld %" SCNu64, &place->leader);
}

static bool holds_daemon(const char *dir) {
    char path[TS_RUN_DIR_PATH_CHARS];
    struct stat info;
    return (ts_run_dir_path(dir, TS_RUN_DIR_KEEPER, path) == TERSE_OK && stat(path, &info) == 0) ||
           (ts_run_dir_path(dir, TS_RUN_DIR_CARD, path) == TERSE_OK && stat(path, &info) == 0);
}

/* The only daemon below run/. */
static terse_status find_only(char *dir, ts_error *error) {
    DIR *folder = opendir("run");
    unsigned found = 0;
    char names[300] = "";
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        char path[TS_RUN_DIR_PATH_CHARS];
        if (entry->d_name[0] == '.' || ts_run_dir_path("run", entry->d_name, path) != TERSE_OK || !holds_daemon(path)) continue;
        if (found++ == 0) snprintf(dir, TS_RUN_DIR_PATH_CHARS, "%s", path);
        size_t len = strlen(names);
        snprintf(names + len, sizeof names - len, " %.64s", path);
    }
    if (folder) closedir(folder);
    if (found == 1) return TERSE_OK;
    if (found == 0)
        return ts_error_set(error, TERSE_ENOTFOUND, "no daemon is there: none has its files in ./run; name its run directory or its CONFIG");
    return ts_error_set(error, TERSE_EINVAL, "which daemon? There are:%s", names);
}

terse_status ts_daemon_find(const char *dir, const char *config, const char *const *overrides, unsigned override_count,
                            ts_daemon_place *place, ts_error *error) {
    ts_daemon_place found = {.dir = ""};
    if (dir) {
        TS_REQUIRE(strlen(dir) < sizeof found.dir, ts_error_set(error, TERSE_EINVAL, "the name of the run directory is too long"));
        snprintf(found.dir, sizeof found.dir, "%s", dir);
    } else if (config) {
        ts_config *loaded = NULL;
        terse_status status = ts_config_load(config, overrides, override_count, &loaded, error);
        if (status != TERSE_OK) return status == TERSE_ENOMEM ? status : TERSE_ECONFIG;
        status = ts_config_run_dir(loaded, config, found.dir, sizeof found.dir);
        ts_config_free(loaded);
        TS_REQUIRE(status == TERSE_OK, ts_error_set(error, TERSE_EINVAL, "the name of the run directory is too long"));
    } else {
        TS_TRY(find_only(found.dir, error));
    }
    TS_TRY(ts_run_dir_check(found.dir, error));
    if (!holds_daemon(found.dir))
        return ts_error_set(error, TERSE_ENOTFOUND, "%s holds no daemon: none was started there, or it has ended", found.dir);
    ts_daemon_look(&found);
    *place = found;
    return TERSE_OK;
}
