/* SPDX-License-Identifier: Apache-2.0 */
/* `exact`: what it sends, in which form, and where it is refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"
#include "common/codec/packet.h"
#include "common/codec/registry.h"
#include "common/config/config.h"
#include "common/contract/contract.h"
#include "tests/unit/codec_support.h"

#define N 5000u

static void values(float *x, size_t n, uint64_t seed) { ts_unit_input(8, x, n, seed); }

/* One step of new values: returns the packets' bytes; the receiver's copy must have their bits. */
static size_t step(ts_unit_tensor *t, const float *value, float *held, uint64_t number) {
    ts_unit_encode(t, value, number, TERSE_OK);
    ts_unit_decode_add(t, held);
    if (memcmp(held, value, t->spec.n * sizeof *held) != 0) ck_abort_msg("%s: other bits", t->pipeline.text);
    if (memcmp(t->residual, value, t->spec.n * sizeof *held) != 0) ck_abort_msg("%s: another reference", t->pipeline.text);
    return t->bytes;
}

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

START_TEST(every_change_of_bits_travels_and_nothing_else) {
    static const uint32_t odd[] = {0x80000000u, 0x00000000u, 0x7FC00000u, 0x7FC00001u, 0xFFA12345u, 0x00000001u,
                                   0x80000001u, 0x7F800000u, 0xFF800000u, 0x7F7FFFFFu};
    ts_unit_tensor t;
    static float w[N], held[N];
    ts_unit_tensor_open(&t, "exact", N, 1000, ts_cpu_simd());
    values(w, N, 1);
    (void)step(&t, w, held, 0);
    ck_assert_uint_eq(step(&t, w, held, 1), 0); /* nothing changed: not a byte */
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        w[700 + 13 * i] = from_bits(odd[i]);
        ck_assert_uint_gt(step(&t, w, held, 2 + i), 0);
        ck_assert_uint_eq(t.report.selected, 1);
        ck_assert_uint_eq(t.report.nonfinite_count, 0);
    }
    w[9] = 0.0f;
    (void)step(&t, w, held, 50);
    w[9] = -0.0f; /* equal as a number */
    (void)step(&t, w, held, 51);
    ck_assert_uint_eq(t.report.selected, 1);
    ts_unit_tensor_close(&t);
}
END_TEST

/* The form of each slice's packet follows from its size alone; both meet where they are as long. */
START_TEST(the_shorter_form_is_sent) {
    static const char *const packs[] = {"exact | raw32", "exact | rice", "exact | bitmap", "exact | varint", "exact"};
    static float w[N], held[N];
    for (size_t p = 0; p < sizeof packs / sizeof packs[0]; p++) {
        bool sparse = false, dense = false;
        for (size_t changed = 1; changed <= N; changed += changed < 40 ? 1 : changed < N && changed + 61 > N ? N - changed : 61) {
            ts_unit_tensor t;
            ts_unit_tensor_open(&t, packs[p], N, N, ts_cpu_simd());
            memset(w, 0, sizeof w);
            memset(held, 0, sizeof held);
            for (size_t i = 0; i < changed; i++) w[i * N / changed] = 1.0f + (float)i;
            (void)step(&t, w, held, 0);
            ts_packet_slice slice = ts_packet_slice_of(&t.spec, ts_scratch_kernels(t.scratch), 0, 0);
            ts_packet_parts parts;
            ck_assert_ok(ts_packet_split(&slice, t.packet[0], t.len[0], &parts));
            uint32_t index[N];
            for (size_t i = 0; i < changed; i++) index[i] = (uint32_t)(i * N / changed);
            const ts_index_stage *stage = t.pipeline.index;
            size_t indices = stage->size(index, changed, N), whole = 1 + 4 * N;
            if (stage == &ts_index_best) indices--; /* its number is in the tag */
            size_t some = 1 + (2 * changed < 128 ? 1u : 2u) + 4 * changed + indices;
            ck_assert_uint_eq(t.len[0], some < whole ? some : whole);
            ck_assert_uint_eq(parts.k, some < whole ? changed : N);
            ck_assert_int_eq(parts.index != NULL, some < whole);
            sparse = sparse || some < whole;
            dense = dense || some >= whole;
            ts_unit_tensor_close(&t);
        }
        ck_assert(sparse && dense);
    }
}
END_TEST

START_TEST(packets_in_the_wrong_form_are_refused) {
    enum { FEW = 8 };
    ts_unit_tensor t;
    static const float w[FEW] = {0, 0, 3, 0, 0, 0, 0, 0};
    float held[FEW] = {0};
    uint8_t whole[1 + 4 * FEW] = {0x10}, longer[2 + 4 * FEW] = {0x10};
    ts_unit_tensor_open(&t, "exact | raw32", FEW, FEW, ts_cpu_simd());
    (void)step(&t, w, held, 0);
    ck_assert_uint_eq(t.len[0], 1 + 1 + 4 + 4);
    ck_assert_ok(ts_decode_apply(t.scratch, &t.spec, NULL, 0, 0, whole, sizeof whole, held));
    ck_assert_float_eq(held[2], 0);
    ck_assert_status(ts_decode_apply(t.scratch, &t.spec, NULL, 0, 0, longer, sizeof longer, held), TERSE_ECORRUPT);
    ck_assert_status(ts_decode_apply(t.scratch, &t.spec, NULL, 0, 0, whole, sizeof whole - 1, held), TERSE_ECORRUPT);
    whole[0] = 0x11; /* all values and an index pack */
    ck_assert_status(ts_decode_apply(t.scratch, &t.spec, NULL, 0, 0, whole, sizeof whole, held), TERSE_ECORRUPT);
    whole[0] = 0x00;
    ck_assert_status(ts_decode_apply(t.scratch, &t.spec, NULL, 0, 0, whole, sizeof whole, held), TERSE_ECORRUPT);
    uint8_t four[1 + 1 + 4 * 4 + 4 * 4] = {1, 8}; /* four of eight, as long as all of them with their tag: never sent */
    for (uint8_t i = 0; i < 4; i++) four[18 + 4 * i] = i;
    ck_assert_status(ts_decode_apply(t.scratch, &t.spec, NULL, 0, 0, four, sizeof four, held), TERSE_ECORRUPT);
    ck_assert_status(ts_decode_add(t.scratch, &t.spec, NULL, 0, 0, t.packet[0], t.len[0], held), TERSE_EINVAL);
    ts_unit_tensor_close(&t);
}
END_TEST

/* What `terse check` and a program of one's own are told. */
START_TEST(exact_is_refused_where_there_is_no_reference) {
    static const struct {
        const char *set[4], *says[3];
    } cases[] = {
        {{"push.default=exact"}, {"push.default", "no such reference", "allowed in pull"}},
        {{"push.rules=[{match: \"*.bias\", pipeline: exact | rice}]"}, {"push.rules[0]", "exact | fp32 | rice", "allowed in pull"}},
        {{"pull.default=exact", "optimizer.name=none", "optimizer.momentum=0", "error_feedback.momentum_correction=0"}, {"pull.default", "optimizer.name none", "allowed: dense"}},
        {{"pull.default=exact | int8"}, {"pull.default", "`int8` would round", "allowed"}},
        {{"pull.default=delta:3 | exact"}, {"pull.default", "cannot follow", "leave out"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ts_config *config;
        ts_error error = {{0}};
        unsigned count = cases[i].set[1] ? 4 : 1;
        ck_assert_status(ts_config_load("tests/sim/sim.yaml", cases[i].set, count, &config, &error), TERSE_ECONFIG);
        for (size_t s = 0; s < 3; s++)
            ck_assert_msg(strstr(error.text, cases[i].says[s]) != NULL, "`%s` is not in: %s", cases[i].says[s], error.text);
    }
    static const char *const fine[] = {"pull.default=exact", "pull.default=exact | rice", "pull.default=exact | bitmap | zstd:3"};
    for (size_t i = 0; i < 3; i++) {
        ts_config *config;
        ck_assert_ok(ts_config_load("tests/sim/sim.yaml", &fine[i], 1, &config, NULL));
        ts_config_free(config);
    }
    ts_contract *contract;
    ts_pipeline exact, dense;
    ts_error error = {{0}};
    const int64_t shape[] = {10};
    const ts_contract_options options = {.slice_elems = 100, .optimizer = "name=sgd lr=0.1", .feedback = ""};
    const ts_contract_options none = {.slice_elems = 100, .optimizer = "name=none", .feedback = ""};
    ck_assert_ok(ts_pipeline_parse("exact", &exact, NULL));
    ck_assert_ok(ts_pipeline_parse("dense", &dense, NULL));
    ck_assert_ok(ts_contract_create(&options, &contract));
    ck_assert_status(ts_contract_add(contract, "w", shape, 1, &exact, &dense, false, NULL, &error), TERSE_EINVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "tensor w: push pipeline"));
    ck_assert_ok(ts_contract_add(contract, "w", shape, 1, &dense, &exact, false, NULL, &error));
    ts_contract_destroy(contract);
    ck_assert_ok(ts_contract_create(&none, &contract));
    ck_assert_status(ts_contract_add(contract, "w", shape, 1, &dense, &exact, false, NULL, &error), TERSE_EINVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "optimizer none"));
    ts_contract_destroy(contract);
}
END_TEST

TCase *test_exact(void);
TCase *test_exact(void) {
    TCase *tests = tcase_create("exact");
    tcase_add_test(tests, every_change_of_bits_travels_and_nothing_else);
    tcase_add_test(tests, the_shorter_form_is_sent);
    tcase_add_test(tests, packets_in_the_wrong_form_are_refused);
    tcase_add_test(tests, exact_is_refused_where_there_is_no_reference);
    return tests;
}
