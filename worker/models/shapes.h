/* SPDX-License-Identifier: Apache-2.0 */
/* A list of tensors from a text file: one "name extent extent ..." a line; # starts a comment. */
#ifndef TS_MODELS_SHAPES_H
#define TS_MODELS_SHAPES_H

#include <stddef.h>

#include "common/base/status.h"
#include "worker/terse_model.h"

typedef struct {
    terse_model_tensor *tensors; /* names and shapes; names are owned, param and gradient NULL */
    size_t count;
} ts_model_shapes;

/*
 * Reads a file. out: [own], ts_model_shapes_free. error: [out] file:line and what is wrong.
 * Returns: TERSE_OK, EIO, ECONFIG, ENOMEM.
 */
terse_status ts_model_shapes_read(const char *path, ts_model_shapes *out, ts_error *error) TERSE_NODISCARD;
void ts_model_shapes_free(ts_model_shapes *shapes);

#endif
