/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every file of a checkpoint says of itself (proto/CHECKPOINT.md). Files
 * that do not say the same belong to different checkpoints and never meet.
 */
#ifndef TS_CKPT_IDENTITY_H
#define TS_CKPT_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/contract/contract.h"

#define TS_CKPT_FORMAT 1u     /* of the files; newer ones are refused */
#define TS_CKPT_ID_CHARS 16u  /* of a run's and an epoch's id: lower-case hexadecimal digits */
#define TS_CKPT_SEAL_CHARS 16u
#define TS_CKPT_COUNT_MAX 65536u /* servers, workers */

typedef struct {
    char run[TS_CKPT_ID_CHARS + 1];   /* the training from its first step on, through all resumptions */
    char epoch[TS_CKPT_ID_CHARS + 1]; /* from one start of the servers to their end */
    uint64_t serial;                  /* counts the checkpoints of a folder */
    uint64_t version;                 /* the cut: every slice and every worker at this step */
    uint8_t contract[TS_DIGEST_BYTES];/* ts_ckpt_contract_digest */
    bool worker;                      /* a worker's part, or a server's */
    uint32_t index, count;            /* which of how many servers, or workers */
} ts_ckpt_identity;

/* A fresh id. id: [out] TS_CKPT_ID_CHARS + 1. Returns TERSE_OK, TERSE_EIO (the system has no randomness). */
terse_status ts_ckpt_make_id(char *id) TERSE_NODISCARD;
/* Whether a text is an id. */
bool ts_ckpt_is_id(const char *text);
/* 16 lower-case hexadecimal digits of a number, and back; text: TS_CKPT_SEAL_CHARS, not terminated. */
void ts_ckpt_put_hex(char *text, uint64_t value);
bool ts_ckpt_get_hex(const char *text, uint64_t *value);
/* Bytes as twice as many digits, terminated; and back: false unless it is exactly 2 × len digits. */
void ts_ckpt_hex_bytes(const uint8_t *bytes, size_t len, char *text);
bool ts_ckpt_bytes_of_hex(const char *text, uint8_t *bytes, size_t len);

/*
 * The contract's digest without the number of steps, which may change from one start to the next.
 * Returns TERSE_OK, TERSE_ENOMEM.
 */
terse_status ts_ckpt_contract_digest(const ts_contract *contract, uint8_t digest[TS_DIGEST_BYTES]) TERSE_NODISCARD;

/*
 * Checksums that lie inside what they cover: XXH3-64 with their own 16 digits read as zeros. key: as `"seal":"`, found
 * where it first stands. Returns false when it does not.
 */
bool ts_ckpt_seal(char *text, size_t len, const char *key, uint64_t *seal);
/* Whether a text holds its seal, and it is right. seal: [out] when there is one. */
bool ts_ckpt_sealed(const char *text, size_t len, const char *key, uint64_t *seal);

#endif
