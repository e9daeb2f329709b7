/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/file_aside.h"
#include "common/base/mem.h"
#include "common/ckpt/ckpt_keys.h"
#include "common/ckpt/ckpt_part.h"

struct ts_ckpt_writer {
    ts_ckpt_identity identity;
    ts_safetensors header;
    char *path;        /* [own] */
    ts_file_aside file;
    bool open;
    uint8_t *front;    /* [own] all in front of the data */
    size_t front_len;
    char *sums;        /* [borrow] of front: 16 digits an entry */
    bool *put;         /* [own] an entry */
};

terse_status ts_ckpt_entry_name(const char *tensor, size_t begin, size_t end, const char *what, char **name) {
    size_t room = strlen(tensor) + (what ? strlen(what) : 0) + 64;
    char *text = ts_mem_calloc(room, 1), range[56] = "";
    TS_REQUIRE(text, TERSE_ENOMEM);
    if (begin < end) snprintf(range, sizeof range, "[%zu:%zu]", begin, end);
    snprintf(text, room, "%s%s%s%s", tensor, range, what ? "#" : "", what ? what : "");
    *name = text;
    return TERSE_OK;
}

terse_status ts_ckpt_writer_create(const ts_ckpt_identity *identity, ts_ckpt_writer **out) {
    ts_ckpt_writer *writer = ts_mem_calloc(1, sizeof *writer);
    TS_REQUIRE(writer, TERSE_ENOMEM);
    writer->identity = *identity;
    *out = writer;
    return TERSE_OK;
}

void ts_ckpt_writer_destroy(ts_ckpt_writer *writer) {
    if (!writer) return;
    if (writer->open) {
        terse_status removed = ts_file_aside_finish(&writer->file, TERSE_ESHUTDOWN, NULL);
        (void)removed; /* it says ESHUTDOWN back */
    }
    ts_safetensors_free(&writer->header);
    ts_mem_free(writer->path);
    ts_mem_free(writer->front);
    ts_mem_free(writer->put);
    ts_mem_free(writer);
}

terse_status ts_ckpt_writer_add(ts_ckpt_writer *writer, const char *name, ts_dtype dtype, const int64_t *shape,
                                unsigned ndim, uint32_t *entry) {
    return ts_safetensors_add(&writer->header, name, dtype, shape, ndim, entry);
}

uint64_t ts_ckpt_writer_bytes(const ts_ckpt_writer *writer) { return writer->header.data_bytes; }

static terse_status note_number(ts_safetensors *header, const char *key, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return ts_safetensors_note(header, key, text);
}

/* Metadata, with room for the checksums. */
static terse_status note_identity(ts_ckpt_writer *writer) {
    const ts_ckpt_identity *is = &writer->identity;
    ts_safetensors *header = &writer->header;
    char digest[2 * TS_DIGEST_BYTES + 1], seal[TS_CKPT_SEAL_CHARS + 1] = "0000000000000000";
    size_t digits = (size_t)header->count * TS_CKPT_SEAL_CHARS;
    ts_ckpt_hex_bytes(is->contract, TS_DIGEST_BYTES, digest);
    TS_TRY(ts_safetensors_note(header, TS_CKPT_KEY_SEAL, seal));
    TS_TRY(note_number(header, TS_CKPT_KEY_FORMAT, TS_CKPT_FORMAT));
    TS_TRY(ts_safetensors_note(header, TS_CKPT_KEY_RUN, is->run));
    TS_TRY(ts_safetensors_note(header, TS_CKPT_KEY_EPOCH, is->epoch));
    TS_TRY(note_number(header, TS_CKPT_KEY_SERIAL, is->serial));
    TS_TRY(note_number(header, TS_CKPT_KEY_VERSION, is->version));
    TS_TRY(ts_safetensors_note(header, TS_CKPT_KEY_CONTRACT, digest));
    TS_TRY(ts_safetensors_note(header, TS_CKPT_KEY_ROLE, is->worker ? "worker" : "server"));
    TS_TRY(note_number(header, TS_CKPT_KEY_INDEX, is->index));
    TS_TRY(note_number(header, TS_CKPT_KEY_COUNT, is->count));
    char *sums = ts_mem_calloc(digits + 1, 1);
    TS_REQUIRE(sums, TERSE_ENOMEM);
    memset(sums, '0', digits);
    terse_status status = ts_safetensors_note(header, TS_CKPT_KEY_SUMS, sums);
    ts_mem_free(sums);
    return status;
}

terse_status ts_ckpt_writer_open(ts_ckpt_writer *writer, const char *path, ts_error *error) {
    TS_TRY(note_identity(writer));
    TS_TRY(ts_safetensors_front(&writer->header, &writer->front, &writer->front_len, error));
    writer->sums = memmem(writer->front, writer->front_len, TS_CKPT_SUMS_TEXT, strlen(TS_CKPT_SUMS_TEXT));
    TS_REQUIRE(writer->sums, TERSE_EINVAL);
    writer->sums += strlen(TS_CKPT_SUMS_TEXT);
    writer->put = ts_mem_calloc(writer->header.count ? writer->header.count : 1, sizeof *writer->put);
    writer->path = ts_mem_strdup(path);
    TS_REQUIRE(writer->put && writer->path, TERSE_ENOMEM);
    TS_TRY(ts_file_aside_open(writer->path, &writer->file, error));
    writer->open = true;
    return TERSE_OK;
}

terse_status ts_ckpt_writer_put(ts_ckpt_writer *writer, uint32_t entry, const void *bytes, ts_error *error) {
    const ts_safetensors_entry *what = &writer->header.entries[entry];
    size_t len = (size_t)what->bytes;
    ts_ckpt_put_hex(writer->sums + (size_t)entry * TS_CKPT_SEAL_CHARS, XXH3_64bits(bytes, len));
    TS_TRY(ts_file_aside_write_at(&writer->file, writer->front_len + what->begin, bytes, len, error));
    writer->put[entry] = true;
    return TERSE_OK;
}

terse_status ts_ckpt_writer_finish(ts_ckpt_writer *writer, ts_ckpt_part *part, ts_error *error) {
    terse_status status = TERSE_OK;
    uint64_t seal = 0;
    for (uint32_t i = 0; i < writer->header.count && status == TERSE_OK; i++)
        if (!writer->put[i])
            status = ts_error_set(error, TERSE_ESTATE, "%s: \"%.200s\" was not written", writer->path,
                                  writer->header.entries[i].name);
    if (status == TERSE_OK && !ts_ckpt_seal((char *)writer->front + 8, writer->front_len - 8, TS_CKPT_SEAL_TEXT, &seal))
        status = TERSE_EINVAL;
    if (status == TERSE_OK) status = ts_file_aside_write_at(&writer->file, 0, writer->front, writer->front_len, error);
    status = ts_file_aside_finish(&writer->file, status, error);
    writer->open = false;
    if (status != TERSE_OK) return status;
    *part = (ts_ckpt_part){.bytes = writer->front_len + writer->header.data_bytes, .seal = seal};
    return TERSE_OK;
}
