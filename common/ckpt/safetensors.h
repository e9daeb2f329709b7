/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors files: 8 bytes little-endian length of the header, the header in
 * JSON, padded by blanks to a multiple of 8, then the tensors' bytes without a
 * hole. Written by us, and read from anywhere: nothing a file says is trusted
 * before it was checked.
 */
#ifndef TS_CKPT_SAFETENSORS_H
#define TS_CKPT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define TS_SAFETENSORS_DIMS 8u
#define TS_SAFETENSORS_HEADER_MAX ((uint64_t)100000000) /* bytes of a header, as other readers limit it */

typedef enum { TS_DTYPE_F32, TS_DTYPE_BF16, TS_DTYPE_U64 } ts_dtype;
/* Bytes of an element; "F32", "BF16" or "U64". */
size_t ts_dtype_bytes(ts_dtype dtype);
const char *ts_dtype_name(ts_dtype dtype);

typedef struct {
    char *name; /* [own] */
    ts_dtype dtype;
    int64_t shape[TS_SAFETENSORS_DIMS];
    unsigned ndim;
    uint64_t begin, bytes; /* behind the header */
} ts_safetensors_entry;

/* What stands in front of the bytes. Zeroed: empty. */
typedef struct {
    ts_safetensors_entry *entries; /* [own] in the order of their bytes */
    uint32_t count, room;
    uint32_t *by_name;             /* [own] their numbers, by name; of a header that was read */
    uint64_t data_bytes;
    char **metadata;               /* [own] pairs key, value */
    uint32_t pairs;
} ts_safetensors;

void ts_safetensors_free(ts_safetensors *header); /* a zeroed one is fine */

/*
 * Appends an entry. name, shape: copied. entry: [out] its number, may be NULL.
 * Returns: TERSE_OK, EINVAL (too many extents, or one below 0), ELIMIT (bytes overflow), ENOMEM: unchanged.
 */
terse_status ts_safetensors_add(ts_safetensors *header, const char *name, ts_dtype dtype, const int64_t *shape,
                                unsigned ndim, uint32_t *entry) TERSE_NODISCARD;
/* key, value: copied; a key stands once. Returns: TERSE_OK, ENOMEM. */
terse_status ts_safetensors_note(ts_safetensors *header, const char *key, const char *value) TERSE_NODISCARD;
/* The value of a metadata key: [borrow], or NULL. */
const char *ts_safetensors_noted(const ts_safetensors *header, const char *key);
/* The number of an entry of a header that was read; `count` when there is none. */
uint32_t ts_safetensors_find(const ts_safetensors *header, const char *name);

/*
 * All in front of the data: the length, and the padded header. bytes: [own] ts_mem_free.
 * Returns: TERSE_OK, EINVAL (a repeated or reserved name; error says), ELIMIT (longer than readers accept), ENOMEM.
 */
terse_status ts_safetensors_front(const ts_safetensors *header, uint8_t **bytes, size_t *len, ts_error *error)
    TERSE_NODISCARD;
/*
 * Reads a header's JSON, `len` bytes, of a file with `data_bytes` behind it; file: its name for messages.
 * Returns: TERSE_OK, ECORRUPT (error names file, entry and what is wrong), ENOMEM: out untouched.
 */
terse_status ts_safetensors_parse(const char *file, const uint8_t *json, size_t len, uint64_t data_bytes,
                                  ts_safetensors *out, ts_error *error) TERSE_NODISCARD;

/* A whole file at once. */
typedef struct {
    const char *name;
    const int64_t *shape; /* ndim extents */
    unsigned ndim;
    const float *values;  /* product(shape) */
} ts_safetensor;

/*
 * Writes float32 tensors in the order given; the file appears whole or not at all.
 * metadata: pairs key, value, … NULL for the header's __metadata__, or NULL.
 * Returns: TERSE_OK, EIO (error names the file and why), EINVAL (a repeated or reserved name), ELIMIT, ENOMEM.
 */
terse_status ts_safetensors_write(const char *path, const ts_safetensor *tensors, size_t count,
                                  const char *const *metadata, ts_error *error) TERSE_NODISCARD;

#endif
