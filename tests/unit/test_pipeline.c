/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"
#include "common/codec/registry.h"
#include "common/codec/pipeline.h"
#include "tests/unit/unit.h"

START_TEST(pipelines_have_one_canonical_spelling) {
    static const struct { const char *text, *canonical; } cases[] = {
        {"dense", "fp32"},
        {"fp32", "fp32"},
        {"  int8:tensor ", "int8:tensor"},
        {"topk:0.001 | int8 | rice", "topk:0.001 | int8 | rice"},
        {"topk:1e-3|int8|rice", "topk:0.001 | int8 | rice"},
        {"topk:0.0010|int8", "topk:0.001 | int8 | best"},
        {"topk:1", "topk:1 | fp32 | best"},
        {"topk:1.00|dense|best", "topk:1 | fp32 | best"},
        {"randomk:0.5 | fp16", "randomk:0.5 | fp16"},
        {"topk:0.00000000001", "topk:1e-11 | fp32 | best"},
        {"topk:1e-30", "topk:1e-30 | fp32 | best"},
        {"topk:100e-32", "topk:1e-30 | fp32 | best"},
        {"topk:4.9e-324", "topk:5e-324 | fp32 | best"},
        {"topk:2.2250738585072014e-308", "topk:2.2250738585072014e-308 | fp32 | best"},
        {"topk:0.30000000000000004", "topk:0.30000000000000004 | fp32 | best"},
        {"topk:+0.10E+0", "topk:0.1 | fp32 | best"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ts_pipeline pipeline, again;
        ts_error error = {""};
        ck_assert_msg(ts_pipeline_parse(cases[i].text, &pipeline, &error) == TERSE_OK, "%s", error.text);
        ck_assert_str_eq(pipeline.text, cases[i].canonical);
        ck_assert_ok(ts_pipeline_parse(pipeline.text, &again, &error));
        ck_assert_str_eq(again.text, pipeline.text);
        ck_assert(again.select == pipeline.select && again.quantise == pipeline.quantise &&
                  again.index == pipeline.index);
        ck_assert(again.select_args.value[0] == pipeline.select_args.value[0]);
    }
}
END_TEST

/* Any ratio that a double holds can be said, and the canonical text says the same one, whatever the locale. */
START_TEST(every_ratio_of_a_double_round_trips) {
    ts_random random = ts_random_start(11);
    for (int round = 0; round < 3000; round++) {
        union { uint64_t bits; double value; } ratio = {
            .bits = ((uint64_t)ts_random_u32(&random) << 32 | ts_random_u32(&random)) % 0x3FF0000000000001u};
        if (round < 60) ratio.bits = (uint64_t)1 << round; /* the smallest ones */
        if (ratio.bits == 0 || ratio.bits > 0x3FF0000000000000u) continue;
        char text[64];
        ts_pipeline pipeline, again;
        (void)snprintf(text, sizeof text, "topk:%.17g | int8", ratio.value);
        ck_assert_ok(ts_pipeline_parse(text, &pipeline, NULL));
        ck_assert(pipeline.select_args.value[0] == ratio.value);
        ck_assert_ok(ts_pipeline_parse(pipeline.text, &again, NULL));
        ck_assert(again.select_args.value[0] == ratio.value);
        ck_assert_str_eq(again.text, pipeline.text);
    }
}
END_TEST

START_TEST(pipelines_say_what_they_are) {
    ts_pipeline pipeline;
    ck_assert_ok(ts_pipeline_parse("dense", &pipeline, NULL));
    ck_assert(ts_pipeline_is_lossless(&pipeline) && !ts_pipeline_is_sparse(&pipeline));
    ck_assert_ok(ts_pipeline_parse("int8", &pipeline, NULL));
    ck_assert(!ts_pipeline_is_lossless(&pipeline) && !pipeline.index);
    ck_assert_ok(ts_pipeline_parse("topk:0.5", &pipeline, NULL));
    ck_assert(!ts_pipeline_is_lossless(&pipeline) && ts_pipeline_is_sparse(&pipeline));
    ck_assert_ptr_eq(pipeline.index, &ts_index_best);
    ck_assert_ok(ts_pipeline_parse("randomk:0.5", &pipeline, NULL));
    ck_assert_ptr_null(pipeline.index);
}
END_TEST

/* Each refusal names the stage and what would be allowed. */
START_TEST(nonsense_is_refused_with_a_sentence) {
    static const struct { const char *text, *says[3];
    } cases[] = {
        {"", {"empty", "dense"}},
        {"topk:0.1 |", {"missing"}},
        {"| int8", {"missing"}},
        {"int8 | topk:0.1",
         {"`topk`", "cannot follow `int8`", "transform | select | quantise | index pack | byte packs"}},
        {"topk:0.1 | rice | int8", {"`int8`", "cannot follow `rice`"}},
        {"topk:0.1 | topk:0.2", {"both of kind select", "allowed is one"}},
        {"fp16 | int8", {"`fp16` and `int8`", "quantise"}},
        {"topc:0.1", {"no stage `topc`", "topk", "rice"}},
        {"topk", {"`topk` needs an argument", "topk:R", "0 < R <= 1"}},
        {"topk:", {"`` is not a number", "0 < R <= 1"}},
        {"topk:0", {"`topk`", "0 is out of range", "0 < R <= 1"}},
        {"topk:1.5", {"1.5 is out of range", "0 < R <= 1"}},
        {"topk:-0.1", {"`-0.1` is not a number"}},
        {"topk:nan", {"`nan` is not a number"}},
        {"topk:1e-400", {"`1e-400` is not a number", "from 5e-324", "0 < R <= 1"}},
        {"topk:2e-324", {"`2e-324` is not a number", "from 5e-324", "0 < R <= 1"}},
        {"topk:1e400", {"`1e400` is not a number", "to 1.7e308"}},
        {"topk:1e99999999999", {"is not a number"}},
        {"topk:0.123456789012345678", {"is not a number", "at most 17 digits"}},
        {"topk:1e", {"`1e` is not a number"}},
        {"topk:1e-", {"`1e-` is not a number"}},
        {"topk:0.1.2", {"`0.1.2` is not a number"}},
        {"topk:0e5", {"0e5 is out of range", "0 < R <= 1"}},
        {"topk:0x1p-3", {"is not a number"}},
        {"topk:0.1:3", {"too many arguments", "topk:R"}},
        {"int8:7", {"`int8`", "tensor", "`7`"}},
        {"fp16:3", {"`fp16` takes no argument", "`3`"}},
        {"randomk:0.1 | rice", {"`rice` has nothing to pack", "`randomk` sends no indices"}},
        {"int8 | rice", {"`rice` has no indices to pack", "topk"}},
        {"rice", {"`rice` has no indices"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ts_pipeline pipeline;
        ts_error error = {""};
        memset(&pipeline, 0x5A, sizeof pipeline);
        ts_pipeline before = pipeline;
        ck_assert_status(ts_pipeline_parse(cases[i].text, &pipeline, &error), TERSE_EINVAL);
        ck_assert_mem_eq(&pipeline, &before, sizeof pipeline);
        for (size_t j = 0; j < 3 && cases[i].says[j]; j++) {
            ck_assert_msg(strstr(error.text, cases[i].says[j]) != NULL, "`%s` gave: %s\nwithout: %s", cases[i].text,
                          error.text, cases[i].says[j]);
        }
        ck_assert_status(ts_pipeline_parse(cases[i].text, &pipeline, NULL), TERSE_EINVAL);
    }
}
END_TEST

START_TEST(long_texts_are_refused) {
    char text[3000];
    ts_error error;
    ts_pipeline pipeline;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    ck_assert_status(ts_pipeline_parse(text, &pipeline, &error), TERSE_EINVAL);
    memset(text, '1', sizeof text - 1);
    memcpy(text, "topk:0.", 7);
    ck_assert_status(ts_pipeline_parse(text, &pipeline, &error), TERSE_EINVAL);
}
END_TEST

START_TEST(the_registry_is_complete_and_documented) {
    bool numbers[16] = {false};
    for (size_t i = 0; i < ts_registry_count(); i++) {
        const ts_stage_entry *entry = ts_registry_entry(i);
        ck_assert_ptr_eq(ts_registry_find(entry->info->name, strlen(entry->info->name)), entry);
        ck_assert_uint_gt(strlen(entry->info->summary), 10);
        ck_assert(entry->info->min_args <= entry->info->max_args && entry->info->max_args <= TS_STAGE_ARGS);
        ck_assert((entry->info->max_args == 0) == (entry->info->args[0] == '\0' || entry->info->args[0] == '['));
    }
    for (size_t i = 0; i < ts_registry_index_count(); i++) {
        unsigned number = ts_registry_index_number(ts_registry_index(i));
        ck_assert(number >= 1 && number <= 15 && !numbers[number]);
        numbers[number] = true;
        ck_assert_ptr_eq(ts_registry_index_by_number(number), ts_registry_index(i));
    }
    ck_assert_ptr_null(ts_registry_index_by_number(0));
}
END_TEST

TCase *test_pipeline(void);
TCase *test_pipeline(void) {
    TCase *tests = tcase_create("pipeline");
    tcase_add_test(tests, pipelines_have_one_canonical_spelling);
    tcase_add_test(tests, every_ratio_of_a_double_round_trips);
    tcase_add_test(tests, pipelines_say_what_they_are);
    tcase_add_test(tests, nonsense_is_refused_with_a_sentence);
    tcase_add_test(tests, long_texts_are_refused);
    tcase_add_test(tests, the_registry_is_complete_and_documented);
    return tests;
}
