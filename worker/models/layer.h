/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers: each kind is one table and one file; layer_list.h names them all. A
 * model is a list of layer specifications (network.h runs it).
 *
 * Pictures are stored channel by channel (batch × channels × height × width),
 * weights as PyTorch stores them, so that saved parameters mean the same there.
 */
#ifndef TS_MODELS_LAYER_H
#define TS_MODELS_LAYER_H

#include <stdbool.h>
#include <stddef.h>

/* What one sample looks like between two layers. */
typedef struct {
    size_t channels, height, width;
} ts_extent;

static inline size_t ts_extent_elems(ts_extent e) { return e.channels * e.height * e.width; }

typedef struct ts_layer_kind ts_layer_kind;

typedef struct {
    const ts_layer_kind *kind;
    const char *name; /* of its tensors: name.weight, name.bias; NULL for layers without */
    size_t outputs;   /* dense: units; conv: channels; else 0 */
    size_t size;      /* conv: side of the square kernel; pool: side of the window; else 0 */
} ts_layer_spec;

/* A layer in place. Pointers to tensors are set by the network. */
typedef struct {
    ts_layer_spec spec;
    ts_extent in, out;
    size_t weight_n, bias_n;      /* 0 for layers without tensors */
    size_t fan_in;                /* inputs of one output: the scale of initial weights */
    size_t scratch_n;             /* floats of scratch the layer wants */
    const float *weight, *bias;
    float *weight_gradient, *bias_gradient;
    float *scratch;               /* scratch_n floats */
} ts_layer;

struct ts_layer_kind {
    const char *name;
    bool in_place;                /* out is the same memory as in, and the previous layer's output is lost */
    /* From spec and in: out, weight_n, bias_n, fan_in, scratch_n. Returns whether the layer fits. */
    bool (*plan)(ts_layer *layer);
    /* in: batch × in elements; out: [out] batch × out elements. */
    void (*forward)(const ts_layer *layer, size_t batch, const float *in, float *out);
    /* in, out as forward left them. out_gradient: batch × out elements. Writes the tensors' gradients (sums over the
     * batch) and, unless NULL, in_gradient [out] batch × in elements. in_place kinds get the same memory for both. */
    void (*backward)(const ts_layer *layer, size_t batch, const float *in, const float *out, float *out_gradient,
                     float *in_gradient);
};

#define TS_LAYER_KIND_DECLARE(kind) extern const ts_layer_kind ts_layer_##kind;
#include "worker/models/layer_list.h"
TS_LAYER_LIST(TS_LAYER_KIND_DECLARE)
#undef TS_LAYER_KIND_DECLARE

#endif
