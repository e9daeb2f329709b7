/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"
#include "server/aggregate.h"
#include "server/slice_math.h"
#include "tests/unit/unit.h"

#define N 300
#define WORKERS 4

static ts_contract *make_contract(const char *text) {
    ts_contract_options options = {.slice_elems = 100, .seed = 3, .optimizer = "", .feedback = ""};
    ts_contract *contract;
    ts_pipeline pipeline;
    uint32_t id;
    int64_t shape[] = {N};
    ck_assert_ok(ts_pipeline_parse(text, &pipeline, NULL));
    ck_assert_ok(ts_contract_create(&options, &contract));
    ck_assert_ok(ts_contract_add(contract, "t", shape, 1, &pipeline, &pipeline, false, &id, NULL));
    ck_assert_ok(ts_contract_seal(contract, 1));
    return contract;
}

/* One worker's packets of all three slices. */
typedef struct {
    uint8_t *bytes[3];
    size_t len[3];
} packets;

static void encode(const ts_contract *contract, ts_scratch *scratch, uint32_t worker, uint64_t step, packets *out) {
    ts_codec_spec spec = ts_contract_push_spec(contract, 0, worker);
    ts_encoder *encoder;
    float residual[N];
    ts_random random = ts_random_start(ts_random_key(11, worker, 0, 0, 0));
    for (size_t i = 0; i < N; i++) residual[i] = ts_random_normal(&random);
    ts_encode_input input = {.gradient_scale = 1, .residual = residual, .step = step};
    ck_assert_ok(ts_encoder_create(&spec, &encoder));
    ck_assert_ok(ts_encoder_begin(encoder, scratch, &input, NULL));
    for (uint32_t s = 0; s < 3; s++) {
        size_t bound = ts_encoder_bound(encoder, scratch, s);
        out->bytes[s] = malloc(bound);
        ck_assert_ok(ts_encoder_slice(encoder, scratch, s, out->bytes[s], bound, &out->len[s]));
    }
    ts_encoder_destroy(encoder);
}

static void release(packets *all) {
    for (int w = 0; w < WORKERS; w++)
        for (int s = 0; s < 3; s++) free(all[w].bytes[s]);
}

/* The sum against one made packet by packet in worker order, bit for bit, for every slice. */
static void sums_like_a_loop(const char *pipeline) {
    ts_contract *contract = make_contract(pipeline);
    ts_scratch *scratch;
    ts_sum sum = {0};
    packets all[WORKERS];
    ck_assert_ok(ts_scratch_create(&scratch));
    ck_assert_ok(ts_sum_reserve(&sum, 100));
    for (uint32_t w = 0; w < WORKERS; w++) encode(contract, scratch, w, 5, &all[w]);
    for (uint32_t s = 0; s < 3; s++) {
        float want[100] = {0}, zero[100] = {0};
        ts_contribution from[WORKERS];
        for (uint32_t w = 0; w < WORKERS; w++) {
            ts_codec_spec spec = ts_contract_push_spec(contract, 0, w);
            from[w] = (ts_contribution){.worker = w, .packet = all[w].bytes[s], .len = all[w].len[s]};
            ck_assert_ok(ts_decode_add(scratch, &spec, NULL, s, 5, from[w].packet, from[w].len, want));
        }
        for (size_t i = 0; i < 100; i++) want[i] *= 0.25f;
        ts_aggregate_place place = {.contract = contract, .slice = s, .step = 5};
        ts_aggregate_outcome outcome;
        ck_assert_ok(ts_aggregate(&sum, scratch, &place, from, WORKERS, &outcome));
        ck_assert_uint_eq(outcome.taken, WORKERS);
        ts_sum_scale(&sum, 100, outcome.factor);
        ck_assert_mem_eq(sum.value, want, sizeof want);
        for (size_t i = 0; i < 100; i++)
            if (want[i] != 0) ck_assert(sum.dense || (sum.touched[i / 64] >> (i % 64) & 1));
        ck_assert_int_eq(sum.dense, !ts_pipeline_is_sparse(&contract->tensors[0].push));
        ts_sum_clear(&sum, 100);
        ck_assert_mem_eq(sum.value + sum.stale, zero, sizeof zero - sum.stale * sizeof zero[0]);
        for (size_t i = 0; i < ts_bitmap_words(100); i++) ck_assert_uint_eq(sum.touched[i], 0);
    }
    release(all);
    ts_sum_free(&sum);
    ts_scratch_destroy(scratch);
    ts_contract_destroy(contract);
}

START_TEST(sums_are_made_in_worker_order) {
    sums_like_a_loop("topk:0.1 | fp32 | raw32");
    sums_like_a_loop("randomk:0.1 | fp32");
    sums_like_a_loop("dense");
    sums_like_a_loop("int8");
}
END_TEST

START_TEST(a_bad_packet_names_its_worker_and_leaves_no_trace) {
    ts_contract *contract = make_contract("topk:0.1 | fp32 | raw32");
    ts_scratch *scratch;
    ts_sum sum = {0};
    packets all[WORKERS];
    float zero[100] = {0};
    ts_aggregate_outcome outcome;
    ck_assert_ok(ts_scratch_create(&scratch));
    ck_assert_ok(ts_sum_reserve(&sum, 100));
    for (uint32_t w = 0; w < WORKERS; w++) encode(contract, scratch, w, 0, &all[w]);
    ts_contribution from[3] = {{.worker = 0, .packet = all[0].bytes[0], .len = all[0].len[0]},
                               {.worker = 2, .packet = all[2].bytes[0], .len = all[2].len[0] - 1},
                               {.worker = 3, .packet = all[3].bytes[0], .len = all[3].len[0]}};
    ts_aggregate_place place = {.contract = contract, .slice = 0, .step = 0};
    ck_assert_status(ts_aggregate(&sum, scratch, &place, from, 3, &outcome), TERSE_ECORRUPT);
    ck_assert_uint_eq(outcome.culprit, 2);
    ck_assert_mem_eq(sum.value, zero, sizeof zero);
    from[1].len++;
    ck_assert_ok(ts_aggregate(&sum, scratch, &place, from, 3, &outcome));
    release(all);
    ts_sum_free(&sum);
    ts_scratch_destroy(scratch);
    ts_contract_destroy(contract);
}
END_TEST

/* A packet of 100 floats of worker w; where it is bad, one of them is. */
static void floats_of(uint32_t w, bool bad, uint8_t *packet) {
    for (size_t i = 0; i < 100; i++) {
        float x = bad && i == 77 ? (w % 2 ? NAN : -INFINITY) : (float)(w + 1) * ((float)i - 50.5f) * 0.3f;
        memcpy(packet + 4 * i, &x, sizeof x);
    }
}

/* Floats are checked while they are added: whoever is bad, the sum is as without it. */
START_TEST(floats_that_are_not_finite_leave_no_trace_in_the_sum) {
    ts_contract *contract = make_contract("dense");
    ts_scratch *scratch;
    ts_sum sum = {0};
    uint8_t packet[WORKERS][401];
    ck_assert_ok(ts_scratch_create(&scratch));
    ck_assert_ok(ts_sum_reserve(&sum, 150));
    for (size_t i = 0; i < 150; i++) sum.value[i] = 1e30f; /* of a slice that was longer */
    sum.stale = 150;
    for (unsigned bad = 0; bad < 1u << WORKERS; bad++) {
        float want[100] = {0};
        ts_contribution from[WORKERS];
        uint32_t taken = 0;
        for (uint32_t w = 0; w < WORKERS; w++) {
            floats_of(w, bad >> w & 1, packet[w] + 1);
            from[w] = (ts_contribution){.worker = w, .packet = packet[w] + 1, .len = 400};
            for (size_t i = 0; i < 100 && !(bad >> w & 1); i++) want[i] += (float)(w + 1) * ((float)i - 50.5f) * 0.3f;
            taken += !(bad >> w & 1);
        }
        ts_aggregate_place place = {.contract = contract, .slice = 1, .step = 2};
        ts_aggregate_outcome outcome;
        ck_assert_ok(ts_aggregate(&sum, scratch, &place, from, WORKERS, &outcome));
        ck_assert_uint_eq(outcome.taken, taken);
        for (uint32_t w = 0; w < WORKERS; w++) ck_assert_int_eq(from[w].quarantined, bad >> w & 1);
        ck_assert_mem_eq(sum.value, want, sizeof want);
        ck_assert_int_eq(sum.dense, taken > 0);
        for (size_t i = 100; i < 150; i++) ck_assert(sum.value[i] == 0);
        ts_sum_clear(&sum, 100);
    }
    ts_contribution cut = {.worker = 3, .packet = packet[0], .len = 399};
    ts_aggregate_place place = {.contract = contract, .slice = 0, .step = 2};
    ts_aggregate_outcome outcome;
    ck_assert_status(ts_aggregate(&sum, scratch, &place, &cut, 1, &outcome), TERSE_ECORRUPT);
    ck_assert_uint_eq(outcome.culprit, 3);
    ts_sum_free(&sum);
    ts_scratch_destroy(scratch);
    ts_contract_destroy(contract);
}
END_TEST

/* The parts of a sum, in some order, against the same sum as a whole; then it is as good as cleared. */
static void same_in_parts(const ts_contract *contract, ts_scratch *scratch, ts_contribution *from, uint32_t count, size_t step) {
    ts_sum whole = {0}, parted = {0};
    ts_aggregate_place place = {.contract = contract, .slice = 1, .step = 2};
    ts_aggregate_outcome outcome, other;
    ck_assert_ok(ts_sum_reserve(&whole, 100));
    ck_assert_ok(ts_sum_reserve(&parted, 150));
    ck_assert_ok(ts_aggregate(&whole, scratch, &place, from, count, &outcome));
    place.in_parts = true;
    ck_assert_ok(ts_aggregate(&parted, scratch, &place, from, count, &other));
    ck_assert_uint_eq(other.taken, outcome.taken);
    ck_assert_float_eq(other.factor, outcome.factor);
    ck_assert_int_eq(parted.dense, whole.dense);
    ts_sum_scale(&whole, 100, outcome.factor);
    ts_sum_scale(&parted, 100, other.factor);
    for (size_t end = 100; end > 0 && whole.dense; end -= end < step ? end : step) { /* from the last to the first */
        size_t at = end < step ? 0 : end - step;
        ck_assert_mem_eq(ts_sum_part(&parted, at, end - at), whole.value + at, (end - at) * sizeof(float));
    }
    ts_sum_clear(&parted, 100);
    for (size_t i = parted.stale; i < 150; i++) ck_assert(parted.value[i] == 0);
    ck_assert(!parted.dense && !parted.parts && parted.touched[0] == 0 && parted.touched[1] == 0);
    place.in_parts = false;
    ck_assert_ok(ts_aggregate(&parted, scratch, &place, from, count, &other)); /* used again otherwise */
    ts_sum_scale(&parted, 100, other.factor);
    ck_assert_mem_eq(parted.value, whole.value, 100 * sizeof(float));
    ts_sum_free(&whole);
    ts_sum_free(&parted);
}

START_TEST(sums_in_parts_have_the_bits_of_whole_ones) {
    static const char *const pipelines[] = {"dense", "int8", "dense | rle8", "fp16"}; /* parts of floats; the others as ever */
    ts_scratch *scratch;
    ck_assert_ok(ts_scratch_create(&scratch));
    for (size_t p = 0; p < sizeof pipelines / sizeof pipelines[0]; p++) {
        ts_contract *contract = make_contract(pipelines[p]);
        packets all[WORKERS];
        for (uint32_t w = 0; w < WORKERS; w++) encode(contract, scratch, w, 2, &all[w]);
        for (uint32_t count = 1; count <= WORKERS; count++) {
            ts_contribution from[WORKERS];
            for (uint32_t w = 0; w < count; w++)
                from[w] = (ts_contribution){.worker = w, .packet = all[w].bytes[1], .len = all[w].len[1]};
            same_in_parts(contract, scratch, from, count, 32);
            same_in_parts(contract, scratch, from, count, 100);
        }
        release(all);
        ts_contract_destroy(contract);
    }
    ts_scratch_destroy(scratch);
}
END_TEST

START_TEST(parts_leave_out_what_is_not_finite_and_refuse_what_is_cut) {
    ts_contract *contract = make_contract("dense");
    ts_scratch *scratch;
    ts_sum sum = {0};
    uint8_t packet[WORKERS][401];
    ck_assert_ok(ts_scratch_create(&scratch));
    ck_assert_ok(ts_sum_reserve(&sum, 100));
    for (unsigned bad = 0; bad < 1u << WORKERS; bad++) {
        ts_contribution from[WORKERS];
        for (uint32_t w = 0; w < WORKERS; w++) {
            floats_of(w, bad >> w & 1, packet[w] + 1);
            from[w] = (ts_contribution){.worker = w, .packet = packet[w] + 1, .len = 400};
        }
        same_in_parts(contract, scratch, from, WORKERS, 64);
        for (uint32_t w = 0; w < WORKERS; w++) ck_assert_int_eq(from[w].quarantined, bad >> w & 1);
    }
    ts_aggregate_place place = {.contract = contract, .slice = 0, .step = 2, .in_parts = true};
    ts_contribution cut[2] = {{.worker = 1, .packet = packet[0] + 1, .len = 400}, {.worker = 3, .packet = packet[1] + 1, .len = 399}};
    ts_aggregate_outcome outcome;
    floats_of(0, false, packet[0] + 1);
    ck_assert_status(ts_aggregate(&sum, scratch, &place, cut, 2, &outcome), TERSE_ECORRUPT);
    ck_assert_uint_eq(outcome.culprit, 3);
    ck_assert(!sum.parts && !sum.dense);
    ts_sum_free(&sum);
    ts_scratch_destroy(scratch);
    ts_contract_destroy(contract);
}
END_TEST

START_TEST(sparse_sweeps_do_what_was_touched_and_nothing_else) {
    for (size_t n = 0; n < 200; n += 13) {
        float a[200], b[200];
        uint64_t touched[4] = {0};
        for (size_t i = 0; i < 200; i++) {
            a[i] = (float)i;
            b[i] = 0.5f;
            if (i < n && i % 3 != 1) touched[i / 64] |= (uint64_t)1 << (i % 64);
        }
        ts_touched_add(a, b, touched, n);
        ts_touched_scale(a, 2.0f, touched, n);
        ts_touched_descend(a, b, 4.0f, touched, n);
        for (size_t i = 0; i < 200; i++)
            ck_assert_float_eq(a[i], i < n && i % 3 != 1 ? ((float)i + 0.5f) * 2.0f - 2.0f : (float)i);
        ts_touched_clear(a, touched, n);
        for (size_t i = 0; i < 200; i++) ck_assert_float_eq(a[i], i < n && i % 3 != 1 ? 0.0f : (float)i);
    }
}
END_TEST

TCase *test_aggregate(void);
TCase *test_aggregate(void) {
    TCase *tests = tcase_create("aggregate");
    tcase_add_test(tests, sums_are_made_in_worker_order);
    tcase_add_test(tests, a_bad_packet_names_its_worker_and_leaves_no_trace);
    tcase_add_test(tests, floats_that_are_not_finite_leave_no_trace_in_the_sum);
    tcase_add_test(tests, sums_in_parts_have_the_bits_of_whole_ones);
    tcase_add_test(tests, parts_leave_out_what_is_not_finite_and_refuse_what_is_cut);
    tcase_add_test(tests, sparse_sweeps_do_what_was_touched_and_nothing_else);
    return tests;
}
