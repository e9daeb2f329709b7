/* SPDX-License-Identifier: Apache-2.0 */
/* A small convolutional network in the manner of LeNet (LeCun et al. 1998): two 5 × 5 convolutions of 16 and 32
 * channels, each with 2 × 2 pooling, then dense layers of 128 and 10 (80,202 parameters). */
#include "worker/models/classifier.h"
#include "worker/models/model_list.h"

static const ts_layer_spec layers[] = {
    {&ts_layer_conv, "conv1", 16, 5}, {&ts_layer_relu, NULL, 0, 0}, {&ts_layer_pool, NULL, 0, 2},
    {&ts_layer_conv, "conv2", 32, 5}, {&ts_layer_relu, NULL, 0, 0}, {&ts_layer_pool, NULL, 0, 2},
    {&ts_layer_dense, "fc1", 128, 0}, {&ts_layer_relu, NULL, 0, 0},
    {&ts_layer_dense, "fc2", 10, 0},
};

static void *create(const terse_model_context *context, char *message, size_t message_bytes) {
    return ts_classifier_create(context, layers, sizeof layers / sizeof layers[0], message, message_bytes);
}

const terse_model ts_model_cnn = {
    .abi = TERSE_MODEL_ABI,
    .name = "cnn",
    .create = create,
    .tensors = ts_classifier_tensors,
    .steps_per_epoch = ts_classifier_steps_per_epoch,
    .step = ts_classifier_step,
    .evaluate = ts_classifier_evaluate,
    .destroy = ts_classifier_destroy,
    .samples = ts_classifier_samples,
};
