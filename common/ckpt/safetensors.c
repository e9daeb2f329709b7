/* SPDX-License-Identifier: Apache-2.0 */
#include "common/ckpt/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"
#include "common/base/file_aside.h"
#include "common/base/mem.h"

#define METADATA "__metadata__"
#define ALIGNMENT 8

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {[TS_DTYPE_F32] = {"F32", 4}, [TS_DTYPE_BF16] = {"BF16", 2}, [TS_DTYPE_U64] = {"U64", 8}};

size_t ts_dtype_bytes(ts_dtype dtype) { return dtypes[dtype].bytes; }
const char *ts_dtype_name(ts_dtype dtype) { return dtypes[dtype].name; }

void ts_safetensors_free(ts_safetensors *header) {
    for (uint32_t i = 0; i < header->count; i++) ts_mem_free(header->entries[i].name);
    for (uint32_t i = 0; i < 2 * header->pairs; i++) ts_mem_free(header->metadata[i]);
    ts_mem_free(header->entries);
    ts_mem_free(header->by_name);
    ts_mem_free(header->metadata);
    *header = (ts_safetensors){0};
}

/* Bytes of a shape; false when they overflow or an extent is below 0. */
static bool shape_bytes(ts_dtype dtype, const int64_t *shape, unsigned ndim, uint64_t *bytes) {
    size_t product = ts_dtype_bytes(dtype);
    for (unsigned d = 0; d < ndim; d++)
        if (shape[d] < 0 || !ts_mem_mul(product, (size_t)shape[d], &product)) return false;
    *bytes = product;
    return product <= INT64_MAX; /* JSON's integers, and offsets of files */
}

static terse_status reserve_entry(ts_safetensors *header) {
    if (header->count < header->room) return TERSE_OK;
    uint32_t room = header->room ? header->room * 2 : 64;
    ts_safetensors_entry *grown = ts_mem_realloc(header->entries, room, sizeof *grown);
    TS_REQUIRE(grown, TERSE_ENOMEM);
    header->entries = grown;
    header->room = room;
    return TERSE_OK;
}

terse_status ts_safetensors_add(ts_safetensors *header, const char *name, ts_dtype dtype, const int64_t *shape,
                                unsigned ndim, uint32_t *entry) {
    ts_safetensors_entry made = {.dtype = dtype, .ndim = ndim, .begin = header->data_bytes};
    TS_REQUIRE(ndim <= TS_SAFETENSORS_DIMS, TERSE_EINVAL);
    for (unsigned d = 0; d < ndim; d++) TS_REQUIRE(shape[d] >= 0, TERSE_EINVAL);
    TS_REQUIRE(shape_bytes(dtype, shape, ndim, &made.bytes), TERSE_ELIMIT);
    TS_REQUIRE(made.bytes <= INT64_MAX - header->data_bytes, TERSE_ELIMIT);
    if (ndim > 0) memcpy(made.shape, shape, ndim * sizeof *shape);
    TS_TRY(reserve_entry(header));
    made.name = ts_mem_strdup(name);
    TS_REQUIRE(made.name, TERSE_ENOMEM);
    if (entry) *entry = header->count;
    header->entries[header->count++] = made;
    header->data_bytes += made.bytes;
    return TERSE_OK;
}

terse_status ts_safetensors_note(ts_safetensors *header, const char *key, const char *value) {
    char **grown = ts_mem_realloc(header->metadata, 2 * ((size_t)header->pairs + 1), sizeof *grown);
    TS_REQUIRE(grown, TERSE_ENOMEM);
    header->metadata = grown;
    char *first = ts_mem_strdup(key), *second = ts_mem_strdup(value);
    if (!first || !second) {
        ts_mem_free(first);
        ts_mem_free(second);
        return TERSE_ENOMEM;
    }
    grown[2 * header->pairs] = first;
    grown[2 * header->pairs + 1] = second;
    header->pairs++;
    return TERSE_OK;
}

const char *ts_safetensors_noted(const ts_safetensors *header, const char *key) {
    for (uint32_t i = 0; i < header->pairs; i++)
        if (strcmp(header->metadata[2 * i], key) == 0) return header->metadata[2 * i + 1];
    return NULL;
}

uint32_t ts_safetensors_find(const ts_safetensors *header, const char *name) {
    uint32_t from = 0, to = header->by_name ? header->count : 0;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        int order = strcmp(header->entries[header->by_name[middle]].name, name);
        if (order == 0) return header->by_name[middle];
        if (order < 0) from = middle + 1;
        else to = middle;
    }
    return header->count;
}

/* ---- writing -------------------------------------------------------------------------------------------------------- */

static json_t *describe(const ts_safetensors_entry *entry) {
    json_t *shape = json_array();
    for (unsigned d = 0; d < entry->ndim; d++)
        if (json_array_append_new(shape, json_integer((json_int_t)entry->shape[d])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", ts_dtype_name(entry->dtype), "shape", shape, "data_offsets",
                     (json_int_t)entry->begin, (json_int_t)(entry->begin + entry->bytes));
}

/* The header's text; text: [out] [own] free(). */
static terse_status make_text(const ts_safetensors *header, char **text, ts_error *error) {
    json_t *root = json_object();
    TS_REQUIRE(root, TERSE_ENOMEM);
    terse_status status = TERSE_ENOMEM;
    json_t *notes = header->pairs ? json_object() : NULL;
    for (uint32_t i = 0; notes && i < header->pairs; i++)
        if (json_object_set_new(notes, header->metadata[2 * i], json_string(header->metadata[2 * i + 1])) != 0) {
            json_decref(notes);
            goto out;
        }
    if (header->pairs && json_object_set_new(root, METADATA, notes) != 0) goto out;
    for (uint32_t i = 0; i < header->count; i++) {
        const char *name = header->entries[i].name;
        if (strcmp(name, METADATA) == 0 || json_object_get(root, name)) {
            status = ts_error_set(error, TERSE_EINVAL, "a safetensors file cannot hold (another) tensor \"%s\"", name);
            goto out;
        }
        if (json_object_set_new(root, name, describe(&header->entries[i])) != 0) goto out;
    }
    *text = json_dumps(root, JSON_COMPACT | JSON_PRESERVE_ORDER);
    if (*text) status = TERSE_OK;
out:
    json_decref(root);
    return status;
}

terse_status ts_safetensors_front(const ts_safetensors *header, uint8_t **bytes, size_t *len, ts_error *error) {
    char *text = NULL;
    TS_TRY(make_text(header, &text, error));
    size_t plain = strlen(text), padded = plain + (ALIGNMENT - plain % ALIGNMENT) % ALIGNMENT;
    uint8_t *front = padded <= TS_SAFETENSORS_HEADER_MAX ? ts_mem_calloc(8 + padded, 1) : NULL;
    if (front) {
        ts_store_u64(front, padded);
        memcpy(front + 8, text, plain);
        memset(front + 8 + plain, ' ', padded - plain);
        *bytes = front;
        *len = 8 + padded;
    }
    free(text);
    if (padded > TS_SAFETENSORS_HEADER_MAX)
        return ts_error_set(error, TERSE_ELIMIT, "%u entries make a header of %zu bytes; readers accept at most %llu",
                            header->count, padded, (unsigned long long)TS_SAFETENSORS_HEADER_MAX);
    return front ? TERSE_OK : TERSE_ENOMEM;
}

/* The header of plain tensors. */
static terse_status describe_all(ts_safetensors *header, const ts_safetensor *tensors, size_t count,
                                 const char *const *metadata) {
    for (; metadata && metadata[0]; metadata += 2) TS_TRY(ts_safetensors_note(header, metadata[0], metadata[1]));
    for (size_t t = 0; t < count; t++)
        TS_TRY(ts_safetensors_add(header, tensors[t].name, TS_DTYPE_F32, tensors[t].shape, tensors[t].ndim, NULL));
    return TERSE_OK;
}

terse_status ts_safetensors_write(const char *path, const ts_safetensor *tensors, size_t count,
                                  const char *const *metadata, ts_error *error) {
    ts_safetensors header = {0};
    uint8_t *front = NULL;
    size_t len = 0;
    terse_status status = describe_all(&header, tensors, count, metadata);
    if (status == TERSE_OK) status = ts_safetensors_front(&header, &front, &len, error);
    ts_file_aside file;
    if (status == TERSE_OK) status = ts_file_aside_open(path, &file, error);
    if (status != TERSE_OK) goto out;
    status = ts_file_aside_write(&file, front, len, error);
    for (size_t t = 0; t < count && status == TERSE_OK; t++)
        status = ts_file_aside_write(&file, tensors[t].values, (size_t)header.entries[t].bytes, error);
    status = ts_file_aside_finish(&file, status, error);
out:
    ts_mem_free(front);
    ts_safetensors_free(&header);
    return status;
}

/* ---- reading -------------------------------------------------------------------------------------------------------- */

static terse_status corrupt(const char *file, const char *name, const char *what, ts_error *error) {
    return ts_error_set(error, TERSE_ECORRUPT, "%s: \"%.200s\": %s", file, name, what);
}

static terse_status read_notes(const char *file, const json_t *notes, ts_safetensors *header, ts_error *error) {
    const char *key;
    json_t *value;
    if (!json_is_object(notes)) return corrupt(file, METADATA, "not an object of strings", error);
    json_object_foreach((json_t *)(uintptr_t)notes, key, value) {
        if (!json_is_string(value)) return corrupt(file, METADATA, "not an object of strings", error);
        TS_TRY(ts_safetensors_note(header, key, json_string_value(value)));
    }
    return TERSE_OK;
}

/* A whole number from 0 on. */
static bool whole(const json_t *value, uint64_t *out) {
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static bool read_dtype(const json_t *value, ts_dtype *out) {
    for (size_t i = 0; json_is_string(value) && i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (strcmp(json_string_value(value), dtypes[i].name) != 0) continue;
        *out = (ts_dtype)i;
        return true;
    }
    return false;
}

static terse_status read_entry(const char *file, const char *name, const json_t *value, uint64_t data_bytes,
                               ts_safetensors *header, ts_error *error) {
    ts_safetensors_entry entry = {0};
    const json_t *shape = json_object_get(value, "shape"), *offsets = json_object_get(value, "data_offsets");
    uint64_t end, bytes;
    if (!read_dtype(json_object_get(value, "dtype"), &entry.dtype))
        return corrupt(file, name, "its dtype is none that Terse writes (F32, BF16, U64)", error);
    if (!json_is_array(shape) || json_array_size(shape) > TS_SAFETENSORS_DIMS)
        return corrupt(file, name, "its shape is not a list of at most 8 extents", error);
    entry.ndim = (unsigned)json_array_size(shape);
    for (unsigned d = 0; d < entry.ndim; d++) {
        uint64_t extent;
        if (!whole(json_array_get(shape, d), &extent)) return corrupt(file, name, "an extent is not a whole number", error);
        entry.shape[d] = (int64_t)extent;
    }
    if (json_array_size(offsets) != 2 || !whole(json_array_get(offsets, 0), &entry.begin) ||
        !whole(json_array_get(offsets, 1), &end))
        return corrupt(file, name, "its data_offsets are not two whole numbers", error);
    if (end < entry.begin || end > data_bytes)
        return corrupt(file, name, "its data_offsets lie beyond the end of the file (truncated?)", error);
    if (!shape_bytes(entry.dtype, entry.shape, entry.ndim, &bytes) || bytes != end - entry.begin)
        return corrupt(file, name, "its shape and its data_offsets do not agree", error);
    entry.bytes = bytes;
    TS_TRY(reserve_entry(header));
    entry.name = ts_mem_strdup(name);
    TS_REQUIRE(entry.name, TERSE_ENOMEM);
    header->entries[header->count++] = entry;
    return TERSE_OK;
}

static int by_place(const void *left, const void *right) {
    const ts_safetensors_entry *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes; /* empty ones in front */
}

static int by_name(const void *left, const void *right, void *entries) {
    const ts_safetensors_entry *all = entries;
    return strcmp(all[*(const uint32_t *)left].name, all[*(const uint32_t *)right].name);
}

/* Order by place, no hole, no overlap, nothing behind; and the index of names. */
static terse_status settle(const char *file, uint64_t data_bytes, ts_safetensors *header, ts_error *error) {
    uint64_t at = 0;
    if (header->count > 0) qsort(header->entries, header->count, sizeof *header->entries, by_place);
    for (uint32_t i = 0; i < header->count; i++) {
        if (header->entries[i].begin != at)
            return corrupt(file, header->entries[i].name, "its bytes leave a hole or overlap those before", error);
        at += header->entries[i].bytes;
    }
    if (at != data_bytes)
        return ts_error_set(error, TERSE_ECORRUPT, "%s: %llu bytes behind the last entry", file,
                            (unsigned long long)(data_bytes - at));
    header->data_bytes = data_bytes;
    header->by_name = ts_mem_calloc(header->count ? header->count : 1, sizeof *header->by_name);
    TS_REQUIRE(header->by_name, TERSE_ENOMEM);
    for (uint32_t i = 0; i < header->count; i++) header->by_name[i] = i;
    qsort_r(header->by_name, header->count, sizeof *header->by_name, by_name, header->entries);
    return TERSE_OK;
}

terse_status ts_safetensors_parse(const char *file, const uint8_t *json, size_t len, uint64_t data_bytes,
                                  ts_safetensors *out, ts_error *error) {
    json_error_t reason;
    ts_safetensors header = {0};
    json_t *root = json_loadb((const char *)json, len, JSON_REJECT_DUPLICATES, &reason);
    if (!json_is_object(root)) {
        json_decref(root);
        return ts_error_set(error, TERSE_ECORRUPT, "%s: its header is not JSON: %s", file, root ? "no object" : reason.text);
    }
    terse_status status = TERSE_OK;
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value) {
        status = strcmp(name, METADATA) == 0 ? read_notes(file, value, &header, error)
                                             : read_entry(file, name, value, data_bytes, &header, error);
        if (status != TERSE_OK) break;
    }
    if (status == TERSE_OK) status = settle(file, data_bytes, &header, error);
    json_decref(root);
    if (status == TERSE_OK) *out = header;
    else ts_safetensors_free(&header);
    return status;
}
