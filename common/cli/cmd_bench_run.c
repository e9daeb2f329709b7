/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pipeline's measurement. Each run times, one after the other on the same buffers: the bare sweep at each SIMD
 * level, the encoding of one step with error feedback, the decode-add of its packets. The residual is put back between
 * them, and after each run sent + residual is compared with the gradient + the old residual.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/base/buffer.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/cli/cmd_bench.h"
#include "common/codec/guard.h"
#include "common/codec/scratch.h"

#define WARM_UP (2 * TS_BENCH_GRADIENTS)
#define JUMP 4.0f      /* of the gradients' level in the middle of the runs */
#define TOLERANCE 1e-6 /* of sent + residual beside what entered */
#define LEVELS (TS_SIMD_AVX512 + 1)
#define MOMENTUM 0.9f
#define CHANGED 100u /* one element in so many is new to a receiver of `exact` */

/* One tensor: its place among the elements and its encoder. */
typedef struct {
    ts_bench_shape shape;
    ts_codec_spec spec;
    ts_encoder *encoder;
    size_t first, first_slice;
} bench_tensor;

/* All of them with their packets. */
typedef struct {
    const ts_pipeline *pipeline;
    bench_tensor *tensor;
    size_t tensors, slices, n;
    ts_scratch *encoding, *decoding;
    ts_buffer *packets;
    size_t *lens;             /* of each slice's packet */
    ts_decode_state **states; /* of each slice, for pipelines that have one */
    uint64_t step;
    size_t values;
    ts_guard *guard; /* while the mapped residual is timed */
} bench;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void bench_close(bench *b) {
    for (size_t slice = 0; b->states && slice < b->slices; slice++) ts_decode_state_destroy(b->states[slice]);
    for (size_t t = 0; b->tensor && t < b->tensors; t++) ts_encoder_destroy(b->tensor[t].encoder);
    ts_mem_free(b->states);
    ts_mem_free(b->tensor);
    ts_scratch_destroy(b->encoding);
    ts_scratch_destroy(b->decoding);
    ts_buffer_unref(b->packets);
    ts_mem_free(b->lens);
}

static terse_status open_tensors(bench *b, const ts_bench_shape *shapes) {
    b->tensor = ts_mem_calloc(b->tensors, sizeof *b->tensor);
    TS_REQUIRE(b->tensor, TERSE_ENOMEM);
    for (size_t i = 0; i < b->tensors; i++) {
        bench_tensor *t = &b->tensor[i];
        *t = (bench_tensor){.shape = shapes[i], .first = b->n, .first_slice = b->slices};
        size_t cut = ts_codec_cut_elems(b->pipeline, t->shape.extent, t->shape.ndim, t->shape.n, TS_BENCH_SLICE_ELEMS);
        t->spec = (ts_codec_spec){.pipeline = b->pipeline,
                                  .n = t->shape.n,
                                  .slice_elems = cut,
                                  .shape = t->shape.extent,
                                  .ndim = t->shape.ndim,
                                  .tensor = (uint32_t)i,
                                  .direction = TS_PUSH};
        TS_TRY(ts_encoder_create(&t->spec, &t->encoder));
        b->n += t->spec.n;
        b->slices += ts_codec_slices(&t->spec);
    }
    return TERSE_OK;
}

static terse_status open_slices(bench *b) {
    b->lens = ts_mem_calloc(b->slices + 1, sizeof *b->lens);
    TS_REQUIRE(b->lens, TERSE_ENOMEM);
    if (!ts_pipeline_is_stateful(b->pipeline)) return TERSE_OK;
    b->states = ts_mem_calloc(b->slices + 1, sizeof *b->states);
    TS_REQUIRE(b->states, TERSE_ENOMEM);
    for (size_t i = 0; i < b->tensors; i++) {
        for (uint32_t slice = 0; slice < ts_codec_slices(&b->tensor[i].spec); slice++) {
            TS_TRY(ts_decode_state_create(&b->tensor[i].spec, slice, &b->states[b->tensor[i].first_slice + slice]));
        }
    }
    return TERSE_OK;
}

static terse_status bench_open(bench *b, const ts_pipeline *pipeline, size_t n) {
    ts_bench_shape shapes[TS_BENCH_SHAPES];
    *b = (bench){.pipeline = pipeline, .tensors = ts_bench_shapes(pipeline, n, shapes)};
    terse_status status = open_tensors(b, shapes);
    if (status == TERSE_OK) status = open_slices(b);
    if (status == TERSE_OK) status = ts_scratch_create(&b->encoding);
    if (status == TERSE_OK) status = ts_scratch_create(&b->decoding);
    if (status == TERSE_OK) status = ts_buffer_create(1 << 16, &b->packets);
    if (status != TERSE_OK) bench_close(b);
    return status;
}

static terse_status encode_tensor(bench *b, bench_tensor *t, const ts_encode_input *input) {
    ts_encode_report report;
    TS_TRY(ts_encoder_begin(t->encoder, b->encoding, input, &report));
    b->values += report.selected;
    for (uint32_t slice = 0; slice < ts_codec_slices(&t->spec); slice++) {
        size_t *len = &b->lens[t->first_slice + slice];
        TS_TRY(ts_buffer_reserve(b->packets, ts_encoder_bound(t->encoder, b->encoding, slice)));
        TS_TRY(ts_encoder_slice(t->encoder, b->encoding, slice, b->packets->data + b->packets->len,
                                b->packets->capacity - b->packets->len, len));
        b->packets->len += *len;
    }
    return TERSE_OK;
}

/* One step into b->packets. */
static terse_status encode(bench *b, const float *gradient, float *residual, float *velocity) {
    b->packets->len = 0;
    b->values = 0;
    for (size_t i = 0; i < b->tensors; i++) {
        size_t first = b->tensor[i].first;
        ts_encode_input input = {.gradient = gradient + first,
                                 .gradient_scale = 1,
                                 .residual = residual + first,
                                 .velocity = velocity ? velocity + first : NULL,
                                 .momentum = MOMENTUM,
                                 .masking = true,
                                 .step = b->step,
                                 .guard = b->guard};
        TS_TRY(encode_tensor(b, &b->tensor[i], &input));
    }
    b->step++;
    return TERSE_OK;
}

static terse_status decode_add(bench *b, float *sum) {
    const uint8_t *packet = b->packets->data;
    for (size_t i = 0; i < b->tensors; i++) {
        const bench_tensor *t = &b->tensor[i];
        for (uint32_t slice = 0; slice < ts_codec_slices(&t->spec); slice++) {
            size_t at = t->first_slice + slice;
            TS_TRY(ts_decode_apply(b->decoding, &t->spec, b->states ? b->states[at] : NULL, slice, b->step - 1, packet,
                                   b->lens[at], sum + t->first + ts_codec_slice_first(&t->spec, slice)));
            packet += b->lens[at];
        }
    }
    return TERSE_OK;
}

/* The largest relative difference between what entered and sent + residual. */
static double conservation_error(const ts_bench_input *in, const float *gradient) {
    double worst = 0;
    for (size_t i = 0; i < in->n; i++) {
        double entered = (double)(in->saved[i] + gradient[i]), sent = (double)in->sum[i],
               rest = (double)in->residual[i];
        double size = fabs(entered) + fabs(sent) + fabs(rest);
        if (size < 1e-30) continue; /* denormals are flushed */
        double error = fabs(entered - sent - rest) / size;
        if (!(error <= worst)) worst = error;
    }
    return worst;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them. */
static ts_bench_time time_of(double *seconds, unsigned runs) {
    qsort(seconds, runs, sizeof *seconds, ascending);
    double median = runs % 2 ? seconds[runs / 2] : (seconds[runs / 2 - 1] + seconds[runs / 2]) / 2;
    double between = seconds[runs - 1 - runs / 4] - seconds[runs / 4];
    return (ts_bench_time){median, seconds[0], seconds[runs - 1], median > 0 ? between / median : 0};
}

/* The runs' seconds, by what was timed. */
typedef struct {
    double *encode, *decode_add, *norm, *bytes, *work, *sweep[LEVELS];
} samples;

/* For `exact`, in `velocity`: parameters that a step has changed in a few places, the residual being those before it. */
static const float *new_values(const bench *b, const ts_bench_input *in, const float *gradient) {
    memcpy(in->velocity, in->residual, in->n * sizeof(float));
    for (size_t i = 0; i < in->n; i++) {
        if (ts_mix64(b->step ^ (uint64_t)i << 20) % CHANGED == 0) in->velocity[i] = in->residual[i] - 0.1f * gradient[i];
    }
    return in->velocity;
}

/* Whether the receiver's and the sender's copies are the new values; of all other pipelines nothing must be lost. */
static double lost(const bench *b, const ts_bench_input *in, const float *entered) {
    size_t bytes = in->n * sizeof(float);
    if (!ts_pipeline_replaces(b->pipeline)) return conservation_error(in, entered);
    return memcmp(in->sum, entered, bytes) == 0 && memcmp(in->residual, entered, bytes) == 0 ? 0 : INFINITY;
}

static terse_status one_run(bench *b, ts_bench_input *in, unsigned run, samples *s, ts_bench_result *result) {
    const float *gradient = in->gradient[run % TS_BENCH_GRADIENTS], *entering = gradient;
    size_t bytes = in->n * sizeof(float);
    memcpy(in->saved, in->residual, bytes);
    for (int level = 0; level < LEVELS; level++) {
        if (!ts_cpu_supports((ts_simd)level)) continue;
        double start = now();
        ts_kernels_get((ts_simd)level)->add(in->residual, gradient, in->n);
        s->sweep[level][run] = now() - start;
        memcpy(in->residual, in->saved, bytes);
    }
    double start = now();
    volatile double squares = ts_scratch_kernels(b->encoding)->sum_squares(gradient, in->n);
    s->norm[run] = now() - start;
    (void)squares;
    memset(in->sum, 0, bytes);
    memcpy(in->residual, in->saved, bytes); /* the last thing before each that is timed, so that caches are alike */
    if (ts_pipeline_replaces(b->pipeline)) {
        entering = new_values(b, in, gradient);
        memcpy(in->sum, in->residual, bytes);
    }
    start = now();
    TS_TRY(encode(b, entering, in->residual, NULL));
    s->encode[run] = now() - start;
    s->bytes[run] = (double)b->packets->len;
    start = now();
    TS_TRY(decode_add(b, in->sum));
    s->decode_add[run] = now() - start;
    double error = lost(b, in, entering);
    if (!(error <= result->conservation_error)) result->conservation_error = error;
    return error <= TOLERANCE ? TERSE_OK : TERSE_ECORRUPT;
}

static void samples_free(samples *s) {
    ts_mem_free(s->encode);
    ts_mem_free(s->decode_add);
    ts_mem_free(s->norm);
    ts_mem_free(s->bytes);
    ts_mem_free(s->work);
    for (int level = 0; level < LEVELS; level++) ts_mem_free(s->sweep[level]);
}

static terse_status samples_create(unsigned runs, samples *out) {
    samples s = {0};
    double **lists[] = {&s.encode, &s.decode_add, &s.norm, &s.bytes, &s.work};
    bool enough = true;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        *lists[i] = ts_mem_calloc(runs, sizeof(double));
        enough = enough && *lists[i];
    }
    for (int level = 0; level < LEVELS; level++) {
        s.sweep[level] = ts_mem_calloc(runs, sizeof(double));
        enough = enough && s.sweep[level];
    }
    *out = s;
    if (!enough) samples_free(out);
    return enough ? TERSE_OK : TERSE_ENOMEM;
}

/* The median of time by time: what slows the whole machine down for a while slows both. */
static double median_ratio(const double *seconds, const double *yardstick, double *work, unsigned runs) {
    for (unsigned run = 0; run < runs; run++) work[run] = seconds[run] / yardstick[run];
    return time_of(work, runs).median_s;
}

/* The level whose sweep is the fastest. */
static ts_simd fastest_sweep(const samples *s, double *work, unsigned runs, ts_bench_time *sweep) {
    ts_simd fastest = TS_SIMD_SCALAR;
    sweep->median_s = INFINITY;
    for (int level = 0; level < LEVELS; level++) {
        if (!ts_cpu_supports((ts_simd)level)) continue;
        memcpy(work, s->sweep[level], runs * sizeof *work);
        ts_bench_time time = time_of(work, runs);
        if (time.median_s >= sweep->median_s) continue;
        *sweep = time;
        fastest = (ts_simd)level;
    }
    return fastest;
}

static void summarise(samples *s, unsigned runs, ts_bench_result *result) {
    result->sweep_simd = fastest_sweep(s, s->work, runs, &result->sweep);
    const double *yardstick = s->sweep[result->sweep_simd];
    result->jump_s = s->encode[runs / 2];
    result->encode_ratio = median_ratio(s->encode, yardstick, s->work, runs);
    result->decode_add_ratio = median_ratio(s->decode_add, yardstick, s->work, runs);
    result->encode = time_of(s->encode, runs);
    result->decode_add = time_of(s->decode_add, runs);
    result->norm = time_of(s->norm, runs);
    result->bytes = time_of(s->bytes, runs).median_s;
}

/* Encoding alone, with a velocity or another residual, beside the sweep. The samples' times are overwritten. */
static terse_status time_encoding(bench *b, const ts_bench_input *in, unsigned runs, float *residual, float *velocity,
                                  samples *s, ts_bench_time *out, double *ratio) {
    double *yardstick = s->sweep[TS_SIMD_SCALAR];
    for (unsigned run = 0; run < runs + WARM_UP; run++) {
        const float *gradient = in->gradient[run % TS_BENCH_GRADIENTS];
        double start = now();
        ts_kernels_get(ts_cpu_simd())->add(in->saved, gradient, in->n);
        double middle = now();
        TS_TRY(encode(b, gradient, residual, velocity));
        if (run < WARM_UP) continue;
        yardstick[run - WARM_UP] = middle - start;
        s->encode[run - WARM_UP] = now() - middle;
    }
    *ratio = median_ratio(s->encode, yardstick, s->work, runs);
    *out = time_of(s->encode, runs);
    return TERSE_OK;
}

/*
 * The residual in a shared mapping of a file in memory, and the encoding such that a kill at any instruction loses nothing,
 * as it is kept for a worker's next incarnation.
 */
static terse_status time_mapped(bench *b, const ts_bench_input *in, unsigned runs, samples *s,
                                ts_bench_result *result) {
    size_t residual_bytes = (in->n * sizeof(float) + 4095) / 4096 * 4096, undo = ts_guard_undo_bytes();
    size_t longest = in->n < TS_BENCH_SLICE_ELEMS ? in->n : TS_BENCH_SLICE_ELEMS;
    size_t bytes = residual_bytes + undo + 4096 + longest * 3 * sizeof(float) + ((size_t)1 << 16);
    int file = memfd_create("terse-bench", MFD_CLOEXEC);
    TS_REQUIRE(file >= 0, TERSE_EIO);
    void *mapped = ftruncate(file, (off_t)bytes) == 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                                                      : MAP_FAILED;
    close(file);
    TS_REQUIRE(mapped != MAP_FAILED, TERSE_EIO);
    memcpy(mapped, in->residual, in->n * sizeof(float));
    ts_guard guard = {.record = (void *)((char *)mapped + residual_bytes)};
    guard.undo = (float *)((char *)guard.record + 4096);
    guard.put_index = (uint32_t *)((char *)guard.undo + undo);
    guard.put_value = (float *)(guard.put_index + longest);
    guard.staged = (uint8_t *)(guard.put_value + longest);
    if (ts_guard_can(b->pipeline)) b->guard = &guard;
    terse_status status = time_encoding(b, in, runs, mapped, NULL, s, &result->mapped, &result->mapped_ratio);
    b->guard = NULL;
    (void)munmap(mapped, bytes);
    return status;
}

terse_status ts_bench_once(const ts_pipeline *pipeline, const float *gradient, float *zeros, size_t n, size_t *bytes,
                           size_t *values) {
    bench b;
    TS_TRY(bench_open(&b, pipeline, n));
    terse_status status = encode(&b, gradient, zeros, NULL);
    if (status == TERSE_OK) {
        *bytes = b.packets->len;
        *values = b.values;
    }
    bench_close(&b);
    return status;
}

/* ||g - C(g)|| / ||g||; uses `saved`. */
static terse_status relative_error(const ts_bench_input *in, const ts_pipeline *pipeline, double *error) {
    const ts_kernels *kernels = ts_kernels_get(ts_cpu_simd());
    size_t bytes, values;
    memset(in->saved, 0, in->n * sizeof(float));
    TS_TRY(ts_bench_once(pipeline, in->gradient[0], in->saved, in->n, &bytes, &values));
    double norm = kernels->sum_squares(in->gradient[0], in->n);
    *error = norm > 0 ? sqrt(kernels->sum_squares(in->saved, in->n) / norm) : 0;
    return TERSE_OK;
}

/* Towards the residual's steady state; what is not settled analytically settles in these steps. */
static terse_status warm_up(bench *b, ts_bench_input *in) {
    const ts_pipeline *p = b->pipeline;
    size_t k = p->select && p->select->expected ? p->select->expected(&p->select_args, in->n) : 0;
    ts_bench_input_set_level(in, 1);
    if (ts_pipeline_replaces(p)) return TERSE_OK; /* there is nothing to settle */
    ts_bench_input_settle(in, (double)k / (double)in->n, p->select && !p->select->sends_indices);
    for (unsigned step = 0; step < WARM_UP; step++) {
        TS_TRY(encode(b, in->gradient[step % TS_BENCH_GRADIENTS], in->residual, NULL));
        TS_TRY(decode_add(b, in->sum));
    }
    return TERSE_OK;
}

terse_status ts_bench_pipeline(const ts_bench_input *input, const ts_pipeline *pipeline, unsigned runs,
                               ts_bench_result *out) {
    ts_bench_input view = *input, *in = &view;
    bench b;
    samples s;
    TS_TRY(samples_create(runs, &s));
    terse_status status = bench_open(&b, pipeline, in->n);
    if (status != TERSE_OK) {
        samples_free(&s);
        return status;
    }
    view.n = b.n;
    bool feedback = !ts_pipeline_replaces(pipeline); /* else there is no residual to map, nor momentum */
    ts_bench_result result = {.n = in->n, .runs = runs};
    result.simd = ts_scratch_kernels(b.encoding)->level;
    status = warm_up(&b, in);
    for (unsigned run = 0; status == TERSE_OK && run < runs; run++) {
        if (run == runs / 2) ts_bench_input_set_level(in, JUMP);
        status = one_run(&b, in, run, &s, &result);
    }
    if (status == TERSE_OK) {
        summarise(&s, runs, &result);
        result.values = b.values;
        if (feedback) status = time_mapped(&b, in, runs, &s, &result);
    }
    if (status == TERSE_OK && feedback) {
        memset(in->velocity, 0, in->n * sizeof(float));
        status = time_encoding(&b, in, runs, in->residual, in->velocity, &s, &result.momentum,
                               &result.momentum_ratio);
    }
    bench_close(&b);
    samples_free(&s);
    ts_bench_input_set_level(in, 1);
    if (status == TERSE_OK && feedback) status = relative_error(in, pipeline, &result.relative_error);
    if (status == TERSE_OK) *out = result;
    return status;
}
