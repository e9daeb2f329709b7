/* SPDX-License-Identifier: Apache-2.0 */
/* out = max(in, 0), in place: the layer before needs its inputs for its gradient, not its outputs. */
#include "worker/models/layer.h"

static bool relu_plan(ts_layer *layer) {
    layer->out = layer->in;
    return true;
}

static void relu_forward(const ts_layer *layer, size_t batch, const float *in, float *out) {
    const size_t n = batch * ts_extent_elems(layer->in);
    for (size_t i = 0; i < n; i++) out[i] = in[i] > 0 ? in[i] : 0;
}

static void relu_backward(const ts_layer *layer, size_t batch, const float *in, const float *out, float *out_gradient,
                          float *in_gradient) {
    (void)in;
    if (!in_gradient) return;
    const size_t n = batch * ts_extent_elems(layer->in);
    for (size_t i = 0; i < n; i++) in_gradient[i] = out[i] > 0 ? out_gradient[i] : 0;
}

const ts_layer_kind ts_layer_relu = {"relu", true, relu_plan, relu_forward, relu_backward};
