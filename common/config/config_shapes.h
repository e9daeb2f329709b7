/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of tensors for the synthetic model: a text file with "name extent
 * extent …" a line; `#` begins a comment.
 */
#ifndef TS_CONFIG_SHAPES_H
#define TS_CONFIG_SHAPES_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/contract/contract.h"

typedef struct {
    char *name;
    int64_t shape[TS_TENSOR_DIMS];
    unsigned ndim;
    size_t n;
} ts_shape;

typedef struct {
    ts_shape *tensors;
    uint32_t count;
    uint64_t parameters;
} ts_shapes;

/*
 * Reads and checks a list. max_tensors: most it may hold. out: [own], ts_shapes_clear.
 * Returns TERSE_OK, TERSE_EIO, TERSE_ECONFIG ("file:line: …"), TERSE_ENOMEM.
 */
terse_status ts_shapes_read(const char *path, uint64_t max_tensors, ts_shapes *out, ts_error *error) TERSE_NODISCARD;
void ts_shapes_clear(ts_shapes *shapes);

#endif
