/* SPDX-License-Identifier: Apache-2.0 */
/* Who owns which slice, what that costs, and what memory a config takes: beforehand, and in the store. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/codec/registry.h"
#include "common/config/config_models.h"
#include "common/config/config_plan.h"
#include "common/contract/contract_work.h"
#include "server/store.h"
#include "tests/unit/unit.h"
#include "worker/models/model_list.h"

static ts_config *load(const char *text) {
    char path[] = "/tmp/terse-test-XXXXXX.yaml";
    int descriptor = mkstemps(path, 5);
    ck_assert_int_ge(descriptor, 0);
    FILE *file = fdopen(descriptor, "w");
    fputs(text, file);
    fclose(file);
    ts_config *config = NULL;
    ts_error error = {""};
    terse_status status = ts_config_load(path, NULL, 0, &config, &error);
    unlink(path);
    ck_assert_msg(status == TERSE_OK, "%s", error.text);
    return config;
}

#define PLUGIN "training: {model: own, data: none}\nworker: {plugin: /dev/null}\n"

/* One tensor of rows × columns, and `small` tensors of 100 … 100 + small elements. */
static ts_shapes make_shapes(int64_t rows, int64_t columns, uint32_t small) {
    ts_shapes shapes = {.tensors = calloc(small + 1, sizeof *shapes.tensors), .count = small + 1};
    for (uint32_t t = 0; t <= small; t++) {
        char name[24];
        snprintf(name, sizeof name, "tensor%u", t);
        ts_shape *shape = &shapes.tensors[t];
        *shape = (ts_shape){.name = strdup(name), .shape = {t ? 100 + t : rows, t ? 1 : columns}, .ndim = 2};
        shape->n = (size_t)(shape->shape[0] * shape->shape[1]);
        shapes.parameters += shape->n;
    }
    return shapes;
}

/* Every slice has one owner and a number of its own there; returns how far the most work is above the mean. */
static double imbalance(const ts_contract *contract, uint64_t *heaviest, double *mean) {
    uint64_t *work = calloc(contract->servers, sizeof *work), total = 0, most = 0;
    uint32_t owned = 0;
    uint8_t *seen = calloc(contract->slice_count, 1);
    *heaviest = 0;
    for (uint32_t server = 0; server < contract->servers; server++) {
        memset(seen, 0, contract->slice_count);
        for (uint32_t s = 0; s < contract->slice_count; s++) {
            if (contract->slices[s].server != server) continue;
            ck_assert_uint_lt(contract->slices[s].local, contract->server_slices[server]);
            ck_assert_uint_eq(seen[contract->slices[s].local], 0);
            seen[contract->slices[s].local] = 1;
            owned++;
            uint64_t cost = ts_contract_work(contract, contract->slices[s].tensor, contract->slices[s].n);
            work[server] += cost;
            if (cost > *heaviest) *heaviest = cost;
        }
        total += work[server];
        if (work[server] > most) most = work[server];
    }
    ck_assert_uint_eq(owned, contract->slice_count);
    *mean = (double)total / contract->servers;
    free(work);
    free(seen);
    return (double)most / *mean - 1;
}

static void check_balance(const ts_config *config, const ts_shapes *shapes, double bound) {
    for (uint32_t servers = 1; servers <= 8; servers++) {
        ts_contract *contract;
        uint64_t heaviest;
        double mean;
        ck_assert_ok(ts_plan_contract(config, shapes, servers, &contract, NULL));
        double excess = imbalance(contract, &heaviest, &mean);
        /* Where one slice is more than a server's share, nothing can be better than that slice alone. */
        double best = (double)heaviest > mean ? (double)heaviest / mean - 1 : 0;
        ck_assert_msg(excess <= best + bound, "%u servers: %.2f %% above the mean, %.2f %% at best", servers, 100 * excess,
                      100 * best);
        ts_contract_destroy(contract);
    }
}

START_TEST(work_is_even_for_resnet50) {
    static const char *const pipelines[] = {"topk:0.001 | int8 | rice", "dense", "sign", "powersgd:2 | fp16",
                                            "topk:0.01 | int8 | zstd:1"};
    for (size_t i = 0; i < sizeof pipelines / sizeof pipelines[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, PLUGIN "push: {default: \"%s\"}\npull: {default: \"%s\"}\n", pipelines[i], pipelines[i]);
        ts_config *config = load(text);
        ts_shapes shapes;
        ck_assert_ok(ts_shapes_read("configs/resnet50.shapes", 1000, &shapes, NULL));
        check_balance(config, &shapes, 0.02);
        ts_shapes_clear(&shapes);
        ts_config_free(config);
    }
}
END_TEST

START_TEST(work_is_even_for_one_huge_tensor_and_many_small_ones) {
    static const char *const texts[] = {
        PLUGIN "push: {default: topk:0.01 | int8 | rice}\npull: {default: topk:0.01 | int8}\n", /* cut */
        PLUGIN "push: {default: powersgd:2 | fp16}\n",                                           /* low rank: whole */
        PLUGIN "optimizer: {name: lamb}\nlimits: {frame_bytes: 1073741824}\n"};                  /* all whole */
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ts_config *config = load(texts[i]);
        ts_shapes shapes = make_shapes(5000, 2000, 800);
        check_balance(config, &shapes, 0.02);
        ts_contract *contract;
        ck_assert_ok(ts_plan_contract(config, &shapes, 4, &contract, NULL));
        ck_assert_uint_eq(contract->tensors[0].slices, i == 0 ? 39 : 1);
        if (i > 0) ck_assert_uint_eq(contract->server_slices[contract->slices[0].server], 1); /* it has its owner alone */
        ts_contract_destroy(contract);
        for (uint32_t t = 0; t < shapes.count; t++) free(shapes.tensors[t].name);
        free(shapes.tensors);
        ts_config_free(config);
    }
}
END_TEST

START_TEST(every_stage_has_a_measured_cost) {
    for (size_t i = 0; i < ts_registry_count(); i++) {
        const char *name = ts_registry_entry(i)->info->name;
        ck_assert_msg(ts_work_knows(name), "stage %s has no line in contract_work.c", name);
    }
    ck_assert(!ts_work_knows("gzip"));
}
END_TEST

/* What is known of the order of costs, whatever the machine. */
START_TEST(costs_follow_what_travels) {
    ts_tensor tensor = {.shape = {1000, 1000}, .ndim = 2, .n = 1000000};
    uint64_t before = 0;
    static const char *const rising[] = {"topk:0.0001 | int8 | rice", "topk:0.001 | int8 | rice", "topk:0.01 | int8 | rice",
                                         "sign", "fp32", "fp32 | zstd:1"};
    ck_assert_ok(ts_pipeline_parse("dense", &tensor.pull, NULL));
    for (size_t i = 0; i < sizeof rising / sizeof rising[0]; i++) {
        ck_assert_ok(ts_pipeline_parse(rising[i], &tensor.push, NULL));
        uint64_t cost = ts_work_decode(&tensor, tensor.n);
        ck_assert_msg(cost > before, "%s costs %llu, the one before %llu", rising[i], (unsigned long long)cost,
                      (unsigned long long)before);
        before = cost;
    }
    ck_assert_ok(ts_pipeline_parse("topk:0.001 | int8 | rice", &tensor.push, NULL));
    uint64_t packet = ts_work_packet_bytes(&tensor, &tensor.push, tensor.n);
    ck_assert_uint_gt(packet, 2000); /* `terse codec encode` of noise writes 2480 */
    ck_assert_uint_lt(packet, 3000);
}
END_TEST

START_TEST(built_in_models_are_as_the_config_knows_them) {
    static const terse_model *const models[] = {&ts_model_softmax, &ts_model_mlp, &ts_model_cnn};
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        char text[128], message[256];
        snprintf(text, sizeof text, "training: {model: %s}\n", models[m]->name);
        ts_config *config = load(text);
        terse_model_context context = {.workers = 1, .batch = 1, .data_dir = config->training.data_dir, .threads = 1};
        void *model = models[m]->create(&context, message, sizeof message);
        ck_assert_msg(model != NULL, "%s", message);
        const terse_model_tensor *tensors;
        size_t count = models[m]->tensors(model, &tensors);
        ts_shapes shapes;
        ck_assert_ok(ts_config_tensors(config, &shapes, NULL));
        ck_assert_uint_eq(shapes.count, count);
        for (uint32_t t = 0; t < count; t++) {
            ck_assert_str_eq(shapes.tensors[t].name, tensors[t].name);
            ck_assert_uint_eq(shapes.tensors[t].ndim, (unsigned)tensors[t].ndim);
            for (int d = 0; d < tensors[t].ndim; d++)
                ck_assert_int_eq(shapes.tensors[t].shape[d], tensors[t].shape[d]);
        }
        models[m]->destroy(model);
        ts_shapes_clear(&shapes);
        ts_config_free(config);
    }
}
END_TEST

static size_t heap_bytes(void) {
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* The plan, the store's own account, and what malloc says. */
START_TEST(memory_is_foretold_and_counted_exactly) {
    static const char *const texts[] = {
        PLUGIN "push: {default: topk:0.01 | int8}\npull: {default: topk:0.01 | int8}\n",
        PLUGIN "optimizer: {name: adam}\npush: {default: topk:0.01 | int8}\n",
        PLUGIN "optimizer: {name: rmsprop, centered: true, momentum: 0.9}\npull: {default: fp16}\n",
        PLUGIN "optimizer: {name: none}\n",
        PLUGIN "push: {default: \"delta:64 | linear:4\"}\npull: {default: fp16}\n",
        PLUGIN "optimizer: {momentum: 0}\nerror_feedback: {variant: ef21}\npush: {default: topk:0.01 | fp32}\n",
        PLUGIN "pull: {default: powersgd:4 | fp16}\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ts_config *config = load(texts[i]);
        ts_shapes shapes = make_shapes(1024, 1024, 20);
        ts_plan plan;
        ts_store store;
        ck_assert_ok(ts_plan_make(config, &shapes, 2, 3, &plan, NULL));
        for (uint32_t s = 0; s < 2; s++) {
            size_t before = heap_bytes();
            ck_assert_ok(ts_store_create(&store, plan.contract, config, ts_optimizer_find(config->optimizer.name), s, 3));
            size_t grown = heap_bytes() - before;
            ts_store_memory bytes = ts_store_bytes(&store);
            ck_assert_uint_eq(plan.server[s].params, bytes.params);
            ck_assert_uint_eq(plan.server[s].reference, bytes.reference);
            ck_assert_uint_eq(plan.server[s].optimizer, bytes.optimizer);
            ck_assert_uint_eq(plan.server[s].estimates, bytes.estimates);
            ck_assert_uint_le(plan.server[s].receivers, bytes.receivers);
            ck_assert_uint_ge(plan.server[s].receivers + 10000, bytes.receivers);
            ck_assert_uint_eq(bytes.receivers > 0, i == 4);
            ck_assert_uint_eq(bytes.estimates > 0, i == 5);
            size_t sum = bytes.params + bytes.reference + bytes.optimizer + bytes.estimates + bytes.receivers +
                         bytes.encoders + bytes.bookkeeping;
            /* Sanitizers have an allocator of their own, which mallinfo2 does not see. */
            if (grown > 0) ck_assert_msg(sum <= grown && grown <= sum + sum / 100 + 65536, "config %zu: %zu counted, %zu taken",
                                         i, sum, grown);
            ts_store_free(&store);
        }
        ts_plan_free(&plan);
        for (uint32_t t = 0; t < shapes.count; t++) free(shapes.tensors[t].name);
        free(shapes.tensors);
        ts_config_free(config);
    }
}
END_TEST

START_TEST(optimizers_keep_the_arrays_that_plans_count) {
    for (int name = TS_OPTIMIZER_NONE; name <= TS_OPTIMIZER_LAMB; name++) {
        for (int bits = 0; bits < 8; bits++) {
            ts_config config = {0};
            config.optimizer.name = (ts_optimizer_name)name;
            config.optimizer.momentum = bits & 1 ? 0.9 : 0;
            config.optimizer.centered = (bits & 2) != 0;
            bool plain = (bits & 4) != 0;
            ck_assert_uint_eq(ts_plan_optimizer_arrays(&config, plain),
                              ts_optimizer_find(config.optimizer.name)->states(&config, plain));
        }
    }
}
END_TEST

TCase *test_placement(void);
TCase *test_placement(void) {
    TCase *tests = tcase_create("placement");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, work_is_even_for_resnet50);
    tcase_add_test(tests, work_is_even_for_one_huge_tensor_and_many_small_ones);
    tcase_add_test(tests, every_stage_has_a_measured_cost);
    tcase_add_test(tests, costs_follow_what_travels);
    tcase_add_test(tests, built_in_models_are_as_the_config_knows_them);
    tcase_add_test(tests, memory_is_foretold_and_counted_exactly);
    tcase_add_test(tests, optimizers_keep_the_arrays_that_plans_count);
    return tests;
}
