/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolution without padding, stride 1, as a matrix product over unrolled
 * windows (Chellapilla, Puri, Simard 2006): for each sample
 *     out[o][p] = sum over k of weight[o][k] · windows[k][p] + bias[o]
 * with k = (channel, row, column) in the window and p the place in the picture.
 */
#include <cblas.h>
#include <string.h>

#include "worker/models/layer.h"

static bool conv_plan(ts_layer *layer) {
    size_t side = layer->spec.size, channels = layer->spec.outputs;
    if (side == 0 || channels == 0 || layer->in.height < side || layer->in.width < side) return false;
    layer->out = (ts_extent){channels, layer->in.height - side + 1, layer->in.width - side + 1};
    layer->fan_in = layer->in.channels * side * side;
    layer->weight_n = channels * layer->fan_in;
    layer->bias_n = channels;
    layer->scratch_n = layer->fan_in * layer->out.height * layer->out.width;
    return true;
}

/* windows[k][p] of one sample. */
static void unroll(const ts_layer *layer, const float *in, float *windows) {
    const size_t side = layer->spec.size, rows = layer->out.height, columns = layer->out.width;
    for (size_t c = 0; c < layer->in.channels; c++)
        for (size_t y = 0; y < side; y++)
            for (size_t x = 0; x < side; x++)
                for (size_t r = 0; r < rows; r++, windows += columns)
                    memcpy(windows, in + (c * layer->in.height + r + y) * layer->in.width + x, columns * sizeof *in);
}

/* The transpose of unroll: adds each window element to the pixel it came from. */
static void roll_up(const ts_layer *layer, const float *windows, float *in) {
    const size_t side = layer->spec.size, rows = layer->out.height, columns = layer->out.width;
    memset(in, 0, ts_extent_elems(layer->in) * sizeof *in);
    for (size_t c = 0; c < layer->in.channels; c++)
        for (size_t y = 0; y < side; y++)
            for (size_t x = 0; x < side; x++)
                for (size_t r = 0; r < rows; r++, windows += columns) {
                    float *to = in + (c * layer->in.height + r + y) * layer->in.width + x;
                    for (size_t i = 0; i < columns; i++) to[i] += windows[i];
                }
}

static void conv_forward(const ts_layer *layer, size_t batch, const float *in, float *out) {
    const size_t in_n = ts_extent_elems(layer->in), out_n = ts_extent_elems(layer->out);
    const size_t places = layer->out.height * layer->out.width;
    const blasint o = (blasint)layer->out.channels, k = (blasint)layer->fan_in, p = (blasint)places;
    for (size_t s = 0; s < batch; s++, in += in_n, out += out_n) {
        unroll(layer, in, layer->scratch);
        for (size_t c = 0; c < layer->out.channels; c++)
            for (size_t i = 0; i < places; i++) out[c * places + i] = layer->bias[c];
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, o, p, k, 1, layer->weight, k, layer->scratch, p, 1, out,
                    p);
    }
}

static void conv_backward(const ts_layer *layer, size_t batch, const float *in, const float *out, float *out_gradient,
                          float *in_gradient) {
    (void)out;
    const size_t in_n = ts_extent_elems(layer->in), out_n = ts_extent_elems(layer->out);
    const size_t places = layer->out.height * layer->out.width;
    const blasint o = (blasint)layer->out.channels, k = (blasint)layer->fan_in, p = (blasint)places;
    memset(layer->weight_gradient, 0, layer->weight_n * sizeof(float));
    memset(layer->bias_gradient, 0, layer->bias_n * sizeof(float));
    for (size_t s = 0; s < batch; s++) {
        const float *sample_gradient = out_gradient + s * out_n;
        /* Unrolled again instead of kept: for a whole batch the windows would leave the cache. */
        unroll(layer, in + s * in_n, layer->scratch);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, o, k, p, 1, sample_gradient, p, layer->scratch, p, 1,
                    layer->weight_gradient, k);
        for (size_t c = 0; c < layer->out.channels; c++) {
            float sum = 0;
            for (size_t i = 0; i < places; i++) sum += sample_gradient[c * places + i];
            layer->bias_gradient[c] += sum;
        }
        if (!in_gradient) continue;
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, k, p, o, 1, layer->weight, k, sample_gradient, p, 0,
                    layer->scratch, p);
        roll_up(layer, layer->scratch, in_gradient + s * in_n);
    }
}

const ts_layer_kind ts_layer_conv = {"conv", false, conv_plan, conv_forward, conv_backward};
