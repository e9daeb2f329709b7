/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/base/bytes.h"
#include "common/base/mem.h"
#include "common/ckpt/ckpt_keys.h"
#include "common/ckpt/ckpt_part.h"

#define PIECE_BYTES ((size_t)1 << 20)

struct ts_ckpt_reader {
    char *path;             /* [own] */
    int fd;
    ts_safetensors header;
    ts_ckpt_identity identity;
    ts_ckpt_part part;
    uint64_t data_at;       /* where the data begins */
    const char *sums;       /* [borrow] of the header's metadata */
};

/* ---- the header ------------------------------------------------------------------------------------------------------- */

static terse_status not_one(const char *file, const char *key, ts_error *error) {
    return ts_error_set(error, TERSE_ECORRUPT, "%s: not a part of a Terse checkpoint: no valid \"%s\"", file, key);
}

/* A decimal number without sign, blanks or zeros in front. */
static bool decimal(const char *text, uint64_t most, uint64_t *out) {
    uint64_t value = 0;
    if (!text || !*text || (text[0] == '0' && text[1])) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || value > (UINT64_MAX - (uint64_t)(*text - '0')) / 10) return false;
        value = value * 10 + (uint64_t)(*text - '0');
    }
    *out = value;
    return value <= most;
}

static terse_status take_id(const char *file, const ts_safetensors *header, const char *key, char *out, ts_error *error) {
    const char *text = ts_safetensors_noted(header, key);
    if (!text || !ts_ckpt_is_id(text)) return not_one(file, key, error);
    memcpy(out, text, TS_CKPT_ID_CHARS + 1);
    return TERSE_OK;
}

static terse_status take_number(const char *file, const ts_safetensors *header, const char *key, uint64_t most,
                                uint64_t *out, ts_error *error) {
    return decimal(ts_safetensors_noted(header, key), most, out) ? TERSE_OK : not_one(file, key, error);
}

static terse_status read_identity(const char *file, const ts_safetensors *header, ts_ckpt_identity *is, ts_error *error) {
    uint64_t format, index, count;
    TS_TRY(take_number(file, header, TS_CKPT_KEY_FORMAT, UINT64_MAX, &format, error));
    if (format != TS_CKPT_FORMAT)
        return ts_error_set(error, TERSE_EVERSION, "%s: checkpoint format %" PRIu64 "; this version of Terse reads %u", file,
                            format, TS_CKPT_FORMAT);
    TS_TRY(take_id(file, header, TS_CKPT_KEY_RUN, is->run, error));
    TS_TRY(take_id(file, header, TS_CKPT_KEY_EPOCH, is->epoch, error));
    TS_TRY(take_number(file, header, TS_CKPT_KEY_SERIAL, UINT64_MAX, &is->serial, error));
    TS_TRY(take_number(file, header, TS_CKPT_KEY_VERSION, UINT64_MAX, &is->version, error));
    const char *digest = ts_safetensors_noted(header, TS_CKPT_KEY_CONTRACT);
    if (!digest || !ts_ckpt_bytes_of_hex(digest, is->contract, TS_DIGEST_BYTES))
        return not_one(file, TS_CKPT_KEY_CONTRACT, error);
    const char *role = ts_safetensors_noted(header, TS_CKPT_KEY_ROLE);
    if (!role || (strcmp(role, "worker") != 0 && strcmp(role, "server") != 0)) return not_one(file, TS_CKPT_KEY_ROLE, error);
    is->worker = strcmp(role, "worker") == 0;
    TS_TRY(take_number(file, header, TS_CKPT_KEY_COUNT, TS_CKPT_COUNT_MAX, &count, error));
    TS_TRY(take_number(file, header, TS_CKPT_KEY_INDEX, TS_CKPT_COUNT_MAX, &index, error));
    if (index >= count) return not_one(file, TS_CKPT_KEY_INDEX, error);
    is->index = (uint32_t)index;
    is->count = (uint32_t)count;
    const char *sums = ts_safetensors_noted(header, TS_CKPT_KEY_SUMS);
    if (!sums || strlen(sums) != (size_t)header->count * TS_CKPT_SEAL_CHARS) return not_one(file, TS_CKPT_KEY_SUMS, error);
    return TERSE_OK;
}

/* The header's length, as the first 8 bytes say; checked against the file's. */
static terse_status header_bytes(const char *file, uint64_t said, uint64_t file_bytes, ts_error *error) {
    if (said <= TS_SAFETENSORS_HEADER_MAX && said >= 2 && file_bytes >= 8 && said <= file_bytes - 8) return TERSE_OK;
    return ts_error_set(error, TERSE_ECORRUPT, "%s: its header is to have %" PRIu64 " bytes, and the file has %" PRIu64
                        " (truncated, or not a safetensors file)", file, said, file_bytes);
}

terse_status ts_ckpt_part_parse(const char *file, const uint8_t *front, size_t len, uint64_t file_bytes,
                                ts_safetensors *header, ts_ckpt_identity *identity, uint64_t *seal, ts_error *error) {
    ts_safetensors read = {0};
    ts_ckpt_identity is = {0};
    uint64_t said;
    TS_REQUIRE(len >= 8, ts_error_set(error, TERSE_ECORRUPT, "%s: shorter than any safetensors file", file));
    TS_TRY(header_bytes(file, ts_load_u64(front), file_bytes, error));
    TS_REQUIRE(ts_load_u64(front) == len - 8, TERSE_EINVAL);
    if (!ts_ckpt_sealed((const char *)front + 8, len - 8, TS_CKPT_SEAL_TEXT, &said))
        return ts_error_set(error, TERSE_ECORRUPT, "%s: its header does not match its checksum (damaged, or not a part of a "
                            "Terse checkpoint)", file);
    TS_TRY(ts_safetensors_parse(file, front + 8, len - 8, file_bytes - len, &read, error));
    terse_status status = read_identity(file, &read, &is, error);
    if (status != TERSE_OK) {
        ts_safetensors_free(&read);
        return status;
    }
    *header = read;
    *identity = is;
    *seal = said;
    return TERSE_OK;
}

/* ---- the file ----------------------------------------------------------------------------------------------------------- */

static terse_status unreadable(const char *path, ts_error *error) {
    return ts_error_set(error, TERSE_EIO, "%s: %s", path, strerror(errno));
}

static terse_status read_at(const ts_ckpt_reader *reader, uint64_t offset, void *bytes, size_t len, ts_error *error) {
    char *to = bytes;
    while (len > 0) {
        ssize_t got = pread(reader->fd, to, len, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return unreadable(reader->path, error);
        if (got == 0) return ts_error_set(error, TERSE_ECORRUPT, "%s: ends before its header said (truncated)", reader->path);
        to += got;
        offset += (uint64_t)got;
        len -= (size_t)got;
    }
    return TERSE_OK;
}

static terse_status read_front(ts_ckpt_reader *reader, ts_error *error) {
    struct stat info;
    uint8_t length[8];
    if (fstat(reader->fd, &info) != 0) return unreadable(reader->path, error);
    if (!S_ISREG(info.st_mode)) return ts_error_set(error, TERSE_EIO, "%s: not a file", reader->path);
    reader->part.bytes = (uint64_t)info.st_size;
    TS_TRY(read_at(reader, 0, length, sizeof length, error));
    uint64_t said = ts_load_u64(length);
    TS_TRY(header_bytes(reader->path, said, reader->part.bytes, error));
    uint8_t *front = ts_mem_calloc((size_t)said + 8, 1);
    TS_REQUIRE(front, TERSE_ENOMEM);
    terse_status status = read_at(reader, 0, front, (size_t)said + 8, error);
    if (status == TERSE_OK)
        status = ts_ckpt_part_parse(reader->path, front, (size_t)said + 8, reader->part.bytes, &reader->header,
                                    &reader->identity, &reader->part.seal, error);
    ts_mem_free(front);
    if (status != TERSE_OK) return status;
    reader->data_at = said + 8;
    reader->sums = ts_safetensors_noted(&reader->header, TS_CKPT_KEY_SUMS);
    return TERSE_OK;
}

terse_status ts_ckpt_reader_open(const char *path, ts_ckpt_reader **out, ts_error *error) {
    ts_ckpt_reader *reader = ts_mem_calloc(1, sizeof *reader);
    TS_REQUIRE(reader, TERSE_ENOMEM);
    reader->path = ts_mem_strdup(path);
    reader->fd = reader->path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    terse_status status = !reader->path ? TERSE_ENOMEM : reader->fd < 0 ? unreadable(path, error) : TERSE_OK;
    if (status == TERSE_OK) status = read_front(reader, error);
    if (status != TERSE_OK) {
        ts_ckpt_reader_close(reader);
        return status;
    }
    *out = reader;
    return TERSE_OK;
}

void ts_ckpt_reader_close(ts_ckpt_reader *reader) {
    if (!reader) return;
    if (reader->fd >= 0) close(reader->fd);
    ts_safetensors_free(&reader->header);
    ts_mem_free(reader->path);
    ts_mem_free(reader);
}

const ts_ckpt_identity *ts_ckpt_reader_identity(const ts_ckpt_reader *reader) { return &reader->identity; }
const ts_safetensors *ts_ckpt_reader_header(const ts_ckpt_reader *reader) { return &reader->header; }
ts_ckpt_part ts_ckpt_reader_part(const ts_ckpt_reader *reader) { return reader->part; }
const char *ts_ckpt_reader_path(const ts_ckpt_reader *reader) { return reader->path; }

/* The checksum that the header has for an entry. */
static terse_status check_sum(const ts_ckpt_reader *reader, uint32_t entry, uint64_t sum, ts_error *error) {
    uint64_t said;
    if (ts_ckpt_get_hex(reader->sums + (size_t)entry * TS_CKPT_SEAL_CHARS, &said) && said == sum) return TERSE_OK;
    return ts_error_set(error, TERSE_ECORRUPT, "%s: \"%.200s\": its bytes do not match their checksum (damaged)", reader->path,
                        reader->header.entries[entry].name);
}

terse_status ts_ckpt_reader_get(const ts_ckpt_reader *reader, const char *name, ts_dtype dtype, void *bytes, size_t len,
                                ts_error *error) {
    uint32_t number = ts_safetensors_find(&reader->header, name);
    if (number == reader->header.count)
        return ts_error_set(error, TERSE_ENOTFOUND, "%s: has no \"%.200s\"", reader->path, name);
    const ts_safetensors_entry *entry = &reader->header.entries[number];
    if (entry->dtype != dtype || entry->bytes != len)
        return ts_error_set(error, TERSE_EMISMATCH, "%s: \"%.200s\" has %" PRIu64 " bytes of %s; %zu of %s are wanted",
                            reader->path, name, entry->bytes, ts_dtype_name(entry->dtype), len, ts_dtype_name(dtype));
    TS_TRY(read_at(reader, reader->data_at + entry->begin, bytes, len, error));
    return check_sum(reader, number, XXH3_64bits(bytes, len), error);
}

terse_status ts_ckpt_reader_verify(const ts_ckpt_reader *reader, uint32_t number, ts_error *error) {
    const ts_safetensors_entry *entry = &reader->header.entries[number];
    uint8_t *piece = ts_mem_calloc(PIECE_BYTES, 1);
    XXH3_state_t *state = XXH3_createState();
    terse_status status = piece && state ? TERSE_OK : TERSE_ENOMEM;
    if (status == TERSE_OK) XXH3_64bits_reset(state);
    for (uint64_t at = 0; status == TERSE_OK && at < entry->bytes;) {
        size_t some = entry->bytes - at < PIECE_BYTES ? (size_t)(entry->bytes - at) : PIECE_BYTES;
        status = read_at(reader, reader->data_at + entry->begin + at, piece, some, error);
        if (status == TERSE_OK) XXH3_64bits_update(state, piece, some);
        at += some;
    }
    if (status == TERSE_OK) status = check_sum(reader, number, XXH3_64bits_digest(state), error);
    XXH3_freeState(state);
    ts_mem_free(piece);
    return status;
}
