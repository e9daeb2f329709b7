/* SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/codec/packet.h"
#include "tests/unit/codec_support.h"

#define N 70001u
#define SLICE 20000u

static const char *const pipelines[] = {"fp32",
                                        "int8",
                                        "linear:4",
                                        "qsgd:4",
                                        "natural",
                                        "int8:tensor",
                                        "topk:0.01 | int8 | rice",
                                        "randomk:0.05 | fp16",
                                        "threshold:0.5 | int4",
                                        "adaptive:0.01",
                                        "blocktopk:0.01:1000 | sign",
                                        "bernoulli:0.02",
                                        "magnitude:0.01 | bf16"};
#define PIPELINES (sizeof pipelines / sizeof pipelines[0])

typedef struct {
    float scale, momentum, weight_decay;
    bool velocity, nesterov, masking;
} variant;

static float flushed(float x) { return fabsf(x) < FLT_MIN ? 0.0f : x; }

/* codec.h's recurrence, one element at a time. */
static float reference(const variant *v, float gradient, float param, float *velocity, float residual) {
    float g = gradient * v->scale;
    if (v->weight_decay > 0) g = g + v->weight_decay * param;
    float step = g;
    if (v->velocity) {
        *velocity = flushed(v->momentum * *velocity + g);
        step = v->nesterov ? g + v->momentum * *velocity : *velocity;
    }
    return flushed(residual + step);
}

static void check_variant(const char *pipeline, const variant *v, ts_simd simd) {
    ts_unit_tensor t;
    ts_unit_tensor_open(&t, pipeline, N, SLICE, simd);
    float *g = malloc(N * sizeof *g), *params = malloc(N * sizeof *g), *sent = malloc(N * sizeof *g);
    float *velocity = calloc(N, sizeof *g), *own_velocity = calloc(N, sizeof *g), *residual = calloc(N, sizeof *g);
    ts_unit_input(8, params, N, 99);
    t.input.gradient_scale = v->scale;
    t.input.velocity = v->velocity ? velocity : NULL;
    t.input.momentum = v->momentum;
    t.input.nesterov = v->nesterov;
    t.input.masking = v->masking;
    t.input.params = v->weight_decay > 0 ? params : NULL;
    t.input.weight_decay = v->weight_decay;
    for (uint64_t step = 0; step < 3; step++) {
        ts_unit_input(step == 1 ? 3 : 7, g, N, step);
        for (size_t i = 0; i < N; i++) residual[i] = reference(v, g[i], params[i], &own_velocity[i], residual[i]);
        ts_unit_encode(&t, g, step, TERSE_OK);
        (void)ts_unit_decode(&t, sent);
        for (size_t i = 0; i < N; i++) {
            residual[i] = residual[i] - sent[i];
            if (v->masking && t.pipeline.select && sent[i] != 0.0f) own_velocity[i] = 0.0f;
            /* A selected value may be rounded to 0; then only its velocity tells. */
            if (v->masking && t.pipeline.select && velocity[i] == 0.0f) own_velocity[i] = 0.0f;
        }
        if (memcmp(residual, t.residual, N * sizeof *residual) != 0) ck_abort_msg("%s: residual", pipeline);
        if (v->velocity && memcmp(velocity, own_velocity, N * sizeof *g) != 0) ck_abort_msg("%s: velocity", pipeline);
    }
    ts_unit_tensor_close(&t);
    free(g); free(params); free(sent); free(velocity); free(own_velocity); free(residual);
}

START_TEST(the_sweep_is_what_the_header_says) {
    static const variant variants[] = {
        {.scale = 1},
        {.scale = 0.125f},
        {.scale = 0.3f, .weight_decay = 1e-2f},
        {.scale = 1, .velocity = true, .momentum = 0.9f},
        {.scale = 1, .velocity = true, .momentum = 0.9f, .masking = true},
        {.scale = 0.5f, .velocity = true, .momentum = 0.9f, .nesterov = true, .masking = true, .weight_decay = 1e-3f},
    };
    for (size_t p = 0; p < PIPELINES; p++) {
        for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
            for (int level = 0; level <= TS_SIMD_AVX512; level++) {
                if (ts_cpu_supports((ts_simd)level)) check_variant(pipelines[p], &variants[v], (ts_simd)level);
            }
        }
    }
}
END_TEST

START_TEST(masking_zeroes_the_velocity_of_what_was_selected) {
    ts_unit_tensor t;
    float g[4] = {1, 8, 2, -9}, velocity[4] = {0};
    ts_unit_tensor_open(&t, "topk:0.5", 4, 4, ts_cpu_simd());
    t.input.velocity = velocity;
    t.input.momentum = 0.5f;
    t.input.masking = true;
    ts_unit_encode(&t, g, 0, TERSE_OK);
    ck_assert(velocity[0] == 1 && velocity[1] == 0 && velocity[2] == 2 && velocity[3] == 0);
    ck_assert(t.residual[0] == 1 && t.residual[1] == 0 && t.residual[2] == 2 && t.residual[3] == 0);
    t.input.masking = false;
    ts_unit_encode(&t, NULL, 1, TERSE_OK); /* without a gradient the velocity rests */
    ck_assert(velocity[0] == 1 && t.residual[0] == 0 && t.residual[2] == 0);
    ts_unit_tensor_close(&t);
}
END_TEST

static void spoil(float *g) {
    ts_unit_input(8, g, N, 4);
    g[300] = NAN;
    g[301] = INFINITY;
    g[N - 1] = -INFINITY;
}

/* NaN and infinity never get in: what is finite does under ERROR and ZERO, nothing under SKIP. */
START_TEST(nonfinite_gradients_follow_the_policy) {
    float *g = malloc(N * sizeof *g), *sent = malloc(N * sizeof *g), *clean = malloc(N * sizeof *g);
    float *before = malloc(N * sizeof *g);
    for (size_t p = 0; p < PIPELINES; p++) {
        for (int policy = TS_NONFINITE_ERROR; policy <= TS_NONFINITE_ZERO; policy++) {
            ts_unit_tensor t;
            ts_unit_tensor_open(&t, pipelines[p], N, SLICE, ts_cpu_simd());
            t.input.nonfinite = (ts_nonfinite)policy;
            spoil(g);
            memcpy(clean, g, N * sizeof *g);
            clean[300] = clean[301] = clean[N - 1] = 0.0f;
            ts_unit_encode(&t, g, 0, policy == TS_NONFINITE_ERROR ? TERSE_ENONFINITE : TERSE_OK);
            ck_assert_uint_eq(t.report.nonfinite_count, 3);
            ck_assert_uint_eq(t.report.nonfinite_first, 300);
            memset(before, 0, N * sizeof *g);
            if (policy == TS_NONFINITE_ERROR) {
                ck_assert_ptr_null(t.packet[0]); /* where 300 and 301 are */
                ck_assert_mem_eq(t.residual, clean, SLICE * sizeof *g);
                ts_unit_decode_add(&t, before);        /* slices that were as they should be may be out */
                ts_unit_encode(&t, NULL, 0, TERSE_OK); /* goes on from what entered */
                ck_assert_uint_eq(t.report.nonfinite_count, 0);
            }
            (void)ts_unit_decode(&t, sent);
            for (size_t i = 0; i < N; i++) {
                float entered = (policy == TS_NONFINITE_SKIP ? 0.0f : clean[i]) - before[i];
                double off = fabs((double)sent[i] + (double)t.residual[i] - (double)entered);
                if (!(off <= 0x1p-23 * (fabs((double)entered) + fabs((double)sent[i]))))
                    ck_abort_msg("%s, policy %d: element %zu", pipelines[p], policy, i);
            }
            ts_unit_tensor_close(&t);
        }
    }
    free(g);
    free(sent);
    free(clean);
    free(before);
}
END_TEST

/* What two bytes cannot say is counted, sent as far as it goes, and kept: never infinity. */
START_TEST(values_beyond_the_range_are_counted_and_kept) {
    static const struct { const char *text; float most, beyond; } cases[] = {
        {"fp16", 65504.0f, 1e6f}, {"topk:0.1 | fp16", 65504.0f, 1e6f}, {"bf16", 0x1.FEp127f, 0x1.FFp127f},
        {"topk:0.1 | bf16", 0x1.FEp127f, 0x1.FFp127f}};
    float *g = calloc(N, sizeof *g), *sent = malloc(N * sizeof *g);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        float most = cases[c].most;
        g[7] = most;
        g[300] = cases[c].beyond;
        g[N - 1] = -FLT_MAX;
        for (int with_gradient = 0; with_gradient < 2; with_gradient++) {
            ts_unit_tensor t;
            ts_unit_tensor_open(&t, cases[c].text, N, SLICE, ts_cpu_simd());
            if (!with_gradient) memcpy(t.residual, g, N * sizeof *g);
            ts_unit_encode(&t, with_gradient ? g : NULL, 0, TERSE_OK);
            ck_assert_uint_eq(t.report.beyond, 2);
            (void)ts_unit_decode(&t, sent);
            ck_assert(sent[7] == most && sent[300] == most && sent[N - 1] == -most);
            ck_assert(t.residual[7] == 0.0f && t.residual[300] == cases[c].beyond - most &&
                      t.residual[N - 1] == -(FLT_MAX - most));
            ts_unit_tensor_close(&t);
        }
    }
    free(g);
    free(sent);
}
END_TEST

/* Scales stop at 2^120, so that no product overflows: what is cut there is counted, too, and kept. */
START_TEST(values_beyond_the_largest_scale_are_counted_and_kept) {
    static const char *const cases[] = {"int8", "int8:tensor", "int4", "linear:8", "qsgd:4", "ternary", "topk:0.1 | int8"};
    float *g = calloc(N, sizeof *g), *sent = malloc(N * sizeof *g);
    g[7] = 0x1p120f;
    g[300] = 0x1p121f;
    g[N - 1] = -FLT_MAX;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        for (int with_gradient = 0; with_gradient < 2; with_gradient++) {
            ts_unit_tensor t;
            ts_unit_tensor_open(&t, cases[c], N, SLICE, ts_cpu_simd());
            if (!with_gradient) memcpy(t.residual, g, N * sizeof *g);
            ts_unit_encode(&t, with_gradient ? g : NULL, 0, TERSE_OK);
            ck_assert_msg(t.report.beyond == 2, "%s: %zu", cases[c], t.report.beyond);
            (void)ts_unit_decode(&t, sent);
            for (size_t i = 0; i < N; i++) {
                double whole = (double)sent[i] + (double)t.residual[i], off = fabs(whole - (double)g[i]);
                ck_assert_msg(off <= 1e-6 * fmax(fabs((double)g[i]), fabs((double)sent[i])), "%s: %zu: %g", cases[c], i, whole);
            }
            ts_unit_tensor_close(&t);
        }
    }
    free(g);
    free(sent);
}
END_TEST

/* The downlink has no gradient; parameters that diverged must not be encoded. */
/* A residual that counts as 0 gives the bytes that zeros give; where it leaves nothing either, it is not touched. */
START_TEST(a_blank_residual_counts_as_zero) {
    static const char *const blanks[] = {"dense", "fp16", "int8", "sign", "topk:0.1 | int8"};
    for (unsigned p = 0; p < 5; p++) {
        ts_unit_tensor zero, blank;
        float gradient[1000];
        ts_unit_tensor_open(&zero, blanks[p], 1000, 300, ts_cpu_simd());
        ts_unit_tensor_open(&blank, blanks[p], 1000, 300, ts_cpu_simd());
        for (uint64_t step = 0; step < 4; step++) {
            ts_unit_input(TS_UNIT_NORMAL, gradient, 1000, step);
            for (size_t i = 0; i < 1000; i++) zero.residual[i] = 0;
            for (size_t i = 0; i < 1000; i++) blank.residual[i] = 77;
            zero.input.gradient_scale = blank.input.gradient_scale = step & 1 ? 0.25f : 1.0f;
            zero.input.nonfinite = blank.input.nonfinite = step < 2 ? TS_NONFINITE_ZERO : TS_NONFINITE_ERROR;
            blank.input.blank = true;
            if (step == 1) gradient[500] = NAN;
            if (step == 3) gradient[500] = -INFINITY;
            ts_unit_encode(&zero, gradient, step, step == 3 ? TERSE_ENONFINITE : TERSE_OK);
            ts_unit_encode(&blank, gradient, step, step == 3 ? TERSE_ENONFINITE : TERSE_OK);
            ck_assert_uint_eq(zero.report.nonfinite_count, blank.report.nonfinite_count);
            ck_assert_uint_eq(zero.report.nonfinite_first, blank.report.nonfinite_first);
            for (uint32_t s = 0; s < zero.slices; s++) {
                ck_assert(!zero.packet[s] == !blank.packet[s]);
                if (!zero.packet[s]) continue;
                ck_assert_uint_eq(zero.len[s], blank.len[s]);
                ck_assert_mem_eq(zero.packet[s], blank.packet[s], zero.len[s]);
            }
            for (size_t i = 0; p == 0 && i < 1000; i++) ck_assert(blank.residual[i] == 77);
        }
        ts_unit_tensor_close(&zero);
        ts_unit_tensor_close(&blank);
    }
}
END_TEST

START_TEST(nonfinite_residuals_are_refused) {
    for (size_t p = 0; p < PIPELINES; p++) {
        ts_unit_tensor t;
        ts_unit_tensor_open(&t, pipelines[p], N, SLICE, ts_cpu_simd());
        t.residual[5] = NAN;
        t.residual[40000] = -INFINITY;
        ts_unit_encode(&t, NULL, 0, TERSE_ENONFINITE);
        ck_assert_uint_eq(t.report.nonfinite_count, 2);
        ck_assert_uint_eq(t.report.nonfinite_first, 5);
        t.input.nonfinite = TS_NONFINITE_ZERO;
        ts_unit_encode(&t, NULL, 1, TERSE_OK);
        ts_unit_tensor_close(&t);
    }
}
END_TEST

/* Every allocation of a step fails in turn: nothing has changed, and the next try succeeds. */
START_TEST(running_out_of_memory_changes_nothing) {
    float *g = malloc(N * sizeof *g);
    ts_unit_input(8, g, N, 4);
    for (size_t p = 0; p < PIPELINES; p++) {
        for (int64_t countdown = 0;; countdown++) {
            ts_unit_tensor t;
            ts_unit_tensor_open(&t, pipelines[p], N, SLICE, ts_cpu_simd());
            t.input.gradient = g;
            t.input.residual = t.residual;
            ts_mem_fail_after(countdown);
            terse_status status = ts_encoder_begin(t.encoder, t.scratch, &t.input, NULL);
            ts_mem_fail_after(-1);
            if (status == TERSE_OK) {
                ts_unit_tensor_close(&t);
                break;
            }
            ck_assert_int_eq(status, TERSE_ENOMEM);
            for (size_t i = 0; i < N; i++) {
                if (t.residual[i] != 0.0f) ck_abort_msg("the residual changed");
            }
            ts_unit_encode(&t, g, 0, TERSE_OK);
            ts_unit_tensor_close(&t);
        }
    }
    ts_scratch *scratch = NULL;
    ts_mem_fail_after(0);
    ck_assert_status(ts_scratch_create(&scratch), TERSE_ENOMEM);
    ck_assert_ptr_null(scratch);
    ts_scratch_destroy(NULL);
    ts_encoder_destroy(NULL);
    free(g);
}
END_TEST

/* Issue 2's limit with the slices of ResNet-50: all but values and index bits is at most 2 % of the bytes. */
START_TEST(heads_are_small) {
    static const struct { size_t n, slices; } tensors[] = {{3 * 262144, 121}, {2048, 15}, {512, 40}, {64, 52}};
    size_t bytes = 0, heads = 0;
    for (size_t s = 0; s < sizeof tensors / sizeof tensors[0]; s++) {
        ts_unit_tensor t;
        size_t n = tensors[s].n, rest = 0;
        float *g = malloc(n * sizeof *g);
        ts_unit_tensor_open(&t, "topk:0.001 | int8 | rice", n, 262144, ts_cpu_simd());
        ts_unit_input(7, g, n, s);
        ts_unit_encode(&t, g, 0, TERSE_OK);
        for (uint32_t i = 0; i < t.slices; i++) {
            ts_packet_slice slice = ts_packet_slice_of(&t.spec, ts_scratch_kernels(t.scratch), i, 0);
            ts_packet_parts parts;
            ck_assert_ok(ts_packet_split(&slice, t.packet[i], t.len[i], &parts));
            size_t values = parts.k == 1 ? 1 : parts.k; /* a byte each; scales are heads */
            rest += t.len[i] - parts.indices_len - values + (t.len[i] < 128 ? 1 : 2);
        }
        heads += rest * tensors[s].slices / t.slices;
        bytes += (t.bytes + t.slices) * tensors[s].slices / t.slices;
        if (n == 64) ck_assert_uint_le(t.len[0], 4);
        ts_unit_tensor_close(&t);
        free(g);
    }
    ck_assert_msg(heads * 50 <= bytes, "%zu of %zu bytes are heads", heads, bytes);
}
END_TEST

/* Issue 3's total at 0.1 %, every byte of the packets counted, on positions that are independent of each other. */
START_TEST(a_thousandth_is_as_small_as_promised) {
    static const struct { const char *pipeline; double least; } cases[] = {{"topk:0.001 | int8 | rice", 1600},
                                                                           {"topk:0.001 | int4 | rice", 2000}};
    const size_t n = 8 * 262144;
    float *g = malloc(n * sizeof *g);
    ts_unit_input(7, g, n, 11);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        ts_unit_tensor t;
        ts_unit_tensor_open(&t, cases[c].pipeline, n, 262144, ts_cpu_simd());
        for (uint64_t step = 0; step < 3; step++) {
            ts_unit_encode(&t, g, step, TERSE_OK);
            ck_assert_uint_eq(t.report.selected, (n + 999) / 1000);
            double ratio = 4.0 * (double)n / (double)t.bytes;
            ck_assert_msg(ratio >= cases[c].least, "%s: %.0f at step %u", cases[c].pipeline, ratio, (unsigned)step);
        }
        ts_unit_tensor_close(&t);
    }
    free(g);
}
END_TEST

START_TEST(encoders_check_their_specification) {
    ts_pipeline pipeline;
    ts_encoder *encoder = NULL;
    ck_assert_ok(ts_pipeline_parse("fp32", &pipeline, NULL));
    ts_codec_spec spec = {.pipeline = &pipeline, .n = 10, .slice_elems = 0};
    ck_assert_status(ts_encoder_create(&spec, &encoder), TERSE_EINVAL);
    spec.slice_elems = 4;
    ck_assert_uint_eq(ts_codec_slices(&spec), 3);
    ck_assert_uint_eq(ts_codec_slice_first(&spec, 2), 8);
    ck_assert_uint_eq(ts_codec_slice_elems(&spec, 2), 2);
    spec.n = (size_t)UINT32_MAX + 1;
    ck_assert_status(ts_encoder_create(&spec, &encoder), TERSE_EINVAL);
    spec.n = 0;
    ck_assert_uint_eq(ts_codec_slices(&spec), 0);
    ck_assert_ptr_null(encoder);
}
END_TEST

TCase *test_encoder(void);
TCase *test_encoder(void) {
    TCase *tests = tcase_create("encoder");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, the_sweep_is_what_the_header_says);
    tcase_add_test(tests, masking_zeroes_the_velocity_of_what_was_selected);
    tcase_add_test(tests, nonfinite_gradients_follow_the_policy);
    tcase_add_test(tests, values_beyond_the_range_are_counted_and_kept);
    tcase_add_test(tests, values_beyond_the_largest_scale_are_counted_and_kept);
    tcase_add_test(tests, a_blank_residual_counts_as_zero);
    tcase_add_test(tests, nonfinite_residuals_are_refused);
    tcase_add_test(tests, running_out_of_memory_changes_nothing);
    tcase_add_test(tests, heads_are_small);
    tcase_add_test(tests, a_thousandth_is_as_small_as_promised);
    tcase_add_test(tests, encoders_check_their_specification);
    return tests;
}
