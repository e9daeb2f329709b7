/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model as a plug-in: linear regression y = w·x + b on data made up on the
 * spot, a fresh batch every step. Nothing but terse_model.h is needed; after `make install`:
 *
 *     cc -O2 -shared -fPIC $(pkg-config --cflags terse) -o plugin_linear.so plugin_linear.c -lm
 *     mpirun ... terse-worker configs/linear.yaml --plugin ./plugin_linear.so
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <terse_model.h>

#define FEATURES 16

typedef struct {
    terse_model_context context;
    float weight[FEATURES], weight_gradient[FEATURES];
    float bias[1], bias_gradient[1];
    terse_model_tensor tensors[2];
} linear;

/* A number in [-1, 1) that depends on its key alone (SplitMix64), so every run sees the same data. */
static float noise(uint64_t key) {
    key += 0x9E3779B97F4A7C15u;
    key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9u;
    key = (key ^ (key >> 27)) * 0x94D049BB133111EBu;
    key ^= key >> 31;
    return (float)(key >> 40) * 0x1p-23f - 1.0f;
}

static void *create(const terse_model_context *context, char *message, size_t message_bytes) {
    linear *self = calloc(1, sizeof *self);
    if (!self) {
        snprintf(message, message_bytes, "no memory for the linear model");
        return NULL;
    }
    self->context = *context;
    self->tensors[0] = (terse_model_tensor){"weight", {FEATURES}, 1, self->weight, self->weight_gradient};
    self->tensors[1] = (terse_model_tensor){"bias", {1}, 1, self->bias, self->bias_gradient};
    return self;
}

static size_t tensors(void *model, const terse_model_tensor **list) {
    *list = ((linear *)model)->tensors;
    return 2;
}

static uint64_t steps_per_epoch(void *model) {
    (void)model;
    return 0; /* endless: training.max_steps says how many */
}

/* One batch of uniform x (deviation 1) and y = w*·x + b*; loss ½ (prediction − y)², mean over the batch. */
static double step(void *model, uint64_t number) {
    linear *self = model;
    const uint32_t batch = self->context.batch;
    const uint64_t data = (self->context.seed << 32) + number * self->context.workers + self->context.worker;
    double loss = 0;
    for (int f = 0; f < FEATURES; f++) self->weight_gradient[f] = 0;
    self->bias_gradient[0] = 0;
    for (uint32_t s = 0; s < batch; s++) {
        float x[FEATURES], error = self->bias[0] - 0.5f;
        for (int f = 0; f < FEATURES; f++) {
            x[f] = sqrtf(3.0f) * noise((data * batch + s) * FEATURES + (uint64_t)f);
            error += (self->weight[f] - noise((uint64_t)f)) * x[f];
        }
        for (int f = 0; f < FEATURES; f++) self->weight_gradient[f] += error * x[f] / (float)batch;
        self->bias_gradient[0] += error / (float)batch;
        loss += 0.5 * (double)error * (double)error / batch;
    }
    return loss;
}

static void destroy(void *model) { free(model); }

static const terse_model linear_model = {
    .abi = TERSE_MODEL_ABI,
    .name = "linear",
    .create = create,
    .tensors = tensors,
    .steps_per_epoch = steps_per_epoch,
    .step = step,
    .evaluate = NULL, /* no test data */
    .destroy = destroy,
};

TERSE_MODEL_EXPORT const terse_model *terse_model_plugin(void);
const terse_model *terse_model_plugin(void) { return &linear_model; }
