/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/trainer/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"
#include "common/base/mem.h"
#include "worker/trainer/file_aside.h"

#define METADATA "__metadata__"
#define ALIGNMENT 8

static size_t tensor_bytes(const ts_safetensor *tensor) {
    size_t bytes = sizeof(float);
    for (unsigned d = 0; d < tensor->ndim; d++) bytes *= (size_t)tensor->shape[d];
    return bytes;
}

static json_t *describe(const ts_safetensor *tensor, size_t begin, size_t end) {
    json_t *shape = json_array();
    for (unsigned d = 0; d < tensor->ndim; d++)
        if (json_array_append_new(shape, json_integer((json_int_t)tensor->shape[d])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets", (json_int_t)begin,
                     (json_int_t)end);
}

/* The header's text; text: [out] [own] free(). */
static terse_status make_header(const ts_safetensor *tensors, size_t count, const char *const *metadata, char **text,
                                ts_error *error) {
    json_t *root = json_object();
    TS_REQUIRE(root, TERSE_ENOMEM);
    terse_status status = TERSE_ENOMEM;
    size_t at = 0;
    if (metadata && metadata[0]) {
        json_t *object = json_object();
        for (; object && metadata[0]; metadata += 2)
            if (json_object_set_new(object, metadata[0], json_string(metadata[1])) != 0) goto out;
        if (json_object_set_new(root, METADATA, object) != 0) goto out;
    }
    for (size_t t = 0; t < count; t++) {
        size_t end = at + tensor_bytes(&tensors[t]);
        if (strcmp(tensors[t].name, METADATA) == 0 || json_object_get(root, tensors[t].name)) {
            status = ts_error_set(error, TERSE_EINVAL, "a safetensors file cannot hold (another) tensor \"%s\"",
                                  tensors[t].name);
            goto out;
        }
        if (json_object_set_new(root, tensors[t].name, describe(&tensors[t], at, end)) != 0) goto out;
        at = end;
    }
    *text = json_dumps(root, JSON_COMPACT | JSON_PRESERVE_ORDER);
    if (*text) status = TERSE_OK;
out:
    json_decref(root);
    return status;
}

terse_status ts_safetensors_write(const char *path, const ts_safetensor *tensors, size_t count,
                                  const char *const *metadata, ts_error *error) {
    char *header = NULL;
    ts_file_aside file;
    TS_TRY(make_header(tensors, count, metadata, &header, error));
    terse_status status = ts_file_aside_open(path, &file, error);
    if (status != TERSE_OK) {
        free(header);
        return status;
    }
    size_t len = strlen(header), padding = (ALIGNMENT - len % ALIGNMENT) % ALIGNMENT;
    uint8_t length[8];
    ts_store_u64(length, len + padding);
    status = ts_file_aside_write(&file, length, sizeof length, error);
    if (status == TERSE_OK) status = ts_file_aside_write(&file, header, len, error);
    if (status == TERSE_OK) status = ts_file_aside_write(&file, "       ", padding, error);
    for (size_t t = 0; t < count && status == TERSE_OK; t++)
        status = ts_file_aside_write(&file, tensors[t].values, tensor_bytes(&tensors[t]), error);
    free(header);
    return ts_file_aside_finish(&file, status, error);
}
