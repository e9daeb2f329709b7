/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/file_aside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"

#define SUFFIX ".partial"

static terse_status failed(const ts_file_aside *file, ts_error *error) {
    return ts_error_set(error, TERSE_EIO, "%s cannot be written: %s", file->path, strerror(errno));
}

/* Where a file is written that is renamed later, and to what. */
static terse_status choose_names(ts_file_aside *file) {
    char *target = realpath(file->path, NULL); /* NULL: there is nothing yet */
    file->place = ts_mem_strdup(target ? target : file->path);
    free(target);
    size_t room = file->place ? strlen(file->place) + sizeof SUFFIX : 0;
    file->aside = room ? ts_mem_calloc(room, 1) : NULL;
    TS_REQUIRE(file->aside, TERSE_ENOMEM);
    snprintf(file->aside, room, "%s" SUFFIX, file->place);
    return TERSE_OK;
}

static void free_names(ts_file_aside *file) {
    ts_mem_free(file->place);
    ts_mem_free(file->aside);
    file->place = file->aside = NULL;
}

/* What a rename would destroy is written to directly. Nothing there yet is a file to be. */
static mode_t kind_of(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 ? info.st_mode & S_IFMT : S_IFREG;
}

terse_status ts_file_aside_open(const char *path, ts_file_aside *out, ts_error *error) {
    ts_file_aside file = {.path = path, .fd = -1};
    const mode_t kind = kind_of(path);
    errno = EISDIR;
    if (kind == S_IFDIR) return failed(&file, error);
    terse_status status = kind == S_IFREG ? choose_names(&file) : TERSE_OK;
    if (status == TERSE_OK) {
        int flags = O_WRONLY | O_CLOEXEC | (file.aside ? O_CREAT | O_TRUNC : 0);
        file.fd = open(file.aside ? file.aside : path, flags, 0666);
        if (file.fd < 0) status = failed(&file, error);
    }
    if (status != TERSE_OK) {
        free_names(&file);
        return status;
    }
    *out = file;
    return TERSE_OK;
}

terse_status ts_file_aside_write(ts_file_aside *file, const void *bytes, size_t len, ts_error *error) {
    const char *from = bytes;
    while (len > 0) {
        ssize_t wrote = write(file->fd, from, len);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return failed(file, error);
        from += wrote;
        len -= (size_t)wrote;
    }
    return TERSE_OK;
}

terse_status ts_file_aside_write_at(const ts_file_aside *file, uint64_t offset, const void *bytes, size_t len,
                                    ts_error *error) {
    const char *from = bytes;
    while (len > 0) {
        ssize_t wrote = pwrite(file->fd, from, len, (off_t)offset);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return failed(file, error);
        from += wrote;
        offset += (uint64_t)wrote;
        len -= (size_t)wrote;
    }
    return TERSE_OK;
}

terse_status ts_file_aside_probe(const char *path, ts_error *error) {
    ts_file_aside file = {.path = path, .fd = -1};
    const mode_t kind = kind_of(path);
    /* Opening a pipe would wait for its reader. */
    if (kind == S_IFIFO || kind == S_IFSOCK) return access(path, W_OK) == 0 ? TERSE_OK : failed(&file, error);
    TS_TRY(ts_file_aside_open(path, &file, error));
    terse_status status = TERSE_OK;
    if (kind == S_IFCHR && write(file.fd, "", 0) != 0) status = failed(&file, error); /* as /dev/full */
    if (file.aside) unlink(file.aside);
    close(file.fd);
    free_names(&file);
    return status;
}

/* The new name must survive a crash too. A file system that cannot sync a folder is no reason to fail. */
static void sync_folder(const char *path) {
    char *folder = ts_mem_strdup(path);
    if (!folder) return;
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder ? 1 : 0] = 0;
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ts_mem_free(folder);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

terse_status ts_file_aside_finish(ts_file_aside *file, terse_status status, ts_error *error) {
    if (status == TERSE_OK && fsync(file->fd) != 0 && errno != EINVAL && errno != EROFS) status = failed(file, error);
    if (close(file->fd) != 0 && status == TERSE_OK) status = failed(file, error);
    if (file->aside && status == TERSE_OK && rename(file->aside, file->place) != 0) status = failed(file, error);
    if (file->aside && status == TERSE_OK)
        sync_folder(file->place);
    else if (file->aside)
        unlink(file->aside);
    free_names(file);
    file->fd = -1;
    return status;
}
