/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/run_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

terse_status ts_run_dir_check(const char *dir, ts_error *error) {
    struct stat info;
    if (lstat(dir, &info) != 0)
        return ts_error_set(error, errno == ENOENT || errno == ENOTDIR ? TERSE_ENOTFOUND : TERSE_EPEER,
                            "%s: %s", dir, strerror(errno));
    if (S_ISLNK(info.st_mode)) { /* where it leads to counts, and that the link is ours, too */
        if (info.st_uid != geteuid())
            return ts_error_set(error, TERSE_EPEER, "%s is a link of another user (uid %u)", dir, (unsigned)info.st_uid);
        if (stat(dir, &info) != 0) return ts_error_set(error, TERSE_ENOTFOUND, "%s: %s", dir, strerror(errno));
    }
    if (!S_ISDIR(info.st_mode)) return ts_error_set(error, TERSE_EPEER, "%s is not a directory", dir);
    if (info.st_uid != geteuid())
        return ts_error_set(error, TERSE_EPEER, "%s belongs to another user (uid %u); a run directory must be your own",
                            dir, (unsigned)info.st_uid);
    if ((info.st_mode & 0777) != 0700)
        return ts_error_set(error, TERSE_EPEER, "%s has mode %04o; a run directory must have 0700, since who can read it "
                            "can attach (chmod 700 it, or name another)", dir, (unsigned)(info.st_mode & 0777));
    return TERSE_OK;
}

/* The directories above the last one, as `mkdir -p` makes them. */
static void make_parents(const char *dir) {
    char path[TS_RUN_DIR_PATH_CHARS];
    int len = snprintf(path, sizeof path, "%s", dir);
    if (len < 0 || (size_t)len >= sizeof path) return;
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST) return; /* the last mkdir will say why */
        *slash = '/';
    }
}

terse_status ts_run_dir_make(const char *dir, ts_error *error) {
    make_parents(dir);
    if (mkdir(dir, 0700) == 0) {
        if (chmod(dir, 0700) != 0) return ts_error_set(error, TERSE_EIO, "%s: %s", dir, strerror(errno));
    } else if (errno != EEXIST) {
        return ts_error_set(error, TERSE_EIO, "cannot make the run directory %s: %s", dir, strerror(errno));
    }
    return ts_run_dir_check(dir, error);
}

terse_status ts_run_dir_lock(const char *dir, int *fd) {
    int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    TS_REQUIRE(at >= 0, TERSE_EIO);
    if (flock(at, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(at);
        return TERSE_ESTATE;
    }
    *fd = at;
    return TERSE_OK;
}

terse_status ts_run_dir_path(const char *dir, const char *name, char *path) {
    int len = snprintf(path, TS_RUN_DIR_PATH_CHARS, "%s/%s", dir, name);
    return len > 0 && len < TS_RUN_DIR_PATH_CHARS ? TERSE_OK : TERSE_ELIMIT;
}

static bool write_all(int fd, const char *text, size_t bytes) {
    while (bytes > 0) {
        ssize_t put = write(fd, text, bytes);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        text += put;
        bytes -= (size_t)put;
    }
    return true;
}

terse_status ts_run_dir_write(const char *dir, const char *name, const char *text, size_t bytes) {
    char path[TS_RUN_DIR_PATH_CHARS], aside[TS_RUN_DIR_PATH_CHARS + 32];
    TS_TRY(ts_run_dir_path(dir, name, path));
    snprintf(aside, sizeof aside, "%s.%ld", path, (long)getpid());
    unlink(aside);
    int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    TS_REQUIRE(fd >= 0, TERSE_EIO);
    bool whole = write_all(fd, text, bytes);
    if (close(fd) != 0) whole = false;
    if (whole && rename(aside, path) == 0) return TERSE_OK;
    unlink(aside);
    return TERSE_EIO;
}

terse_status ts_run_dir_read(const char *dir, const char *name, char *text, size_t capacity, size_t *bytes) {
    char path[TS_RUN_DIR_PATH_CHARS];
    TS_TRY(ts_run_dir_path(dir, name, path));
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    TS_REQUIRE(fd >= 0, errno == ENOENT || errno == ENOTDIR ? TERSE_ENOTFOUND : TERSE_EIO);
    size_t at = 0;
    terse_status status = TERSE_OK;
    while (status == TERSE_OK && at < capacity) {
        ssize_t got = read(fd, text + at, capacity - at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) status = TERSE_EIO;
        if (got <= 0) break;
        at += (size_t)got;
    }
    close(fd);
    TS_TRY(status);
    TS_REQUIRE(at < capacity, TERSE_ELIMIT);
    text[at] = '\0';
    if (bytes) *bytes = at;
    return TERSE_OK;
}

void ts_run_dir_remove(const char *dir, const char *name) {
    char path[TS_RUN_DIR_PATH_CHARS];
    if (ts_run_dir_path(dir, name, path) == TERSE_OK) unlink(path);
}
