/* SPDX-License-Identifier: Apache-2.0 */
/* A multi-layer perceptron, 784-512-256-10 (535,818 parameters). */
#include "worker/models/classifier.h"
#include "worker/models/model_list.h"

static const ts_layer_spec layers[] = {
    {&ts_layer_dense, "fc1", 512, 0}, {&ts_layer_relu, NULL, 0, 0},
    {&ts_layer_dense, "fc2", 256, 0}, {&ts_layer_relu, NULL, 0, 0},
    {&ts_layer_dense, "fc3", 10, 0},
};

static void *create(const terse_model_context *context, char *message, size_t message_bytes) {
    return ts_classifier_create(context, layers, sizeof layers / sizeof layers[0], message, message_bytes);
}

const terse_model ts_model_mlp = {
    .abi = TERSE_MODEL_ABI,
    .name = "mlp",
    .create = create,
    .tensors = ts_classifier_tensors,
    .steps_per_epoch = ts_classifier_steps_per_epoch,
    .step = ts_classifier_step,
    .evaluate = ts_classifier_evaluate,
    .destroy = ts_classifier_destroy,
    .samples = ts_classifier_samples,
};
