/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/models/shapes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"

#define BLANKS " \t\r\n"
#define EXTENT_MAX ((long long)1 << 40)

/* One line without comment into a tensor; `tensor->name` stays NULL for an empty line. */
static terse_status parse_line(char *line, const char *path, unsigned number, terse_model_tensor *tensor,
                               ts_error *error) {
    char *rest = NULL;
    line[strcspn(line, "#")] = 0;
    const char *name = strtok_r(line, BLANKS, &rest);
    if (!name) return TERSE_OK;
    for (const char *word; (word = strtok_r(NULL, BLANKS, &rest)) != NULL;) {
        char *end;
        errno = 0;
        long long extent = strtoll(word, &end, 10);
        if (*end || errno || extent < 1 || extent > EXTENT_MAX)
            return ts_error_set(error, TERSE_ECONFIG, "%s:%u: extent \"%s\" of %s: a whole number from 1 is wanted",
                                path, number, word, name);
        if (tensor->ndim == TERSE_MODEL_DIMS)
            return ts_error_set(error, TERSE_ECONFIG, "%s:%u: %s has more than %d extents", path, number, name,
                                TERSE_MODEL_DIMS);
        tensor->shape[tensor->ndim++] = extent;
    }
    tensor->name = ts_mem_strdup(name);
    return tensor->name ? TERSE_OK : TERSE_ENOMEM;
}

static terse_status append(ts_model_shapes *shapes, const terse_model_tensor *tensor) {
    if ((shapes->count & (shapes->count - 1)) == 0) {
        size_t room = shapes->count ? shapes->count * 2 : 1;
        terse_model_tensor *grown = ts_mem_realloc(shapes->tensors, room, sizeof *grown);
        TS_REQUIRE(grown, TERSE_ENOMEM);
        shapes->tensors = grown;
    }
    shapes->tensors[shapes->count++] = *tensor;
    return TERSE_OK;
}

terse_status ts_model_shapes_read(const char *path, ts_model_shapes *out, ts_error *error) {
    FILE *file = fopen(path, "r");
    if (!file)
        return ts_error_set(error, TERSE_EIO, "training.shapes: %s cannot be opened: %s", path, strerror(errno));
    ts_model_shapes shapes = {0};
    char *line = NULL;
    size_t room = 0;
    terse_status status = TERSE_OK;
    for (unsigned number = 1; status == TERSE_OK && getline(&line, &room, file) >= 0; number++) {
        terse_model_tensor tensor = {0};
        status = parse_line(line, path, number, &tensor, error);
        if (status != TERSE_OK || !tensor.name) continue;
        status = append(&shapes, &tensor);
        if (status != TERSE_OK) ts_mem_free((char *)(uintptr_t)tensor.name);
    }
    if (status == TERSE_OK && ferror(file))
        status = ts_error_set(error, TERSE_EIO, "%s: %s", path, strerror(errno));
    if (status == TERSE_OK && shapes.count == 0)
        status = ts_error_set(error, TERSE_ECONFIG,
                              "%s: names no tensor; one \"name extent extent ...\" a line is wanted", path);
    free(line);
    fclose(file);
    if (status != TERSE_OK) {
        ts_model_shapes_free(&shapes);
        return status;
    }
    *out = shapes;
    return TERSE_OK;
}

void ts_model_shapes_free(ts_model_shapes *shapes) {
    if (!shapes) return;
    /* Names are ours; terse_model_tensor only promises not to write them. */
    for (size_t t = 0; t < shapes->count; t++) ts_mem_free((char *)(uintptr_t)shapes->tensors[t].name);
    ts_mem_free(shapes->tensors);
    *shapes = (ts_model_shapes){0};
}
