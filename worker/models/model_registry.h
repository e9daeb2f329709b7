/* SPDX-License-Identifier: Apache-2.0 */
/* Models by name, and models from plug-ins. */
#ifndef TS_MODELS_MODEL_REGISTRY_H
#define TS_MODELS_MODEL_REGISTRY_H

#include <stdio.h>

#include "common/base/status.h"
#include "worker/terse_model.h"

/* A built-in model. model: [out] [borrow] constant. Returns: TERSE_OK, ENOTFOUND (error lists the names). */
terse_status ts_model_find(const char *name, const terse_model **model, ts_error *error) TERSE_NODISCARD;
/* One line a model: name and what it is. */
void ts_model_print_list(FILE *to);

/*
 * Loads a plug-in and checks its table: ABI, name, all functions but `evaluate` and `samples` there.
 * path: of the .so. model: [out] [borrow until unload]. handle: [out] [own], ts_model_unload.
 * error: [out] names the file and what is wanted.
 * Returns: TERSE_OK, EIO (cannot be loaded), EUNSUPPORTED (no symbol, another ABI, a function missing), ENOMEM.
 */
terse_status ts_model_load(const char *path, const terse_model **model, void **handle, ts_error *error) TERSE_NODISCARD;
void ts_model_unload(void *handle);

/*
 * Checks names and shapes: at least one tensor; names there and not repeated; 0 … 8 extents, none below 1.
 * parameters: [out] elements of all tensors. Returns: TERSE_OK, EINVAL (error names the tensor), ELIMIT.
 */
terse_status ts_model_check_shapes(const terse_model_tensor *tensors, size_t count, size_t *parameters,
                                   ts_error *error) TERSE_NODISCARD;
/* Checks what a created model says of itself: shapes as above, and a param for each tensor. */
terse_status ts_model_check_tensors(const terse_model_tensor *tensors, size_t count, size_t *parameters,
                                    ts_error *error) TERSE_NODISCARD;

/* Elements of a tensor that was checked. */
size_t ts_model_tensor_elems(const terse_model_tensor *tensor);

#endif
