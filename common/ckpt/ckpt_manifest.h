/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint's manifest: what belongs to it. It is written last, and makes a checkpoint of what lies beside it. */
#ifndef TS_CKPT_MANIFEST_H
#define TS_CKPT_MANIFEST_H

#include "common/ckpt/ckpt_folder.h"
#include "common/ckpt/ckpt_part.h"

#define TS_CKPT_MANIFEST_MAX ((size_t)256 << 20) /* bytes of its text that are read */

typedef struct {
    char run[TS_CKPT_ID_CHARS + 1], epoch[TS_CKPT_ID_CHARS + 1];
    char parent_epoch[TS_CKPT_ID_CHARS + 1]; /* what this epoch went on from; "" when it began the run */
    uint64_t parent_version;
    uint64_t serial, version;
    uint8_t digest[TS_DIGEST_BYTES]; /* ts_ckpt_contract_digest */
    uint8_t *contract;               /* [own] ts_contract_pack's bytes */
    size_t contract_bytes;
    uint32_t servers, workers;
    ts_ckpt_part *parts;             /* [own] of the servers, then of the workers; bytes 0: a worker without a part */
} ts_ckpt_manifest;

void ts_ckpt_manifest_free(ts_ckpt_manifest *manifest); /* a zeroed one is fine */

/* The part of a server or worker. */
static inline ts_ckpt_part *ts_ckpt_manifest_part(const ts_ckpt_manifest *manifest, bool worker, uint32_t index) {
    return &manifest->parts[worker ? manifest->servers + index : index];
}
/* What such a part says of itself. */
ts_ckpt_identity ts_ckpt_manifest_identity(const ts_ckpt_manifest *manifest, bool worker, uint32_t index);

/*
 * Writes it beside its place, brings it to the disk and renames it: from then on the checkpoint exists.
 * Returns TERSE_OK, EIO (error names the file and why), ECORRUPT (the contract is none), ENOMEM.
 */
terse_status ts_ckpt_manifest_write(const ts_ckpt_manifest *manifest, const char *path, ts_error *error) TERSE_NODISCARD;
/*
 * Reads and checks one. out: [out] ts_ckpt_manifest_free. Returns TERSE_OK; EIO, ECORRUPT, EVERSION, ENOMEM: error names
 * the file and what is wrong.
 */
terse_status ts_ckpt_manifest_read(const char *path, ts_ckpt_manifest *out, ts_error *error) TERSE_NODISCARD;
/* The same from its text; file: the name for messages. */
terse_status ts_ckpt_manifest_parse(const char *file, const char *text, size_t len, ts_ckpt_manifest *out,
                                    ts_error *error) TERSE_NODISCARD;
/* The contract, as it was agreed on for that many servers. out: [own]. Returns what ts_contract_unpack does. */
terse_status ts_ckpt_manifest_contract(const ts_ckpt_manifest *manifest, uint32_t servers, ts_contract **out,
                                       ts_error *error) TERSE_NODISCARD;

/*
 * Opens a part and compares it with what the manifest says of it: identity, length, seal.
 * dir, folder: where the checkpoint lies. out: [own]. Returns TERSE_OK; ENOTFOUND (the worker has none), EMISMATCH (of
 * another checkpoint), and what ts_ckpt_reader_open returns: error says.
 */
terse_status ts_ckpt_manifest_open(const ts_ckpt_manifest *manifest, const char *dir, const char *folder, bool worker,
                                   uint32_t index, ts_ckpt_reader **out, ts_error *error) TERSE_NODISCARD;
/* Compares two identities; the error names the first thing that differs. Returns TERSE_OK, EMISMATCH. */
terse_status ts_ckpt_identity_compare(const char *path, const ts_ckpt_identity *is, const ts_ckpt_identity *wanted,
                                      ts_error *error) TERSE_NODISCARD;
/* Removes one part of a checkpoint when it says that it is of this run. Best effort. */
void ts_ckpt_remove_of_run(const char *dir, const char *folder, const char *file, const char *run);

#endif
