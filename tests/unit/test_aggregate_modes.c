/* SPDX-License-Identifier: Apache-2.0 */
/* Every way to aggregate, coordinate by coordinate against a computation of the test's own; and quarantine. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"
#include "server/aggregate.h"
#include "server/robust_order.h"
#include "server/slice_math.h"
#include "tests/unit/unit.h"

#define N 300
#define SLICE 100
#define MOST 7

/* A contract, its workers' packets of slice 1, and what they decode to. */
typedef struct {
    ts_contract *contract;
    ts_scratch *scratch;
    ts_sum sum;
    uint8_t *bytes[MOST];
    float said[MOST][SLICE];
    ts_contribution from[MOST];
    uint32_t workers;
    ts_config config;
} stage;

static void encode(stage *s, uint32_t worker) {
    ts_codec_spec spec = ts_contract_push_spec(s->contract, 0, worker);
    ts_encoder *encoder;
    float residual[N];
    ts_random random = ts_random_start(ts_random_key(12, worker, 0, 0, 0));
    for (size_t i = 0; i < N; i++) residual[i] = ts_random_normal(&random) * (float)(worker + 1);
    ts_encode_input input = {.gradient_scale = 1, .residual = residual, .step = 3};
    ck_assert_ok(ts_encoder_create(&spec, &encoder));
    ck_assert_ok(ts_encoder_begin(encoder, s->scratch, &input, NULL));
    for (uint32_t slice = 0; slice < 3; slice++) {
        size_t bound = ts_encoder_bound(encoder, s->scratch, slice), len;
        uint8_t *bytes = malloc(bound);
        ck_assert_ok(ts_encoder_slice(encoder, s->scratch, slice, bytes, bound, &len));
        if (slice == 1) {
            s->bytes[worker] = bytes;
            s->from[worker] = (ts_contribution){.worker = worker, .packet = bytes, .len = len, .samples = 1};
        } else {
            free(bytes);
        }
    }
    ts_encoder_destroy(encoder);
    ck_assert_ok(ts_decode_add(s->scratch, &spec, NULL, 1, 3, s->bytes[worker], s->from[worker].len, s->said[worker]));
}

static void open_stage(stage *s, const char *text, uint32_t workers) {
    ts_contract_options options = {.slice_elems = SLICE, .seed = 3, .optimizer = "", .feedback = ""};
    ts_pipeline pipeline, dense;
    uint32_t id;
    int64_t shape[] = {N};
    *s = (stage){.workers = workers};
    ck_assert_ok(ts_pipeline_parse(text, &pipeline, NULL));
    ck_assert_ok(ts_pipeline_parse("dense", &dense, NULL));
    ck_assert_ok(ts_contract_create(&options, &s->contract));
    ck_assert_ok(ts_contract_add(s->contract, "t", shape, 1, &pipeline, &dense, false, &id, NULL));
    ck_assert_ok(ts_contract_seal(s->contract, 1));
    ck_assert_ok(ts_scratch_create(&s->scratch));
    ck_assert_ok(ts_sum_reserve(&s->sum, SLICE));
    for (uint32_t w = 0; w < workers; w++) encode(s, w);
}

static void close_stage(stage *s) {
    for (uint32_t w = 0; w < s->workers; w++) free(s->bytes[w]);
    ts_sum_free(&s->sum);
    ts_scratch_destroy(s->scratch);
    ts_contract_destroy(s->contract);
}

/* Aggregates, and checks that everything is zero again afterwards. out: SLICE. */
static uint32_t aggregate(stage *s, float *out) {
    ts_aggregate_place place = {.contract = s->contract, .slice = 1, .step = 3, .config = &s->config};
    ts_aggregate_outcome outcome;
    ck_assert_ok(ts_aggregate(&s->sum, s->scratch, &place, s->from, s->workers, &outcome));
    ts_sum_scale(&s->sum, SLICE, outcome.factor);
    memcpy(out, s->sum.value, SLICE * sizeof *out);
    for (size_t i = 0; i < SLICE; i++)
        if (out[i] != 0) ck_assert(s->sum.dense || (s->sum.touched[i / 64] >> (i % 64) & 1));
    ts_sum_clear(&s->sum, SLICE);
    for (size_t i = s->sum.stale; i < SLICE; i++) ck_assert_float_eq(s->sum.value[i], 0);
    for (size_t i = 0; i < s->sum.lanes_elems; i++) ck_assert_float_eq(s->sum.lanes[i], 0);
    return outcome.taken;
}

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* What is to come of one coordinate. values: those that are not quarantined, in worker order. */
static float expected(const stage *s, float *values, const uint32_t *samples, const double *norms, uint32_t count) {
    float sum = 0, weight = 0;
    ts_robust_name robust = s->config.aggregation.robust;
    if (robust == TS_ROBUST_MEDIAN || robust == TS_ROBUST_TRIMMED) {
        uint32_t cut = robust == TS_ROBUST_MEDIAN ? (count - 1) / 2 : (uint32_t)(s->config.aggregation.trim * count);
        qsort(values, count, sizeof *values, ascending);
        for (uint32_t c = cut; c < count - cut; c++) sum += values[c];
        return sum * (1.0f / (float)(count - 2 * cut));
    }
    bool equal = true;
    for (uint32_t c = 1; c < count; c++) equal = equal && samples[c] == samples[0];
    for (uint32_t c = 0; c < count; c++) {
        float share = s->config.aggregation.mode == TS_AGGREGATE_SAMPLES && !equal ? (float)samples[c] : 1.0f;
        double limit = s->config.aggregation.clip_norm;
        weight += share;
        if (robust == TS_ROBUST_CLIP && norms[c] > limit) share *= (float)(limit / norms[c]);
        sum += share * values[c];
    }
    return s->config.aggregation.mode == TS_AGGREGATE_SUM ? sum : sum * (1.0f / weight);
}

static void check_stage(stage *s) {
    float got[SLICE], values[MOST];
    uint32_t samples[MOST], count = 0, taken = aggregate(s, got);
    double norms[MOST];
    for (uint32_t w = 0; w < s->workers; w++) {
        if (s->from[w].quarantined) continue;
        samples[count] = s->from[w].samples;
        norms[count] = 0;
        for (size_t i = 0; i < SLICE; i++) norms[count] += (double)s->said[w][i] * (double)s->said[w][i];
        norms[count] = sqrt(norms[count]);
        count++;
    }
    ck_assert_uint_eq(taken, count);
    for (size_t i = 0; i < SLICE && count > 0; i++) {
        count = 0;
        for (uint32_t w = 0; w < s->workers; w++)
            if (!s->from[w].quarantined) values[count++] = s->said[w][i];
        float want = expected(s, values, samples, norms, count);
        /* The order in which a norm is added up is the kernel's. */
        float room = s->config.aggregation.robust == TS_ROBUST_CLIP ? 1e-6f * (fabsf(want) + 1e-3f) : 0.0f;
        ck_assert_msg(fabsf(got[i] - want) <= room, "element %zu of %u: %.9g, not %.9g", i, count, (double)got[i],
                      (double)want);
    }
}

static void all_modes(stage *s) {
    for (ts_robust_name robust = TS_ROBUST_NONE; robust <= TS_ROBUST_CLIP; robust++) {
        for (ts_aggregate_mode mode = TS_AGGREGATE_MEAN; mode <= TS_AGGREGATE_SUM; mode++) {
            bool ordered = robust == TS_ROBUST_MEDIAN || robust == TS_ROBUST_TRIMMED;
            if (ordered && mode != TS_AGGREGATE_MEAN) continue;
            s->config.aggregation.robust = robust;
            s->config.aggregation.mode = mode;
            s->config.aggregation.trim = 0.3;
            s->config.aggregation.clip_norm = 12;
            for (uint32_t w = 0; w < s->workers; w++) s->from[w].samples = 64;
            check_stage(s);
            for (uint32_t w = 0; w < s->workers; w++) s->from[w].samples = w % 3 ? 64 : 7 + w;
            check_stage(s);
        }
    }
}

static const char *const pipelines[] = {"topk:0.1 | fp32 | raw32", "topk:0.3 | int8 | rice", "dense", "int8", "fp16",
                                          "delta:5 | fp16"};
#define PIPELINES ((int)(sizeof pipelines / sizeof pipelines[0]))

START_TEST(modes_do_what_they_say) {
    for (uint32_t workers = 1; workers <= MOST; workers++) {
        stage s;
        open_stage(&s, pipelines[_i], workers);
        all_modes(&s);
        close_stage(&s);
    }
}
END_TEST

/* Where a value or its scale lies in a packet of these pipelines, and how many bytes it has. */
static void poison(stage *s, uint32_t worker, const char *pipeline) {
    bool sparse = strncmp(pipeline, "topk", 4) == 0;
    static const uint8_t nan[] = {0, 0, 0xC0, 0x7F}, half_infinity[] = {0, 0x7C}, short_nan[] = {0x80, 0xFF};
    bool delta = strncmp(pipeline, "delta", 5) == 0;
    uint8_t *at = s->bytes[worker] + (sparse || delta ? 1 : 0);
    if (sparse && !(s->bytes[worker][0] & 16)) at += 1; /* behind the number of values */
    if (strstr(pipeline, "fp16")) memcpy(at, half_infinity, 2);
    else if (sparse && strstr(pipeline, "int8")) memcpy(at, short_nan, 2);
    else memcpy(at, nan, 4);
}

START_TEST(packets_of_nan_are_left_out_and_named) {
    stage s;
    open_stage(&s, pipelines[_i], 5);
    float before[SLICE];
    (void)aggregate(&s, before);
    for (uint32_t w = 0; w < 5; w++) ck_assert(!s.from[w].quarantined);
    poison(&s, 0, pipelines[_i]);
    poison(&s, 3, pipelines[_i]);
    float got[SLICE];
    ck_assert_uint_eq(aggregate(&s, got), 3);
    for (uint32_t w = 0; w < 5; w++) ck_assert_int_eq(s.from[w].quarantined, w == 0 || w == 3);
    ck_assert_mem_ne(got, before, sizeof got);
    all_modes(&s);
    for (uint32_t w = 1; w < 5; w++)
        if (w != 3) poison(&s, w, pipelines[_i]);
    ck_assert_uint_eq(aggregate(&s, got), 0); /* nobody is left */
    for (size_t i = 0; i < SLICE; i++) ck_assert_float_eq(got[i], 0);
    s.from[2].len = 1; /* what is cut short is not of NaN alone: corrupt, and to be sent again */
    ts_aggregate_place place = {.contract = s.contract, .slice = 1, .step = 3, .config = &s.config};
    for (s.config.aggregation.robust = TS_ROBUST_NONE; s.config.aggregation.robust <= TS_ROBUST_MEDIAN;
         s.config.aggregation.robust++) {
        ts_aggregate_outcome outcome;
        ck_assert_status(ts_aggregate(&s.sum, s.scratch, &place, s.from, 5, &outcome), TERSE_ECORRUPT);
        ck_assert_uint_eq(outcome.culprit, 2);
        for (size_t i = 0; i < s.sum.lanes_elems; i++) ck_assert_float_eq(s.sum.lanes[i], 0);
    }
    close_stage(&s);
}
END_TEST

START_TEST(blocks_are_ordered_whatever_the_number_of_workers) {
    static float rows[70 * TS_ROBUST_BLOCK], column[70];
    float out[TS_ROBUST_BLOCK];
    for (uint32_t count = 1; count <= 70; count++) {
        for (int median = 0; median < 2; median++) {
            static float copy[70 * TS_ROBUST_BLOCK];
            ts_random random = ts_random_start(ts_random_key(1, count, 0, 0, 0));
            for (size_t i = 0; i < count * TS_ROBUST_BLOCK; i++)
                rows[i] = copy[i] = ts_random_below(&random, 3) ? ts_random_normal(&random) : 0.0f;
            uint32_t cut = median ? (count - 1) / 2 : ts_robust_cut(0.2, count);
            ck_assert_uint_lt(2 * cut, count);
            ts_robust_block(median ? TS_ROBUST_MEDIAN : TS_ROBUST_TRIMMED, cut, rows, count, out);
            for (unsigned j = 0; j < TS_ROBUST_BLOCK; j++) {
                float sum = 0;
                for (uint32_t c = 0; c < count; c++) column[c] = copy[c * TS_ROBUST_BLOCK + j];
                qsort(column, count, sizeof *column, ascending);
                for (uint32_t c = cut; c < count - cut; c++) sum += column[c];
                ck_assert_float_eq(out[j], sum * (1.0f / (float)(count - 2 * cut)));
            }
        }
    }
    ck_assert_uint_eq(ts_robust_cut(0.1, 10), 1);
    ck_assert_uint_eq(ts_robust_cut(0.1, 9), 0);
    ck_assert_uint_eq(ts_robust_cut(0.499, 2), 0);
    ck_assert_uint_eq(ts_robust_cut(0.34, 3), 1);
}
END_TEST

START_TEST(aggregates_are_clipped_by_value_and_by_norm) {
    for (int dense = 0; dense < 2; dense++) {
        ts_sum sum = {0};
        ck_assert_ok(ts_sum_reserve(&sum, SLICE));
        sum.dense = dense;
        const float values[] = {3.0f, -4.0f, 12.0f, 0.5f};
        for (size_t i = 0; i < 4; i++) {
            sum.value[i * 30] = values[i];
            sum.touched[i * 30 / 64] |= (uint64_t)1 << (i * 30 % 64);
        }
        ts_sum_clip(&sum, SLICE, 0, 0);
        ck_assert_float_eq(sum.value[60], 12.0f);
        ts_sum_clip(&sum, SLICE, 5, 100);
        ck_assert_float_eq(sum.value[30], -4.0f);
        ck_assert_float_eq(sum.value[60], 5.0f);
        ts_sum_clip(&sum, SLICE, 0, 0.5);
        float factor = (float)(0.5 / (sqrt(9 + 16 + 25 + 0.25) + 1e-6));
        ck_assert_float_eq(sum.value[0], 3.0f * factor);
        ck_assert_float_eq(sum.value[30], -4.0f * factor);
        ck_assert_float_eq(sum.value[90], 0.5f * factor);
        ts_sum_free(&sum);
    }
}
END_TEST

TCase *test_aggregate_modes(void);
TCase *test_aggregate_modes(void) {
    TCase *tests = tcase_create("aggregate_modes");
    tcase_add_loop_test(tests, modes_do_what_they_say, 0, PIPELINES);
    tcase_add_loop_test(tests, packets_of_nan_are_left_out_and_named, 0, PIPELINES);
    tcase_add_test(tests, blocks_are_ordered_whatever_the_number_of_workers);
    tcase_add_test(tests, aggregates_are_clipped_by_value_and_by_norm);
    return tests;
}
