/* SPDX-License-Identifier: Apache-2.0 */
/* out[b][o] = sum over i of in[b][i] · weight[o][i] + bias[o] */
#include <cblas.h>
#include <string.h>

#include "worker/models/layer.h"

static bool dense_plan(ts_layer *layer) {
    size_t inputs = ts_extent_elems(layer->in), outputs = layer->spec.outputs;
    if (inputs == 0 || outputs == 0) return false;
    layer->out = (ts_extent){outputs, 1, 1};
    layer->weight_n = inputs * outputs;
    layer->bias_n = outputs;
    layer->fan_in = inputs;
    layer->scratch_n = 0;
    return true;
}

static void dense_forward(const ts_layer *layer, size_t batch, const float *in, float *out) {
    const blasint b = (blasint)batch, i = (blasint)layer->fan_in, o = (blasint)layer->bias_n;
    for (size_t s = 0; s < batch; s++) memcpy(out + s * layer->bias_n, layer->bias, layer->bias_n * sizeof *out);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, b, o, i, 1, in, i, layer->weight, i, 1, out, o);
}

static void dense_backward(const ts_layer *layer, size_t batch, const float *in, const float *out,
                           float *out_gradient, float *in_gradient) {
    (void)out;
    const blasint b = (blasint)batch, i = (blasint)layer->fan_in, o = (blasint)layer->bias_n;
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, o, i, b, 1, out_gradient, o, in, i, 0, layer->weight_gradient,
                i);
    memset(layer->bias_gradient, 0, layer->bias_n * sizeof *layer->bias_gradient);
    for (size_t s = 0; s < batch; s++)
        for (size_t u = 0; u < layer->bias_n; u++) layer->bias_gradient[u] += out_gradient[s * layer->bias_n + u];
    if (in_gradient)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, b, i, o, 1, out_gradient, o, layer->weight, i, 0,
                    in_gradient, i);
}

const ts_layer_kind ts_layer_dense = {"dense", false, dense_plan, dense_forward, dense_backward};
