/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The .tp file: one tensor's packets with all that decoding them takes.
 *
 *   8 bytes   "TERSE.TP"
 *   varint    version, 1
 *   varint    length of the pipeline's text; the text (canonical, no terminator)
 *   varint    number of extents, 0 … 16; each extent as a varint
 *   varint    elements of a slice
 *   varint    seed; varint step
 *   for each slice in order: varint length of its packet; the packet
 *   4 bytes   the low 32 bits of XXH3-64 of all before, little-endian
 */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/bytes.h"
#include "common/cli/cmd_codec.h"

#define MAGIC_BYTES (sizeof TS_TP_MAGIC - 1)
#define CHECKSUM_BYTES sizeof(uint32_t)

ts_codec_spec ts_tp_spec(const ts_tp_header *header) {
    return (ts_codec_spec){.pipeline = &header->pipeline,
                           .n = header->n,
                           .slice_elems = header->slice_elems,
                           .shape = header->shape,
                           .ndim = header->ndim,
                           .seed = header->seed,
                           .direction = TS_PUSH};
}

static terse_status append(ts_buffer *file, const void *bytes, size_t len) {
    TS_TRY(ts_buffer_reserve(file, len));
    if (len > 0) memcpy(file->data + file->len, bytes, len);
    file->len += len;
    return TERSE_OK;
}

static terse_status append_number(ts_buffer *file, uint64_t value) {
    TS_TRY(ts_buffer_reserve(file, TS_VARINT_MAX_BYTES));
    file->len += ts_varint_put(file->data + file->len, value);
    return TERSE_OK;
}

terse_status ts_tp_begin(const ts_tp_header *header, ts_buffer *file) {
    size_t chars = strlen(header->pipeline.text);
    TS_TRY(append(file, TS_TP_MAGIC, MAGIC_BYTES));
    TS_TRY(append_number(file, TS_TP_VERSION));
    TS_TRY(append_number(file, chars));
    TS_TRY(append(file, header->pipeline.text, chars));
    TS_TRY(append_number(file, header->ndim));
    for (unsigned i = 0; i < header->ndim; i++) TS_TRY(append_number(file, (uint64_t)header->shape[i]));
    TS_TRY(append_number(file, header->slice_elems));
    TS_TRY(append_number(file, header->seed));
    return append_number(file, header->step);
}

terse_status ts_tp_add(ts_buffer *file, const uint8_t *packet, size_t len) {
    TS_TRY(append_number(file, len));
    return append(file, packet, len);
}

static uint32_t checksum(const uint8_t *bytes, size_t len) { return (uint32_t)XXH3_64bits(bytes, len); }

terse_status ts_tp_finish(ts_buffer *file) {
    uint8_t sum[CHECKSUM_BYTES];
    ts_store_u32(sum, checksum(file->data, file->len));
    return append(file, sum, sizeof sum);
}

static terse_status read_number(ts_tp_reader *reader, uint64_t most, uint64_t *value) {
    uint64_t number;
    size_t bytes = ts_varint_get(reader->at, (size_t)(reader->end - reader->at), &number);
    TS_REQUIRE(bytes > 0 && bytes == ts_varint_bytes(number) && number <= most, TERSE_ECORRUPT);
    reader->at += bytes;
    *value = number;
    return TERSE_OK;
}

static terse_status read_pipeline(ts_tp_reader *reader, ts_tp_header *header, ts_error *error) {
    uint64_t chars;
    char text[TS_PIPELINE_CHARS];
    TS_TRY(read_number(reader, sizeof text - 1, &chars));
    TS_REQUIRE(chars <= (size_t)(reader->end - reader->at), TERSE_ECORRUPT);
    memcpy(text, reader->at, (size_t)chars);
    text[chars] = '\0';
    reader->at += chars;
    TS_REQUIRE(strlen(text) == chars, TERSE_ECORRUPT);
    if (ts_pipeline_parse(text, &header->pipeline, error) != TERSE_OK) return TERSE_ECORRUPT;
    return strcmp(header->pipeline.text, text) == 0 ? TERSE_OK : TERSE_ECORRUPT;
}

static terse_status read_header(ts_tp_reader *reader, size_t elems_limit, ts_tp_header *header, ts_error *error) {
    uint64_t ndim, value, elems = 1;
    TS_TRY(read_pipeline(reader, header, error));
    TS_TRY(read_number(reader, TS_TP_DIMS, &ndim));
    header->ndim = (unsigned)ndim;
    for (unsigned i = 0; i < header->ndim; i++) {
        TS_TRY(read_number(reader, UINT32_MAX, &value));
        header->shape[i] = (int64_t)value;
        elems *= value;
        if (elems > elems_limit) {
            return ts_error_set(error, TERSE_ELIMIT, "declares more than %zu elements", elems_limit);
        }
    }
    header->n = (size_t)elems;
    TS_TRY(read_number(reader, UINT32_MAX, &value));
    TS_REQUIRE(value > 0, TERSE_ECORRUPT);
    header->slice_elems = (size_t)value;
    TS_TRY(read_number(reader, UINT64_MAX, &header->seed));
    return read_number(reader, UINT64_MAX, &header->step);
}

terse_status ts_tp_open(const uint8_t *bytes, size_t len, size_t elems_limit, ts_tp_header *header,
                        ts_tp_reader *reader, ts_error *error) {
    ts_tp_header h = {0};
    uint64_t version;
    (void)ts_error_set(error, TERSE_ECORRUPT, "no .tp file, or a damaged one");
    TS_REQUIRE(len > MAGIC_BYTES + CHECKSUM_BYTES && memcmp(bytes, TS_TP_MAGIC, MAGIC_BYTES) == 0, TERSE_ECORRUPT);
    ts_tp_reader r = {bytes + MAGIC_BYTES, bytes + len - CHECKSUM_BYTES};
    if (ts_load_u32(r.end) != checksum(bytes, len - CHECKSUM_BYTES)) {
        return ts_error_set(error, TERSE_ECORRUPT, "the checksum is wrong: truncated or damaged");
    }
    TS_TRY(read_number(&r, UINT64_MAX, &version));
    if (version != TS_TP_VERSION) {
        return ts_error_set(error, TERSE_EVERSION, "has version %llu, this program reads version %u",
                            (unsigned long long)version, TS_TP_VERSION);
    }
    TS_TRY(read_header(&r, elems_limit, &h, error));
    *header = h;
    *reader = r;
    return TERSE_OK;
}

terse_status ts_tp_next(ts_tp_reader *reader, const uint8_t **packet, size_t *len) {
    uint64_t bytes;
    TS_TRY(read_number(reader, (uint64_t)(reader->end - reader->at), &bytes));
    TS_REQUIRE(bytes <= (uint64_t)(reader->end - reader->at), TERSE_ECORRUPT);
    *packet = reader->at;
    *len = (size_t)bytes;
    reader->at += bytes;
    return TERSE_OK;
}
