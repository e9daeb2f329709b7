/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain safetensors files: 8 bytes little-endian length of the header, the
 * header in JSON, padded by blanks to a multiple of 8, then the tensors' bytes.
 */
#ifndef TS_TRAINER_SAFETENSORS_H
#define TS_TRAINER_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct {
    const char *name;
    const int64_t *shape; /* ndim extents */
    unsigned ndim;
    const float *values;  /* product(shape) */
} ts_safetensor;

/*
 * Writes float32 tensors in the order given; the file appears whole or not at all.
 * metadata: pairs key, value, … NULL for the header's __metadata__, or NULL.
 * Returns: TERSE_OK, EIO (error names the file and why), EINVAL (a repeated or reserved name), ENOMEM.
 */
terse_status ts_safetensors_write(const char *path, const ts_safetensor *tensors, size_t count,
                                  const char *const *metadata, ts_error *error) TERSE_NODISCARD;

#endif
