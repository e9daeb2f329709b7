/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where checkpoints lie: DIR/ckpt-SERIAL-step-VERSION/ with a file a server, a
 * file a worker, and, once all are there, manifest.json. A folder without a
 * manifest is not a checkpoint.
 */
#ifndef TS_CKPT_FOLDER_H
#define TS_CKPT_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define TS_CKPT_NAME_CHARS 64u /* of a folder's or part's name, with the terminator */
#define TS_CKPT_MANIFEST "manifest.json"

/* "ckpt-000007-step-500", and back: false for any other name. */
void ts_ckpt_folder_name(uint64_t serial, uint64_t version, char name[TS_CKPT_NAME_CHARS]);
bool ts_ckpt_folder_parse(const char *name, uint64_t *serial, uint64_t *version);
/* "server-0-of-2.safetensors", "worker-3-of-4.safetensors". */
void ts_ckpt_part_file(bool worker, uint32_t index, uint32_t count, char name[TS_CKPT_NAME_CHARS]);

/* "dir/folder/file"; folder, file: NULL for none. path: [own] ts_mem_free. Returns TERSE_OK, TERSE_ENOMEM. */
terse_status ts_ckpt_path(const char *dir, const char *folder, const char *file, char **path) TERSE_NODISCARD;
/* Makes a folder with all above it. Returns TERSE_OK (also when it is there), EIO (error names it and why), ENOMEM. */
terse_status ts_ckpt_make_folder(const char *path, ts_error *error) TERSE_NODISCARD;
/*
 * Whether files can be made in a folder, which is made when it is not there.
 * Returns TERSE_OK, EIO (error names it and why), ENOMEM.
 */
terse_status ts_ckpt_probe_folder(const char *path, ts_error *error) TERSE_NODISCARD;

typedef struct {
    char name[TS_CKPT_NAME_CHARS];
    uint64_t serial, version;
    bool committed; /* there is a manifest */
} ts_ckpt_found;

/*
 * The checkpoints below dir, committed or not, by ascending serial; none when dir is not there. list: [own] ts_mem_free.
 * Returns TERSE_OK, EIO (error says), ENOMEM.
 */
terse_status ts_ckpt_scan(const char *dir, ts_ckpt_found **list, size_t *count, ts_error *error) TERSE_NODISCARD;

/*
 * Removes a checkpoint's files: the manifest first, so that what is left of an interrupted removal is none; nothing that
 * is not named as ours. only: NULL, or the one part to remove. The folder goes when it is empty. Best effort.
 */
void ts_ckpt_remove(const char *dir, const char *folder, const char *only);

/*
 * Keeps others from writing checkpoints into dir as long as the process lives or the file is open. who: an id, by which
 * those of the same job know it; must_sign: it has to be written there, too. fd: [out] to be closed. Returns TERSE_OK, ESTATE
 * (somebody else has it), EIO: error says; ENOMEM.
 */
terse_status ts_ckpt_lock(const char *dir, const char *who, bool must_sign, int *fd, ts_error *error) TERSE_NODISCARD;
/* Whether the last who locked dir was `who`. */
bool ts_ckpt_lock_is_of(const char *dir, const char *who);

#endif
