/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A secret that servers and workers share, in a file, and proofs of knowing it that do not tell it: keyed BLAKE2b
 * (RFC 7693) by libsodium over both sides' nonces and what is being joined.
 */
#ifndef TS_WIRE_SECRET_H
#define TS_WIRE_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define TS_NONCE_BYTES 32
#define TS_PROOF_BYTES 32
#define TS_SECRET_LEAST_BYTES 16
#define TS_SECRET_MOST_BYTES 4096

typedef struct ts_secret ts_secret;

/* Who proves: so that one side's proof is never the other's. */
typedef enum { TS_PROVER_SERVER = 'S', TS_PROVER_WORKER = 'W' } ts_prover;

/* What a proof is about. */
typedef struct {
    uint8_t server_nonce[TS_NONCE_BYTES], worker_nonce[TS_NONCE_BYTES];
    const uint8_t *digest; /* [borrow] 16 bytes: of the contract that the worker announces */
    uint32_t job, worker, server;
} ts_proof_subject;

/*
 * Whether the file can be a secret: a regular file of this user, mode 0600 or less, of 16 to 4096 bytes (a line's end at
 * the end does not count). Returns TERSE_OK, TERSE_EIO, TERSE_ECONFIG, with a sentence.
 */
terse_status ts_secret_check(const char *path, ts_error *error) TERSE_NODISCARD;
/* Reads it. out: [own], ts_secret_free. Returns as ts_secret_check, and TERSE_ENOMEM. */
terse_status ts_secret_load(const char *path, ts_secret **out, ts_error *error) TERSE_NODISCARD;
void ts_secret_free(ts_secret *secret); /* its memory is wiped; NULL is fine */

/* From the system's generator. */
void ts_secret_nonce(uint8_t nonce[TS_NONCE_BYTES]);
/* Thread: any. */
void ts_secret_prove(const ts_secret *secret, ts_prover prover, const ts_proof_subject *subject, uint8_t proof[TS_PROOF_BYTES]);
/* In a time that does not tell how much of it is right. len: of what came. */
bool ts_secret_verify(const ts_secret *secret, ts_prover prover, const ts_proof_subject *subject, const uint8_t *proof,
                      size_t len);

#endif
