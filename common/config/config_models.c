/* SPDX-License-Identifier: Apache-2.0 */
#include "common/config/config_models.h"

#include <string.h>

#include "common/base/mem.h"

/* What worker/models/model_*.c declare; a test compares them. Extents end with 0. */
static const struct {
    const char *model, *tensor;
    int64_t shape[5];
} known[] = {
    {"softmax", "fc.weight", {10, 784}},
    {"softmax", "fc.bias", {10}},
    {"mlp", "fc1.weight", {512, 784}},
    {"mlp", "fc1.bias", {512}},
    {"mlp", "fc2.weight", {256, 512}},
    {"mlp", "fc2.bias", {256}},
    {"mlp", "fc3.weight", {10, 256}},
    {"mlp", "fc3.bias", {10}},
    {"cnn", "conv1.weight", {16, 1, 5, 5}},
    {"cnn", "conv1.bias", {16}},
    {"cnn", "conv2.weight", {32, 16, 5, 5}},
    {"cnn", "conv2.bias", {32}},
    {"cnn", "fc1.weight", {128, 512}},
    {"cnn", "fc1.bias", {128}},
    {"cnn", "fc2.weight", {10, 128}},
    {"cnn", "fc2.bias", {10}},
};
#define KNOWN (sizeof known / sizeof known[0])

static terse_status add(ts_shapes *shapes, size_t row) {
    ts_shape *shape = &shapes->tensors[shapes->count];
    *shape = (ts_shape){.name = ts_mem_strdup(known[row].tensor), .n = 1};
    TS_REQUIRE(shape->name, TERSE_ENOMEM);
    for (; known[row].shape[shape->ndim] > 0; shape->ndim++) {
        shape->shape[shape->ndim] = known[row].shape[shape->ndim];
        shape->n *= (size_t)shape->shape[shape->ndim];
    }
    shapes->count++;
    shapes->parameters += shape->n;
    return TERSE_OK;
}

terse_status ts_config_tensors(const ts_config *config, ts_shapes *out, ts_error *error) {
    if (config->worker.plugin) return ts_error_set(error, TERSE_ENOTFOUND, "its tensors are known to the plug-in alone");
    if (strcmp(config->training.model, "synthetic") == 0)
        return ts_shapes_read(config->training.shapes, config->limits.tensors, out, error);
    /* A file that trains on no data belongs to a program with tensors of its own. */
    if (strcmp(config->training.data, "none") == 0)
        return ts_error_set(error, TERSE_ENOTFOUND, "the tensors are known to the program alone that declares them");
    ts_shapes shapes = {.tensors = ts_mem_calloc(KNOWN, sizeof *shapes.tensors)};
    terse_status status = shapes.tensors ? TERSE_OK : TERSE_ENOMEM;
    for (size_t row = 0; status == TERSE_OK && row < KNOWN; row++)
        if (strcmp(known[row].model, config->training.model) == 0) status = add(&shapes, row);
    if (status == TERSE_OK && shapes.count == 0) status = TERSE_ENOTFOUND;
    if (status != TERSE_OK) {
        ts_shapes_clear(&shapes);
        return ts_error_set(error, status, "model %s: %s", config->training.model, terse_strerror(status));
    }
    *out = shapes;
    return TERSE_OK;
}
