/* SPDX-License-Identifier: Apache-2.0 */
/*
 * out = max(in, 0), in place: the layer before needs its inputs for its gradient, not its outputs. NaN stays NaN, so
 * that a broken run shows. Signs are random, so a branch on them would cost ten times the arithmetic: masks instead.
 */
#include <stdint.h>
#include <string.h>

#include "worker/models/layer.h"

static bool relu_plan(ts_layer *layer) {
    layer->out = layer->in;
    return true;
}

static inline uint32_t all_ones_if(bool condition) { return 0u - (uint32_t)condition; }

static void relu_forward(const ts_layer *layer, size_t batch, const float *in, float *out) {
    const size_t n = batch * ts_extent_elems(layer->in);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &in[i], sizeof bits);
        bits &= all_ones_if(!(in[i] < 0));
        memcpy(&out[i], &bits, sizeof bits);
    }
}

static void relu_backward(const ts_layer *layer, size_t batch, const float *in, const float *out, float *out_gradient,
                          float *in_gradient) {
    (void)in;
    if (!in_gradient) return;
    const size_t n = batch * ts_extent_elems(layer->in);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &out_gradient[i], sizeof bits);
        bits &= all_ones_if(!(out[i] <= 0));
        memcpy(&in_gradient[i], &bits, sizeof bits);
    }
}

const ts_layer_kind ts_layer_relu = {"relu", true, relu_plan, relu_forward, relu_backward};
