/* SPDX-License-Identifier: Apache-2.0 */
/* The transforms: powersgd, svd, tucker and delta. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"
#include "common/codec/delta.h"
#include "common/codec/transform.h"
#include "tests/unit/codec_support.h"

#define MOST_SLICES 8

/* A tensor with a shape, and its receiver. */
typedef struct {
    ts_unit_tensor t;
    ts_decode_state *state[MOST_SLICES];
} pair;

static size_t product_of(const int64_t *shape, unsigned ndim) {
    size_t n = 1;
    for (unsigned d = 0; d < ndim; d++) n *= (size_t)shape[d];
    return n;
}

static void pair_open(pair *p, const char *pipeline, const int64_t *shape, unsigned ndim, size_t slice_elems, ts_simd simd) {
    ts_error error = {""};
    ts_pipeline parsed;
    memset(p, 0, sizeof *p);
    ck_assert_msg(ts_pipeline_parse(pipeline, &parsed, &error) == TERSE_OK, "%s", error.text);
    size_t n = product_of(shape, ndim);
    slice_elems = ts_codec_cut_elems(&parsed, shape, ndim, n, slice_elems);
    ts_unit_tensor_open(&p->t, pipeline, n, slice_elems, simd);
    p->t.spec.shape = shape;
    p->t.spec.ndim = ndim;
    ts_encoder_destroy(p->t.encoder);
    ck_assert_ok(ts_encoder_create(&p->t.spec, &p->t.encoder));
    ck_assert_uint_le(p->t.slices, MOST_SLICES);
    for (uint32_t s = 0; s < p->t.slices && ts_pipeline_is_stateful(&p->t.pipeline); s++) {
        ck_assert_ok(ts_decode_state_create(&p->t.spec, s, &p->state[s]));
    }
}

static void pair_close(pair *p) {
    for (uint32_t s = 0; s < p->t.slices; s++) ts_decode_state_destroy(p->state[s]);
    ts_unit_tensor_close(&p->t);
}

/* What the receiver makes of the last step's packets. */
static void receive(pair *p, float *out) {
    memset(out, 0, p->t.spec.n * sizeof *out);
    for (uint32_t s = 0; s < p->t.slices; s++) {
        ts_decoded decoded;
        ck_assert_ok(ts_decode(p->t.scratch, &p->t.spec, p->state[s], s, p->t.input.step, p->t.packet[s], p->t.len[s], &decoded));
        ck_assert(decoded.dense && decoded.count == ts_codec_slice_elems(&p->t.spec, s));
        memcpy(out + ts_codec_slice_first(&p->t.spec, s), decoded.value, decoded.count * sizeof *out);
    }
}

static void receive_add(pair *p, float *sum) {
    for (uint32_t s = 0; s < p->t.slices; s++) {
        ck_assert_ok(ts_decode_add(p->t.scratch, &p->t.spec, p->state[s], s, p->t.input.step, p->t.packet[s], p->t.len[s],
                                   sum + ts_codec_slice_first(&p->t.spec, s)));
    }
}

static double distance(const float *a, const float *b, size_t n) {
    double off = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        off += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(off / (norm > 0 ? norm : 1));
}

/* A sum of `rank` outer products over ndim dimensions, each half as strong as the one before. */
static void fill_rank(float *x, const int64_t *shape, unsigned ndim, unsigned rank, uint64_t seed) {
    size_t n = product_of(shape, ndim);
    memset(x, 0, n * sizeof *x);
    for (unsigned a = 0; a < rank; a++) {
        for (size_t i = 0; i < n; i++) {
            float v = ldexpf(1.0f, -(int)a);
            size_t rest = i;
            for (unsigned d = ndim; d-- > 0; rest /= (size_t)shape[d]) {
                uint64_t key = ts_mix64(seed ^ (a * 1000003u + d * 10007u + rest % (size_t)shape[d]));
                v *= ts_random_unit((uint32_t)key) - 0.5f;
            }
            x[i] += v;
        }
    }
}

/* The relative error after some steps of the same gradient, each without what was left over before. */
static double error_after(const char *pipeline, const int64_t *shape, unsigned ndim, const float *g, int steps) {
    pair p;
    pair_open(&p, pipeline, shape, ndim, 1000000, ts_cpu_simd());
    size_t n = p.t.spec.n;
    float *out = malloc(n * sizeof *out);
    ck_assert_ptr_nonnull(out);
    ck_assert_ptr_nonnull(ts_transform_view_of(&p.t.spec).stage);
    for (int step = 0; step < steps; step++) {
        memset(p.t.residual, 0, n * sizeof *out);
        ts_unit_encode(&p.t, g, (uint64_t)step, TERSE_OK);
        receive(&p, out);
    }
    double error = distance(out, g, n);
    free(out);
    pair_close(&p);
    return error;
}

static const int64_t conv[4] = {24, 18, 3, 3};

START_TEST(errors_fall_as_the_rank_grows) {
    static const char *const stages[] = {"powersgd", "svd", "tucker"};
    size_t n = product_of(conv, 4);
    float *g = malloc(n * sizeof *g);
    fill_rank(g, conv, 4, 12, 5);
    for (size_t s = 0; s < 3; s++) {
        double last = 1.0;
        for (int r = 1; r <= 6; r++) {
            char text[64];
            (void)snprintf(text, sizeof text, "%s:%d | fp32", stages[s], r);
            double error = error_after(text, conv, 4, g, 6);
            ck_assert_msg(error < last, "%s: error %g, with a rank less %g", text, error, last);
            last = error;
        }
        ck_assert_double_lt(last, 0.15);
    }
    ck_assert_double_le(error_after("svd:3", conv, 4, g, 1), error_after("powersgd:3", conv, 4, g, 1));
    free(g);
}
END_TEST

START_TEST(what_has_that_rank_comes_through) {
    static const struct { const char *pipeline; unsigned rank; int steps; double most; } cases[] = {
        {"svd:3", 3, 1, 1e-6}, {"svd:3", 2, 1, 1e-6}, {"tucker:3", 3, 1, 1e-6}, {"powersgd:3", 3, 4, 1e-6},
        {"powersgd:4", 3, 4, 1e-6}, {"powersgd:3 | fp16", 3, 4, 2e-3}, {"svd:3 | int8", 3, 1, 2e-2},
    };
    float *g = malloc(product_of(conv, 4) * sizeof *g);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        fill_rank(g, conv, 4, cases[c].rank, 3);
        double error = error_after(cases[c].pipeline, conv, 4, g, cases[c].steps);
        ck_assert_msg(error < cases[c].most, "%s: %g", cases[c].pipeline, error);
    }
    free(g);
}
END_TEST

/* numpy's results, tests/vectors/low-rank/make.py. */
START_TEST(numpy_agrees) {
    static const struct { const char *input, *expected, *pipeline; int64_t shape[4]; unsigned ndim; } cases[] = {
        {"wide", "wide-svd3", "svd:3", {24, 90}, 2},          {"tall", "tall-svd3", "svd:3", {90, 24}, 2},
        {"large", "large-svd3", "svd:3", {70, 150}, 2},       {"three", "three-svd3", "svd:3", {12, 9, 7}, 3},
        {"four", "four-svd3", "svd:3", {8, 6, 3, 3}, 4},      {"three", "three-tucker2", "tucker:2", {12, 9, 7}, 3},
        {"four", "four-tucker2", "tucker:2", {8, 6, 3, 3}, 4},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        char path[160];
        size_t n, m;
        pair p;
        (void)snprintf(path, sizeof path, "%s/low-rank/%s.f32", TS_TEST_VECTORS, cases[c].input);
        float *g = ts_unit_read_f32(path, &n);
        (void)snprintf(path, sizeof path, "%s/low-rank/%s.f32", TS_TEST_VECTORS, cases[c].expected);
        float *expected = ts_unit_read_f32(path, &m), *out = malloc(n * sizeof *out);
        pair_open(&p, cases[c].pipeline, cases[c].shape, cases[c].ndim, 100, ts_cpu_simd());
        ck_assert(n == m && n == p.t.spec.n);
        ts_unit_encode(&p.t, g, 0, TERSE_OK);
        receive(&p, out);
        double off = distance(out, expected, n);
        ck_assert_msg(off < 2e-6, "%s: %g from numpy's", cases[c].expected, off);
        free(g);
        free(expected);
        free(out);
        pair_close(&p);
    }
}
END_TEST

static void check_conservation(const pair *p, const float *before, const float *sent, const char *where) {
    for (size_t i = 0; i < p->t.spec.n; i++) {
        double kept = p->t.residual[i], off = fabs((double)sent[i] + kept - (double)before[i]);
        if (off <= 0x1p-23 * fmax(fabs(kept), fabs((double)sent[i])) + 0x1p-149 && isfinite(sent[i])) continue;
        ck_abort_msg("%s: element %zu: %g sent + %g kept != %g", where, i, (double)sent[i], kept, (double)before[i]);
    }
}

/* Three steps: conservation, decode-add against decode and add, the same bytes and residuals at every vector level. */
static void check_case(const char *pipeline, const int64_t *shape, unsigned ndim, unsigned kind) {
    char where[200];
    pair p[3];
    size_t n = product_of(shape, ndim), levels = 0;
    float *g = malloc((n + 1) * sizeof *g), *before = malloc((n + 1) * sizeof *g), *sent = malloc((n + 1) * sizeof *g);
    float *sum = malloc((n + 1) * sizeof *g), *other = malloc((n + 1) * sizeof *g);
    (void)snprintf(where, sizeof where, "%s, %u dimensions, n = %zu, %s", pipeline, ndim, n, ts_unit_input_name(kind));
    static const ts_simd all[] = {TS_SIMD_SCALAR, TS_SIMD_AVX2, TS_SIMD_AVX512};
    for (size_t l = 0; l < 3; l++) {
        if (ts_cpu_supports(all[l])) pair_open(&p[levels++], pipeline, shape, ndim, 700, all[l]);
    }
    for (uint64_t step = 0; step < 3; step++) {
        ts_unit_input(kind, g, n, step);
        for (size_t i = 0; i < n; i++) {
            float e = p[0].t.residual[i] + g[i];
            e = e > FLT_MAX ? FLT_MAX : e < -FLT_MAX ? -FLT_MAX : e;
            before[i] = fabsf(e) < FLT_MIN ? 0.0f : e;
        }
        for (size_t l = 0; l < levels; l++) {
            ts_unit_encode(&p[l].t, g, step, TERSE_OK);
            receive(&p[l], l ? other : sent);
            if (l == 0) {
                check_conservation(&p[0], before, sent, where);
                ck_assert_uint_eq(p[0].t.report.selected, n);
                for (size_t i = 0; i < n; i++) sum[i] = other[i] = (float)i * 0.25f - 1.0f;
                receive_add(&p[0], sum);
                for (size_t i = 0; i < n; i++) other[i] += sent[i];
                ck_assert_msg(memcmp(sum, other, n * sizeof *sum) == 0, "%s: decode_add is not decode, then add", where);
                continue;
            }
            ck_assert_msg(memcmp(other, sent, n * sizeof *sent) == 0, "%s: decodes otherwise at another level", where);
            ck_assert_msg(memcmp(p[l].t.residual, p[0].t.residual, n * sizeof *sent) == 0, "%s: another residual", where);
            for (uint32_t s = 0; s < p[0].t.slices; s++) {
                ck_assert(p[l].t.len[s] == p[0].t.len[s] && !memcmp(p[l].t.packet[s], p[0].t.packet[s], p[0].t.len[s]));
            }
        }
    }
    for (size_t l = 0; l < levels; l++) pair_close(&p[l]);
    free(g), free(before), free(sent), free(sum), free(other);
}

START_TEST(the_contract_holds_for_every_shape_and_input) {
    static const char *const pipelines[] = {
        "powersgd:1", "powersgd:2 | fp16", "powersgd:3 | int8:tensor", "powersgd:4 | qsgd:4", "svd:2 | fp32", "svd:3 | int8",
        "tucker:2 | fp32", "tucker:3 | bf16", "delta:2 | fp32", "delta:64 | linear:4", "delta:3 | int8:tensor", "delta:1 | fp16",
    };
    static const struct { int64_t shape[4]; unsigned ndim; } shapes[] = {
        {{1}, 1}, {{1900}, 1}, {{1, 1}, 2}, {{2, 2}, 2}, {{7, 1}, 2}, {{33, 65}, 2}, {{200, 7}, 2}, {{3, 700}, 2},
        {{16, 5, 9}, 3}, {{8, 9, 3, 3}, 4}, {{1, 40, 6}, 3},
    };
    for (size_t i = 0; i < sizeof pipelines / sizeof pipelines[0]; i++) {
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            for (unsigned kind = 0; kind < TS_UNIT_INPUTS; kind++) {
                check_case(pipelines[i], shapes[s].shape, shapes[s].ndim, kind);
            }
        }
    }
}
END_TEST

/* With error feedback everything that was pushed arrives in the end, whatever the quantiser. */
START_TEST(feedback_keeps_the_residual_bounded) {
    static const char *const pipelines[] = {"powersgd:1", "powersgd:2 | int8", "powersgd:2 | int4", "svd:1 | fp16",
                                            "tucker:2 | fp16", "delta:8 | linear:4", "delta:64 | int4",
                                            "delta:1000 | linear:3", "delta:1000 | qsgd:6", "delta:1000 | sign"};
    size_t n = product_of(conv, 4);
    float *g = malloc(n * sizeof *g), *sum = malloc(n * sizeof *g), *fed = malloc(n * sizeof *g);
    for (size_t i = 0; i < sizeof pipelines / sizeof pipelines[0]; i++) {
        pair p;
        double pushed = 0;
        memset(sum, 0, n * sizeof *g);
        memset(fed, 0, n * sizeof *g);
        pair_open(&p, pipelines[i], conv, 4, 1000, ts_cpu_simd());
        for (uint64_t step = 0; step < 300; step++) {
            ts_unit_input(8, g, n, step);
            ts_unit_encode(&p.t, g, step, TERSE_OK);
            receive_add(&p, sum);
            for (size_t j = 0; j < n; j++) fed[j] += g[j];
            pushed = 0;
            for (size_t j = 0; j < n; j++) pushed += (double)g[j] * (double)g[j];
        }
        double left = 0;
        for (size_t j = 0; j < n; j++) left += (double)p.t.residual[j] * (double)p.t.residual[j];
        ck_assert_msg(sqrt(left / pushed) < 25, "%s: the residual is %g gradients", pipelines[i], sqrt(left / pushed));
        for (size_t j = 0; j < n; j++) sum[j] += p.t.residual[j];
        ck_assert_msg(distance(sum, fed, n) < 1e-5, "%s: sent and kept are not what was pushed", pipelines[i]);
        pair_close(&p);
    }
    free(g), free(sum), free(fed);
}
END_TEST

START_TEST(delta_keeps_both_ends_equal) {
    static const int64_t shape[1] = {2500};
    static const char *const pipelines[] = {"delta:64 | linear:4", "delta:7 | int8:tensor", "delta:1000 | fp16"};
    float g[2500], out[2500], want[2500];
    for (size_t i = 0; i < sizeof pipelines / sizeof pipelines[0]; i++) {
        pair p;
        pair_open(&p, pipelines[i], shape, 1, 1000, ts_cpu_simd());
        uint64_t period = (uint64_t)p.t.pipeline.transform_args.value[0], full = 0, step = 0;
        for (int round = 0; round < 200; round++, step += round % 50 == 49 ? 400 : 1) {
            ts_unit_input(8, g, 2500, 1);
            for (size_t j = 0; j < 2500; j++) g[j] += 0.01f * (float)round;
            for (size_t j = 0; j < 2500; j++) want[j] = p.t.residual[j] + g[j];
            ts_unit_encode(&p.t, g, step, TERSE_OK);
            for (uint32_t s = 0; s < p.t.slices; s++) full += p.t.packet[s][0] == 0;
            ck_assert(step % period != 0 || p.t.packet[0][0] == 0);
            receive(&p, out);
            check_conservation(&p, want, out, pipelines[i]);
            receive(&p, want); /* a second time says the same */
            ck_assert_mem_eq(out, want, sizeof out);
        }
        ck_assert_uint_ge(full, 3 * 4);
        ck_assert_uint_lt(full, period < 100 ? 3 * 200 : 3 * 8);
        pair_close(&p);
    }
}
END_TEST

/* A receiver that missed a packet says so until the next refresh; a packet given back makes the sender refresh. */
START_TEST(delta_notices_gaps) {
    static const int64_t shape[1] = {300};
    float g[300], out[300], want[300], sum[300];
    pair p;
    pair_open(&p, "delta:10 | int8", shape, 1, 300, ts_cpu_simd());
    ts_unit_input(8, g, 300, 2);
    for (uint64_t step = 0; step < 12; step++) {
        ts_unit_encode(&p.t, g, step, TERSE_OK);
        memcpy(sum, g, sizeof sum);
        terse_status status = step == 4 ? TERSE_OK : ts_decode_add(p.t.scratch, &p.t.spec, p.state[0], 0, step, p.t.packet[0],
                                                                   p.t.len[0], sum);
        ck_assert_int_eq(status, step > 4 && step < 10 ? TERSE_ESTALE : TERSE_OK);
        if (status != TERSE_OK) ck_assert_mem_eq(sum, g, sizeof g);
    }
    for (size_t i = 0; i < 300; i++) want[i] = p.t.residual[i] + g[i];
    ts_unit_encode(&p.t, g, 12, TERSE_OK);
    ck_assert_uint_eq(p.t.packet[0][0], 1);
    ck_assert_ok(ts_encoder_take_back(p.t.encoder, p.t.scratch, 0, 12, p.t.packet[0], p.t.len[0], p.t.residual));
    ck_assert_double_lt(distance(p.t.residual, want, 300), 1e-6);
    ck_assert_status(ts_encoder_take_back(p.t.encoder, p.t.scratch, 0, 12, p.t.packet[0], p.t.len[0], p.t.residual),
                     TERSE_ECORRUPT);
    ts_unit_encode(&p.t, g, 13, TERSE_OK);
    ck_assert_uint_eq(p.t.packet[0][0], 0);
    receive(&p, out);
    ts_unit_encode(&p.t, g, 14, TERSE_OK);
    ck_assert_uint_eq(p.t.packet[0][0], 1);
    ts_encoder_restart(p.t.encoder, 0); /* what the receiver has is not known any more */
    ts_unit_encode(&p.t, g, 13, TERSE_OK);
    ck_assert_uint_eq(p.t.packet[0][0], 0);
    ck_assert_status(ts_decode_add(p.t.scratch, &p.t.spec, NULL, 0, 13, p.t.packet[0], p.t.len[0], sum), TERSE_OK);
    pair_close(&p);
}
END_TEST

START_TEST(low_rank_packets_can_be_given_back) {
    float g[24 * 18 * 9];
    pair p;
    pair_open(&p, "powersgd:2 | int8", conv, 4, 100, ts_cpu_simd());
    ts_unit_input(8, g, p.t.spec.n, 2);
    ts_unit_encode(&p.t, g, 0, TERSE_OK);
    ck_assert_double_gt(distance(p.t.residual, g, p.t.spec.n), 1e-2);
    ck_assert_ok(ts_encoder_take_back(p.t.encoder, p.t.scratch, 0, 0, p.t.packet[0], p.t.len[0], p.t.residual));
    ck_assert_double_lt(distance(p.t.residual, g, p.t.spec.n), 1e-6);
    pair_close(&p);
}
END_TEST

/* Each truncation and each flipped bit: a status, finite values, sums untouched on failure. */
static void bend(const char *pipeline, const int64_t *shape, unsigned ndim) {
    pair p;
    float g[1000], sum[1000], untouched[1000];
    pair_open(&p, pipeline, shape, ndim, 400, ts_cpu_simd());
    bool delta = ts_pipeline_is_stateful(&p.t.pipeline);
    ts_unit_input(8, g, p.t.spec.n, 1);
    for (uint64_t step = 5; step < 7; step++) {
        ts_unit_encode(&p.t, g, step, TERSE_OK);
        for (uint32_t s = 0; s < p.t.slices; s++) {
            size_t len = p.t.len[s], n = ts_codec_slice_elems(&p.t.spec, s);
            for (size_t cut = 0; cut < 9 * len; cut++) {
                size_t kept = cut < len ? cut : len;
                uint8_t *bent = malloc(kept ? kept : 1);
                ts_decode_state *state = NULL;
                memcpy(bent, p.t.packet[s], kept);
                if (cut >= len) bent[(cut - len) / 8] ^= (uint8_t)(1u << ((cut - len) % 8));
                memset(sum, 0, sizeof sum);
                memset(untouched, 0, sizeof untouched);
                if (delta) {
                    ck_assert_ok(ts_decode_state_create(&p.t.spec, s, &state));
                    state->known = step > 5;
                    state->step = 5;
                }
                terse_status status = ts_decode_add(p.t.scratch, &p.t.spec, state, s, step, bent, kept, sum);
                if (status != TERSE_OK && status != TERSE_ECORRUPT && (!delta || status != TERSE_ESTALE)) ck_abort_msg("%s gave %s", pipeline, terse_status_name(status));
                if (status != TERSE_OK) ck_assert_mem_eq(sum, untouched, sizeof sum);
                if (status == TERSE_OK && cut < len && !p.t.pipeline.bytes[0]) ck_abort_msg("%s: cut short and accepted", pipeline);
                for (size_t i = 0; i < n; i++) {
                    if (!isfinite(sum[i])) ck_abort_msg("%s: a bent packet put in what is not finite", pipeline);
                }
                ts_decode_state_destroy(state);
                free(bent);
            }
        }
        if (delta) {
            float out[1000];
            receive(&p, out);
        }
    }
    pair_close(&p);
}

START_TEST(bent_packets_give_a_status) {
    static const int64_t matrix[2] = {20, 12}, three[3] = {10, 6, 5}, line[1] = {500};
    bend("powersgd:2", matrix, 2);
    bend("powersgd:2 | fp16", matrix, 2);
    bend("powersgd:1 | int8 | huffman", matrix, 2);
    bend("svd:2 | int8", matrix, 2);
    bend("tucker:2", three, 3);
    bend("tucker:2 | log:8", three, 3);
    bend("delta:4", line, 1);
    bend("delta:4 | linear:4", line, 1);
    bend("delta:4 | int8 | huffman", line, 1);
}
END_TEST

START_TEST(what_does_not_suit_is_sent_as_it_is) {
    static const struct { const char *pipeline; int64_t shape[5]; unsigned ndim; } cases[] = {
        {"powersgd:2 | fp32", {600}, 1}, {"powersgd:2 | fp32", {2, 300}, 2},      {"svd:30 | fp32", {20, 30}, 2},
        {"tucker:2 | fp32", {20, 30}, 2}, {"tucker:9 | fp32", {3, 3, 3, 3, 7}, 5}, {"tucker:3 | fp32", {3, 3, 3}, 3},
    };
    float g[600], out[600];
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        pair p;
        pair_open(&p, cases[c].pipeline, cases[c].shape, cases[c].ndim, 100, ts_cpu_simd());
        ck_assert_ptr_null(ts_transform_view_of(&p.t.spec).stage);
        ck_assert_uint_eq(p.t.spec.slice_elems, 100);
        ts_unit_input(8, g, p.t.spec.n, 0);
        ts_unit_encode(&p.t, g, 0, TERSE_OK);
        ck_assert_uint_eq(p.t.bytes, 4 * p.t.spec.n);
        receive(&p, out);
        ck_assert_mem_eq(out, g, p.t.spec.n * sizeof *g);
        pair_close(&p);
    }
}
END_TEST

START_TEST(nonfinite_gradients_follow_the_policy) {
    static const char *const pipelines[] = {"powersgd:2", "svd:2", "tucker:2", "delta:4 | int8", "delta:4 | fp32"};
    size_t n = product_of(conv, 4);
    float *g = malloc(n * sizeof *g), *sent = malloc(n * sizeof *g);
    for (size_t i = 0; i < sizeof pipelines / sizeof pipelines[0]; i++) {
        for (int policy = TS_NONFINITE_ERROR; policy <= TS_NONFINITE_ZERO; policy++) {
            pair p;
            pair_open(&p, pipelines[i], conv, 4, 1000, ts_cpu_simd());
            p.t.input.nonfinite = (ts_nonfinite)policy;
            ts_unit_input(8, g, n, 4);
            g[300] = NAN;
            g[n - 1] = INFINITY;
            ts_unit_encode(&p.t, g, 0, policy == TS_NONFINITE_ERROR ? TERSE_ENONFINITE : TERSE_OK);
            ck_assert_uint_eq(p.t.report.nonfinite_count, 2);
            ck_assert_uint_eq(p.t.report.nonfinite_first, 300);
            if (policy == TS_NONFINITE_ERROR) ts_unit_encode(&p.t, NULL, 0, TERSE_OK);
            receive(&p, sent);
            for (size_t j = 0; j < n; j++) {
                bool out = policy == TS_NONFINITE_SKIP || !isfinite(g[j]);
                sent[j] += p.t.residual[j];
                if (!(fabsf(sent[j] - (out ? 0.0f : g[j])) <= 1e-5f)) ck_abort_msg("%s, policy %d: element %zu", pipelines[i], policy, j);
            }
            pair_close(&p);
        }
    }
    free(g), free(sent);
}
END_TEST

START_TEST(nonsense_is_refused) {
    static const char *const texts[] = {"powersgd", "powersgd:0", "powersgd:1.5", "powersgd:2 | topk:0.1", "delta:4 | topk:0.1",
                                        "fp16 | powersgd:2", "powersgd:2 | svd:2", "delta:0", "tucker:33", "svd:2 | int8 | rice",
                                        "delta:4 | ternary", "delta:4 | qsgd:5", "delta:4 | linear:2"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ts_pipeline parsed;
        ts_error error = {""};
        ck_assert_msg(ts_pipeline_parse(texts[i], &parsed, &error) == TERSE_EINVAL, "%s was accepted", texts[i]);
        ck_assert_uint_gt(strlen(error.text), 20);
    }
}
END_TEST

TCase *test_transform(void);
TCase *test_transform(void) {
    TCase *tests = tcase_create("transform");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, errors_fall_as_the_rank_grows);
    tcase_add_test(tests, what_has_that_rank_comes_through);
    tcase_add_test(tests, numpy_agrees);
    tcase_add_test(tests, the_contract_holds_for_every_shape_and_input);
    tcase_add_test(tests, feedback_keeps_the_residual_bounded);
    tcase_add_test(tests, delta_keeps_both_ends_equal);
    tcase_add_test(tests, delta_notices_gaps);
    tcase_add_test(tests, low_rank_packets_can_be_given_back);
    tcase_add_test(tests, bent_packets_give_a_status);
    tcase_add_test(tests, what_does_not_suit_is_sent_as_it_is);
    tcase_add_test(tests, nonfinite_gradients_follow_the_policy);
    tcase_add_test(tests, nonsense_is_refused);
    return tests;
}
