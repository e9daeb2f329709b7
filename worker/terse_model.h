/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model for terse-worker: built in, or a plug-in given by --plugin FILE.so
 * that exports
 *     TERSE_MODEL_EXPORT const terse_model *terse_model_plugin(void);
 *
 * Threads: all functions of one model are called from one thread.
 */
#ifndef TERSE_MODEL_H
#define TERSE_MODEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TERSE_MODEL_ABI 2u /* plug-ins of 1, whose table ends with destroy, are taken as well */
#define TERSE_MODEL_SYMBOL "terse_model_plugin"
#define TERSE_MODEL_DIMS 8

#if defined(__GNUC__) || defined(__clang__)
#define TERSE_MODEL_EXPORT __attribute__((visibility("default")))
#else
#define TERSE_MODEL_EXPORT
#endif

typedef struct terse_model_tensor {
    const char *name;
    int64_t shape[TERSE_MODEL_DIMS];
    int ndim;
    float *param;          /* [borrow by the trainer] product(shape) elements, initial values in place; never moves */
    const float *gradient; /* the same size; filled by step(). May point elsewhere after each step(): the trainer reads
                            * the array again then. Valid until the next step(). */
} terse_model_tensor;

/* What the trainer tells the model. */
typedef struct terse_model_context {
    uint32_t worker, workers;
    uint32_t batch;          /* samples a step, this worker */
    uint64_t seed;
    const char *data_dir;    /* may be NULL: the config wants no data */
    const char *shapes;      /* path, may be NULL */
    uint32_t threads;        /* how many the model may use */
    uint32_t by_samples;     /* since ABI 2. 1: the servers weigh gradients by what samples() says; see step() */
} terse_model_context;

typedef struct terse_model {
    uint32_t abi;            /* TERSE_MODEL_ABI */
    const char *name;
    /* Creates a model: data loaded, parameters initialised from the seed alone (the same on all workers).
     * message: [out] a buffer of message_bytes for the reason of a failure.
     * Returns: [own], destroy; NULL on failure. */
    void *(*create)(const terse_model_context *context, char *message, size_t message_bytes);
    /* All tensors, the same at every worker; the array lives as long as the model. Returns how many. */
    size_t (*tensors)(void *model, const terse_model_tensor **tensors);
    /* How many steps one epoch has (the same on all workers); 0 for endless: training.max_steps decides then. */
    uint64_t (*steps_per_epoch)(void *model);
    /* Computes the gradient of step `step` (counts from 0 over epochs) at `param` into the tensors' gradient: the mean
     * over the samples of this worker. Unless context.by_samples is set and there is samples(), the servers take the
     * plain mean over the workers, so a worker whose batch is smaller than the others' scales by its size over their
     * mean size. Returns the loss, whose plain mean over the workers is shown: always scaled so. */
    double (*step)(void *model, uint64_t step);
    /* Evaluates part `part` (0 … parts - 1) of the test data with the parameters `params` (one pointer per tensor):
     * adds the number of samples seen and of right answers. May be NULL: nothing to evaluate. */
    void (*evaluate)(void *model, const float *const *params, uint32_t part, uint32_t parts, double *samples,
                     double *correct);
    void (*destroy)(void *model);
    /* Since ABI 2; may be NULL: the gradients of all workers weigh the same. How many samples the gradient of the last
     * step is a mean of, at least 1; asked after each step when context.by_samples is set (aggregation.mode samples). */
    uint32_t (*samples)(void *model);
} terse_model;

#ifdef __cplusplus
}
#endif
#endif
