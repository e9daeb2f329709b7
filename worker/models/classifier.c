/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/models/classifier.h"

#include <cblas.h>
#include <stdbool.h>
#include <stdio.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "worker/data/fashion_mnist.h"
#include "worker/data/split.h"
#include "worker/models/loss.h"
#include "worker/models/network.h"

#define EVALUATION_BATCH 200

typedef struct {
    ts_fashion_mnist data;
    ts_split split;
    ts_network *network;
    uint8_t *labels; /* of the batch */
    bool by_samples;  /* the servers weigh gradients */
    uint32_t samples; /* of the last step */
} ts_classifier;

/* Then a step holds all there is: the batch is less than the config says, and an epoch is one step. */
static void warn_of_large_batch(const terse_model_context *context, size_t samples) {
    size_t share = samples / context->workers;
    if (context->worker != 0 || context->batch <= share) return;
    ts_log(TS_LOG_WARN, "model", "training.batch is larger than a worker's share of the data",
           "batch=%u share=%zu samples=%zu workers=%u", context->batch, share, samples, context->workers);
}

void *ts_classifier_create(const terse_model_context *context, const ts_layer_spec *specs, unsigned count,
                           char *message, size_t message_bytes) {
    ts_error error = {.text = "out of memory"};
    ts_classifier *model = ts_mem_calloc(1, sizeof *model);
    terse_status status = model ? TERSE_OK : TERSE_ENOMEM;
    if (status == TERSE_OK && !context->data_dir)
        status = ts_error_set(&error, TERSE_ECONFIG, "this model needs data: set training.data to fashion-mnist");
    if (status != TERSE_OK) goto out;
    model->by_samples = context->by_samples != 0;
    openblas_set_num_threads((int)context->threads);
    status = ts_fashion_mnist_load(context->data_dir, &model->data, &error);
    if (status != TERSE_OK) goto out;
    status = ts_split_init(&model->split, context->seed, model->data.train.count, context->worker, context->workers,
                           context->batch);
    if (status != TERSE_OK) goto out;
    warn_of_large_batch(context, model->data.train.count);
    status = ts_network_create(specs, count, (ts_extent){1, TS_FASHION_SIDE, TS_FASHION_SIDE}, EVALUATION_BATCH,
                               context->batch, context->seed, &model->network, &error);
    if (status != TERSE_OK) goto out;
    size_t labels = context->batch > EVALUATION_BATCH ? context->batch : EVALUATION_BATCH;
    model->labels = ts_mem_calloc(labels, sizeof *model->labels);
    if (!model->labels) status = TERSE_ENOMEM;
out:
    if (status == TERSE_OK) return model;
    snprintf(message, message_bytes, "%s", error.text);
    ts_classifier_destroy(model);
    return NULL;
}

void ts_classifier_destroy(void *model) {
    ts_classifier *self = model;
    if (!self) return;
    ts_network_destroy(self->network);
    ts_split_free(&self->split);
    ts_fashion_mnist_free(&self->data);
    ts_mem_free(self->labels);
    ts_mem_free(self);
}

size_t ts_classifier_tensors(void *model, const terse_model_tensor **tensors) {
    ts_classifier *self = model;
    *tensors = self->network->tensors;
    return self->network->tensor_count;
}

uint64_t ts_classifier_steps_per_epoch(void *model) { return ((ts_classifier *)model)->split.steps_per_epoch; }

double ts_classifier_step(void *model, uint64_t step) {
    ts_classifier *self = model;
    const ts_samples *train = &self->data.train;
    ts_share share = ts_split_step(&self->split, step);
    float *input = ts_network_input(self->network);
    for (size_t i = 0; i < share.count; i++) {
        ts_fashion_mnist_floats(train, share.samples[i], input + i * TS_FASHION_PIXELS);
        self->labels[i] = train->labels[share.samples[i]];
    }
    float *logits = ts_network_forward(self->network, NULL, share.count);
    /* The mean over workers of sums scaled so is the mean over all samples of the step, uneven shares or not. Where the
     * servers weigh by samples, each says its own mean, unless somebody has none, and so the others have one each: a
     * gradient always weighs something. */
    const double even = (double)self->split.workers / (double)share.total;
    const bool own = self->by_samples && share.total >= self->split.workers;
    const double scale = own ? 1.0 / (double)share.count : even;
    self->samples = own ? (uint32_t)share.count : 1;
    double loss = ts_loss_softmax(logits, self->labels, share.count, TS_FASHION_CLASSES, (float)scale, logits);
    ts_network_backward(self->network, logits, share.count);
    return loss * even;
}

uint32_t ts_classifier_samples(void *model) { return ((ts_classifier *)model)->samples; }

void ts_classifier_evaluate(void *model, const float *const *params, uint32_t part, uint32_t parts, double *samples,
                            double *correct) {
    ts_classifier *self = model;
    const ts_samples *test = &self->data.test;
    size_t first, count = ts_split_part(test->count, part, parts, &first), right = 0;
    float *input = ts_network_input(self->network);
    for (size_t done = 0; done < count;) {
        size_t batch = count - done < EVALUATION_BATCH ? count - done : EVALUATION_BATCH;
        for (size_t i = 0; i < batch; i++)
            ts_fashion_mnist_floats(test, first + done + i, input + i * TS_FASHION_PIXELS);
        const float *logits = ts_network_forward(self->network, params, batch);
        right += ts_loss_right(logits, test->labels + first + done, batch, TS_FASHION_CLASSES);
        done += batch;
    }
    *samples += (double)count;
    *correct += (double)right;
}
