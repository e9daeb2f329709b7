/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that appear whole or not at all: written beside their place, brought to
 * the disk, then renamed. Behind a symbolic link its target is replaced, not the
 * link; a device or pipe (/dev/stdout) is written to, never replaced.
 */
#ifndef TS_BASE_FILE_ASIDE_H
#define TS_BASE_FILE_ASIDE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct {
    const char *path; /* [borrow] */
    char *place;      /* [own] what the new file replaces; NULL: written to directly */
    char *aside;      /* [own] where it is written; NULL as place */
    int fd;
} ts_file_aside;

/* path: [borrow until finished]. Returns: TERSE_OK, EIO (error names file and reason), ENOMEM. */
terse_status ts_file_aside_open(const char *path, ts_file_aside *out, ts_error *error) TERSE_NODISCARD;
/*
 * Whether ts_file_aside_open would succeed now, so that hours of work do not end at a mistyped path. Leaves nothing
 * behind. Returns: TERSE_OK, EIO (error names file and reason), ENOMEM.
 */
terse_status ts_file_aside_probe(const char *path, ts_error *error) TERSE_NODISCARD;
/* All of the bytes. Returns: TERSE_OK, EIO. */
terse_status ts_file_aside_write(ts_file_aside *file, const void *bytes, size_t len, ts_error *error) TERSE_NODISCARD;
/*
 * The same at a place of the file, so that what is not ready yet can be left out at first. Of files only, not of pipes.
 * Thread: any, several at once on places that do not overlap. Returns: TERSE_OK, EIO.
 */
terse_status ts_file_aside_write_at(const ts_file_aside *file, uint64_t offset, const void *bytes, size_t len,
                                    ts_error *error) TERSE_NODISCARD;
/*
 * Ends it: with `status` TERSE_OK the file is synced and takes its place, otherwise what was written is removed.
 * Returns: `status`, or EIO when taking its place failed.
 */
terse_status ts_file_aside_finish(ts_file_aside *file, terse_status status, ts_error *error) TERSE_NODISCARD;

#endif
