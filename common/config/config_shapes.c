/* SPDX-License-Identifier: Apache-2.0 */
#include "common/config/config_shapes.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/mem.h"
#include "common/base/name_set.h"

#define LINE_CHARS 1024

typedef struct {
    const char *path;
    size_t line;
    uint64_t max_tensors;
    ts_shapes shapes;
    uint32_t capacity;
    ts_name_set names; /* of the shapes */
    ts_error *error;
} shapes_reader;

void ts_shapes_clear(ts_shapes *shapes) {
    for (uint32_t i = 0; i < shapes->count; i++) ts_mem_free(shapes->tensors[i].name);
    ts_mem_free(shapes->tensors);
    *shapes = (ts_shapes){0};
}

static terse_status parse_extents(const shapes_reader *r, const char *name, char **rest, ts_shape *shape) {
    shape->n = 1;
    for (char *word; (word = strtok_r(NULL, " \t\r\n", rest)) != NULL; shape->ndim++) {
        if (shape->ndim == TS_TENSOR_DIMS) {
            return ts_error_set(r->error, TERSE_ECONFIG, "%s:%zu: %s: more than %d extents", r->path, r->line, name,
                                TS_TENSOR_DIMS);
        }
        errno = 0;
        bool digits = strspn(word, "0123456789") == strlen(word);
        unsigned long long extent = digits ? strtoull(word, NULL, 10) : 0;
        size_t n;
        if (errno != 0 || extent == 0 || !ts_mem_mul(shape->n, extent, &n) || n > UINT32_MAX) {
            return ts_error_set(r->error, TERSE_ECONFIG, "%s:%zu: %s: extent \"%.40s\"; allowed: whole numbers of at "
                                "least 1, their product at most 4294967295", r->path, r->line, name, word);
        }
        shape->shape[shape->ndim] = (int64_t)extent;
        shape->n = n;
    }
    return TERSE_OK;
}

static terse_status reserve(shapes_reader *r) {
    if (r->shapes.count < r->capacity) return TERSE_OK;
    uint32_t capacity = r->capacity ? r->capacity * 2 : 64;
    ts_shape *grown = ts_mem_realloc(r->shapes.tensors, capacity, sizeof *grown);
    TS_REQUIRE(grown, ts_error_set(r->error, TERSE_ENOMEM, "%s: out of memory", r->path));
    r->shapes.tensors = grown;
    r->capacity = capacity;
    return TERSE_OK;
}

static terse_status parse_line(shapes_reader *r, char *line) {
    line[strcspn(line, "#")] = '\0';
    char *rest = NULL;
    const char *name = strtok_r(line, " \t\r\n", &rest);
    TS_REQUIRE(name, TERSE_OK);
    ts_shape shape = {0};
    TS_TRY(parse_extents(r, name, &rest, &shape));
    if (r->shapes.count >= r->max_tensors) {
        return ts_error_set(r->error, TERSE_ECONFIG, "%s:%zu: more than %llu tensors (limits.tensors)", r->path,
                            r->line, (unsigned long long)r->max_tensors);
    }
    TS_TRY(reserve(r));
    shape.name = ts_mem_strdup(name);
    TS_REQUIRE(shape.name, ts_error_set(r->error, TERSE_ENOMEM, "%s: out of memory", r->path));
    r->shapes.tensors[r->shapes.count++] = shape;
    r->shapes.parameters += shape.n;
    bool added;
    TS_REQUIRE(ts_name_set_add(&r->names, shape.name, &added) == TERSE_OK,
               ts_error_set(r->error, TERSE_ENOMEM, "%s: out of memory", r->path));
    if (!added) {
        return ts_error_set(r->error, TERSE_ECONFIG, "%s:%zu: %.200s: the name stands here twice", r->path, r->line,
                            name);
    }
    return TERSE_OK;
}

static terse_status parse_file(shapes_reader *r, FILE *file) {
    char line[LINE_CHARS];
    while (fgets(line, sizeof line, file)) {
        r->line++;
        if (strlen(line) == sizeof line - 1) {
            return ts_error_set(r->error, TERSE_ECONFIG, "%s:%zu: the line is longer than %d bytes", r->path, r->line,
                                LINE_CHARS - 2);
        }
        TS_TRY(parse_line(r, line));
    }
    if (ferror(file)) return ts_error_set(r->error, TERSE_EIO, "%s: cannot be read", r->path);
    if (r->shapes.count == 0) {
        return ts_error_set(r->error, TERSE_ECONFIG, "%s: no tensor in it; a line is NAME EXTENT EXTENT …, as fc.weight "
                            "10 784", r->path);
    }
    return TERSE_OK;
}

terse_status ts_shapes_read(const char *path, uint64_t max_tensors, ts_shapes *out, ts_error *error) {
    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        return ts_error_set(error, TERSE_EIO, "%s: a folder; allowed: a list of tensors", path);
    }
    FILE *file = fopen(path, "r");
    if (!file) return ts_error_set(error, TERSE_EIO, "%s: %s", path, strerror(errno));
    shapes_reader r = {.path = path, .max_tensors = max_tensors, .error = error};
    terse_status status = parse_file(&r, file);
    fclose(file);
    ts_name_set_clear(&r.names);
    if (status != TERSE_OK) {
        ts_shapes_clear(&r.shapes);
        return status;
    }
    *out = r.shapes;
    return TERSE_OK;
}
