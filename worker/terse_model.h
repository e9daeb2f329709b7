/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model for terse-worker: built in, or a plug-in given by --plugin FILE.so
 * that exports
 *     const terse_model *terse_model_plugin(void);
 */
#ifndef TERSE_MODEL_H
#define TERSE_MODEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TERSE_MODEL_ABI 1u

typedef struct terse_model_tensor {
    const char *name;
    int64_t shape[8];
    int ndim;
    float *param;    /* [borrow by the trainer] product(shape) elements, initial values in place */
    float *gradient; /* the same size; filled by step() */
} terse_model_tensor;

/* What the trainer tells the model. */
typedef struct terse_model_context {
    uint32_t worker, workers;
    uint32_t batch;          /* samples a step, this worker */
    uint64_t seed;
    const char *data_dir;    /* may be NULL */
    const char *shapes;      /* path, may be NULL */
    uint32_t threads;
} terse_model_context;

typedef struct terse_model {
    uint32_t abi;            /* TERSE_MODEL_ABI */
    const char *name;
    /* Creates a model: data loaded, parameters initialised from the seed alone (the same on all workers).
     * message: a buffer of message_bytes for the reason of a failure. Returns NULL on failure. */
    void *(*create)(const terse_model_context *context, char *message, size_t message_bytes);
    /* All tensors; the array and what it points to live as long as the model. */
    size_t (*tensors)(void *model, const terse_model_tensor **tensors);
    /* How many steps one epoch has (the same on all workers); 0 for endless. */
    uint64_t (*steps_per_epoch)(void *model);
    /* Computes the gradient (mean over the batch) of step `step` (counts from 0 over epochs) into the tensors'
     * gradient, returns the mean loss. */
    double (*step)(void *model, uint64_t step);
    /* Evaluates this worker's part of the test data with parameters `params` (one pointer per tensor):
     * adds the number of samples seen and of right answers. May be NULL: nothing to evaluate. */
    void (*evaluate)(void *model, const float *const *params, double *samples, double *correct);
    void (*destroy)(void *model);
} terse_model;

#ifdef __cplusplus
}
#endif
#endif
