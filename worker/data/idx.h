/* SPDX-License-Identifier: Apache-2.0 */
/* IDX files of unsigned bytes, plain or gzipped: the format of MNIST and its kin. */
#ifndef TS_DATA_IDX_H
#define TS_DATA_IDX_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define TS_IDX_DIMS 4

typedef struct {
    unsigned ndim;
    size_t extent[TS_IDX_DIMS]; /* row-major, slowest first */
    uint8_t *values;            /* [own] product(extent) bytes */
} ts_idx;

/*
 * Reads a whole file.
 * path: plain or gzip. ndim: how many dimensions it must have (1 … TS_IDX_DIMS). out: [own], ts_idx_free.
 * error: [out] names the file and what is wrong.
 * Thread: any. Returns: TERSE_OK, EIO (cannot be opened or read), ECORRUPT (not IDX, other dimensions or type,
 * truncated, bytes left over, bad checksum), ELIMIT, ENOMEM.
 */
terse_status ts_idx_read(const char *path, unsigned ndim, ts_idx *out, ts_error *error) TERSE_NODISCARD;
void ts_idx_free(ts_idx *idx);

#endif
