/* SPDX-License-Identifier: Apache-2.0 */
/* What every pipeline must keep: all registered stages in legal combinations × sizes × inputs × vector levels. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cpu.h"
#include "common/base/random.h"
#include "common/codec/registry.h"
#include "tests/unit/codec_support.h"

#define SLICE 16500u
#define MOST_ELEMS 65537u
#define REAL TS_UNIT_INPUTS /* one more input: a real gradient */
#define SMALL_ELEMS 1000u

static const size_t sizes[] = {0, 1, 2, 3, 7, 63, 64, 65, 1000, 65535, 65537};

/* Working arrays, allocated once a test. */
typedef struct {
    float *g[2], *before, *decoded, *sum, *other;
    float *real;
    size_t real_elems;
} arrays;

static void arrays_open(arrays *a) {
    float **all[] = {&a->g[0], &a->g[1], &a->before, &a->decoded, &a->sum, &a->other};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        *all[i] = malloc((MOST_ELEMS + 1) * sizeof(float));
        ck_assert_ptr_nonnull(*all[i]);
    }
    a->real = ts_unit_read_f32(TS_TEST_VECTORS "/gradients/lm-step200-blk.0.linear2.weight.f32", &a->real_elems);
}

static void arrays_close(arrays *a) {
    free(a->g[0]); free(a->g[1]); free(a->before); free(a->decoded); free(a->sum); free(a->other); free(a->real);
}

static void fill(const arrays *a, unsigned kind, float *x, size_t n, uint64_t seed) {
    if (kind < REAL) ts_unit_input(kind, x, n, seed);
    for (size_t i = 0; i < n && kind == REAL; i++) x[i] = a->real[(i + seed * 977) % a->real_elems];
}

/* A stage's spelling with arguments inside its ranges. */
static void spell(const ts_stage_info *info, bool whole_tensor, char *out, size_t capacity) {
    size_t at = (size_t)snprintf(out, capacity, "%s", info->name);
    for (unsigned i = 0; i < info->max_args; i++) {
        double value = info->integral[i]    ? fmax(info->low[i], fmin(4, info->high[i]))
                       : info->high[i] <= 1 ? 0.05
                                            : 0.01;
        at += (size_t)snprintf(out + at, capacity - at, ":%g", value);
    }
    if (whole_tensor) (void)snprintf(out + at, capacity - at, ":tensor");
}

/* e + g as codec.h says. */
static void accumulate(const float *residual, const float *g, float *out, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float r = residual[i] + g[i];
        r = r > FLT_MAX ? FLT_MAX : r < -FLT_MAX ? -FLT_MAX : r;
        out[i] = fabsf(r) < FLT_MIN ? 0.0f : r;
    }
}

static void check_conservation(const ts_unit_tensor *t, const arrays *a, const char *where) {
    bool exact = t->pipeline.quantise->lossless;
    for (size_t i = 0; i < t->spec.n; i++) {
        double in = a->before[i], sent = a->decoded[i], kept = t->residual[i];
        double off = fabs(sent + kept - in), allowed = exact ? 0.0 : 0x1p-23 * fmax(fabs(kept), fabs(sent)) + 0x1p-149;
        /* Check writes a file for every assertion, so none is made that holds. */
        if (off <= allowed && isfinite(sent) && isfinite(kept)) continue;
        ck_abort_msg("%s: element %zu: %g sent + %g kept != %g", where, i, sent, kept, in);
    }
}

/* The packets and residuals of `t` are those of the reference. */
static void check_same(const ts_unit_tensor *t, const ts_unit_tensor *reference, const char *where) {
    ck_assert_msg(memcmp(t->residual, reference->residual, t->spec.n * sizeof(float)) == 0,
                  "%s: %s leaves another residual", where, ts_simd_name(ts_scratch_kernels(t->scratch)->level));
    for (uint32_t s = 0; s < t->slices; s++) {
        bool same = t->len[s] == reference->len[s] && memcmp(t->packet[s], reference->packet[s], t->len[s]) == 0;
        ck_assert_msg(same, "%s: slice %u differs from the reference at level %s", where, s,
                      ts_simd_name(ts_scratch_kernels(t->scratch)->level));
    }
}

static void check_case(arrays *a, const char *pipeline, size_t n, unsigned kind) {
    char where[256];
    ts_unit_tensor reference;
    (void)snprintf(where, sizeof where, "%s, n = %zu, %s", pipeline, n,
                   kind == REAL ? "real gradient" : ts_unit_input_name(kind));
    ts_unit_tensor_open(&reference, pipeline, n, SLICE, TS_SIMD_SCALAR);
    ts_unit_tensor other[3];
    size_t others = 0;
    for (int level = TS_SIMD_NEON; level <= TS_SIMD_AVX512; level++) {
        if (ts_cpu_supports((ts_simd)level)) ts_unit_tensor_open(&other[others++], pipeline, n, SLICE, (ts_simd)level);
    }
    for (uint64_t step = 0; step < 2; step++) {
        fill(a, kind, a->g[step], n, step);
        accumulate(reference.residual, a->g[step], a->before, n);
        ts_unit_encode(&reference, a->g[step], step, TERSE_OK);
        size_t sent = ts_unit_decode(&reference, a->decoded);
        ck_assert_msg(sent == reference.report.selected, "%s: %zu sent, %zu reported", where, sent,
                      reference.report.selected);
        check_conservation(&reference, a, where);
        for (size_t i = 0; i < n; i++) a->sum[i] = a->other[i] = (float)i * 0.25f - 1.0f;
        ts_unit_decode_add(&reference, a->sum);
        for (size_t i = 0; i < n; i++) a->other[i] += a->decoded[i];
        ck_assert_msg(memcmp(a->sum, a->other, n * sizeof(float)) == 0, "%s: decode_add is not decode, then add",
                      where);
        for (size_t o = 0; o < others; o++) {
            ts_unit_encode(&other[o], a->g[step], step, TERSE_OK);
            check_same(&other[o], &reference, where);
            for (size_t i = 0; i < n; i++) a->other[i] = (float)i * 0.25f - 1.0f;
            ts_unit_decode_add(&other[o], a->other);
            ck_assert_msg(memcmp(a->sum, a->other, n * sizeof(float)) == 0, "%s: decodes otherwise at level %s", where,
                          ts_simd_name(ts_scratch_kernels(other[o].scratch)->level));
        }
    }
    for (size_t o = 0; o < others; o++) ts_unit_tensor_close(&other[o]);
    ts_unit_tensor_close(&reference);
}

/* All sizes and inputs; `some` keeps to what a pack cannot see through anyway. */
static void check_pipeline(arrays *a, const char *pipeline, bool some) {
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (unsigned kind = 0; kind <= REAL; kind++) {
            bool telling = kind == 5 || kind == REAL || (kind == 4 && sizes[s] <= SMALL_ELEMS);
            if (some && !telling) continue;
            check_case(a, pipeline, sizes[s], kind);
        }
    }
}

static bool kind_is(size_t i, ts_stage_kind kind) { return ts_registry_entry(i)->kind == kind; }

START_TEST(every_quantiser_keeps_the_contract_alone) {
    arrays a;
    arrays_open(&a);
    for (size_t q = 0; q < ts_registry_count(); q++) {
        for (int whole = 0; whole <= (kind_is(q, TS_STAGE_QUANTISE) && ts_registry_entry(q)->info->allows_tensor);
             whole++) {
            char text[64];
            if (!kind_is(q, TS_STAGE_QUANTISE)) continue;
            spell(ts_registry_entry(q)->info, whole, text, sizeof text);
            check_pipeline(&a, text, false);
        }
    }
    arrays_close(&a);
}
END_TEST

START_TEST(every_selector_keeps_the_contract_with_every_quantiser) {
    arrays a;
    arrays_open(&a);
    for (size_t s = 0; s < ts_registry_count(); s++) {
        for (size_t q = 0; q < ts_registry_count(); q++) {
            char select[64], quantise[64], text[160];
            if (!kind_is(s, TS_STAGE_SELECT) || !kind_is(q, TS_STAGE_QUANTISE)) continue;
            /* Quantisers see values alone, so a third of the pairs is enough beside the exact and the seeded selector. */
            const ts_select_stage *stage = ts_registry_entry(s)->stage.select;
            bool always = stage == &ts_select_topk || ts_registry_entry(q)->stage.quantise->lossless;
            if (!always && (s + q) % 3 != 0) continue;
            for (int whole = 0; whole <= ts_registry_entry(q)->info->allows_tensor; whole++) {
                spell(ts_registry_entry(s)->info, false, select, sizeof select);
                spell(ts_registry_entry(q)->info, whole, quantise, sizeof quantise);
                (void)snprintf(text, sizeof text, "%s | %s", select, quantise);
                check_pipeline(&a, text, !ts_registry_entry(q)->stage.quantise->lossless);
            }
        }
    }
    arrays_close(&a);
}
END_TEST

START_TEST(every_pack_keeps_the_contract) {
    arrays a;
    arrays_open(&a);
    for (size_t i = 0; i < ts_registry_count(); i++) {
        char text[160], name[64];
        spell(ts_registry_entry(i)->info, false, name, sizeof name);
        if (kind_is(i, TS_STAGE_INDEX)) {
            static const char *const ratios[] = {"0.001", "0.05", "0.7", "1"};
            for (size_t r = 0; r < sizeof ratios / sizeof ratios[0]; r++) {
                (void)snprintf(text, sizeof text, "topk:%s | int8 | %s", ratios[r], name);
                check_pipeline(&a, text, true);
            }
        }
        if (kind_is(i, TS_STAGE_BYTES)) {
            static const char *const before[] = {"fp32", "int8", "topk:0.05 | fp16", "randomk:0.05 | int8"};
            for (size_t b = 0; b < sizeof before / sizeof before[0]; b++) {
                (void)snprintf(text, sizeof text, "%s | %s", before[b], name);
                check_pipeline(&a, text, true);
            }
        }
    }
    arrays_close(&a);
}
END_TEST

/* Each truncation and each single-bit flip of small packets gives a status; what is accepted stays in bounds. */
static void bend_packets(const char *pipeline, size_t n, unsigned kind) {
    ts_unit_tensor t;
    float g[300], sum[300], untouched[300];
    ts_unit_tensor_open(&t, pipeline, n, 256, ts_cpu_simd());
    ts_unit_input(kind, g, n, 1);
    ts_unit_encode(&t, g, 5, TERSE_OK);
    for (uint32_t s = 0; s < t.slices; s++) {
        for (size_t cut = 0; cut <= t.len[s] + 8 * t.len[s]; cut++) {
            size_t len = cut < t.len[s] ? cut : t.len[s];
            uint8_t *bent = malloc(len ? len : 1);
            ck_assert_ptr_nonnull(bent);
            memcpy(bent, t.packet[s], len);
            if (cut > t.len[s]) bent[(cut - t.len[s] - 1) / 8] ^= (uint8_t)(1u << ((cut - t.len[s] - 1) % 8));
            memset(sum, 0, sizeof sum);
            memcpy(untouched, sum, sizeof sum);
            terse_status status = ts_decode_add(t.scratch, &t.spec, NULL, s, 5, bent, len, sum);
            ck_assert_msg(status == TERSE_OK || status == TERSE_ECORRUPT, "%s gave %s", pipeline,
                          terse_status_name(status));
            if (status != TERSE_OK) ck_assert_mem_eq(sum, untouched, sizeof sum);
            for (size_t i = 0; i < n; i++) {
                if (!isfinite(sum[i])) ck_abort_msg("%s: a bent packet put in what is not finite", pipeline);
            }
            if (cut > 0 && cut < t.len[s] && !t.pipeline.select) ck_assert_int_eq(status, TERSE_ECORRUPT);
            free(bent);
        }
    }
    ts_unit_tensor_close(&t);
}

START_TEST(bent_packets_give_a_status) {
    for (size_t i = 0; i < ts_registry_count(); i++) {
        const ts_stage_entry *entry = ts_registry_entry(i);
        char name[64], text[160];
        spell(entry->info, false, name, sizeof name);
        switch (entry->kind) {
        case TS_STAGE_SELECT: (void)snprintf(text, sizeof text, "%s | int8", name); break;
        case TS_STAGE_QUANTISE: (void)snprintf(text, sizeof text, "%s", name); break;
        case TS_STAGE_INDEX: (void)snprintf(text, sizeof text, "topk:0.1 | int8 | %s", name); break;
        case TS_STAGE_BYTES: (void)snprintf(text, sizeof text, "topk:0.1 | int8 | %s", name); break;
        default: continue;
        }
        bend_packets(text, 300, 8);
        bend_packets(text, 40, 5);
        if (entry->kind != TS_STAGE_QUANTISE) continue;
        (void)snprintf(text, sizeof text, "topk:0.1 | %s", name);
        bend_packets(text, 300, 8);
        bend_packets(text, 9, 8);
    }
}
END_TEST

START_TEST(random_bytes_give_a_status) {
    static const char *const pipelines[] = {"fp16", "int8", "topk:0.05 | int8", "topk:0.05 | fp32 | rice",
                                            "randomk:0.1 | fp16"};
    ts_random random = ts_random_start(9);
    uint8_t bytes[64];
    float sum[300] = {0};
    for (size_t p = 0; p < sizeof pipelines / sizeof pipelines[0]; p++) {
        ts_unit_tensor t;
        ts_unit_tensor_open(&t, pipelines[p], 300, 200, ts_cpu_simd());
        for (int round = 0; round < 20000; round++) {
            size_t len = ts_random_below(&random, sizeof bytes);
            for (size_t i = 0; i < len; i++) bytes[i] = (uint8_t)ts_random_u32(&random);
            if (len > 0 && round % 2) bytes[0] &= 0x1F;
            terse_status status = ts_decode_add(t.scratch, &t.spec, NULL, (uint32_t)round % 2, 1, bytes, len, sum);
            if (status != TERSE_OK && status != TERSE_ECORRUPT)
                ck_abort_msg("%s gave %s", pipelines[p], terse_status_name(status));
        }
        ck_assert_status(ts_decode_add(t.scratch, &t.spec, NULL, 2, 1, bytes, 1, sum), TERSE_ECORRUPT);
        ck_assert_uint_lt(ts_scratch_bytes(t.scratch), 1u << 20);
        ts_unit_tensor_close(&t);
    }
}
END_TEST

TCase *test_codec_contract(void);
TCase *test_codec_contract(void) {
    TCase *tests = tcase_create("codec_contract");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, every_quantiser_keeps_the_contract_alone);
    tcase_add_test(tests, every_selector_keeps_the_contract_with_every_quantiser);
    tcase_add_test(tests, every_pack_keeps_the_contract);
    tcase_add_test(tests, bent_packets_give_a_status);
    tcase_add_test(tests, random_bytes_give_a_status);
    return tests;
}
