/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/models/model_registry.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/base/name_set.h"
#include "worker/models/model_list.h"

typedef struct {
    const terse_model *model;
    const char *text;
} entry;

#define ENTRY(name, text) {&ts_model_##name, text},
static const entry entries[] = {TS_MODEL_LIST(ENTRY)};
#undef ENTRY

#define NAME(name, text) " " #name
static const char names[] = TS_MODEL_LIST(NAME);
#undef NAME

terse_status ts_model_find(const char *name, const terse_model **model, ts_error *error) {
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
        if (strcmp(entries[i].model->name, name) == 0) {
            *model = entries[i].model;
            return TERSE_OK;
        }
    return ts_error_set(error, TERSE_ENOTFOUND, "training.model: no model \"%s\"; there are%s, or a plug-in (--plugin)",
                        name, names);
}

void ts_model_print_list(FILE *to) {
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
        fprintf(to, "  %-10s %s\n", entries[i].model->name, entries[i].text);
}

size_t ts_model_tensor_elems(const terse_model_tensor *tensor) {
    size_t n = 1;
    for (int d = 0; d < tensor->ndim; d++) n *= (size_t)tensor->shape[d];
    return n;
}

static terse_status check_tensor(const terse_model_tensor *tensor, size_t index, size_t *elems, ts_error *error) {
    if (!tensor->name || !*tensor->name)
        return ts_error_set(error, TERSE_EINVAL, "the model's tensor %zu has no name", index);
    if (tensor->ndim < 0 || tensor->ndim > TERSE_MODEL_DIMS)
        return ts_error_set(error, TERSE_EINVAL, "the model's tensor %s has %d dimensions, 0 ... %d are allowed",
                            tensor->name, tensor->ndim, TERSE_MODEL_DIMS);
    size_t n = 1;
    for (int d = 0; d < tensor->ndim; d++) {
        if (tensor->shape[d] < 1)
            return ts_error_set(error, TERSE_EINVAL, "the model's tensor %s: extent %d is %lld", tensor->name, d,
                                (long long)tensor->shape[d]);
        if (!ts_mem_mul(n, (size_t)tensor->shape[d], &n) || n > PTRDIFF_MAX / sizeof(float))
            return ts_error_set(error, TERSE_ELIMIT, "the model's tensor %s is larger than memory", tensor->name);
    }
    *elems = n;
    return TERSE_OK;
}

terse_status ts_model_check_shapes(const terse_model_tensor *tensors, size_t count, size_t *parameters,
                                   ts_error *error) {
    size_t sum = 0, elems = 0;
    if (count == 0 || !tensors) return ts_error_set(error, TERSE_EINVAL, "the model has no tensors");
    ts_name_set seen = {0};
    terse_status status = TERSE_OK;
    for (size_t t = 0; t < count && status == TERSE_OK; t++) {
        bool added = true;
        status = check_tensor(&tensors[t], t, &elems, error);
        if (status == TERSE_OK && ts_name_set_add(&seen, tensors[t].name, &added) != TERSE_OK)
            status = ts_error_set(error, TERSE_ENOMEM, "out of memory");
        if (!added) status = ts_error_set(error, TERSE_EINVAL, "the model names two tensors %s", tensors[t].name);
        if (status == TERSE_OK && !ts_mem_add(sum, elems, &sum))
            status = ts_error_set(error, TERSE_ELIMIT, "the model is larger than memory");
    }
    ts_name_set_clear(&seen);
    if (status == TERSE_OK) *parameters = sum;
    return status;
}

terse_status ts_model_check_tensors(const terse_model_tensor *tensors, size_t count, size_t *parameters,
                                    ts_error *error) {
    size_t sum = 0;
    TS_TRY(ts_model_check_shapes(tensors, count, &sum, error));
    for (size_t t = 0; t < count; t++)
        if (!tensors[t].param)
            return ts_error_set(error, TERSE_EINVAL, "the model's tensor %s has no param", tensors[t].name);
    *parameters = sum;
    return TERSE_OK;
}
