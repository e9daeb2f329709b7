/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/models/network.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "worker/models/initial.h"

#define NAME_CHARS 64
#define OWNED_A_LAYER 8

/* Zeroed floats that live as long as the network; NULL when there is no memory. */
static void *own(ts_network *network, size_t count, size_t size) {
    if (network->owned_count == network->owned_room) return NULL;
    void *block = ts_mem_aligned(count ? count : 1, size);
    if (block) network->owned[network->owned_count++] = block;
    return block;
}

static terse_status add_tensor(ts_network *network, const ts_layer *layer, const char *kind, size_t n,
                               const float **param, float **gradient) {
    terse_model_tensor *tensor = &network->tensors[network->tensor_count];
    char *name = own(network, NAME_CHARS, 1);
    float *values = own(network, n, sizeof(float));
    float *gradients = own(network, n, sizeof(float));
    TS_REQUIRE(name && values && gradients, TERSE_ENOMEM);
    snprintf(name, NAME_CHARS, "%s.%s", layer->spec.name, kind);
    *tensor = (terse_model_tensor){.name = name, .param = values, .gradient = gradients};
    *param = values;
    *gradient = gradients;
    network->tensor_count++;
    return TERSE_OK;
}

static terse_status add_tensors(ts_network *network, ts_layer *layer, uint64_t seed) {
    if (layer->weight_n == 0) return TERSE_OK;
    TS_TRY(add_tensor(network, layer, "weight", layer->weight_n, &layer->weight, &layer->weight_gradient));
    terse_model_tensor *weight = &network->tensors[network->tensor_count - 1];
    weight->shape[0] = (int64_t)layer->bias_n;
    weight->shape[1] = (int64_t)(layer->spec.size ? layer->in.channels : layer->fan_in);
    weight->ndim = 2;
    if (layer->spec.size) {
        weight->shape[2] = weight->shape[3] = (int64_t)layer->spec.size;
        weight->ndim = 4;
    }
    ts_initial_he(seed, weight->name, layer->fan_in, weight->param, layer->weight_n);
    TS_TRY(add_tensor(network, layer, "bias", layer->bias_n, &layer->bias, &layer->bias_gradient));
    terse_model_tensor *bias = &network->tensors[network->tensor_count - 1];
    bias->shape[0] = (int64_t)layer->bias_n;
    bias->ndim = 1;
    return TERSE_OK;
}

static terse_status build(ts_network *network, const ts_layer_spec *specs, ts_extent input, uint64_t seed,
                          ts_error *error) {
    size_t widest = 0, samples = network->capacity;
    ts_extent extent = input;
    network->activations[0] = own(network, samples * ts_extent_elems(input), sizeof(float));
    TS_REQUIRE(network->activations[0], TERSE_ENOMEM);
    for (unsigned l = 0; l < network->count; l++) {
        ts_layer *layer = &network->layers[l];
        *layer = (ts_layer){.spec = specs[l], .in = extent};
        if (!layer->spec.kind->plan(layer))
            return ts_error_set(error, TERSE_EINVAL, "layer %u (%s) does not fit its input of %zu x %zu x %zu", l,
                                layer->spec.kind->name, extent.channels, extent.height, extent.width);
        extent = layer->out;
        TS_TRY(add_tensors(network, layer, seed));
        layer->scratch = own(network, layer->scratch_n, sizeof(float));
        network->activations[l + 1] = layer->spec.kind->in_place
                                          ? network->activations[l]
                                          : own(network, samples * ts_extent_elems(extent), sizeof(float));
        TS_REQUIRE(layer->scratch && network->activations[l + 1], TERSE_ENOMEM);
        if (ts_extent_elems(layer->in) > widest && l > 0) widest = ts_extent_elems(layer->in);
    }
    network->ping = own(network, network->backward_capacity * widest, sizeof(float));
    network->pong = own(network, network->backward_capacity * widest, sizeof(float));
    return network->ping && network->pong ? TERSE_OK : TERSE_ENOMEM;
}

terse_status ts_network_create(const ts_layer_spec *specs, unsigned count, ts_extent input, size_t forward_capacity,
                               size_t backward_capacity, uint64_t seed, ts_network **out, ts_error *error) {
    TS_REQUIRE(count > 0 && ts_extent_elems(input) > 0, TERSE_EINVAL);
    ts_network *network = ts_mem_calloc(1, sizeof *network);
    TS_REQUIRE(network, TERSE_ENOMEM);
    network->count = count;
    network->capacity = forward_capacity > backward_capacity ? forward_capacity : backward_capacity;
    network->backward_capacity = backward_capacity;
    network->owned_room = (size_t)(count + 1) * OWNED_A_LAYER;
    network->layers = ts_mem_calloc(count, sizeof *network->layers);
    network->tensors = ts_mem_calloc((size_t)count * 2, sizeof *network->tensors);
    network->activations = ts_mem_calloc((size_t)count + 1, sizeof *network->activations);
    network->owned = ts_mem_calloc(network->owned_room, sizeof *network->owned);
    terse_status status = TERSE_ENOMEM;
    if (network->layers && network->tensors && network->activations && network->owned)
        status = build(network, specs, input, seed, error);
    if (status == TERSE_ENOMEM) (void)ts_error_set(error, status, "no memory for a network of %u layers", count);
    if (status != TERSE_OK) {
        ts_network_destroy(network);
        return status;
    }
    *out = network;
    return TERSE_OK;
}

void ts_network_destroy(ts_network *network) {
    if (!network) return;
    for (size_t i = 0; i < network->owned_count; i++) ts_mem_free(network->owned[i]);
    ts_mem_free(network->owned);
    ts_mem_free(network->activations);
    ts_mem_free(network->tensors);
    ts_mem_free(network->layers);
    ts_mem_free(network);
}

float *ts_network_forward(ts_network *network, const float *const *params, size_t batch) {
    size_t tensor = 0;
    for (unsigned l = 0; l < network->count; l++) {
        ts_layer *layer = &network->layers[l];
        if (layer->weight_n) {
            layer->weight = params ? params[tensor] : network->tensors[tensor].param;
            layer->bias = params ? params[tensor + 1] : network->tensors[tensor + 1].param;
            tensor += 2;
        }
        if (batch) layer->spec.kind->forward(layer, batch, network->activations[l], network->activations[l + 1]);
    }
    return network->activations[network->count];
}

void ts_network_backward(ts_network *network, float *out_gradient, size_t batch) {
    if (batch == 0) {
        for (unsigned l = 0; l < network->count; l++) {
            ts_layer *layer = &network->layers[l];
            if (layer->weight_n) memset(layer->weight_gradient, 0, layer->weight_n * sizeof(float));
            if (layer->bias_n) memset(layer->bias_gradient, 0, layer->bias_n * sizeof(float));
        }
        return;
    }
    float *gradient = out_gradient, *next = network->ping;
    for (unsigned l = network->count; l-- > 0;) {
        ts_layer *layer = &network->layers[l];
        bool stays = layer->spec.kind->in_place;
        float *to = l == 0 ? NULL : stays ? gradient : next;
        layer->spec.kind->backward(layer, batch, network->activations[l], network->activations[l + 1], gradient, to);
        if (stays || l == 0) continue;
        gradient = to;
        next = gradient == network->ping ? network->pong : network->ping;
    }
}
