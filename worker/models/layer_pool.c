/* SPDX-License-Identifier: Apache-2.0 */
/* The largest of each size × size window, windows side by side; the gradient goes to the first largest. */
#include <string.h>

#include "worker/models/layer.h"

static bool pool_plan(ts_layer *layer) {
    size_t side = layer->spec.size;
    if (side == 0 || layer->in.height % side != 0 || layer->in.width % side != 0) return false;
    layer->out = (ts_extent){layer->in.channels, layer->in.height / side, layer->in.width / side};
    return true;
}

/* Where in the picture the first largest of the window at (row, column) of the output is. */
static size_t largest(const ts_layer *layer, const float *picture, size_t row, size_t column) {
    const size_t side = layer->spec.size, width = layer->in.width;
    const size_t corner = row * side * width + column * side;
    size_t best = corner;
    float top = picture[corner];
    for (size_t y = 0; y < side; y++)
        for (size_t x = 0; x < side; x++) {
            /* Both by selection: which one is largest is random, and a branch would be guessed wrong half the time. */
            const size_t at = corner + y * width + x;
            const float value = picture[at];
            const size_t more = 0 - (size_t)(value > top);
            best ^= (best ^ at) & more;
            top = value > top ? value : top;
        }
    return best;
}

static void pool_forward(const ts_layer *layer, size_t batch, const float *in, float *out) {
    const size_t pictures = batch * layer->in.channels, area = layer->in.height * layer->in.width;
    for (size_t i = 0; i < pictures; i++, in += area)
        for (size_t r = 0; r < layer->out.height; r++)
            for (size_t c = 0; c < layer->out.width; c++) *out++ = in[largest(layer, in, r, c)];
}

static void pool_backward(const ts_layer *layer, size_t batch, const float *in, const float *out, float *out_gradient,
                          float *in_gradient) {
    (void)out;
    if (!in_gradient) return;
    const size_t pictures = batch * layer->in.channels, area = layer->in.height * layer->in.width;
    memset(in_gradient, 0, pictures * area * sizeof *in_gradient);
    for (size_t i = 0; i < pictures; i++, in += area, in_gradient += area)
        for (size_t r = 0; r < layer->out.height; r++)
            for (size_t c = 0; c < layer->out.width; c++) in_gradient[largest(layer, in, r, c)] = *out_gradient++;
}

const ts_layer_kind ts_layer_pool = {"pool", false, pool_plan, pool_forward, pool_backward};
