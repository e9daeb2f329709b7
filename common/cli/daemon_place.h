/* SPDX-License-Identifier: Apache-2.0 */
/* Which daemon a command means, and whether it lives. */
#ifndef TS_CLI_DAEMON_PLACE_H
#define TS_CLI_DAEMON_PLACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/run_dir.h"

#define TS_DAEMON_EXIT_ABSENT 3 /* no daemon is there */
#define TS_DAEMON_EXIT_LATE 4   /* the time was up */

/* A process by its number and its birth: numbers are used again. */
typedef struct {
    pid_t pid;
    uint64_t birth;
} ts_daemon_process;

typedef struct {
    char dir[TS_RUN_DIR_PATH_CHARS];
    ts_daemon_process keeper; /* pid 0: no file says who */
    ts_daemon_process leader; /* server 0; pid 0: it has not come up, or has ended */
} ts_daemon_place;

bool ts_daemon_lives(const ts_daemon_process *process);

/*
 * What `terse status` and `terse stop` were told: a run directory, a CONFIG (with overrides), or nothing, which means
 * the only daemon below run/. Checks the directory. error: [out] in words.
 * Returns TERSE_OK; TERSE_ENOTFOUND (there is none); TERSE_EPEER (not to be trusted); TERSE_ECONFIG; TERSE_EINVAL.
 */
terse_status ts_daemon_find(const char *dir, const char *config, const char *const *overrides, unsigned override_count,
                            ts_daemon_place *place, ts_error *error) TERSE_NODISCARD;
/* Reads who keeps and who leads, anew. */
void ts_daemon_look(ts_daemon_place *place);

/* Monotonic, in seconds. */
double ts_daemon_clock(void);
void ts_daemon_nap(void); /* 50 ms */
/* A number of seconds behind an option. Returns whether it is one, from 0.1 to 86400. */
bool ts_daemon_seconds(const char *text, double *seconds);

#endif
