/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run directory of a daemon: mode 0700, of the user's own. Whoever can read in it can attach, so others' and
 * open directories are refused. Files in it are replaced whole, never written in place.
 *
 *   daemon           where the servers' doors are, and the token that opens them (common/net/card.h)
 *   status.json      what server 0 knows, each second
 *   ompi-server.uri  where Open MPI's name server is
 *   keeper.pid       the process that started them and ends what is left
 *   config.yaml, log, attach
 *
 * Thread: any.
 */
#ifndef TS_BASE_RUN_DIR_H
#define TS_BASE_RUN_DIR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/status.h"

#define TS_RUN_DIR_CARD "daemon"
#define TS_RUN_DIR_STATUS "status.json"
#define TS_RUN_DIR_URI "ompi-server.uri"
#define TS_RUN_DIR_KEEPER "keeper.pid"
#define TS_RUN_DIR_CONFIG "config.yaml"
#define TS_RUN_DIR_LOG "log"
#define TS_RUN_DIR_ATTACH "attach"
#define TS_RUN_DIR_PATH_CHARS 4096

/*
 * Whether a directory may be used: it is one, the user's own, and nobody else may enter it. error: [out] says which.
 * Returns TERSE_OK; TERSE_ENOTFOUND; TERSE_EPEER (another user's, or not 0700, or no directory).
 */
terse_status ts_run_dir_check(const char *dir, ts_error *error) TERSE_NODISCARD;
/* Makes it, with its parents, unless it is there; then as check. Returns also TERSE_EIO. */
terse_status ts_run_dir_make(const char *dir, ts_error *error) TERSE_NODISCARD;

/*
 * Keeps others who ask for it out while something is begun there, until fd is closed, or the process ends. A file system
 * that knows no locks lets everybody. fd: [out] [own]
 * Returns TERSE_OK; TERSE_ESTATE (somebody has it); TERSE_EIO.
 */
terse_status ts_run_dir_lock(const char *dir, int *fd) TERSE_NODISCARD;

/* "dir/name". path: [out] TS_RUN_DIR_PATH_CHARS of it. Returns TERSE_OK, TERSE_ELIMIT. */
terse_status ts_run_dir_path(const char *dir, const char *name, char *path) TERSE_NODISCARD;
/* Replaces a file by `bytes` of text, mode 0600, in one step. Returns TERSE_OK, TERSE_EIO, TERSE_ELIMIT. */
terse_status ts_run_dir_write(const char *dir, const char *name, const char *text, size_t bytes) TERSE_NODISCARD;
/*
 * Reads a file of less than `capacity` bytes, ends it with 0. bytes: [out] or NULL.
 * Returns TERSE_OK, TERSE_ENOTFOUND, TERSE_EIO, TERSE_ELIMIT.
 */
terse_status ts_run_dir_read(const char *dir, const char *name, char *text, size_t capacity, size_t *bytes) TERSE_NODISCARD;
void ts_run_dir_remove(const char *dir, const char *name);

#endif
