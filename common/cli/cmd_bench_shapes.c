/* SPDX-License-Identifier: Apache-2.0 */
/* The shapes that benchmarks of low-rank transforms run over. */
#include "common/cli/cmd_bench.h"

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

/* The side of the largest square of at most n elements. */
static size_t square_side(size_t n) {
    size_t side = 1;
    while ((side + 1) * (side + 1) <= n) side++;
    return side;
}

size_t ts_bench_shapes(const ts_pipeline *pipeline, size_t n, ts_bench_shape shapes[TS_BENCH_SHAPES]) {
    if (pipeline->transform && n == TS_BENCH_ELEMS) return ts_bench_resnet50(shapes);
    size_t side = pipeline->transform ? square_side(n) : 0;
    shapes[0] = side ? (ts_bench_shape){.extent = {(int64_t)side, (int64_t)side}, .ndim = 2, .n = side * side}
                     : (ts_bench_shape){.extent = {(int64_t)n}, .ndim = 1, .n = n};
    return 1;
}
