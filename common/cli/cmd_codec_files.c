/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files in, whole files out: written aside, synced, renamed, so that a reader sees the old one or the new one. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/cli/cmd_codec.h"

#define FIRST_BYTES ((size_t)1 << 16) /* of a file that does not tell its size, as a pipe */

static terse_status say(ts_error *error, terse_status status, const char *path, const char *what) {
    return ts_error_set(error, status, "%s: %s: %s", path, what, strerror(errno));
}

/* Reads to the end. bytes, capacity: in and out, grown as needed. */
static terse_status read_all(int descriptor, const char *path, size_t limit, uint8_t **bytes, size_t capacity,
                             size_t *len, ts_error *error) {
    size_t used = 0;
    for (;;) {
        if (used == capacity) {
            size_t wider = capacity * 2;
            uint8_t *grown = ts_mem_realloc(*bytes, wider, 1);
            if (!grown) return ts_error_set(error, TERSE_ENOMEM, "%s: out of memory", path);
            *bytes = grown;
            capacity = wider;
        }
        ssize_t got = read(descriptor, *bytes + used, capacity - used);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return say(error, TERSE_EIO, path, "cannot be read");
        if (got == 0) break;
        used += (size_t)got;
        if (used > limit) return ts_error_set(error, TERSE_ELIMIT, "%s: larger than %zu bytes", path, limit);
    }
    *len = used;
    return TERSE_OK;
}

terse_status ts_file_read(const char *path, size_t limit, uint8_t **bytes, size_t *len, ts_error *error) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return say(error, errno == ENOENT ? TERSE_ENOTFOUND : TERSE_EIO, path, "cannot be opened");
    struct stat info;
    uint8_t *read_bytes = NULL;
    terse_status status = TERSE_OK;
    if (fstat(descriptor, &info) != 0) {
        status = say(error, TERSE_EIO, path, "cannot be read");
        goto out;
    }
    size_t capacity = S_ISREG(info.st_mode) && info.st_size > 0 ? (size_t)info.st_size + 1 : FIRST_BYTES;
    if (capacity > limit && S_ISREG(info.st_mode) && (size_t)info.st_size > limit) {
        status = ts_error_set(error, TERSE_ELIMIT, "%s: larger than %zu bytes", path, limit);
        goto out;
    }
    read_bytes = ts_mem_aligned(capacity, 1);
    if (!read_bytes) {
        status = ts_error_set(error, TERSE_ENOMEM, "%s: out of memory", path);
        goto out;
    }
    status = read_all(descriptor, path, limit, &read_bytes, capacity, len, error);
out:
    close(descriptor);
    if (status == TERSE_OK)
        *bytes = read_bytes;
    else
        ts_mem_free(read_bytes);
    return status;
}

terse_status ts_file_read_f32(const char *path, float **values, size_t *n, ts_error *error) {
    static const char numpy[] = "\x93NUMPY";
    uint8_t *bytes;
    size_t len;
    TS_TRY(ts_file_read(path, (size_t)UINT32_MAX * sizeof(float), &bytes, &len, error));
    if (len >= sizeof numpy - 1 && memcmp(bytes, numpy, sizeof numpy - 1) == 0) {
        ts_mem_free(bytes);
        return ts_error_set(error, TERSE_ECORRUPT, "%s is a NumPy file; allowed: float32 values and nothing else, as numpy's "
                            "a.astype('<f4').tofile(\"FILE\") writes them", path);
    }
    if (len % sizeof(float) != 0) {
        ts_mem_free(bytes);
        return ts_error_set(error, TERSE_ECORRUPT, "%s: %zu bytes are no whole number of float32 values", path, len);
    }
    *values = (float *)(void *)bytes;
    *n = len / sizeof(float);
    return TERSE_OK;
}

/* Where a file that is not there would be made: the folder without links, and the name. NULL: there is no such folder. */
static char *place_of(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t chars = slash ? (size_t)(slash - path) : 0;
    char folder[PATH_MAX], real[PATH_MAX];
    if (chars >= sizeof folder) return NULL;
    memcpy(folder, path, chars);
    folder[chars] = '\0';
    if (!realpath(slash == path ? "/" : chars ? folder : ".", real)) return NULL;
    size_t room = strlen(real) + strlen(name) + 2;
    char *place = ts_mem_calloc(room, 1);
    if (place) snprintf(place, room, "%s/%s", real, name);
    return place;
}

static bool is_same_file(const char *a, const char *b) {
    struct stat of_a, of_b;
    bool a_there = stat(a, &of_a) == 0, b_there = stat(b, &of_b) == 0;
    if (a_there && b_there)
        return S_ISREG(of_a.st_mode) && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
    if (a_there || b_there) return false;
    char *place_a = place_of(a), *place_b = place_of(b);
    bool same = place_a && place_b && strcmp(place_a, place_b) == 0;
    ts_mem_free(place_a);
    ts_mem_free(place_b);
    return same;
}

terse_status ts_files_differ(const ts_file_named *files, size_t count, ts_error *error) {
    for (size_t i = 0; i < count; i++) {
        for (size_t j = i + 1; j < count; j++) {
            if (!files[i].path || !files[j].path || !is_same_file(files[i].path, files[j].path)) continue;
            return ts_error_set(error, TERSE_EINVAL, "%s %s and %s %s are the same file; allowed: a file each", files[i].what,
                                files[i].path, files[j].what, files[j].path);
        }
    }
    return TERSE_OK;
}

static terse_status write_all(int descriptor, const uint8_t *bytes, size_t len) {
    while (len > 0) {
        ssize_t wrote = write(descriptor, bytes, len);
        if (wrote < 0 && errno == EINTR) continue;
        TS_REQUIRE(wrote > 0, TERSE_EIO);
        bytes += wrote;
        len -= (size_t)wrote;
    }
    return TERSE_OK;
}

terse_status ts_file_write(const char *path, const void *bytes, size_t len, ts_file_output *out, ts_error *error) {
    struct stat info;
    bool directly = stat(path, &info) == 0 && !S_ISREG(info.st_mode);
    ts_file_output output = {.path = ts_mem_strdup(path)};
    size_t chars = strlen(path) + 32;
    if (!directly) output.aside = ts_mem_calloc(chars, 1);
    if (!output.path || (!directly && !output.aside)) {
        ts_file_forget(&output);
        return ts_error_set(error, TERSE_ENOMEM, "%s: out of memory", path);
    }
    if (!directly) snprintf(output.aside, chars, "%s.%ld.part", path, (long)getpid());
    const char *target = directly ? path : output.aside;
    int descriptor = open(target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    terse_status status = descriptor < 0 ? TERSE_EIO : write_all(descriptor, bytes, len);
    if (status == TERSE_OK && !directly && fsync(descriptor) != 0) status = TERSE_EIO;
    if (status != TERSE_OK) (void)say(error, TERSE_EIO, path, "cannot be written");
    if (descriptor >= 0 && close(descriptor) != 0 && status == TERSE_OK) {
        status = say(error, TERSE_EIO, path, "cannot be written");
    }
    if (status != TERSE_OK)
        ts_file_forget(&output);
    else
        *out = output;
    return status;
}

terse_status ts_file_commit(ts_file_output *output, ts_error *error) {
    if (output->aside && rename(output->aside, output->path) != 0) {
        return say(error, TERSE_EIO, output->path, "cannot be replaced");
    }
    ts_mem_free(output->aside);
    output->aside = NULL;
    return TERSE_OK;
}

void ts_file_forget(ts_file_output *output) {
    if (output->aside) (void)unlink(output->aside);
    ts_mem_free(output->aside);
    ts_mem_free(output->path);
    *output = (ts_file_output){0};
}
