/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One part of a checkpoint: the file of a server or of a worker. A safetensors
 * file whose metadata say what it is, with a checksum for every entry and one
 * for the header that holds them (proto/CHECKPOINT.md).
 */
#ifndef TS_CKPT_PART_H
#define TS_CKPT_PART_H

#include <stdint.h>

#include "common/ckpt/ckpt_identity.h"
#include "common/ckpt/safetensors.h"

/*
 * The name of an entry: `TENSOR`, with `[begin:end]` for a range of its elements (begin < end) and `#what` for what is
 * not the parameters (what: NULL for them). name: [own] ts_mem_free. Returns TERSE_OK, TERSE_ENOMEM.
 */
terse_status ts_ckpt_entry_name(const char *tensor, size_t begin, size_t end, const char *what, char **name)
    TERSE_NODISCARD;

/* What others need to know of a part that is complete. */
typedef struct {
    uint64_t bytes; /* of the file; 0: there is no part */
    uint64_t seal;  /* of its header, and so of all */
} ts_ckpt_part;

/* ---- writing: create, add every entry, open, put every entry once, finish ---------------------------------------------- */

typedef struct ts_ckpt_writer ts_ckpt_writer;

/* identity: copied. writer: [own] ts_ckpt_writer_destroy. Returns TERSE_OK, TERSE_ENOMEM. */
terse_status ts_ckpt_writer_create(const ts_ckpt_identity *identity, ts_ckpt_writer **out) TERSE_NODISCARD;
/* An unfinished file is removed. NULL is fine. Not while somebody puts. */
void ts_ckpt_writer_destroy(ts_ckpt_writer *writer);
/* Returns what ts_safetensors_add does. entry: [out] counts from 0. */
terse_status ts_ckpt_writer_add(ts_ckpt_writer *writer, const char *name, ts_dtype dtype, const int64_t *shape,
                                unsigned ndim, uint32_t *entry) TERSE_NODISCARD;
/* Bytes of data that the entries come to. */
uint64_t ts_ckpt_writer_bytes(const ts_ckpt_writer *writer);
/* Begins the file, beside its place. path: copied. Returns TERSE_OK, EIO, EINVAL, ELIMIT, ENOMEM: error says. */
terse_status ts_ckpt_writer_open(ts_ckpt_writer *writer, const char *path, ts_error *error) TERSE_NODISCARD;
/*
 * Writes all bytes of an entry, straight from where they lie. Thread: any, several at once with different entries.
 * Returns TERSE_OK, TERSE_EIO (error names file and reason).
 */
terse_status ts_ckpt_writer_put(ts_ckpt_writer *writer, uint32_t entry, const void *bytes, ts_error *error)
    TERSE_NODISCARD;
/*
 * Header, fsync, rename, fsync of the folder. Waits for the disk. part: [out]. Thread: any, alone.
 * Returns TERSE_OK, TERSE_EIO, ESTATE (an entry was not put): the file is removed; ENOMEM.
 */
terse_status ts_ckpt_writer_finish(ts_ckpt_writer *writer, ts_ckpt_part *part, ts_error *error) TERSE_NODISCARD;

/* ---- reading ---------------------------------------------------------------------------------------------------------- */

typedef struct ts_ckpt_reader ts_ckpt_reader;

/*
 * Opens a part and checks all of its header: seal, identity, entries against the file's length. out: [own].
 * Returns TERSE_OK; EIO (not there, not readable), ECORRUPT (not such a file, or damaged), EVERSION (of a newer
 * Terse), ENOMEM: error names the file and what is wrong.
 */
terse_status ts_ckpt_reader_open(const char *path, ts_ckpt_reader **out, ts_error *error) TERSE_NODISCARD;
void ts_ckpt_reader_close(ts_ckpt_reader *reader); /* NULL is fine */
const ts_ckpt_identity *ts_ckpt_reader_identity(const ts_ckpt_reader *reader);
const ts_safetensors *ts_ckpt_reader_header(const ts_ckpt_reader *reader);
ts_ckpt_part ts_ckpt_reader_part(const ts_ckpt_reader *reader);
/* Its path, for messages. */
const char *ts_ckpt_reader_path(const ts_ckpt_reader *reader);
/*
 * Reads an entry by name into bytes, which hold exactly as much, and checks its checksum.
 * Thread: any, several at once. Returns TERSE_OK; ENOTFOUND, EMISMATCH (another type or length), ECORRUPT, EIO: error
 * names file and entry.
 */
terse_status ts_ckpt_reader_get(const ts_ckpt_reader *reader, const char *name, ts_dtype dtype, void *bytes, size_t len,
                                ts_error *error) TERSE_NODISCARD;
/* Reads an entry by its number, a piece at a time, and checks its checksum. Returns TERSE_OK, ECORRUPT, EIO, ENOMEM. */
terse_status ts_ckpt_reader_verify(const ts_ckpt_reader *reader, uint32_t entry, ts_error *error) TERSE_NODISCARD;

/*
 * The header of a part from its bytes, as ts_ckpt_reader_open checks it; for tests. file_bytes: the file's length.
 * Returns as that.
 */
terse_status ts_ckpt_part_parse(const char *file, const uint8_t *front, size_t len, uint64_t file_bytes,
                                ts_safetensors *header, ts_ckpt_identity *identity, uint64_t *seal, ts_error *error)
    TERSE_NODISCARD;

#endif
