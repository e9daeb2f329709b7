/* SPDX-License-Identifier: Apache-2.0 */
#include "common/ckpt/ckpt_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"

#define LOCK "lock"

void ts_ckpt_folder_name(uint64_t serial, uint64_t version, char name[TS_CKPT_NAME_CHARS]) {
    snprintf(name, TS_CKPT_NAME_CHARS, "ckpt-%06" PRIu64 "-step-%" PRIu64, serial, version);
}

/* A number at *at, which moves behind it. */
static bool take_number(const char **at, uint64_t *out) {
    uint64_t value = 0;
    const char *from = *at;
    for (; **at >= '0' && **at <= '9'; ++*at) {
        uint64_t digit = (uint64_t)(**at - '0');
        if (value > (UINT64_MAX - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *out = value;
    return *at > from;
}

bool ts_ckpt_folder_parse(const char *name, uint64_t *serial, uint64_t *version) {
    char again[TS_CKPT_NAME_CHARS];
    const char *at = name;
    uint64_t s, v;
    if (strncmp(at, "ckpt-", 5) != 0) return false;
    at += 5;
    if (!take_number(&at, &s) || strncmp(at, "-step-", 6) != 0) return false;
    at += 6;
    if (!take_number(&at, &v) || *at != '\0') return false;
    ts_ckpt_folder_name(s, v, again);
    if (strcmp(name, again) != 0) return false; /* there is one way to write it */
    *serial = s;
    *version = v;
    return true;
}

void ts_ckpt_part_file(bool worker, uint32_t index, uint32_t count, char name[TS_CKPT_NAME_CHARS]) {
    snprintf(name, TS_CKPT_NAME_CHARS, "%s-%" PRIu32 "-of-%" PRIu32 ".safetensors", worker ? "worker" : "server", index,
             count);
}

/* Whether a name is that of a part, or of a file that was not finished. */
static bool is_part(const char *name) {
    const char *at = name;
    uint64_t number;
    if (strcmp(name, TS_CKPT_MANIFEST ".partial") == 0) return true;
    if (strncmp(at, "server-", 7) != 0 && strncmp(at, "worker-", 7) != 0) return false;
    at += 7;
    if (!take_number(&at, &number) || strncmp(at, "-of-", 4) != 0) return false;
    at += 4;
    if (!take_number(&at, &number)) return false;
    return strcmp(at, ".safetensors") == 0 || strcmp(at, ".safetensors.partial") == 0;
}

terse_status ts_ckpt_path(const char *dir, const char *folder, const char *file, char **path) {
    size_t room = strlen(dir) + (folder ? strlen(folder) + 1 : 0) + (file ? strlen(file) + 1 : 0) + 1;
    char *text = ts_mem_calloc(room, 1);
    TS_REQUIRE(text, TERSE_ENOMEM);
    snprintf(text, room, "%s%s%s%s%s", dir, folder ? "/" : "", folder ? folder : "", file ? "/" : "", file ? file : "");
    *path = text;
    return TERSE_OK;
}

static terse_status failed(const char *path, ts_error *error) {
    return ts_error_set(error, TERSE_EIO, "%s: %s", path, strerror(errno));
}

terse_status ts_ckpt_make_folder(const char *path, ts_error *error) {
    char *part = ts_mem_strdup(path);
    TS_REQUIRE(part, TERSE_ENOMEM);
    terse_status status = TERSE_OK;
    for (char *slash = part; status == TERSE_OK && slash;) {
        slash = strchr(slash + 1, '/');
        if (slash) *slash = '\0';
        if (part[0] && mkdir(part, 0777) != 0 && errno != EEXIST) {
            int reason = errno;
            struct stat info; /* a folder above that exists may still refuse mkdir for another reason */
            if (stat(part, &info) != 0 || !S_ISDIR(info.st_mode)) {
                errno = reason;
                status = failed(part, error);
            }
        }
        if (slash) *slash = '/';
    }
    ts_mem_free(part);
    return status;
}

terse_status ts_ckpt_probe_folder(const char *path, ts_error *error) {
    char *probe = NULL;
    TS_TRY(ts_ckpt_make_folder(path, error));
    TS_TRY(ts_ckpt_path(path, NULL, ".probe-XXXXXX", &probe));
    int fd = mkstemp(probe); /* several processes look at once */
    terse_status status = fd < 0 ? failed(path, error) : TERSE_OK;
    if (fd >= 0) {
        unlink(probe);
        close(fd);
    }
    ts_mem_free(probe);
    return status;
}

static int by_serial(const void *left, const void *right) {
    const ts_ckpt_found *a = left, *b = right;
    if (a->serial != b->serial) return a->serial < b->serial ? -1 : 1;
    return strcmp(a->name, b->name);
}

static terse_status add_found(const char *dir, const char *name, ts_ckpt_found **list, size_t *count) {
    ts_ckpt_found found = {.committed = false};
    char *manifest = NULL;
    if (!ts_ckpt_folder_parse(name, &found.serial, &found.version)) return TERSE_OK;
    ts_ckpt_folder_name(found.serial, found.version, found.name);
    TS_TRY(ts_ckpt_path(dir, name, TS_CKPT_MANIFEST, &manifest));
    found.committed = access(manifest, F_OK) == 0;
    ts_mem_free(manifest);
    ts_ckpt_found *grown = ts_mem_realloc(*list, *count + 1, sizeof *grown);
    TS_REQUIRE(grown, TERSE_ENOMEM);
    grown[(*count)++] = found;
    *list = grown;
    return TERSE_OK;
}

terse_status ts_ckpt_scan(const char *dir, ts_ckpt_found **list, size_t *count, ts_error *error) {
    ts_ckpt_found *found = NULL;
    size_t found_count = 0;
    DIR *folder = opendir(dir);
    if (!folder && errno != ENOENT) return failed(dir, error);
    terse_status status = TERSE_OK;
    for (struct dirent *entry; folder && status == TERSE_OK && (entry = readdir(folder)) != NULL;)
        status = add_found(dir, entry->d_name, &found, &found_count);
    if (folder) closedir(folder);
    if (status != TERSE_OK) {
        ts_mem_free(found);
        return status;
    }
    if (found_count > 0) qsort(found, found_count, sizeof *found, by_serial);
    *list = found;
    *count = found_count;
    return TERSE_OK;
}

static void sync_folder(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

/* Everything of ours in a folder but the manifest. */
static void remove_parts(const char *path) {
    DIR *folder = opendir(path);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (is_part(entry->d_name)) (void)unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
}

void ts_ckpt_remove(const char *dir, const char *folder, const char *only) {
    char *path = NULL, *file = NULL;
    uint64_t serial, version;
    if (!ts_ckpt_folder_parse(folder, &serial, &version)) return;
    if (ts_ckpt_path(dir, folder, NULL, &path) != TERSE_OK) return;
    if (ts_ckpt_path(dir, folder, only ? only : TS_CKPT_MANIFEST, &file) == TERSE_OK) {
        if (unlink(file) == 0 && !only) sync_folder(path);
        if (!only) remove_parts(path);
        (void)rmdir(path); /* others may still have files there */
    }
    ts_mem_free(file);
    ts_mem_free(path);
}

/* The id goes to the disk, where those on other hosts look for it. */
static bool sign(int file, const char *who) {
    if (ftruncate(file, 0) != 0 || pwrite(file, who, strlen(who), 0) != (ssize_t)strlen(who)) return false;
    return fsync(file) == 0 || errno == EINVAL || errno == EROFS;
}

terse_status ts_ckpt_lock(const char *dir, const char *who, bool must_sign, int *fd, ts_error *error) {
    char *path = NULL;
    TS_TRY(ts_ckpt_path(dir, NULL, LOCK, &path));
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    terse_status status = file < 0 ? failed(path, error) : TERSE_OK;
    if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0) {
        status = errno == EWOULDBLOCK
                     ? ts_error_set(error, TERSE_ESTATE, "%s: another job writes its checkpoints here; each wants a "
                                    "checkpoint.dir of its own", dir)
                     : TERSE_OK; /* a file system without locks */
    }
    if (status == TERSE_OK && !sign(file, who) && must_sign) status = failed(path, error); /* a full disk keeps no other from locking */
    if (status != TERSE_OK && file >= 0) close(file);
    ts_mem_free(path);
    if (status == TERSE_OK) *fd = file;
    return status;
}

bool ts_ckpt_lock_is_of(const char *dir, const char *who) {
    char *path = NULL, text[64];
    size_t len = strlen(who);
    if (len >= sizeof text || ts_ckpt_path(dir, NULL, LOCK, &path) != TERSE_OK) return false;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : pread(file, text, sizeof text, 0);
    if (file >= 0) close(file);
    ts_mem_free(path);
    return got == (ssize_t)len && memcmp(text, who, len) == 0;
}
