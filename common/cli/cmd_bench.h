/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `terse bench codec`: inputs, one pipeline's measurement, the ladder. */
#ifndef TS_CLI_CMD_BENCH_H
#define TS_CLI_CMD_BENCH_H

#include "common/codec/codec.h"
#include "common/codec/kernels.h"

#define TS_BENCH_GRADIENTS 8
#define TS_BENCH_ELEMS 25557032u /* ResNet-50 */
#define TS_BENCH_MIN_RUNS 10
#define TS_BENCH_RUNS 20 /* unless told otherwise */
#define TS_BENCH_MAX_RUNS 1000
#define TS_BENCH_SLICE_ELEMS 262144u

/* argv[0] is "codec". Returns: the program's exit code. */
int ts_bench_codec_command(int argc, char **argv);

/* ---- inputs (cmd_bench_input.c) ---- */

/* Gradients in rotation and the buffers one measurement works on, all of n floats. */
typedef struct {
    size_t n;
    uint64_t seed;
    float *gradient[TS_BENCH_GRADIENTS];
    float *residual, *saved, *sum, *velocity;
    float level; /* the gradients' size relative to what was made */
} ts_bench_input;

/*
 * Long-tailed gradients (log-normal magnitudes), or variations of `base` that keep its positions and tail.
 * base: [borrow] n values or NULL. Returns TERSE_OK, TERSE_ENOMEM.
 */
terse_status ts_bench_input_create(size_t n, const float *base, uint64_t seed, ts_bench_input *out) TERSE_NODISCARD;
void ts_bench_input_destroy(ts_bench_input *input); /* a zeroed one is fine */
/* Multiplies all gradients so that their level is `level`. */
void ts_bench_input_set_level(ts_bench_input *input, float level);
/*
 * Leaves a residual near its steady state under a pipeline that sends a `ratio` of the elements a step: with a mean
 * drift d an element waits until it reaches the threshold t, so it is uniform in [0, t), and k n = sum |d| / t elements
 * are due a step; with random choice its age is exponential. ratio 0 or 1: zeros.
 */
void ts_bench_input_settle(ts_bench_input *input, double ratio, bool by_chance);
/* Long-tailed values alone. */
void ts_bench_fill(uint64_t key, float *to, size_t n);

/* ---- shapes (cmd_bench_shapes.c) ---- */

#define TS_BENCH_SHAPES 161 /* of ResNet-50 */

typedef struct {
    int64_t extent[4];
    unsigned ndim;
    size_t n;
} ts_bench_shape;

/* The tensors of ResNet-50 (He et al. 2016), TS_BENCH_ELEMS elements in all. Returns: TS_BENCH_SHAPES. */
size_t ts_bench_resnet50(ts_bench_shape shapes[TS_BENCH_SHAPES]);
/*
 * What n elements are cut into: ResNet-50 for transforms where n is its size, else the largest square matrix of at most
 * n elements for transforms and one vector for others. Returns: how many tensors.
 */
size_t ts_bench_shapes(const ts_pipeline *pipeline, size_t n, ts_bench_shape shapes[TS_BENCH_SHAPES]);

/* ---- one pipeline (cmd_bench_run.c) ---- */

typedef struct {
    double median_s, min_s, max_s;
    double spread; /* between the quartiles, relative to the median */
} ts_bench_time;

typedef struct {
    size_t n, values;
    double bytes;              /* of a step's packets, median */
    double relative_error;     /* of one encoding without residual */
    double conservation_error; /* largest |old residual + gradient - sent - residual|, relative */
    ts_bench_time encode, decode_add, sweep, momentum, norm, mapped;
    double encode_ratio, decode_add_ratio, momentum_ratio, mapped_ratio; /* to the sweep of the same run, median */
    double jump_s; /* the encoding right after the jump of level */
    ts_simd simd, sweep_simd;
    unsigned runs;
} ts_bench_result;

/*
 * The n elements are the tensors of ts_bench_shapes(), one after the other; the gradients are left as they were.
 * Returns TERSE_OK, TERSE_ENOMEM, TERSE_ECORRUPT (decoding did not give what was encoded), TERSE_EIO (no mapping).
 */
terse_status ts_bench_pipeline(const ts_bench_input *input, const ts_pipeline *pipeline, unsigned runs,
                               ts_bench_result *out) TERSE_NODISCARD;

/* Really encodes one gradient of n values without residual. bytes, values: [out]. */
terse_status ts_bench_once(const ts_pipeline *pipeline, const float *gradient, float *zeros, size_t n, size_t *bytes,
                           size_t *values) TERSE_NODISCARD;

/* ---- the ladder (cmd_bench_ladder.c) ---- */

/* Prints it. Returns: the program's exit code. */
int ts_bench_ladder(uint64_t seed, bool json);

#endif
