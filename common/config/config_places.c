/* SPDX-License-Identifier: Apache-2.0 */
#include "common/config/config_places.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"

/* Cuts a path to the folder above it: "a/b/" to "a", "a" to ".", "/a" to "/". */
static void cut(char *path) {
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') len--;
    while (len > 0 && path[len - 1] != '/') len--;
    while (len > 1 && path[len - 1] == '/') len--;
    if (len == 0) path[len++] = '.';
    path[len] = '\0';
}

/* The folder `place`, or the one above in which it would be made; parents: those are made, too. */
static terse_status check_place(const ts_config_source *source, const char *name, const char *place, bool parents) {
    struct stat info;
    char *path = ts_mem_strdup(place[0] ? place : ".");
    TS_REQUIRE(path, ts_error_set(source->error, TERSE_ENOMEM, "%s: out of memory", source->path));
    bool there = stat(path, &info) == 0;
    for (unsigned above = 0; !there && errno == ENOENT && (parents || above == 0) && strcmp(path, ".") != 0; above++) {
        cut(path);
        there = stat(path, &info) == 0;
    }
    const char *wrong = !there ? strerror(errno)
                        : !S_ISDIR(info.st_mode) ? "not a folder"
                        : access(path, W_OK | X_OK) != 0 ? strerror(errno)
                        : NULL;
    terse_status status = wrong ? ts_config_refuse(source, name, "%s: %s; allowed: a folder that can be written to, or %s", path, wrong,
                                                   parents ? "one that can be made" : "one that can be made in a folder that is there")
                                : TERSE_OK;
    ts_mem_free(path);
    return status;
}

/* A residual's file is for its owner alone. */
static terse_status check_keep(const ts_config_source *source, const char *dir) {
    struct stat info;
    TS_TRY(check_place(source, "error_feedback.keep", dir, false));
    if (lstat(dir, &info) != 0) return TERSE_OK;
    if (!S_ISDIR(info.st_mode)) return ts_config_refuse(source, "error_feedback.keep", "a link; allowed: a folder");
    if (info.st_uid == geteuid() && (info.st_mode & 077) == 0) return TERSE_OK;
    return ts_config_refuse(source, "error_feedback.keep", "of user %u and mode %04o; allowed: a folder of your own, of mode 0700",
                            (unsigned)info.st_uid, (unsigned)(info.st_mode & 07777));
}

terse_status ts_config_check_places(const ts_config_source *source, const ts_config *config) {
    if (ts_config_checkpoints(config)) TS_TRY(check_place(source, "checkpoint.dir", config->checkpoint.dir, true));
    return ts_config_keeps(config) ? check_keep(source, config->keep) : TERSE_OK;
}
