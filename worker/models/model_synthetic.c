/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any list of tensor shapes with gradients that cost nothing: for benchmarks of
 * everything but the model. Gradients are log-normal in size with random signs
 * (real ones are long-tailed like that), different at every worker and step:
 * one pool of values, a little larger than the model, in which each step starts
 * at another place. So a step touches the memory a real one would.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/config/config_shapes.h"
#include "worker/models/initial.h"
#include "worker/models/model_list.h"
#include "worker/models/model_registry.h"

_Static_assert(TERSE_MODEL_DIMS >= TS_TENSOR_DIMS, "a list's shapes fit into a model's");

#define TABLE_BITS 14
#define TABLE_SIZE (1u << TABLE_BITS)
#define LINE_FLOATS (TS_CACHE_LINE / sizeof(float))
#define SIGMA 1.5            /* of the logarithm: the top 1 % of elements hold about a fifth of the L1 norm */
#define TYPICAL 1e-3
#define SMALLEST_ROOM 4096   /* floats by which the pool is larger, at least */

typedef struct {
    ts_shapes shapes;            /* [own] holds the tensors' names */
    terse_model_tensor *tensors; /* [own] shapes.count */
    size_t parameters, room; /* elements; room: by how many floats gradients move */
    float *params, *pool;
    size_t *starts;          /* of each tensor in params and pool, multiples of a cache line */
    uint64_t key;
} synthetic;

/* Values from a table of long-tailed ones, two a random word. Cheaper than a logarithm an element by far. */
static void fill(uint64_t key, double scale, float *to, size_t n) {
    float table[TABLE_SIZE];
    ts_random random = ts_random_start(key);
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        double size = scale * exp(SIGMA * (double)ts_random_normal(&random));
        table[i] = (float)(ts_random_u32(&random) & 1 ? size : -size);
    }
    for (size_t i = 0; i < n; i += 4) {
        uint64_t word = ts_mix64(key + i);
        for (size_t j = i; j < i + 4 && j < n; j++, word >>= 16) to[j] = table[word & (TABLE_SIZE - 1)];
    }
}

static void synthetic_destroy(void *model) {
    synthetic *self = model;
    if (!self) return;
    ts_mem_free(self->params);
    ts_mem_free(self->pool);
    ts_mem_free(self->starts);
    ts_mem_free(self->tensors);
    ts_shapes_clear(&self->shapes);
    ts_mem_free(self);
}

/* Where gradients start at a step; whole cache lines, so that every step is aligned alike. */
static void point_gradients(synthetic *self, uint64_t step) {
    size_t shift = (size_t)(ts_mix64(self->key ^ step) % (self->room / LINE_FLOATS)) * LINE_FLOATS;
    for (size_t t = 0; t < self->shapes.count; t++)
        self->tensors[t].gradient = self->pool + self->starts[t] + shift;
}

static terse_status make_tensors(synthetic *self) {
    self->tensors = ts_mem_calloc(self->shapes.count, sizeof *self->tensors);
    TS_REQUIRE(self->tensors, TERSE_ENOMEM);
    for (size_t t = 0; t < self->shapes.count; t++) {
        const ts_shape *shape = &self->shapes.tensors[t];
        self->tensors[t].name = shape->name;
        self->tensors[t].ndim = (int)shape->ndim;
        for (unsigned d = 0; d < shape->ndim; d++) self->tensors[t].shape[d] = shape->shape[d];
    }
    return TERSE_OK;
}

static terse_status lay_out(synthetic *self, ts_error *error) {
    size_t end = 0;
    self->starts = ts_mem_calloc(self->shapes.count, sizeof *self->starts);
    TS_REQUIRE(self->starts, TERSE_ENOMEM);
    TS_TRY(ts_model_check_shapes(self->tensors, self->shapes.count, &self->parameters, error));
    for (size_t t = 0; t < self->shapes.count; t++) {
        self->starts[t] = end;
        end += (ts_model_tensor_elems(&self->tensors[t]) + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
    }
    self->room = self->parameters / 8 > SMALLEST_ROOM ? self->parameters / 8 : SMALLEST_ROOM;
    self->params = ts_mem_aligned(end, sizeof(float));
    self->pool = ts_mem_aligned(end + self->room, sizeof(float));
    TS_REQUIRE(self->params && self->pool, TERSE_ENOMEM);
    for (size_t t = 0; t < self->shapes.count; t++) self->tensors[t].param = self->params + self->starts[t];
    return TERSE_OK;
}

static void *synthetic_create(const terse_model_context *context, char *message, size_t message_bytes) {
    ts_error error = {.text = "out of memory"};
    synthetic *self = ts_mem_calloc(1, sizeof *self);
    terse_status status = self ? TERSE_OK : TERSE_ENOMEM;
    if (status == TERSE_OK && !context->shapes)
        status = ts_error_set(&error, TERSE_ECONFIG, "training.shapes must name a file for the model synthetic");
    /* limits.tensors was kept by the config already */
    if (status == TERSE_OK) status = ts_shapes_read(context->shapes, UINT32_MAX, &self->shapes, &error);
    if (status == TERSE_OK) status = make_tensors(self);
    if (status == TERSE_OK) status = lay_out(self, &error);
    if (status != TERSE_OK) {
        snprintf(message, message_bytes, "%s", error.text);
        synthetic_destroy(self);
        return NULL;
    }
    const terse_model_tensor *last = &self->tensors[self->shapes.count - 1];
    size_t end = self->starts[self->shapes.count - 1] + ts_model_tensor_elems(last);
    self->key = ts_random_key(context->seed, 0, 0, context->worker + 1, 0);
    fill(ts_initial_key(context->seed, "synthetic"), 0.01, self->params, end);
    fill(self->key, TYPICAL, self->pool, end + self->room);
    point_gradients(self, 0);
    return self;
}

static size_t synthetic_tensors(void *model, const terse_model_tensor **tensors) {
    synthetic *self = model;
    *tensors = self->tensors;
    return self->shapes.count;
}

static uint64_t synthetic_steps_per_epoch(void *model) {
    (void)model;
    return 0;
}

static double synthetic_step(void *model, uint64_t step) {
    point_gradients(model, step);
    return 0;
}

const terse_model ts_model_synthetic = {
    .abi = TERSE_MODEL_ABI,
    .name = "synthetic",
    .create = synthetic_create,
    .tensors = synthetic_tensors,
    .steps_per_epoch = synthetic_steps_per_epoch,
    .step = synthetic_step,
    .evaluate = NULL,
    .destroy = synthetic_destroy,
};
