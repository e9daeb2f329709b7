/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <xxhash.h>

#include "common/base/mem.h"
#include "server/store.h"
#include "tests/unit/unit.h"

#define WORKERS 3

static ts_config config;

/* Two tensors: 250 elements in three slices with a sparse pull, and 10 elements with a dense one; two servers. */
static ts_contract *make_contract(void) {
    ts_contract_options options = {.slice_elems = 100, .seed = 1, .optimizer = "name=sgd", .feedback = ""};
    ts_contract *contract;
    ts_pipeline sparse, dense;
    uint32_t id;
    int64_t large[] = {250}, small[] = {10};
    ck_assert_ok(ts_pipeline_parse("topk:0.1 | fp32 | raw32", &sparse, NULL));
    ck_assert_ok(ts_pipeline_parse("dense", &dense, NULL));
    ck_assert_ok(ts_contract_create(&options, &contract));
    ck_assert_ok(ts_contract_add(contract, "large", large, 1, &sparse, &sparse, false, &id, NULL));
    ck_assert_ok(ts_contract_add(contract, "small", small, 1, &dense, &dense, false, &id, NULL));
    ck_assert_ok(ts_contract_seal(contract, 2));
    return contract;
}

static void make_config(ts_optimizer_name name, uint32_t history) {
    memset(&config, 0, sizeof config);
    config.optimizer.name = name;
    config.optimizer.momentum = 0.9;
    config.servers.history = history;
}

static ts_slice_state *slice_of(ts_store *store, const ts_contract *contract, uint32_t global) {
    return &store->slices[contract->slices[global].local];
}

START_TEST(slices_fall_to_their_owners_with_what_they_need) {
    make_config(TS_OPTIMIZER_SGD, 4);
    ts_contract *contract = make_contract();
    const ts_optimizer *optimizer = ts_optimizer_find(config.optimizer.name);
    size_t elems = 0;
    uint32_t slices = 0;
    for (uint32_t server = 0; server < 2; server++) {
        ts_store store;
        ck_assert_ok(ts_store_create(&store, contract, &config, optimizer, server, WORKERS));
        ck_assert_uint_eq(store.count, contract->server_slices[server]);
        for (uint32_t s = 0; s < store.count; s++) {
            const ts_slice_state *slice = &store.slices[s];
            bool dense = slice->tensor == 1;
            ck_assert_uint_eq(slice->local, s);
            ck_assert_uint_eq(contract->slices[slice->global].server, server);
            ck_assert_int_eq(slice->kind, dense ? TS_DOWNLINK_REPLACE : TS_DOWNLINK_REFERENCE);
            ck_assert_int_eq(slice->reference == NULL, dense);
            ck_assert_int_eq(slice->encoder == NULL, dense);
            ck_assert_ptr_nonnull(slice->state[0]);
        }
        elems += store.elems;
        slices += store.count;
        ts_store_free(&store);
    }
    ck_assert_uint_eq(elems, 260);
    ck_assert_uint_eq(slices, contract->slice_count);
    ts_contract_destroy(contract);
}
END_TEST

START_TEST(first_values_are_taken_once) {
    make_config(TS_OPTIMIZER_SGD, 4);
    ts_contract *contract = make_contract();
    ts_store store;
    ck_assert_ok(ts_store_create(&store, contract, &config, ts_optimizer_find(TS_OPTIMIZER_SGD), 0, WORKERS));
    float values[100], other[100] = {0};
    for (size_t i = 0; i < 100; i++) values[i] = (float)i - 50.0f;
    ts_slice_state *slice = &store.slices[0];
    uint32_t before = store.uninitialised;
    ck_assert(ts_store_set(&store, 0, (const uint8_t *)values));
    ck_assert(!ts_store_set(&store, 0, (const uint8_t *)other));
    ck_assert_uint_eq(store.uninitialised, before - 1);
    for (uint32_t s = 0; s < store.count; s++) store.slices[s].version = 5; /* as a thread that loads them would */
    ck_assert_uint_eq(ts_store_version(&store), 0);
    ck_assert_mem_eq(slice->params, values, slice->n * sizeof(float));
    if (slice->reference) ck_assert_mem_eq(slice->reference, values, slice->n * sizeof(float));
    ck_assert_uint_eq(ts_store_hash(slice), XXH3_64bits(values, slice->n * sizeof(float)));
    slice->params[0] = 1.0f; /* hashed anew after a step */
    slice->steps++;
    ck_assert_uint_ne(ts_store_hash(slice), XXH3_64bits(values, slice->n * sizeof(float)));
    ts_store_free(&store);
    ts_contract_destroy(contract);
}
END_TEST

START_TEST(held_packets_keep_their_frames) {
    make_config(TS_OPTIMIZER_SGD, 4);
    ts_contract *contract = make_contract();
    ts_store store;
    ck_assert_ok(ts_store_create(&store, contract, &config, ts_optimizer_find(TS_OPTIMIZER_SGD), 0, WORKERS));
    ts_buffer *frame;
    ck_assert_ok(ts_buffer_create(100, &frame));
    frame->len = 100;
    memset(frame->data, 7, 100);
    ts_store_hold(&store.slices[0], 2, frame, frame->data + 10, 20, 0, 5);
    ts_buffer_unref(frame);
    ck_assert_uint_eq(store.slices[0].held, 1);
    ck_assert_uint_eq(store.slices[0].slots[2].packet[19], 7);
    ck_assert_uint_eq(ts_store_bytes(&store).held, 100); /* the frame's memory */
    ts_store_drop(&store.slices[0], 2);
    ts_store_drop(&store.slices[0], 2);
    ck_assert_uint_eq(store.slices[0].held, 0);
    ck_assert_uint_eq(ts_store_bytes(&store).held, 0);
    ts_store_free(&store);
    ts_contract_destroy(contract);
}
END_TEST

static void log_one(ts_slice_state *slice, uint64_t version, size_t len) {
    ts_buffer *frame;
    ck_assert_ok(ts_buffer_create(len, &frame));
    frame->len = len;
    memset(frame->data, (int)version, len);
    ts_store_log(slice, version, frame, 0, len);
    ts_buffer_unref(frame);
}

START_TEST(the_log_keeps_the_last_packets_and_never_outweighs_the_slice) {
    make_config(TS_OPTIMIZER_SGD, 4);
    ts_contract *contract = make_contract();
    ts_store stores[2];
    for (uint32_t s = 0; s < 2; s++)
        ck_assert_ok(
            ts_store_create(&stores[s], contract, &config, ts_optimizer_find(TS_OPTIMIZER_SGD), s, WORKERS));
    ts_slice_state *slice = slice_of(&stores[contract->slices[0].server], contract, 0);
    for (uint64_t v = 1; v <= 9; v++) log_one(slice, v, 6);
    ck_assert_ptr_null(ts_store_logged(slice, 5));
    for (uint64_t v = 6; v <= 9; v++) ck_assert_uint_eq(ts_store_logged(slice, v)->frame->data[0], v);
    ck_assert_ptr_null(ts_store_logged(slice, 10));
    ck_assert_uint_eq(slice->log_bytes, 24);
    log_one(slice, 10, slice->n); /* more than a 16th of the slice's 4 n bytes: the others go */
    ck_assert_uint_eq(slice->log_bytes, slice->n);
    ck_assert_ptr_nonnull(ts_store_logged(slice, 10));
    ck_assert_ptr_null(ts_store_logged(slice, 9));
    for (uint32_t s = 0; s < 2; s++) ts_store_free(&stores[s]);
    ts_contract_destroy(contract);
}
END_TEST

/* Without rounds each worker's pull makes a version: with more workers the log reaches as far back for each. */
START_TEST(the_log_grows_with_the_workers) {
    make_config(TS_OPTIMIZER_SGD, 4);
    config.consistency.mode = TS_MODE_ASP;
    ts_contract *contract = make_contract();
    ts_store store;
    uint32_t server = contract->slices[0].server;
    ck_assert_ok(ts_store_create(&store, contract, &config, ts_optimizer_find(TS_OPTIMIZER_SGD), server, WORKERS));
    ts_slice_state *slice = slice_of(&store, contract, 0);
    ck_assert_uint_eq(slice->log_entries, 4 * WORKERS);
    for (uint64_t v = 1; v <= 21; v++) log_one(slice, v, 1);
    ck_assert_ok(ts_store_grow(&store, contract, WORKERS + 2));
    ck_assert_ok(ts_store_grow(&store, contract, WORKERS + 1)); /* there is room already */
    for (uint64_t v = 10; v <= 21; v++) ck_assert_uint_eq(ts_store_logged(slice, v)->frame->data[0], v);
    ck_assert_uint_eq(slice->log_bytes, 12);
    for (uint64_t v = 22; v <= 29; v++) log_one(slice, v, 1);
    for (uint64_t v = 10; v <= 29; v++) ck_assert_uint_eq(ts_store_logged(slice, v)->frame->data[0], v);
    log_one(slice, 30, 1);
    ck_assert_ptr_null(ts_store_logged(slice, 10));
    ck_assert_ptr_nonnull(ts_store_logged(slice, 11));
    ts_store_free(&store);
    ts_contract_destroy(contract);
}
END_TEST

START_TEST(creating_survives_every_failed_allocation) {
    make_config(TS_OPTIMIZER_NONE, 4);
    ts_contract *contract = make_contract();
    ts_store store = {0};
    terse_status status = TERSE_ENOMEM;
    int64_t failing = 0;
    for (; status != TERSE_OK && failing < 1000; failing++) {
        ts_mem_fail_after(failing);
        status = ts_store_create(&store, contract, &config, ts_optimizer_find(TS_OPTIMIZER_NONE), 0, WORKERS);
        ts_mem_fail_after(-1);
        if (status != TERSE_OK) {
            ck_assert_int_eq(status, TERSE_ENOMEM);
            ck_assert_ptr_null(store.slices);
        }
    }
    ck_assert_int_gt(failing, 5);
    ck_assert_ok(status);
    for (uint32_t s = 0; s < store.count; s++) ck_assert_int_eq(store.slices[s].kind, TS_DOWNLINK_AVERAGE);
    ts_store_free(&store);
    ts_contract_destroy(contract);
}
END_TEST

TCase *test_store(void);
TCase *test_store(void) {
    TCase *tests = tcase_create("store");
    tcase_add_test(tests, slices_fall_to_their_owners_with_what_they_need);
    tcase_add_test(tests, first_values_are_taken_once);
    tcase_add_test(tests, held_packets_keep_their_frames);
    tcase_add_test(tests, the_log_keeps_the_last_packets_and_never_outweighs_the_slice);
    tcase_add_test(tests, the_log_grows_with_the_workers);
    tcase_add_test(tests, creating_survives_every_failed_allocation);
    return tests;
}
