/* SPDX-License-Identifier: Apache-2.0 */
#include "common/ckpt/ckpt_identity.h"

#include <string.h>
#include <sys/random.h>
#define XXH_STATIC_LINKING_ONLY /* a state on the stack */
#include <xxhash.h>

#include "common/base/mem.h"

static const char digits[] = "0123456789abcdef";

void ts_ckpt_put_hex(char *text, uint64_t value) {
    for (unsigned i = 0; i < TS_CKPT_SEAL_CHARS; i++) text[i] = digits[value >> (60 - 4 * i) & 15];
}

static int digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool ts_ckpt_get_hex(const char *text, uint64_t *value) {
    uint64_t read = 0;
    for (unsigned i = 0; i < TS_CKPT_SEAL_CHARS; i++) {
        int d = digit(text[i]); /* the terminator is none */
        if (d < 0) return false;
        read = read << 4 | (uint64_t)d;
    }
    *value = read;
    return true;
}

void ts_ckpt_hex_bytes(const uint8_t *bytes, size_t len, char *text) {
    for (size_t i = 0; i < len; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    text[2 * len] = '\0';
}

bool ts_ckpt_bytes_of_hex(const char *text, uint8_t *bytes, size_t len) {
    if (strlen(text) != 2 * len) return false;
    for (size_t i = 0; i < 2 * len; i++)
        if (digit(text[i]) < 0) return false;
    for (size_t i = 0; i < len; i++) bytes[i] = (uint8_t)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
    return true;
}

terse_status ts_ckpt_make_id(char *id) {
    uint64_t random;
    TS_REQUIRE(getrandom(&random, sizeof random, 0) == (ssize_t)sizeof random, TERSE_EIO);
    ts_ckpt_put_hex(id, random);
    id[TS_CKPT_ID_CHARS] = '\0';
    return TERSE_OK;
}

bool ts_ckpt_is_id(const char *text) {
    uint64_t value;
    return strlen(text) == TS_CKPT_ID_CHARS && ts_ckpt_get_hex(text, &value);
}

terse_status ts_ckpt_contract_digest(const ts_contract *contract, uint8_t digest[TS_DIGEST_BYTES]) {
    ts_contract open = *contract; /* borrows everything */
    uint8_t *bytes = NULL;
    size_t len = 0;
    XXH128_canonical_t canonical;
    open.total_steps = 0;
    TS_TRY(ts_contract_pack(&open, &bytes, &len));
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, len));
    memcpy(digest, canonical.digest, TS_DIGEST_BYTES);
    ts_mem_free(bytes);
    return TERSE_OK;
}

/* Where the seal's digits begin; NULL when there is no room for them. */
static char *find_seal(char *text, size_t len, const char *key) {
    char *at = memmem(text, len, key, strlen(key));
    if (!at || (size_t)(text + len - at) < strlen(key) + TS_CKPT_SEAL_CHARS) return NULL;
    return at + strlen(key);
}

bool ts_ckpt_seal(char *text, size_t len, const char *key, uint64_t *seal) {
    char *at = find_seal(text, len, key);
    if (!at) return false;
    memset(at, '0', TS_CKPT_SEAL_CHARS);
    *seal = XXH3_64bits(text, len);
    ts_ckpt_put_hex(at, *seal);
    return true;
}

bool ts_ckpt_sealed(const char *text, size_t len, const char *key, uint64_t *seal) {
    const char *at = find_seal((char *)(uintptr_t)text, len, key);
    uint64_t said;
    if (!at || !ts_ckpt_get_hex(at, &said)) return false;
    static const char zeros[TS_CKPT_SEAL_CHARS + 1] = "0000000000000000";
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, text, (size_t)(at - text));
    XXH3_64bits_update(&state, zeros, TS_CKPT_SEAL_CHARS);
    XXH3_64bits_update(&state, at + TS_CKPT_SEAL_CHARS, len - (size_t)(at - text) - TS_CKPT_SEAL_CHARS);
    *seal = said;
    return XXH3_64bits_digest(&state) == said;
}
