/* SPDX-License-Identifier: Apache-2.0 */
/* The shapes that benchmarks of low-rank transforms run over. */
#include "common/cli/cmd_bench.h"
#include "common/codec/stage_list.h"

#define STAGES 4

typedef struct {
    ts_bench_shape *shape;
    size_t count;
} list;

static void add(list *to, int64_t out, int64_t in, int64_t side) {
    ts_bench_shape *s = &to->shape[to->count++];
    *s = (ts_bench_shape){.extent = {out, in, side, side}, .ndim = in ? 4 : 1, .n = (size_t)out};
    if (in) s->n *= (size_t)(in * side * side);
}

/* A convolution and the scale and shift behind it. */
static void convolution(list *to, int64_t out, int64_t in, int64_t side) {
    add(to, out, in, side);
    add(to, out, 0, 0);
    add(to, out, 0, 0);
}

size_t ts_bench_resnet50(ts_bench_shape shapes[TS_BENCH_SHAPES]) {
    static const unsigned blocks[STAGES] = {3, 4, 6, 3};
    list to = {.shape = shapes};
    convolution(&to, 64, 3, 7);
    int64_t in = 64;
    for (unsigned stage = 0; stage < STAGES; stage++) {
        int64_t width = 64 << stage, out = 4 * width;
        for (unsigned block = 0; block < blocks[stage]; block++) {
            convolution(&to, width, in, 1);
            convolution(&to, width, width, 3);
            convolution(&to, out, width, 1);
            if (block == 0) convolution(&to, out, in, 1);
            in = out;
        }
    }
    shapes[to.count++] = (ts_bench_shape){.extent = {1000, in}, .ndim = 2, .n = 1000 * (size_t)in};
    add(&to, 1000, 0, 0);
    return to.count;
}

/* The side of the largest square or cube of at most n elements. */
static size_t side_of(size_t n, unsigned dims) {
    size_t side = 1;
    for (;; side++) {
        size_t power = 1;
        for (unsigned d = 0; d < dims; d++) power *= side + 1;
        if (power > n) return side;
    }
}

size_t ts_bench_shapes(const ts_pipeline *pipeline, size_t n, ts_bench_shape shapes[TS_BENCH_SHAPES]) {
    if (pipeline->transform && n == TS_BENCH_ELEMS) return ts_bench_resnet50(shapes);
    unsigned dims = !pipeline->transform ? 1 : pipeline->transform == &ts_transform_tucker ? 3 : 2;
    size_t side = dims > 1 ? side_of(n, dims) : n;
    shapes[0] = (ts_bench_shape){.ndim = dims, .n = 1};
    for (unsigned d = 0; d < dims; d++) {
        shapes[0].extent[d] = (int64_t)side;
        shapes[0].n *= side;
    }
    return 1;
}
