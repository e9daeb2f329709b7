/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/bytes.h"

#define KEY_BYTES 32
#define DIGEST_BYTES 16
static const char context[] = "terse attach 1";

struct ts_secret {
    uint8_t key[KEY_BYTES];
};

static terse_status open_file(const char *path, int *descriptor, ts_error *error) {
    struct stat found;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return ts_error_set(error, TERSE_EIO, "%s: %s", path, strerror(errno));
    terse_status status = TERSE_OK;
    if (fstat(file, &found) != 0) status = ts_error_set(error, TERSE_EIO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(found.st_mode)) status = ts_error_set(error, TERSE_ECONFIG, "%s: not a regular file", path);
    else if (found.st_mode & 077)
        status = ts_error_set(error, TERSE_ECONFIG, "%s: its mode is %03o, so others may read it; allowed: 600 (chmod 600 %s)", path,
                              (unsigned)(found.st_mode & 0777), path);
    else if (found.st_uid != geteuid())
        status = ts_error_set(error, TERSE_ECONFIG, "%s: it belongs to another user", path);
    else if (found.st_size < TS_SECRET_LEAST_BYTES || found.st_size > TS_SECRET_MOST_BYTES)
        status = ts_error_set(error, TERSE_ECONFIG, "%s: %lld bytes; allowed: %d to %d (head -c 32 /dev/urandom | base64)", path,
                              (long long)found.st_size, TS_SECRET_LEAST_BYTES, TS_SECRET_MOST_BYTES);
    if (status != TERSE_OK) {
        close(file);
        return status;
    }
    *descriptor = file;
    return TERSE_OK;
}

terse_status ts_secret_check(const char *path, ts_error *error) {
    int file;
    TS_TRY(open_file(path, &file, error));
    close(file);
    return TERSE_OK;
}

terse_status ts_secret_load(const char *path, ts_secret **out, ts_error *error) {
    uint8_t content[TS_SECRET_MOST_BYTES];
    size_t len = 0;
    int file;
    if (sodium_init() < 0) return ts_error_set(error, TERSE_EUNSUPPORTED, "libsodium cannot start");
    TS_TRY(open_file(path, &file, error));
    for (ssize_t got = 1; got > 0 && len < sizeof content; len += got > 0 ? (size_t)got : 0)
        got = read(file, content + len, sizeof content - len);
    close(file);
    while (len > 0 && (content[len - 1] == '\n' || content[len - 1] == '\r')) len--;
    ts_secret *secret = sodium_malloc(sizeof *secret);
    terse_status status = !secret ? ts_error_set(error, TERSE_ENOMEM, "%s", terse_strerror(TERSE_ENOMEM)) : TERSE_OK;
    if (status == TERSE_OK && len < TS_SECRET_LEAST_BYTES)
        status = ts_error_set(error, TERSE_ECONFIG, "%s: %zu bytes without the line's end; allowed: at least %d", path, len,
                              TS_SECRET_LEAST_BYTES);
    if (status == TERSE_OK)
        crypto_generichash(secret->key, sizeof secret->key, content, len, (const uint8_t *)context, sizeof context - 1);
    sodium_memzero(content, sizeof content);
    if (status != TERSE_OK) {
        sodium_free(secret);
        return status;
    }
    *out = secret;
    return TERSE_OK;
}

void ts_secret_free(ts_secret *secret) { sodium_free(secret); }

void ts_secret_nonce(uint8_t nonce[TS_NONCE_BYTES]) { randombytes_buf(nonce, TS_NONCE_BYTES); }

void ts_secret_prove(const ts_secret *secret, ts_prover prover, const ts_proof_subject *subject, uint8_t proof[TS_PROOF_BYTES]) {
    uint8_t message[1 + 2 * TS_NONCE_BYTES + DIGEST_BYTES + 12], *at = message;
    *at++ = (uint8_t)prover;
    memcpy(at, subject->server_nonce, TS_NONCE_BYTES);
    memcpy(at += TS_NONCE_BYTES, subject->worker_nonce, TS_NONCE_BYTES);
    memcpy(at += TS_NONCE_BYTES, subject->digest, DIGEST_BYTES);
    at += DIGEST_BYTES;
    ts_store_u32(at, subject->job);
    ts_store_u32(at + 4, subject->worker);
    ts_store_u32(at + 8, subject->server);
    crypto_generichash(proof, TS_PROOF_BYTES, message, sizeof message, secret->key, sizeof secret->key);
}

bool ts_secret_verify(const ts_secret *secret, ts_prover prover, const ts_proof_subject *subject, const uint8_t *proof, size_t len) {
    uint8_t right[TS_PROOF_BYTES];
    ts_secret_prove(secret, prover, subject, right);
    return len == sizeof right && sodium_memcmp(right, proof, sizeof right) == 0;
}
