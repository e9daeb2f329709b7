/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the built-in picture models share: a network of layers on Fashion-MNIST,
 * the samples of each step, evaluation. These are the functions of a
 * terse_model; `model` is what ts_classifier_create returned.
 */
#ifndef TS_MODELS_CLASSIFIER_H
#define TS_MODELS_CLASSIFIER_H

#include "worker/models/layer.h"
#include "worker/terse_model.h"

/* specs: `count` layers [borrow until destroy], the last one with as many outputs as there are classes. */
void *ts_classifier_create(const terse_model_context *context, const ts_layer_spec *specs, unsigned count,
                           char *message, size_t message_bytes);
/* As terse_model.h says of the members of the same names. */
size_t ts_classifier_tensors(void *model, const terse_model_tensor **tensors);
uint64_t ts_classifier_steps_per_epoch(void *model);
double ts_classifier_step(void *model, uint64_t step);
uint32_t ts_classifier_samples(void *model);
void ts_classifier_evaluate(void *model, const float *const *params, uint32_t part, uint32_t parts, double *samples,
                            double *correct);
void ts_classifier_destroy(void *model);

#endif
