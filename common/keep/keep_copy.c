/* SPDX-License-Identifier: Apache-2.0 */
/* A file beside its place. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/keep/keep_file.h"

static bool is_zero(const uint8_t *page, size_t len) {
    return page[0] == 0 && memcmp(page, page + 1, len - 1) == 0;
}

/* What the file system has promised to the one, it promises to the other: pages that are zero, too, are written to some day. */
static int promise_alike(const ts_keep *keep, int file) {
    int failed = posix_fallocate(file, 0, (off_t)keep->area[0]);
    for (uint32_t i = 0; i < keep->contract->slice_count && !failed; i++)
        if (keep->slots[i].room > 0) failed = posix_fallocate(file, (off_t)keep->area[i], (off_t)keep->slots[i].room);
    return failed;
}

/* What is zero needs no writing. */
static terse_status write_all(const ts_keep *keep, int file, const char *path, ts_error *error) {
    if (ftruncate(file, (off_t)keep->bytes) != 0) goto failed;
    if ((errno = promise_alike(keep, file)) != 0) goto failed;
    for (size_t at = 0; at < keep->bytes; at += TS_KEEP_PAGE) {
        size_t len = keep->bytes - at < TS_KEEP_PAGE ? keep->bytes - at : TS_KEEP_PAGE;
        if (is_zero(keep->map + at, len)) continue;
        if (pwrite(file, keep->map + at, len, (off_t)at) != (ssize_t)len) goto failed;
    }
    return TERSE_OK;
failed:
    return ts_error_set(error, TERSE_EIO, "%s: %s", path, strerror(errno ? errno : ENOSPC));
}

terse_status ts_keep_copy(const ts_keep *keep, const char *path, ts_error *error) {
    char aside[TS_KEEP_PATH_CHARS];
    int len = snprintf(aside, sizeof aside, "%s.partial", path);
    TS_REQUIRE(len > 0 && (size_t)len < sizeof aside, TERSE_ELIMIT);
    errno = 0;
    int file = open(aside, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return ts_error_set(error, TERSE_EIO, "cannot make %s: %s", aside, strerror(errno));
    terse_status status = write_all(keep, file, aside, error);
    close(file);
    if (status == TERSE_OK && rename(aside, path) != 0)
        status = ts_error_set(error, TERSE_EIO, "cannot rename %s: %s", aside, strerror(errno));
    if (status != TERSE_OK) (void)unlink(aside);
    return status;
}

terse_status ts_keep_set_aside(const ts_keep *keep, char *path, size_t capacity, ts_error *error) {
    int len = snprintf(path, capacity, "%s.%016" PRIx64, keep->path, keep->head->epoch);
    TS_REQUIRE(len > 0 && (size_t)len < capacity, TERSE_ELIMIT);
    return ts_keep_copy(keep, path, error);
}
