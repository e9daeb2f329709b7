/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error feedback around every pipeline of the contract test, in each of its variants: classic is the contract test
 * itself; here are decayed, EF21, residuals stored as bfloat16, and none, with which stochastic stages keep the
 * expectation. What enters is what is sent, what is kept and what is counted as let go, element by element, the rounding
 * of what was sent included; and every vector level gives the reference's bytes.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cpu.h"
#include "common/codec/registry.h"
#include "tests/unit/contract_case.h"
#include "worker/client/feedback.h"

#define MOST_ELEMS 17000u /* more than a block of scales */
#define BETA 0.75f
#define STEPS 4u

typedef enum { VARIANT_DECAYED, VARIANT_EF21, VARIANT_BRIEF, VARIANT_NONE, VARIANTS } variant;
static const char *const names[VARIANTS] = {"decayed", "ef21", "bf16 residual", "none"};

/* One sender under a variant. */
typedef struct {
    ts_contract_bench *bench;
    ts_contract_case c;
    variant variant;
    ts_unit_tensor t;
    ts_feedback memory;
    char where[300];
} sender;

static bool lossless(const ts_pipeline *p) { return p->quantise->lossless && !p->transform; }

/* What the step starts from, in the tensor's residual. */
static void before_step(sender *s) {
    size_t n = s->c.n;
    switch (s->variant) {
    case VARIANT_DECAYED:
        s->t.input.decay = BETA;
        break;
    case VARIANT_EF21:
        ts_feedback_start_difference(&s->memory);
        memcpy(s->t.residual, s->memory.residual, n * sizeof(float));
        break;
    case VARIANT_BRIEF:
        ts_feedback_read_brief(&s->memory, s->t.residual);
        break;
    default:
        s->t.input.unbiased = true;
        s->t.input.blank = true;
        break;
    }
}

/* bench->before: what will have entered: gradient and what was there, as the sweep adds them. Returns what decays. */
static double expect(sender *s) {
    float *start = s->bench->other;
    double let_go = 0;
    for (size_t i = 0; i < s->c.n; i++) {
        float old = s->t.residual[i];
        start[i] = s->variant == VARIANT_DECAYED ? ts_flush(BETA * old) : s->variant == VARIANT_NONE ? 0.0f : old;
        if (s->variant == VARIANT_DECAYED) let_go += (double)old - (double)start[i];
    }
    ts_contract_accumulate(start, s->bench->gradient, s->bench->before, s->c.n);
    return let_go;
}

static double sum_of(const float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += fabs((double)x[i]);
    return sum;
}

/* What the variant does with what is left. decoded: what was sent. */
static void after_step(sender *s, double let_go) {
    size_t n = s->c.n;
    const float *decoded = s->bench->decoded;
    if (s->variant == VARIANT_DECAYED) {
        double off = fabs(s->t.report.let_go - let_go);
        if (!(off <= 1e-6 * sum_of(s->bench->before, n))) ck_abort_msg("%s: %g let go, not %g", s->where, s->t.report.let_go, let_go);
    }
    if (s->variant == VARIANT_EF21) { /* the residual is what the estimate lacks of the gradient */
        for (size_t i = 0; i < n; i++) s->memory.estimate[i] += decoded[i];
    }
    if (s->variant == VARIANT_BRIEF) {
        memcpy(s->bench->other, s->t.residual, n * sizeof(float));
        double lost = ts_feedback_write_brief(&s->memory, s->bench->other), missing = 0;
        ts_feedback_read_brief(&s->memory, s->bench->other);
        for (size_t i = 0; i < n; i++) missing += (double)s->t.residual[i] - (double)s->bench->other[i];
        double off = fabs(lost - missing);
        if (!(off <= 1e-6 * sum_of(s->t.residual, n))) ck_abort_msg("%s: %g of rounding, not %g", s->where, lost, missing);
    }
}

static double largest(const float *x, size_t n) {
    double most = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, fabs((double)x[i]));
    return most;
}

/* Without error feedback: a stage that draws sends the value over its probability, and none sends what is no number. */
static void check_unbiased(const sender *s) {
    const ts_pipeline *p = &s->t.pipeline;
    const float *before = s->bench->before, *decoded = s->bench->decoded;
    const char *select = p->select ? p->select->info.name : "";
    size_t k = s->t.report.selected;
    for (size_t i = 0; i < s->c.n; i++) {
        if (!isfinite(decoded[i])) ck_abort_msg("%s: element %zu becomes %g", s->where, i, (double)decoded[i]);
    }
    double gain = strcmp(select, "bernoulli") == 0 ? 1 / p->select_args.value[0]
                  : strcmp(select, "randomk") == 0 && s->t.slices == 1 ? (double)s->c.n / (double)k : 0;
    bool exact = lossless(p), scaled = strcmp(p->quantise->info.name, "int8") == 0 && s->c.kind != TS_UNIT_MAX;
    double most = (double)FLT_MAX, step = scaled ? gain * largest(before, s->c.n) / 127 : 0;
    for (size_t i = 0; i < s->c.n && gain > 0 && (exact || scaled); i++) {
        double wanted = fmax(-most, fmin(most, gain * (double)before[i]));
        bool right = decoded[i] == 0.0f || fabs((double)decoded[i] - wanted) <= 1e-6 * fabs(wanted) + step;
        if (!right) ck_abort_msg("%s: element %zu: %g of %g is sent as %g", s->where, i, (double)before[i], wanted, (double)decoded[i]);
    }
}

/* The level of this CPU gives the bytes of the scalar reference. */
static void compare(const sender *s, const sender *reference) {
    for (uint32_t slice = 0; slice < s->t.slices; slice++) {
        bool same = s->t.len[slice] == reference->t.len[slice] &&
                    memcmp(s->t.packet[slice], reference->t.packet[slice], s->t.len[slice]) == 0;
        if (!same) ck_abort_msg("%s: slice %u differs from the reference", s->where, slice);
    }
    if (memcmp(s->t.residual, reference->t.residual, s->c.n * sizeof(float)) != 0) ck_abort_msg("%s: another residual", s->where);
}

static void step(sender *s, unsigned number) {
    ts_contract_gradient(s->bench, &s->c, number, s->bench->gradient);
    before_step(s);
    double let_go = expect(s);
    ts_unit_encode(&s->t, s->bench->gradient, number, TERSE_OK);
    (void)ts_unit_decode(&s->t, s->bench->decoded);
    if (s->variant == VARIANT_NONE) check_unbiased(s);
    else ts_contract_conserved(&s->t, s->bench->before, s->bench->decoded, 0, s->where);
    after_step(s, let_go);
}

static void open_sender(sender *s, ts_contract_bench *b, const ts_contract_case *c, variant v, ts_simd simd) {
    char name[200];
    ts_feedback_needs needs = {.estimate = v == VARIANT_EF21, .brief = v == VARIANT_BRIEF};
    *s = (sender){.bench = b, .c = *c, .variant = v};
    ts_unit_tensor_open_shaped(&s->t, c->pipeline, c->n, c->ndim, c->slice_elems, simd, b->scratch[simd]);
    ck_assert_ok(ts_feedback_create(&ts_feedback_heap, "w", c->n, &needs, &s->memory));
    (void)snprintf(s->where, sizeof s->where, "%s, %s, %s", ts_contract_name(c, name, sizeof name), names[v], ts_simd_name(simd));
}

static void close_sender(sender *s) {
    ts_feedback_destroy(&s->memory);
    ts_unit_tensor_close(&s->t);
}

static void check_case(ts_contract_bench *b, const ts_contract_case *c, variant v) {
    sender here, reference;
    open_sender(&here, b, c, v, ts_cpu_simd());
    open_sender(&reference, b, c, v, TS_SIMD_SCALAR);
    for (unsigned number = 0; number < STEPS; number++) {
        step(&reference, number);
        step(&here, number);
        compare(&here, &reference);
    }
    close_sender(&here);
    close_sender(&reference);
}

/* Whether a config may have it. */
static bool is_allowed(const char *text, variant v) {
    ts_pipeline parsed;
    ck_assert_ok(ts_pipeline_parse(text, &parsed, NULL));
    return !ts_pipeline_replaces(&parsed) && !(v == VARIANT_EF21 && ts_pipeline_is_stateful(&parsed));
}

/* One scale a tensor is that of what is sent: of values made larger, when nothing is kept for later. */
START_TEST(one_scale_a_tensor_fits_values_over_their_probability) {
    enum { N = 2000 };
    static const char *const texts[] = {"randomk:0.1 | int8:tensor", "bernoulli:0.1 | int8:tensor", "randomk:0.1 | int4:tensor"};
    float g[N], decoded[N];
    ts_unit_input(TS_UNIT_NORMAL, g, N, 5);
    for (size_t p = 0; p < sizeof texts / sizeof texts[0]; p++) {
        ts_unit_tensor t;
        double step = 10 * largest(g, N) / (strstr(texts[p], "int8") ? 127 : 7);
        ts_unit_tensor_open(&t, texts[p], N, 600, ts_cpu_simd());
        t.input.unbiased = true;
        ts_unit_encode(&t, g, 0, TERSE_OK);
        ck_assert_uint_gt(ts_unit_decode(&t, decoded), N / 20);
        for (size_t i = 0; i < N; i++) {
            if (decoded[i] == 0.0f || fabs((double)decoded[i] - 10 * (double)g[i]) <= 0.51 * step) continue;
            ck_abort_msg("%s: element %zu: ten times %g is sent as %g", texts[p], i, (double)g[i], (double)decoded[i]);
        }
        ts_unit_tensor_close(&t);
    }
}
END_TEST

/* EF21 (Richtárik, Sokolov and Fatkhullin 2021): with a gradient that stays, the estimate comes to it, whatever the stage. */
START_TEST(ef21_estimates_come_to_the_gradient) {
    enum { N = 3000, PUSHES = 150 };
    float *g = malloc(N * sizeof *g);
    ck_assert_ptr_nonnull(g);
    for (size_t e = 0; e < ts_registry_count(); e++) {
        const ts_stage_entry *entry = ts_registry_entry(e);
        const char *name = entry->info->name;
        char text[64];
        ts_unit_tensor t;
        ts_feedback memory = {0};
        ts_feedback_needs needs = {.estimate = true};
        double norm = 0, last = 0;
        (void)snprintf(text, sizeof text, "%s%s", name, entry->kind == TS_STAGE_QUANTISE && entry->info->min_args ? ":4"
                       : entry->kind == TS_STAGE_QUANTISE ? "" : strcmp(name, "blocktopk") == 0 ? ":0.1:100"
                       : strcmp(name, "threshold") == 0 ? ":0.01" : ":0.1");
        if (entry->kind != TS_STAGE_QUANTISE && (entry->kind != TS_STAGE_SELECT || entry->stage.select->replaces)) continue;
        ts_unit_tensor_open(&t, text, N, N, ts_cpu_simd());
        ck_assert_ok(ts_feedback_create(&ts_feedback_heap, "w", N, &needs, &memory));
        ts_unit_input(TS_UNIT_NORMAL, g, N, 3);
        float *decoded = malloc(N * sizeof *decoded);
        ck_assert_ptr_nonnull(decoded);
        for (uint64_t push = 0; push < PUSHES; push++) {
            ts_feedback_start_difference(&memory);
            memcpy(t.residual, memory.residual, N * sizeof(float));
            ts_unit_encode(&t, g, push, TERSE_OK);
            (void)ts_unit_decode(&t, decoded);
            last = 0;
            for (size_t i = 0; i < N; i++) {
                memory.estimate[i] += decoded[i];
                last += ((double)g[i] - (double)memory.estimate[i]) * ((double)g[i] - (double)memory.estimate[i]);
            }
        }
        for (size_t i = 0; i < N; i++) norm += (double)g[i] * (double)g[i];
        ck_assert_msg(last <= 1e-3 * norm, "%s: a squared error of %g beside %g is left", text, last, norm);
        free(decoded);
        ts_feedback_destroy(&memory);
        ts_unit_tensor_close(&t);
    }
    free(g);
}
END_TEST

START_TEST(every_variant_accounts_for_all_that_entered) {
    static const size_t sizes[] = {1, 7, 1000, MOST_ELEMS};
    ts_contract_bench *b = ts_contract_open(MOST_ELEMS);
    size_t ran = 0;
    for (size_t i = 0; i < b->generated.count; i++) {
        if (!is_allowed(b->generated.text[i], (variant)_i)) continue;
        for (size_t z = 0; z < sizeof sizes / sizeof sizes[0]; z++) {
            for (unsigned kind = 0; kind < TS_CONTRACT_INPUTS; kind++) {
                if (_i == VARIANT_EF21 && kind == TS_UNIT_MAX) continue; /* their differences are no floats */
                size_t some = sizes[z] > 1000 ? 40 : sizes[z] > 7 ? 5 : 2; /* of every so many */
                if (!ts_contract_long() && (i + z + 7 * kind) % some != 0) continue;
                ts_contract_case c = {.pipeline = b->generated.text[i],
                                      .n = sizes[z],
                                      .kind = kind,
                                      .ndim = 1 + (unsigned)i % 4,
                                      .slice_elems = i % 2 ? sizes[z] : 300 + sizes[z] / 3,
                                      .turn = (unsigned)i};
                check_case(b, &c, (variant)_i);
                ran++;
            }
        }
    }
    ck_assert_uint_gt(ran, 4000);
    ts_contract_close(b);
}
END_TEST

TCase *test_codec_feedback(void);
TCase *test_codec_feedback(void) {
    TCase *tests = tcase_create("codec_feedback");
    tcase_set_timeout(tests, ts_contract_long() ? 3600 : 180);
    tcase_add_test(tests, one_scale_a_tensor_fits_values_over_their_probability);
    tcase_add_test(tests, ef21_estimates_come_to_the_gradient);
    tcase_add_loop_test(tests, every_variant_accounts_for_all_that_entered, 0, VARIANTS);
    return tests;
}
