/* SPDX-License-Identifier: Apache-2.0 */
/* A list of layers in place: tensors with initial values, activations, forward and backward. */
#ifndef TS_MODELS_NETWORK_H
#define TS_MODELS_NETWORK_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "worker/models/layer.h"
#include "worker/terse_model.h"

typedef struct {
    ts_layer *layers;
    unsigned count;
    terse_model_tensor *tensors; /* weight, bias of each layer that has them, in layer order */
    size_t tensor_count;
    size_t capacity;             /* samples a call */
    float **activations;         /* count + 1; [0] is the input, capacity × input elements */
    float *ping, *pong;          /* gradients between layers */
    size_t backward_capacity;    /* samples ping and pong hold */
    void **owned;                /* what destroy frees */
    size_t owned_count, owned_room;
} ts_network;

/*
 * Plans the layers, allocates everything, sets initial values by He's rule (biases 0).
 * specs: `count` layers; names [borrow until destroy]. forward_capacity, backward_capacity: most samples a call.
 * out: [own], ts_network_destroy.
 * Returns: TERSE_OK, EINVAL (a layer does not fit what comes before it: error says which), ENOMEM.
 */
terse_status ts_network_create(const ts_layer_spec *specs, unsigned count, ts_extent input, size_t forward_capacity,
                               size_t backward_capacity, uint64_t seed, ts_network **out, ts_error *error)
    TERSE_NODISCARD;
void ts_network_destroy(ts_network *network);

/* Where the caller puts its samples: capacity × input elements. */
static inline float *ts_network_input(ts_network *network) { return network->activations[0]; }

/*
 * Runs all layers.
 * params: one pointer a tensor, or NULL for the network's own. batch <= the larger capacity.
 * Returns: [borrow until the next call] batch × outputs of the last layer; the caller may overwrite it by the gradient.
 */
float *ts_network_forward(ts_network *network, const float *const *params, size_t batch);

/*
 * Gradients of all tensors, after ts_network_forward with its own parameters and the same batch.
 * out_gradient: batch × outputs; overwritten. batch <= backward_capacity; with 0 all gradients become 0.
 */
void ts_network_backward(ts_network *network, float *out_gradient, size_t batch);

#endif
