/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax regression: one dense layer, 784 to 10 (7,850 parameters). */
#include "worker/models/classifier.h"
#include "worker/models/model_list.h"

static const ts_layer_spec layers[] = {
    {&ts_layer_dense, "fc", 10, 0},
};

static void *create(const terse_model_context *context, char *message, size_t message_bytes) {
    return ts_classifier_create(context, layers, sizeof layers / sizeof layers[0], message, message_bytes);
}

const terse_model ts_model_softmax = {
    .abi = TERSE_MODEL_ABI,
    .name = "softmax",
    .create = create,
    .tensors = ts_classifier_tensors,
    .steps_per_epoch = ts_classifier_steps_per_epoch,
    .step = ts_classifier_step,
    .evaluate = ts_classifier_evaluate,
    .destroy = ts_classifier_destroy,
    .samples = ts_classifier_samples,
};
