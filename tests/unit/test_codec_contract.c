/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every pipeline must keep: all registered stages and hundreds of generated legal pipelines × sizes × inputs ×
 * vector levels. With TERSE_TEST_LONG=1 every combination, else large tensors meet a few inputs each. Then a family of
 * sizes is many tests, each of every so many-th pipeline; TERSE_TEST_SHARE=I/N runs tests I, I + N, I + 2 N ... of each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"
#include "common/codec/registry.h"
#include "tests/unit/contract_case.h"

#define LEAST_PIPELINES 300u
#define LARGE_ELEMS 65537u
#define HUGE_ELEMS 4000000u
#define SHARES 48 /* tests of a family, of every combination */
#define HUGE_SLICE 262144u /* what servers cut tensors into by default */

static const size_t small_sizes[] = {0, 1, 2, 3, 7, 63, 64, 65, 1000};
static const size_t large_sizes[] = {65535, 65537};

/* Number `i` of the generated pipelines; dimensions and slices change from one to the next. */
static ts_contract_case case_of(const ts_contract_bench *b, size_t i, size_t n, unsigned kind, unsigned steps) {
    static const size_t small_slices[] = {1001, 300, 37}, large_slices[] = {16500, 65536, 16384, 5000};
    uint64_t mix = ts_mix64(i * 1000003 + n);
    size_t slice = n <= 1000          ? small_slices[mix % 3]
                   : n <= LARGE_ELEMS ? large_slices[mix % 4]
                                      : HUGE_SLICE;
    return (ts_contract_case){.pipeline = b->generated.text[i],
                              .n = n,
                              .kind = kind,
                              .ndim = 1 + (unsigned)(mix >> 8) % 4,
                              .slice_elems = slice,
                              .steps = steps,
                              .turn = (unsigned)i};
}

static int shares(void) { return ts_contract_long() ? SHARES : 1; }

/* Whether the environment asks for this test. */
static bool is_wanted(int share) {
    const char *text = getenv("TERSE_TEST_SHARE");
    int which = 0, of = 0;
    if (!text || !ts_contract_long()) return true;
    bool fits = sscanf(text, "%d/%d", &which, &of) == 2 && of > 0 && of <= SHARES && which >= 0 && which < of;
    ck_assert_msg(fits, "TERSE_TEST_SHARE=%s: I/N with N up to %d and I below N", text, SHARES);
    return share % of == which;
}

static bool contains(const ts_pipeline *p, const ts_stage_entry *entry) {
    switch (entry->kind) {
    case TS_STAGE_TRANSFORM: return p->transform == entry->stage.transform;
    case TS_STAGE_SELECT: return p->select == entry->stage.select;
    case TS_STAGE_QUANTISE: return p->quantise == entry->stage.quantise;
    case TS_STAGE_INDEX: return p->index == entry->stage.index;
    case TS_STAGE_BYTES: return p->bytes[0] == entry->stage.bytes || p->bytes[1] == entry->stage.bytes;
    default: return false;
    }
}

START_TEST(generated_pipelines_are_many_and_leave_no_stage_out) {
    ts_generated g;
    ts_generate_pipelines(&g, TS_CONTRACT_SEED);
    ck_assert_uint_ge(g.count, LEAST_PIPELINES);
    ck_assert_uint_gt(g.refused, 10);
    ck_assert_uint_eq(g.unnamed, 0);
    for (size_t e = 0; e < ts_registry_count(); e++) {
        size_t found = 0;
        for (size_t i = 0; i < g.count; i++) {
            ts_pipeline parsed;
            if (ts_pipeline_parse(g.text[i], &parsed, NULL) != TERSE_OK) ck_abort_msg("%s", g.text[i]);
            found += contains(&parsed, ts_registry_entry(e));
        }
        ck_assert_msg(found >= 5, "stage `%s` is in %zu pipelines", ts_registry_entry(e)->info->name, found);
    }
}
END_TEST

START_TEST(small_tensors_keep_the_contract) {
    if (!is_wanted(_i)) return;
    ts_contract_bench *b = ts_contract_open(small_sizes[sizeof small_sizes / sizeof small_sizes[0] - 1]);
    for (size_t i = (size_t)_i; i < b->generated.count; i += (size_t)shares()) {
        for (size_t s = 0; s < sizeof small_sizes / sizeof small_sizes[0]; s++) {
            for (unsigned kind = 0; kind < TS_CONTRACT_INPUTS; kind++) {
                unsigned steps = small_sizes[s] < 65 || ts_contract_long() ? 3 : 2;
                ts_contract_case c = case_of(b, i, small_sizes[s], kind, steps);
                ts_contract_check(b, &c);
            }
        }
    }
    ts_contract_close(b);
}
END_TEST

START_TEST(large_tensors_keep_the_contract) {
    if (!is_wanted(_i)) return;
    ts_contract_bench *b = ts_contract_open(LARGE_ELEMS);
    for (size_t i = (size_t)_i; i < b->generated.count; i += (size_t)shares()) {
        for (size_t s = 0; s < 2; s++) {
            for (unsigned kind = 0; kind < TS_CONTRACT_INPUTS; kind++) {
                if (!ts_contract_long() && (i / 2 + kind) % TS_CONTRACT_INPUTS != 0) continue;
                if (!ts_contract_long() && i % 2 != s) continue;
                ts_contract_case c = case_of(b, i, large_sizes[s], kind, 2);
                ts_contract_check(b, &c);
            }
        }
    }
    ts_contract_close(b);
}
END_TEST

START_TEST(huge_tensors_keep_the_contract) {
    if (!is_wanted(_i)) return;
    static const char *const some[] = {"topk:0.001 | int8 | rice", "fp32", "linear:4", "powersgd:2 | fp16"};
    ts_contract_bench *b = ts_contract_open(HUGE_ELEMS);
    for (size_t i = (size_t)_i; i < b->generated.count; i += (size_t)shares()) {
        ts_contract_case c = case_of(b, i, HUGE_ELEMS, TS_CONTRACT_REAL, 1);
        c.kind = i % 2 ? TS_CONTRACT_REAL : (unsigned)(i / 2) % TS_UNIT_INPUTS;
        if (!ts_contract_long()) {
            if (i >= sizeof some / sizeof some[0]) break;
            c.pipeline = some[i];
            c.kind = TS_CONTRACT_REAL;
            c.ndim = 2;
        }
        ts_contract_check(b, &c);
    }
    ts_contract_close(b);
}
END_TEST

TCase *test_codec_contract(void);
TCase *test_codec_contract(void) {
    TCase *tests = tcase_create("codec_contract");
    tcase_set_timeout(tests, ts_contract_long() ? 600 : 180);
    tcase_add_test(tests, generated_pipelines_are_many_and_leave_no_stage_out);
    tcase_add_loop_test(tests, small_tensors_keep_the_contract, 0, shares());
    tcase_add_loop_test(tests, large_tensors_keep_the_contract, 0, shares());
    tcase_add_loop_test(tests, huge_tensors_keep_the_contract, 0, shares());
    return tests;
}
