/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/contract/contract.h"
#include "terse.pb-c.h"
#include "tests/unit/unit.h"

static ts_pipeline pipeline(const char *text) {
    ts_pipeline parsed;
    ck_assert_ok(ts_pipeline_parse(text, &parsed, NULL));
    return parsed;
}

static ts_contract *empty(size_t slice_elems) {
    const ts_contract_options options = {.slice_elems = slice_elems,
                                         .seed = 7,
                                         .optimizer = "name=sgd lr=0.05 momentum=0.9",
                                         .feedback = "enabled=true",
                                         .total_steps = 100};
    ts_contract *contract = NULL;
    ck_assert_ok(ts_contract_create(&options, &contract));
    return contract;
}

static void add(ts_contract *contract, const char *name, int64_t rows, int64_t columns, const char *push) {
    ts_pipeline up = pipeline(push), down = pipeline("dense");
    const int64_t shape[] = {rows, columns};
    ck_assert_ok(ts_contract_add(contract, name, shape, 2, &up, &down, false, NULL, NULL));
}

/* An MLP and a scalar, cut small. */
static ts_contract *sample(void) {
    ts_contract *contract = empty(1000);
    ts_pipeline dense = pipeline("dense");
    add(contract, "fc1.weight", 512, 78, "topk:0.01 | int8");
    add(contract, "fc1.bias", 1, 512, "int8");
    add(contract, "fc2.weight", 10, 100, "topk:0.1 | int8");
    ck_assert_ok(ts_contract_add(contract, "scale", NULL, 0, &dense, &dense, true, NULL, NULL));
    return contract;
}

START_TEST(slices_cover_every_tensor_whatever_the_servers) {
    for (uint32_t servers = 1; servers <= 100; servers += servers < 5 ? 1 : 19) {
        ts_contract *c = sample();
        ck_assert_ok(ts_contract_seal(c, servers));
        ck_assert_uint_eq(c->slice_count, 40 + 1 + 1 + 1);
        uint32_t *next = calloc(servers, sizeof *next), at = 0;
        for (uint32_t t = 0; t < c->tensor_count; t++) {
            ck_assert_uint_eq(c->tensors[t].first_slice, at);
            size_t first = 0;
            for (uint32_t s = 0; s < c->tensors[t].slices; s++, at++) {
                ck_assert_uint_eq(c->slices[at].tensor, t);
                ck_assert_uint_eq(c->slices[at].first, first);
                ck_assert_uint_le(c->slices[at].n, 1000);
                ck_assert_uint_lt(c->slices[at].server, servers);
                ck_assert_uint_eq(c->slices[at].local, next[c->slices[at].server]++);
                first += c->slices[at].n;
            }
            ck_assert_uint_eq(first, c->tensors[t].n);
        }
        ck_assert_uint_eq(at, c->slice_count);
        for (uint32_t i = 0; i < servers; i++) ck_assert_uint_eq(c->server_slices[i], next[i]);
        free(next);
        ts_contract_destroy(c);
    }
}
END_TEST

START_TEST(work_is_balanced_over_servers) {
    ts_contract *c = empty(1000);
    add(c, "big", 100, 1000, "dense");
    add(c, "sparse", 100, 1000, "topk:0.01");
    for (int i = 0; i < 30; i++) {
        char name[16];
        snprintf(name, sizeof name, "small%d", i);
        add(c, name, 1, 1 + i, "dense");
    }
    ck_assert_ok(ts_contract_seal(c, 3));
    size_t elems[3] = {0};
    for (uint32_t i = 0; i < c->slice_count; i++) elems[c->slices[i].server] += c->slices[i].n;
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_gt(elems[i], 60000);
        ck_assert_uint_lt(elems[i], 73000);
        ck_assert_uint_gt(c->server_slices[i], 60);
    }
    ts_contract_destroy(c);
}
END_TEST

START_TEST(the_digest_does_not_depend_on_servers_but_on_all_else) {
    ts_contract *a = sample(), *b = sample(), *c = sample();
    add(c, "extra", 1, 1, "dense");
    ck_assert_ok(ts_contract_seal(a, 1));
    ck_assert_ok(ts_contract_seal(b, 5));
    ck_assert_ok(ts_contract_seal(c, 1));
    ck_assert_mem_eq(a->digest, b->digest, TS_DIGEST_BYTES);
    ck_assert_mem_ne(a->digest, c->digest, TS_DIGEST_BYTES);
    ts_contract_destroy(a);
    ts_contract_destroy(b);
    ts_contract_destroy(c);
}
END_TEST

START_TEST(nothing_is_declared_after_closing_and_closing_is_once) {
    ts_contract *c = empty(10);
    ts_pipeline dense = pipeline("dense");
    ck_assert_status(ts_contract_seal(c, 0), TERSE_EINVAL);
    ck_assert_ok(ts_contract_seal(c, 3)); /* no tensor at all is fine */
    ck_assert_uint_eq(c->slice_count, 0);
    ck_assert_status(ts_contract_seal(c, 3), TERSE_ESTATE);
    ck_assert_status(ts_contract_add(c, "a", NULL, 0, &dense, &dense, false, NULL, NULL), TERSE_ESTATE);
    ts_contract_destroy(c);
    ts_contract_destroy(NULL);
}
END_TEST

START_TEST(bad_tensors_are_refused_by_name) {
    ts_contract *c = empty(10);
    ts_pipeline dense = pipeline("dense");
    ts_error error;
    uint32_t id = 77;
    const int64_t zero[] = {3, 0}, huge[] = {INT64_MAX, 8}, wide[] = {65536, 65536}, many[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    ck_assert_status(ts_contract_add(c, "", many, 1, &dense, &dense, false, &id, &error), TERSE_EINVAL);
    ck_assert_status(ts_contract_add(c, "a", zero, 2, &dense, &dense, false, &id, &error), TERSE_EINVAL);
    ck_assert_str_eq(error.text, "tensor a: extent 1 is 0; allowed: at least 1");
    ck_assert_status(ts_contract_add(c, "a", huge, 2, &dense, &dense, false, &id, &error), TERSE_ELIMIT);
    ck_assert_status(ts_contract_add(c, "a", wide, 2, &dense, &dense, false, &id, &error), TERSE_ELIMIT);
    ck_assert_status(ts_contract_add(c, "a", many, 9, &dense, &dense, false, &id, &error), TERSE_EINVAL);
    ck_assert_uint_eq(id, 77);
    for (uint32_t i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%u", i);
        ck_assert_ok(ts_contract_add(c, name, many, 8, &dense, &dense, false, &id, &error));
        ck_assert_uint_eq(id, i);
    }
    ck_assert_status(ts_contract_add(c, "t500", many, 1, &dense, &dense, false, &id, &error), TERSE_EINVAL);
    ck_assert_str_eq(error.text, "tensor t500: the name is declared twice");
    ck_assert_uint_eq(c->tensor_count, 1000);
    ts_contract_destroy(c);
}
END_TEST

/* Logs and JSON hold names; what they cannot hold is refused, and told on one line. */
START_TEST(names_that_no_file_can_hold_are_refused_escaped) {
    static const char *const bad[] = {"bad\xff", "x\n", "\x7f", "\x1b[2J", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "cut\xe2\x82"};
    static const char *const good[] = {"fc1.weight", "größe/權重", "\xf4\x8f\xbf\xbf", "a b\"\\c", "#x"};
    ts_contract *c = empty(10);
    ts_pipeline dense = pipeline("dense");
    ts_error error;
    char longest[514];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        error.text[0] = '\0';
        ck_assert_status(ts_contract_add(c, bad[i], NULL, 0, &dense, &dense, false, NULL, &error), TERSE_EINVAL);
        ck_assert_msg(strstr(error.text, "UTF-8 without control characters") && !strstr(error.text, bad[i]), "%s", error.text);
    }
    ck_assert_status(ts_contract_add(c, "bad\xff\nlevel=error msg=\"x\" utf", NULL, 0, &dense, &dense, false, NULL, &error), TERSE_EINVAL);
    ck_assert_str_eq(error.text, "tensor \"bad\\xff\\x0alevel=error msg=\"x\" utf\": not a name; allowed: 1 to 512 bytes of UTF-8 "
                     "without control characters");
    ck_assert_status(ts_contract_add(c, NULL, NULL, 0, &dense, &dense, false, NULL, &error), TERSE_EINVAL);
    ck_assert_str_eq(error.text, "tensor 0: the name is missing (NULL); allowed: 1 to 512 bytes of UTF-8");
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        ck_assert_ok(ts_contract_add(c, good[i], NULL, 0, &dense, &dense, false, NULL, &error));
    memset(longest, 'x', sizeof longest);
    longest[513] = '\0';
    ck_assert_status(ts_contract_add(c, longest, NULL, 0, &dense, &dense, false, NULL, &error), TERSE_ELIMIT);
    longest[512] = '\0';
    ck_assert_ok(ts_contract_add(c, longest, NULL, 0, &dense, &dense, false, NULL, &error));
    ts_contract_destroy(c);
}
END_TEST

START_TEST(a_contract_survives_the_wire) {
    ts_contract *c = sample(), *back = NULL;
    uint8_t *bytes = NULL;
    size_t len = 0;
    ts_error error = {{0}};
    ck_assert_ok(ts_contract_seal(c, 2));
    ck_assert_ok(ts_contract_pack(c, &bytes, &len));
    terse_status status = ts_contract_unpack(bytes, len, 2, &back, &error);
    ck_assert_msg(status == TERSE_OK, "%s", error.text);
    ck_assert_mem_eq(c->digest, back->digest, TS_DIGEST_BYTES);
    ck_assert(!ts_contract_difference(c, "here", back, "there", &error));
    ck_assert_uint_eq(back->slice_count, c->slice_count);
    for (uint32_t i = 0; i < c->slice_count; i++) {
        ck_assert_uint_eq(c->slices[i].server, back->slices[i].server);
        ck_assert_uint_eq(c->slices[i].local, back->slices[i].local);
        ck_assert_uint_eq(c->slices[i].n, back->slices[i].n);
    }
    ck_assert(back->tensors[3].worker_momentum);
    ck_assert_uint_eq(back->tensors[3].n, 1);
    ts_mem_free(bytes);
    ts_contract_destroy(back);
    ts_contract_destroy(c);
}
END_TEST

START_TEST(hostile_bytes_are_refused_without_harm) {
    ts_contract *c = sample(), *back = NULL;
    uint8_t *bytes = NULL;
    size_t len = 0;
    ts_error error = {{0}};
    ck_assert_ok(ts_contract_pack(c, &bytes, &len));
    for (size_t cut = 0; cut < len; cut++) { /* a shorter message may be one in its own right: slice_elems is missing */
        if (ts_contract_unpack(bytes, cut, 2, &back, &error) == TERSE_OK) ts_contract_destroy(back);
    }
    ts_random random = ts_random_start(ts_random_key(1, 2, 3, 4, 5));
    for (int i = 0; i < 20000; i++) {
        size_t at = ts_random_below(&random, (uint32_t)len);
        uint8_t before = bytes[at];
        bytes[at] ^= (uint8_t)(1u << ts_random_below(&random, 8));
        if (ts_contract_unpack(bytes, len, 2, &back, &error) == TERSE_OK) ts_contract_destroy(back);
        bytes[at] = before;
    }
    ts_mem_free(bytes);
    ts_contract_destroy(c);
    size_t many = 8 << 20; /* four million empty tensors in eight megabytes */
    uint8_t *flood = malloc(many);
    ck_assert_ptr_nonnull(flood);
    for (size_t i = 0; i < many; i += 2) {
        flood[i] = 0x0a;
        flood[i + 1] = 0;
    }
    ck_assert_status(ts_contract_unpack(flood, many, 2, &back, &error), TERSE_ELIMIT);
    free(flood);
}
END_TEST

/* Packs one tensor of a message, and says what unpack makes of it. */
static terse_status try_message(Terse__Contract *message, Terse__Tensor *tensor, char *why) {
    uint8_t bytes[1024];
    ts_contract *out = NULL;
    ts_error error = {{0}};
    message->n_tensors = 1;
    message->tensors = &tensor;
    ck_assert_uint_le(terse__contract__get_packed_size(message), sizeof bytes);
    size_t len = terse__contract__pack(message, bytes);
    terse_status status = ts_contract_unpack(bytes, len, 1, &out, &error);
    ts_contract_destroy(out);
    snprintf(why, 200, "%.199s", error.text);
    return status;
}

START_TEST(each_lie_of_a_message_is_named) {
    Terse__Contract message = TERSE__CONTRACT__INIT;
    Terse__Tensor tensor = TERSE__TENSOR__INIT;
    uint64_t shape[9] = {4, 5, 1, 1, 1, 1, 1, 1, 1};
    char why[200];
    message.slice_elems = 10;
    tensor.name = "a";
    tensor.shape = shape;
    tensor.n_shape = 2;
    tensor.push = tensor.pull = "fp32";
    ck_assert_ok(try_message(&message, &tensor, why));
    tensor.dtype = 1;
    ck_assert_status(try_message(&message, &tensor, why), TERSE_ECORRUPT);
    ck_assert_str_eq(why, "tensor a: type 1; allowed: 0 (float32)");
    tensor.dtype = 0;
    tensor.n_shape = 9;
    ck_assert_status(try_message(&message, &tensor, why), TERSE_ECORRUPT);
    tensor.n_shape = 2;
    shape[0] = 0;
    ck_assert_status(try_message(&message, &tensor, why), TERSE_ECORRUPT);
    shape[0] = UINT64_MAX;
    ck_assert_status(try_message(&message, &tensor, why), TERSE_ELIMIT);
    shape[0] = 4;
    tensor.push = "gzip";
    ck_assert_status(try_message(&message, &tensor, why), TERSE_ECORRUPT);
    ck_assert_ptr_nonnull(strstr(why, "tensor a: pipeline \"gzip\": "));
    tensor.push = "dense";
    ck_assert_status(try_message(&message, &tensor, why), TERSE_ECORRUPT);
    ck_assert_str_eq(why, "tensor a: pipeline \"dense\": not in its canonical spelling");
    tensor.push = "fp32";
    tensor.name = "";
    ck_assert_status(try_message(&message, &tensor, why), TERSE_ECORRUPT);
    tensor.name = "b\xff\n"; /* also where another lie would be told first */
    tensor.dtype = 1;
    ck_assert_status(try_message(&message, &tensor, why), TERSE_ECORRUPT);
    ck_assert_ptr_nonnull(strstr(why, "tensor \"b\\xff\\x0a\": not a name; allowed: "));
    tensor.dtype = 0;
    tensor.name = "a";
    message.slice_elems = 0;
    ck_assert_status(try_message(&message, &tensor, why), TERSE_ECORRUPT);
    message.slice_elems = 10;
    message.mode = 3;
    ck_assert_status(try_message(&message, &tensor, why), TERSE_ECORRUPT);
}
END_TEST

/* Some 40 bytes that would take half a gigabyte to keep account of: refused for what the server allows, before that. */
START_TEST(what_slices_take_is_bounded_before_it_is_taken) {
    Terse__Contract message = TERSE__CONTRACT__INIT;
    Terse__Tensor tensor = TERSE__TENSOR__INIT, other = TERSE__TENSOR__INIT, *both[] = {&tensor, &other};
    uint64_t extent = 1u << 24, one = 1;
    char why[200];
    uint8_t bytes[256];
    ts_contract *out = NULL;
    ts_error error = {{0}};
    message.slice_elems = 1;
    tensor.name = "a";
    other.name = "b";
    tensor.push = tensor.pull = other.push = other.pull = "fp32";
    tensor.shape = &extent;
    other.shape = &one;
    tensor.n_shape = other.n_shape = 1;
    message.n_tensors = 2;
    message.tensors = both;
    size_t len = terse__contract__pack(&message, bytes);
    ck_assert_uint_lt(len, 50);
    ck_assert_status(ts_contract_unpack(bytes, len, 2, &out, &error), TERSE_ELIMIT); /* one slice too many for anybody */
    ck_assert_ptr_nonnull(strstr(error.text, "16777217 slices of 1 elements; allowed: at most 16777216"));
    extent = 1u << 16;
    len = terse__contract__pack(&message, bytes);
    ts_contract_room room = {.tensors = 2, .bytes = ts_contract_slices_bytes((1u << 16) + 1)};
    ck_assert_ok(ts_contract_unpack_within(bytes, len, 2, &room, &out, &error));
    ts_contract_destroy(out);
    room.bytes--;
    ck_assert_status(ts_contract_unpack_within(bytes, len, 2, &room, &out, &error), TERSE_ELIMIT);
    ck_assert_ptr_nonnull(strstr(error.text, "65537 slices of 1 elements"));
    ck_assert_ptr_nonnull(strstr(error.text, "limits.job_bytes of the server allows"));
    room = (ts_contract_room){.tensors = 1};
    ck_assert_status(ts_contract_unpack_within(bytes, len, 2, &room, &out, &error), TERSE_ELIMIT);
    ck_assert_str_eq(error.text, "2 tensors; limits.tensors of the server allows 1");
    ck_assert_ok(try_message(&message, &tensor, why));
}
END_TEST

START_TEST(differences_are_told_in_words) {
    ts_contract *here = sample(), *there = empty(1000);
    ts_error text;
    add(there, "fc1.weight", 512, 70, "topk:0.01 | int8");
    ck_assert(ts_contract_difference(here, "worker 0", there, "worker 2", &text));
    ck_assert_str_eq(text.text, "tensor fc1.weight: shape 512x78 at worker 0, 512x70 at worker 2");
    ts_contract_destroy(there);

    there = empty(1000);
    add(there, "fc1.weight", 512, 78, "topk:0.02 | int8");
    ck_assert(ts_contract_difference(here, "worker 0", there, "worker 2", &text));
    ck_assert_ptr_nonnull(strstr(text.text, "tensor fc1.weight: push pipeline \"topk:0.01 | int8"));
    ts_contract_destroy(there);

    there = empty(1000);
    add(there, "fc1.weight", 512, 78, "topk:0.01 | int8");
    ck_assert(ts_contract_difference(here, "worker 0", there, "worker 2", &text));
    ck_assert_str_eq(text.text, "tensor fc1.bias: only at worker 0 (4 tensors at worker 0, 1 at worker 2)");
    add(there, "fc2.weight", 10, 100, "topk:0.1 | int8");
    ck_assert(ts_contract_difference(here, "worker 0", there, "worker 2", &text));
    ck_assert_str_eq(text.text, "tensor 1: named fc1.bias at worker 0, fc2.weight at worker 2");
    ts_contract_destroy(there);
    ts_contract_destroy(here);

    const ts_contract_options options = {.slice_elems = 1000, .seed = 7, .optimizer = "name=sgd lr=0.1 momentum=0.9",
                                         .feedback = "enabled=true", .total_steps = 100};
    here = empty(1000);
    ck_assert_ok(ts_contract_create(&options, &there));
    ck_assert(ts_contract_difference(here, "worker 0", there, "worker 2", &text));
    ck_assert_str_eq(text.text, "optimizer: lr=0.05 at worker 0, lr=0.1 at worker 2");
    ts_contract_destroy(there);
    there = empty(1000);
    ck_assert(!ts_contract_difference(here, "worker 0", there, "worker 2", &text));
    there->total_steps = 99;
    ck_assert(ts_contract_difference(here, "worker 0", there, "worker 2", &text));
    ck_assert_str_eq(text.text, "total steps: 100 at worker 0, 99 at worker 2");
    ts_contract_destroy(there);
    ts_contract_destroy(here);
}
END_TEST

START_TEST(specs_are_whole_tensors_up_and_slices_down) {
    ts_contract *c = sample();
    ck_assert_ok(ts_contract_seal(c, 2));
    ts_codec_spec up = ts_contract_push_spec(c, 0, 3), down = ts_contract_pull_spec(c, 39);
    ck_assert_uint_eq(up.n, 512 * 78);
    ck_assert_uint_eq(up.worker, 3);
    ck_assert_uint_eq(up.seed, 7);
    ck_assert_ptr_eq(up.pipeline, &c->tensors[0].push);
    ck_assert_uint_eq(down.n, 512 * 78 - 39000);
    ck_assert_uint_eq(down.origin, 39000);
    ck_assert_uint_eq(down.tensor, 0);
    ck_assert_uint_eq(down.worker, TS_CODEC_SERVER);
    ck_assert_int_eq(down.direction, TS_PULL);
    ts_contract_destroy(c);
}
END_TEST

START_TEST(running_out_of_memory_leaves_nothing_behind) {
    ts_contract *c = sample();
    uint8_t *bytes = NULL;
    size_t len = 0;
    ck_assert_ok(ts_contract_pack(c, &bytes, &len));
    ts_contract_destroy(c);
    for (int64_t countdown = 0;; countdown++) {
        ck_assert_msg(countdown < 10000, "it never succeeded");
        ts_contract *back = NULL;
        ts_error error = {{0}};
        ts_mem_fail_after(countdown);
        terse_status status = ts_contract_unpack(bytes, len, 2, &back, &error);
        ts_mem_fail_after(-1);
        ts_contract_destroy(back);
        if (status == TERSE_OK) {
            ck_assert_int_gt(countdown, 15);
            break;
        }
        ck_assert_msg(status == TERSE_ENOMEM, "countdown %lld: %s", (long long)countdown, error.text);
    }
    ts_mem_free(bytes);
}
END_TEST

TCase *test_contract(void);
TCase *test_contract(void) {
    TCase *t = tcase_create("contract");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, slices_cover_every_tensor_whatever_the_servers);
    tcase_add_test(t, work_is_balanced_over_servers);
    tcase_add_test(t, the_digest_does_not_depend_on_servers_but_on_all_else);
    tcase_add_test(t, nothing_is_declared_after_closing_and_closing_is_once);
    tcase_add_test(t, bad_tensors_are_refused_by_name);
    tcase_add_test(t, names_that_no_file_can_hold_are_refused_escaped);
    tcase_add_test(t, a_contract_survives_the_wire);
    tcase_add_test(t, hostile_bytes_are_refused_without_harm);
    tcase_add_test(t, each_lie_of_a_message_is_named);
    tcase_add_test(t, what_slices_take_is_bounded_before_it_is_taken);
    tcase_add_test(t, differences_are_told_in_words);
    tcase_add_test(t, specs_are_whole_tensors_up_and_slices_down);
    tcase_add_test(t, running_out_of_memory_leaves_nothing_behind);
    return t;
}
