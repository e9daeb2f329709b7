/* SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"
#include "common/base/random.h"
#include "common/codec/block.h"
#include "common/codec/registry.h"
#include "tests/unit/codec_support.h"

/* Value of a half by its definition. */
static double half_value(unsigned half) {
    unsigned exponent = half >> 10 & 31, mantissa = half & 1023;
    double value = exponent ? ldexp(1024.0 + mantissa, (int)exponent - 25) : ldexp(mantissa, -24);
    return half & 0x8000 ? -value : value;
}

START_TEST(halves_are_what_ieee_says) {
    for (unsigned half = 0; half < 0x10000; half++) {
        if ((half & 0x7C00) == 0x7C00) continue;
        float value = ts_half_to_float((uint16_t)half);
        if ((double)value != half_value(half)) ck_abort_msg("half %04x is not %g", half, (double)value);
        if (ts_half_from_float(value) != half) ck_abort_msg("%g does not give half %04x", (double)value, half);
        /* Halfway to the next one goes to the even one; a little more or less to the nearer one. */
        if ((half & 0x7FFF) == 0x7BFF) continue;
        float middle = (float)((half_value(half) + half_value(half + 1)) / 2);
        unsigned even = half & 1 ? half + 1 : half;
        if (ts_half_from_float(middle) != even) ck_abort_msg("the middle above half %04x is not rounded to even", half);
        bool negative = half & 0x8000;
        if (ts_half_from_float(nextafterf(middle, negative ? -INFINITY : INFINITY)) != half + 1)
            ck_abort_msg("above %04x", half);
        if (ts_half_from_float(nextafterf(middle, 0)) != half) ck_abort_msg("below the middle above %04x", half);
    }
    ck_assert_uint_eq(ts_half_from_float(1e9f), 0x7BFF);
    ck_assert_uint_eq(ts_half_from_float(-65520.0f), 0xFBFF);
}
END_TEST

START_TEST(fp16_keeps_what_overflows) {
    ts_unit_tensor t;
    float g[3] = {1e6f, -70000.0f, 1.0f}, sum[3] = {0};
    ts_unit_tensor_open(&t, "fp16", 3, 3, ts_cpu_simd());
    ts_unit_encode(&t, g, 0, TERSE_OK);
    ts_unit_decode_add(&t, sum);
    ck_assert(sum[0] == 65504.0f && sum[1] == -65504.0f && sum[2] == 1.0f);
    ck_assert(t.residual[0] == 1e6f - 65504.0f && t.residual[1] == -4496.0f && t.residual[2] == 0.0f);
    /* The rest goes with the next steps. */
    for (uint64_t step = 1; step < 16; step++) {
        ts_unit_encode(&t, NULL, step, TERSE_OK);
        ts_unit_decode_add(&t, sum);
    }
    ck_assert(sum[0] == 1e6f && sum[1] == -70000.0f);
    ts_unit_tensor_close(&t);
}
END_TEST

/* Half a step at most, and the largest value exactly at the end of the scale, block by block. */
START_TEST(int8_errs_by_half_a_step) {
    enum { N = 40000 };
    float *g = malloc(N * sizeof *g), *out = malloc(N * sizeof *out);
    ts_unit_input(7, g, N, 3);
    for (size_t i = 0; i < N; i++) g[i] *= i < TS_BLOCK_ELEMS ? 1.0f : 1000.0f;
    for (int whole = 0; whole < 2; whole++) {
        ts_unit_tensor t;
        ts_unit_tensor_open(&t, whole ? "int8:tensor" : "int8", N, N, ts_cpu_simd());
        ts_unit_encode(&t, g, 0, TERSE_OK);
        ck_assert_uint_eq(t.bytes, N + 4 * (whole ? 1 : 3));
        (void)ts_unit_decode(&t, out);
        for (size_t at = 0; at < N; at += whole ? N : TS_BLOCK_ELEMS) {
            size_t end = whole || at + TS_BLOCK_ELEMS > N ? N : at + TS_BLOCK_ELEMS;
            float most = 0;
            for (size_t i = at; i < end; i++) most = fmaxf(most, fabsf(g[i]));
            double half = most / 127.0 / 2 * (1 + 1e-5);
            for (size_t i = at; i < end; i++) {
                if (fabs((double)out[i] - (double)g[i]) > half)
                    ck_abort_msg("element %zu errs by more than half a step", i);
            }
        }
        ts_unit_tensor_close(&t);
    }
    free(g);
    free(out);
}
END_TEST

static ts_block_format format_of(const char *text, ts_pipeline *pipeline, bool sparse) {
    ck_assert_ok(ts_pipeline_parse(text, pipeline, NULL));
    return ts_block_format_of(pipeline, ts_kernels_get(TS_SIMD_SCALAR), sparse);
}

START_TEST(small_sparse_blocks_have_short_scales) {
    ts_pipeline pipeline;
    ts_block_format format = format_of("int8", &pipeline, true);
    ck_assert_uint_eq(ts_block_bytes(&format, 1), 2);
    ck_assert_uint_eq(ts_block_bytes(&format, 2), 2 + 2);
    ck_assert_uint_eq(ts_block_bytes(&format, 4095), 2 + 4095);
    ck_assert_uint_eq(ts_block_bytes(&format, 4096), 4 + 4096);
    ck_assert_uint_eq(ts_blocks_bytes(&format, 16385), 4 + 16384 + 2);
    format = format_of("int8", &pipeline, false);
    ck_assert_uint_eq(ts_block_bytes(&format, 1), 4 + 1);
    ck_assert_uint_eq(ts_blocks_bytes(&format, 0), 0);
    format = format_of("int8:tensor", &pipeline, false);
    ck_assert_uint_eq(ts_blocks_bytes(&format, 100000), 4 + 100000);

    /* A scale is rounded up by at most one part in 256. */
    ts_random random = ts_random_start(5);
    format = format_of("int8", &pipeline, true);
    for (int round = 0; round < 2000; round++) {
        float x[2] = {ts_random_normal(&random) * 1e-3f, ts_random_normal(&random)}, kept[2], back[2];
        uint8_t bytes[4];
        memcpy(kept, x, sizeof kept);
        float most = fmaxf(fabsf(x[0]), fabsf(x[1]));
        ck_assert_uint_eq(ts_block_write(&format, kept, 2, most, bytes), 4);
        float scale = ts_bits_float((uint32_t)ts_load_u16(bytes) << 15);
        if (!(scale >= most / 127.0f && scale <= most / 127.0f * (1 + 0x1p-8f)))
            ck_abort_msg("scale %g for %g", (double)scale, (double)most);
        if (!ts_block_valid(&format, bytes, 2)) ck_abort_msg("own block refused");
        ts_block_decode(&format, bytes, 2, back);
        if (back[0] + kept[0] != x[0] || back[1] + kept[1] != x[1]) ck_abort_msg("sent + kept is not the value");
    }
}
END_TEST

START_TEST(single_values_travel_as_bfloat16) {
    ts_pipeline pipeline;
    ts_block_format format = format_of("int8", &pipeline, true);
    static const struct { float in, out;
    } cases[] = {{1.0f, 1.0f},           {-3.0f, -3.0f},         {0.0f, 0.0f},
                 {0x1.01p0f, 0x1.00p0f}, {0x1.03p0f, 0x1.04p0f}, {FLT_MAX, 0x1.FEp127f}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float x = cases[i].in, back;
        uint8_t bytes[2];
        ck_assert_uint_eq(ts_block_write(&format, &x, 1, fabsf(x), bytes), 2);
        ts_block_decode(&format, bytes, 1, &back);
        ck_assert(back == cases[i].out);
        ck_assert(x == cases[i].in - back);
    }
    ck_assert(!ts_block_valid(&format, (const uint8_t[]){0x80, 0x7F}, 1)); /* infinity */
}
END_TEST

/* Vector kernels against the reference, also at odd lengths. */
START_TEST(kernels_agree_with_the_reference) {
    enum { N = 3000 };
    float *x = malloc(N * sizeof *x), *a = malloc(N * sizeof *x), *b = malloc(N * sizeof *x);
    static const size_t lengths[] = {0, 1, 15, 16, 17, 31, 33, 64, 100, 129, 1000, N - 1};
    const ts_kernels *r = ts_kernels_get(TS_SIMD_SCALAR);
    for (int level = TS_SIMD_NEON; level <= TS_SIMD_AVX512; level++) {
        if (!ts_cpu_supports((ts_simd)level)) continue;
        const ts_kernels *k = ts_kernels_get((ts_simd)level);
        for (unsigned kind = 0; kind < TS_UNIT_INPUTS; kind++) {
            for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
                size_t n = lengths[l], at_k = 77, at_r = 77;
                ts_unit_input(kind, x, N, l);
                ck_assert_uint_eq(k->max_abs(x + 1, n), r->max_abs(x + 1, n));
                ck_assert(k->sum_squares(x + 1, n) == r->sum_squares(x + 1, n));
                ck_assert(k->sum_abs(x + 1, n) == r->sum_abs(x + 1, n));
                for (int op = 0; op < 4; op++) {
                    memcpy(a, x, N * sizeof *x);
                    memcpy(b, x, N * sizeof *x);
                    const ts_kernels *side[2] = {k, r};
                    for (int i = 0; i < 2; i++) {
                        float *to = i ? b : a;
                        if (op == 0) side[i]->add(to + 1, x, n);
                        if (op == 1) side[i]->sub(to + 1, to + 1, x, n);
                        if (op == 2) side[i]->scale(to + 1, 0.3f, n);
                        if (op == 3) side[i]->descend(to + 1, x, 0.1f, n);
                    }
                    ck_assert_mem_eq(a, b, N * sizeof *x);
                }
                if (n > 0) {
                    float low[2], high[2];
                    k->min_max(x + 1, n, &low[0], &high[0]);
                    r->min_max(x + 1, n, &low[1], &high[1]);
                    ck_assert(low[0] == low[1] && high[0] == high[1]);
                    x[1 + n / 2] = NAN;
                    x[n] = INFINITY;
                }
                ck_assert_uint_eq(k->nonfinite(x + 1, n, &at_k), r->nonfinite(x + 1, n, &at_r));
                ck_assert_uint_eq(at_k, at_r);
            }
        }
    }
    free(x);
    free(a);
    free(b);
}
END_TEST

/* Stochastic quantisers: over many steps the mean is the value, and the spread is no more than the paper's. */
START_TEST(stochastic_quantisers_are_unbiased) {
    enum { VALUES = 64, STEPS = 4000 };
    static const struct { const char *pipeline; double omega; } cases[] = {
        {"qsgd:4", VALUES / 49.0}, {"qsgd:8", VALUES / (127.0 * 127.0)}, {"natural", 0.125}, {"ternary", -1}};
    float g[VALUES], out[VALUES];
    ts_unit_input(7, g, VALUES, 11);
    double squares = 0, most = 0, sum = 0;
    for (int i = 0; i < VALUES; i++) {
        squares += (double)g[i] * (double)g[i];
        sum += fabs((double)g[i]);
        most = fmax(most, fabs((double)g[i]));
    }
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        ts_unit_tensor t;
        double mean[VALUES] = {0}, error = 0, omega = cases[c].omega < 0 ? most * sum / squares - 1 : cases[c].omega;
        ts_unit_tensor_open(&t, cases[c].pipeline, VALUES, VALUES, ts_cpu_simd());
        t.input.unbiased = true;
        for (uint64_t step = 0; step < STEPS; step++) {
            memset(t.residual, 0, VALUES * sizeof(float));
            ts_unit_encode(&t, g, step, TERSE_OK);
            (void)ts_unit_decode(&t, out);
            for (int i = 0; i < VALUES; i++) {
                double off = (double)out[i] - (double)g[i];
                mean[i] += (double)out[i] / STEPS;
                error += off * off / STEPS;
            }
        }
        ck_assert_msg(error <= omega * squares * 1.1, "%s: variance %g, allowed %g", cases[c].pipeline, error / squares,
                      omega);
        double bias = 0;
        for (int i = 0; i < VALUES; i++) bias += (mean[i] - (double)g[i]) * (mean[i] - (double)g[i]);
        /* The mean of STEPS draws has 1 / STEPS of their variance; a bias would not shrink with it. */
        ck_assert_msg(bias <= 2 * error / STEPS, "%s: bias %g", cases[c].pipeline, bias / squares);
        ts_unit_tensor_close(&t);
    }
}
END_TEST

/* B bits a value for any B, and no more than the scales beside them: 100,003 values in one slice. */
START_TEST(any_number_of_bits_takes_so_many) {
    enum { VALUES = 100003 };
    float *g = malloc(VALUES * sizeof *g);
    ck_assert_ptr_nonnull(g);
    ts_unit_input(8, g, VALUES, 1);
    unsigned ran = 0;
    for (size_t i = 0; i < ts_registry_count(); i++) {
        const ts_stage_entry *entry = ts_registry_entry(i);
        if (entry->kind != TS_STAGE_QUANTISE || entry->info->min_args == 0) continue;
        for (unsigned bits = (unsigned)entry->info->low[0]; bits <= (unsigned)entry->info->high[0]; bits++) {
            char text[32];
            ts_unit_tensor t;
            (void)snprintf(text, sizeof text, "%s:%u", entry->info->name, bits);
            ts_unit_tensor_open(&t, text, VALUES, VALUES, ts_cpu_simd());
            ts_unit_encode(&t, g, 0, TERSE_OK);
            const ts_quantise_stage *stage = entry->stage.quantise;
            size_t block = stage->block_elems ? stage->block_elems : TS_BLOCK_ELEMS, blocks = (VALUES - 1) / block + 1;
            size_t values = 0; /* whole bytes a block */
            for (size_t at = 0; at < VALUES; at += block) values += ((VALUES - at < block ? VALUES - at : block) * bits + 7) / 8;
            ck_assert_msg(t.bytes == values + 4 * stage->scales * blocks, "%s: %zu bytes for %zu of values and %zu scales", text,
                          t.bytes, values, stage->scales * blocks);
            ts_unit_tensor_close(&t);
            ran++;
        }
    }
    ck_assert_uint_eq(ran, 8 + 7 + 7); /* linear, log, qsgd */
    free(g);
}
END_TEST

/* With error feedback every quantiser keeps the residual bounded, so that all of the gradient arrives in the end. */
START_TEST(error_feedback_keeps_every_residual_bounded) {
    enum { VALUES = 3000, STEPS = 300 };
    float *g = malloc(VALUES * sizeof *g);
    for (size_t i = 0; i < ts_registry_count(); i++) {
        const ts_stage_entry *entry = ts_registry_entry(i);
        if (entry->kind != TS_STAGE_QUANTISE) continue;
        char text[64];
        ts_unit_tensor t;
        double squares = 0, at_half = 0, at_end = 0;
        (void)snprintf(text, sizeof text, "%s%s", entry->info->name, entry->info->min_args ? ":4" : "");
        ts_unit_tensor_open(&t, text, VALUES, VALUES, ts_cpu_simd());
        for (uint64_t step = 0; step < STEPS; step++) {
            ts_unit_input(7, g, VALUES, step);
            ts_unit_encode(&t, g, step, TERSE_OK);
            double norm = 0;
            for (int j = 0; j < VALUES; j++) {
                squares += (double)g[j] * (double)g[j] / STEPS;
                norm += (double)t.residual[j] * (double)t.residual[j];
            }
            if (step < STEPS / 2) at_half = fmax(at_half, norm);
            else at_end = fmax(at_end, norm);
        }
        ck_assert_msg(at_end <= 1.5 * at_half + 1e-12, "%s: the residual grows from %g to %g", text, at_half / squares,
                      at_end / squares);
        ts_unit_tensor_close(&t);
    }
    free(g);
}
END_TEST

TCase *test_quantise(void);
TCase *test_quantise(void) {
    TCase *tests = tcase_create("quantise");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, halves_are_what_ieee_says);
    tcase_add_test(tests, fp16_keeps_what_overflows);
    tcase_add_test(tests, int8_errs_by_half_a_step);
    tcase_add_test(tests, small_sparse_blocks_have_short_scales);
    tcase_add_test(tests, single_values_travel_as_bfloat16);
    tcase_add_test(tests, kernels_agree_with_the_reference);
    tcase_add_test(tests, stochastic_quantisers_are_unbiased);
    tcase_add_test(tests, any_number_of_bits_takes_so_many);
    tcase_add_test(tests, error_feedback_keeps_every_residual_bounded);
    return tests;
}
