/* SPDX-License-Identifier: Apache-2.0 */
/* The client's life: attaching, failures, the other requests, leaving, against servers played by hand. */
#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "tests/unit/client_stage.h"
#include "worker/terse.h"

/* ---- attaching ---- */

START_TEST(worker_0_tells_the_contract_and_sets_the_parameters) {
    stage s;
    float w[3] = {1, 2, 3};
    open_stage(&s, 1, 2, 0, NULL);
    declare(&s, "w", 3, w);
    ck_assert_ok(ts_client_start(s.client));
    run_stage(&s, 1);
    const Terse__Hello *hello = last_heard(&s, 0, TERSE__HEADER__BODY_HELLO)->header->hello;
    ck_assert_uint_eq(hello->protocol, TS_PROTOCOL_VERSION);
    ck_assert_uint_eq(hello->workers, 2);
    ck_assert_uint_eq(hello->digest.len, TS_DIGEST_BYTES);
    ck_assert_uint_eq(heard(&s, 0, TERSE__HEADER__BODY_CONTRACT, NULL), 0);
    say_welcome(&s, 0, TERSE__WELCOME__VERDICT__NEED_CONTRACT, TERSE_OK);
    const ts_frame *sent = last_heard(&s, 0, TERSE__HEADER__BODY_CONTRACT);
    ts_contract *there = NULL;
    ts_error error;
    ck_assert_ok(ts_contract_unpack(sent->payload, sent->payload_bytes, 1, &there, &error));
    ck_assert_mem_eq(there->digest, hello->digest.data, TS_DIGEST_BYTES);
    ts_contract_destroy(there);
    ck_assert_uint_eq(heard(&s, 0, TERSE__HEADER__BODY_SET, NULL), 0);
    say_welcome(&s, 0, TERSE__WELCOME__VERDICT__ACCEPTED, TERSE_OK);
    sent = last_heard(&s, 0, TERSE__HEADER__BODY_SET);
    ts_bundle_reader reader = ts_bundle_read(sent->payload, sent->payload_bytes, 1);
    uint32_t slice;
    const uint8_t *packet;
    size_t len;
    ck_assert_ok(ts_bundle_next(&reader, &slice, &packet, &len));
    ck_assert_uint_eq(len, sizeof w);
    ck_assert_mem_eq(packet, w, sizeof w);
    ck_assert_int_eq(ts_client_get_state(s.client), TS_CLIENT_ATTACHING);
    say_ack(&s, 0, 0, TERSE_OK, &slice, 1);
    ck_assert_int_eq(ts_client_get_state(s.client), TS_CLIENT_TRAINING);
    close_stage(&s);
}
END_TEST

START_TEST(other_workers_start_from_the_servers_snapshot) {
    stage s;
    float w[3] = {0}, truth[3] = {4, 5, 6};
    open_stage(&s, 1, 2, 1, NULL);
    declare(&s, "w", 3, w);
    ck_assert_ok(ts_client_start(s.client));
    say_welcome(&s, 0, TERSE__WELCOME__VERDICT__ACCEPTED, TERSE_OK);
    const Terse__Pull *pull = last_heard(&s, 0, TERSE__HEADER__BODY_PULL)->header->pull;
    ck_assert(pull->snapshot && !pull->params && pull->want == 0);
    say_data(&s, 0, 0, true, false, 0, truth, sizeof truth - 4); /* too short to be the slice */
    ck_assert_int_eq(ts_client_get_state(s.client), TS_CLIENT_ATTACHING);
    say_data(&s, 0, 0, true, false, 0, truth, sizeof truth);
    ck_assert_int_eq(ts_client_get_state(s.client), TS_CLIENT_TRAINING);
    ck_assert_mem_eq(w, truth, sizeof truth);
    close_stage(&s);
}
END_TEST

START_TEST(attaching_repeats_what_is_lost_and_ignores_what_is_doubled) {
    stage s;
    float w[3] = {1, 2, 3};
    open_stage(&s, 2, 1, 0, (const char *[]){"consistency.deadline_s=60", NULL}); /* one server owns no slice */
    declare(&s, "w", 3, w);
    ts_sim_cut(s.network, 0, s.worker_peer, true);
    ck_assert_ok(ts_client_start(s.client));
    run_stage(&s, 900000);
    ts_sim_cut(s.network, 0, s.worker_peer, false);
    ck_assert_uint_eq(heard(&s, 0, TERSE__HEADER__BODY_HELLO, NULL), 0);
    run_stage(&s, 300000);
    ck_assert_uint_eq(heard(&s, 0, TERSE__HEADER__BODY_HELLO, NULL), 1);
    uint32_t zero = 0, owner = ts_client_contract(s.client)->slices[0].server;
    for (uint32_t i = 0; i < 2; i++) {
        say_welcome(&s, i, TERSE__WELCOME__VERDICT__NEED_CONTRACT, TERSE_OK);
        say_welcome(&s, i, TERSE__WELCOME__VERDICT__NEED_CONTRACT, TERSE_OK);
        ck_assert_uint_eq(heard(&s, i, TERSE__HEADER__BODY_CONTRACT, NULL), 1);
        say_welcome(&s, i, TERSE__WELCOME__VERDICT__ACCEPTED, TERSE_OK);
        say_welcome(&s, i, TERSE__WELCOME__VERDICT__ACCEPTED, TERSE_OK);
        ck_assert_uint_eq(heard(&s, i, TERSE__HEADER__BODY_SET, NULL), i == owner);
    }
    run_stage(&s, 3000000); /* an answer took more than a second lately, so patience is longer */
    ck_assert_uint_eq(heard(&s, owner, TERSE__HEADER__BODY_SET, NULL), 1);
    run_stage(&s, 2000000); /* no answer: set again */
    ck_assert_uint_eq(heard(&s, owner, TERSE__HEADER__BODY_SET, NULL), 2);
    say_ack(&s, owner, 0, TERSE_OK, &zero, 1);
    ck_assert_int_eq(ts_client_get_state(s.client), TS_CLIENT_TRAINING);
    close_stage(&s);
}
END_TEST

START_TEST(a_refusal_names_server_and_reason) {
    stage s;
    float w[3] = {0};
    open_stage(&s, 1, 2, 1, NULL);
    declare(&s, "w", 3, w);
    ck_assert_ok(ts_client_start(s.client));
    say_welcome(&s, 0, TERSE__WELCOME__VERDICT__REFUSED, TERSE_EMISMATCH);
    ck_assert_int_eq(ts_client_get_state(s.client), TS_CLIENT_FAILED);
    ck_assert_int_eq(ts_client_failure(s.client), TERSE_EMISMATCH);
    ck_assert_ptr_nonnull(strstr(ts_client_message(s.client), "tensor w"));
    ck_assert_ptr_nonnull(strstr(ts_client_message(s.client), "server 0"));
    ck_assert_status(ts_client_push(s.client, 0, w), TERSE_EMISMATCH);
    close_stage(&s);
}
END_TEST

START_TEST(declaring_refuses_nonsense) {
    stage s;
    float w[3] = {0};
    int64_t three = 3, none = 0;
    open_stage(&s, 1, 1, 0, (const char *[]){"limits.tensors=2", NULL});
    ck_assert_status(ts_client_start(s.client), TERSE_ESTATE);
    declare(&s, "w", 3, w);
    ck_assert_status(ts_client_declare(s.client, "w", &three, 1, w, NULL), TERSE_EINVAL);
    ck_assert_status(ts_client_declare(s.client, NULL, &three, 1, w, NULL), TERSE_EINVAL);
    ck_assert_ptr_nonnull(strstr(ts_client_message(s.client), "terse_declare: tensor 1: the name is missing (NULL)"));
    ck_assert_status(ts_client_declare(s.client, "v\xff\n", &three, 1, NULL, NULL), TERSE_EINVAL); /* the name first */
    ck_assert_ptr_nonnull(strstr(ts_client_message(s.client), "terse_declare: tensor \"v\\xff\\x0a\": not a name; allowed: "));
    ck_assert_status(ts_client_declare(s.client, "v", &none, 1, w, NULL), TERSE_EINVAL);
    ck_assert_status(ts_client_declare(s.client, "v", &three, 1, NULL, NULL), TERSE_EINVAL);
    ck_assert_status(ts_client_declare(s.client, "v", &three, TS_TENSOR_DIMS + 1, w, NULL), TERSE_EINVAL);
    ck_assert_status(ts_client_push(s.client, 0, w), TERSE_ESTATE);
    declare(&s, "v", 3, w);
    ck_assert_status(ts_client_declare(s.client, "u", &three, 1, w, NULL), TERSE_ELIMIT);
    ck_assert_ptr_nonnull(strstr(ts_client_message(s.client), "limits.tensors"));
    attach(&s);
    ck_assert_status(ts_client_declare(s.client, "u", &three, 1, w, NULL), TERSE_ESTATE);
    ck_assert_status(ts_client_set_total_steps(s.client, 1), TERSE_ESTATE);
    ck_assert_status(ts_client_start(s.client), TERSE_ESTATE);
    close_stage(&s);
}
END_TEST

/* ---- failures ---- */

START_TEST(a_silent_server_is_named_and_the_others_are_told) {
    stage s;
    float w[3] = {0};
    open_stage(&s, 2, 1, 0, NULL); /* deadline 5 s */
    declare(&s, "w", 3, w);
    attach(&s);
    uint32_t dead = ts_client_contract(s.client)->slices[0].server, other = 1 - dead;
    ck_assert_ok(ts_client_push(s.client, 0, w));
    ck_assert_ok(ts_client_pull(s.client, 0));
    Terse__Heartbeat beat = TERSE__HEARTBEAT__INIT;
    for (int i = 0; i < 9; i++) {
        run_stage(&s, 500000);
        say_header(&s, other, TERSE__HEADER__BODY_HEARTBEAT, &beat);
    }
    ck_assert_int_eq(ts_client_get_state(s.client), TS_CLIENT_TRAINING);
    empty_inbox(&s.received[other]);
    run_stage(&s, 1000000);
    ck_assert_int_eq(ts_client_failure(s.client), TERSE_ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(ts_client_message(s.client), dead ? "server 1" : "server 0"));
    ck_assert_ptr_nonnull(strstr(ts_client_message(s.client), "version 1 of w"));
    ck_assert_uint_eq(last_heard(&s, other, TERSE__HEADER__BODY_ABORT)->header->abort->status, TERSE_ETIMEDOUT);
    ck_assert_status(ts_client_pull(s.client, 0), TERSE_ETIMEDOUT);
    ck_assert(!ts_client_pulled(s.client, 0));
    close_stage(&s);
}
END_TEST

/* consistency.start_s, 9 s here, until there are parameters. */
START_TEST(a_server_may_take_its_time_at_the_start) {
    stage s;
    float w[3] = {0};
    open_stage(&s, 1, 1, 0, NULL);
    declare(&s, "w", 3, w);
    ck_assert_ok(ts_client_start(s.client));
    for (int second = 0; second < 8; second++) run_stage(&s, 1000000);
    ck_assert_int_eq(ts_client_get_state(s.client), TS_CLIENT_ATTACHING);
    for (int second = 0; second < 2; second++) run_stage(&s, 1000000);
    ck_assert_int_eq(ts_client_failure(s.client), TERSE_ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(ts_client_message(s.client), "consistency.start_s is 9"));
    close_stage(&s);
}
END_TEST

START_TEST(its_own_absence_is_not_the_servers_silence) {
    stage s;
    float w[3] = {0};
    open_stage(&s, 1, 1, 0, NULL);
    declare(&s, "w", 3, w);
    attach(&s);
    uint32_t peer;
    while (ts_sim_step(s.network, 60000000, &peer)) {} /* a minute in which nobody ticks */
    ts_client_tick(s.client);
    ck_assert_int_eq(ts_client_get_state(s.client), TS_CLIENT_TRAINING);
    run_stage(&s, 6000000);
    ck_assert_int_eq(ts_client_failure(s.client), TERSE_ETIMEDOUT);
    close_stage(&s);
}
END_TEST

START_TEST(an_abort_says_why) {
    stage s;
    float w[3] = {0};
    open_stage(&s, 1, 1, 0, NULL);
    declare(&s, "w", 3, w);
    attach(&s);
    Terse__Abort message = TERSE__ABORT__INIT;
    message.status = TERSE_EPEER;
    message.reason = (char *)"worker 3 is gone";
    say_header(&s, 0, TERSE__HEADER__BODY_ABORT, &message);
    ck_assert_int_eq(ts_client_failure(s.client), TERSE_EPEER);
    ck_assert_ptr_nonnull(strstr(ts_client_message(s.client), "worker 3 is gone"));
    close_stage(&s);
}
END_TEST

START_TEST(nan_ends_the_job_by_name_or_is_kept_out) {
    stage s;
    float w[4] = {0}, g[4] = {1, NAN, 2, INFINITY}, got[4] = {0};
    open_stage(&s, 1, 1, 0, NULL);
    declare(&s, "fc1.weight", 4, w);
    attach(&s);
    ck_assert_status(ts_client_push(s.client, 0, g), TERSE_ENONFINITE);
    ck_assert_ptr_nonnull(strstr(ts_client_message(s.client), "fc1.weight holds 2 values"));
    run_stage(&s, 1);
    ck_assert_uint_eq(heard(&s, 0, TERSE__HEADER__BODY_PUSH, NULL), 0);
    ck_assert_uint_eq(last_heard(&s, 0, TERSE__HEADER__BODY_ABORT)->header->abort->status, TERSE_ENONFINITE);
    close_stage(&s);

    open_stage(&s, 1, 1, 0, (const char *[]){"error_feedback.nonfinite=zero", NULL});
    declare(&s, "fc1.weight", 4, w);
    attach(&s);
    char said[512] = "";
    FILE *log = fmemopen(said, sizeof said, "w");
    ck_assert_ptr_nonnull(log);
    ts_log_level level = ts_log_get_level();
    ts_log_set_level(TS_LOG_WARN);
    ts_log_set_stream(log);
    ck_assert_ok(ts_client_push(s.client, 0, g));
    ts_log_set_stream(NULL);
    ts_log_set_level(level);
    fclose(log);
    run_stage(&s, 1);
    add_push(&s, last_heard(&s, 0, TERSE__HEADER__BODY_PUSH), 0, got);
    ck_assert(got[0] == 1 && got[1] == 0 && got[2] == 2 && got[3] == 0);
    ck_assert_uint_eq(ts_client_get_counters(s.client)->nonfinite, 2);
    ck_assert_uint_eq(ts_client_get_counters(s.client)->nonfinite_gradients, 1);
    ck_assert_ptr_nonnull(strstr(said, "tensor=fc1.weight step=0 elements=2 first=1")); /* never kept out in silence */
    close_stage(&s);
}
END_TEST

/* Worker 0's replica would be everybody's; that of the others is written over. */
START_TEST(first_values_that_are_not_finite_are_named_before_anything_is_sent) {
    stage s;
    float v[2] = {0}, w[5] = {1, 2, INFINITY, 3, NAN};
    open_stage(&s, 1, 2, 0, NULL);
    declare(&s, "v", 2, v);
    declare(&s, "fc1.weight", 5, w);
    ck_assert_status(ts_client_start(s.client), TERSE_ENONFINITE);
    ck_assert_ptr_nonnull(strstr(ts_client_message(s.client), "tensor fc1.weight holds 2 values that are not finite, the first at element 2"));
    run_stage(&s, 1);
    ck_assert_uint_eq(heard(&s, 0, TERSE__HEADER__BODY_HELLO, NULL), 0);
    close_stage(&s);

    open_stage(&s, 1, 2, 1, NULL);
    declare(&s, "fc1.weight", 5, w);
    ck_assert_ok(ts_client_start(s.client));
    close_stage(&s);
    open_stage(&s, 1, 1, 0, (const char *[]){"optimizer.name=none", NULL}); /* only a place for averages */
    declare(&s, "fc1.weight", 5, w);
    ck_assert_ok(ts_client_start(s.client));
    close_stage(&s);
}
END_TEST

START_TEST(damaged_and_foreign_frames_change_nothing) {
    stage s;
    float w[3] = {0};
    uint8_t noise[64] = {1, 2, 3};
    uint32_t far = 4000000;
    open_stage(&s, 1, 2, 0, NULL);
    declare(&s, "w", 3, w);
    attach(&s);
    for (size_t len = 0; len < sizeof noise; len++) {
        ts_buffer *frame = NULL;
        ck_assert_ok(ts_buffer_create(sizeof noise, &frame));
        memcpy(frame->data, noise, len);
        frame->len = len;
        say_frame(&s, 0, frame);
    }
    ck_assert_uint_eq(ts_client_get_counters(s.client)->dropped_frames, sizeof noise);
    say_ack(&s, 0, 0, TERSE_OK, &far, 1);
    say_data(&s, 0, 1, true, false, 9, w, sizeof w); /* no such slice */
    Terse__Hello hello = TERSE__HELLO__INIT;
    say_header(&s, 0, TERSE__HEADER__BODY_HELLO, &hello);
    ck_assert_uint_eq(ts_client_get_counters(s.client)->dropped_frames, sizeof noise + 2);
    ck_assert_int_eq(ts_client_get_state(s.client), TS_CLIENT_TRAINING);
    close_stage(&s);
}
END_TEST

/* ---- the other requests, and leaving ---- */

START_TEST(sums_come_back_by_sequence) {
    stage s;
    float w[3] = {0};
    double values[2] = {1, 2}, sum[2] = {10, 20}, got[2] = {0};
    uint64_t sequence = 0;
    open_stage(&s, 1, 2, 0, NULL);
    declare(&s, "w", 3, w);
    ck_assert_status(ts_client_reduce(s.client, values, 2, &sequence), TERSE_ESTATE);
    attach(&s);
    ck_assert_ok(ts_client_reduce(s.client, values, 2, &sequence));
    ck_assert_status(ts_client_reduce(s.client, values, 2, &sequence), TERSE_ESTATE);
    run_stage(&s, 1200000);
    ck_assert_uint_eq(heard(&s, 0, TERSE__HEADER__BODY_REDUCE, NULL), 2); /* repeated until answered */
    ck_assert_double_eq(last_heard(&s, 0, TERSE__HEADER__BODY_REDUCE)->header->reduce->values[1], 2);
    Terse__Reduced reduced = TERSE__REDUCED__INIT;
    reduced.sequence = sequence + 1;
    reduced.n_values = 2;
    reduced.values = sum;
    say_header(&s, 0, TERSE__HEADER__BODY_REDUCED, &reduced);
    ck_assert(!ts_client_reduced(s.client, sequence, got, 2));
    reduced.sequence = sequence;
    say_header(&s, 0, TERSE__HEADER__BODY_REDUCED, &reduced);
    ck_assert(ts_client_reduced(s.client, sequence, got, 2));
    ck_assert_double_eq(got[1], 20);
    ck_assert_ok(ts_client_reduce(s.client, NULL, 0, &sequence)); /* a barrier */
    ck_assert_status(ts_client_reduce(s.client, values, 1u << 20, &sequence), TERSE_ELIMIT);
    close_stage(&s);
}
END_TEST

START_TEST(fetch_and_stats_gather_from_all_servers) {
    stage s;
    float a[3] = {0}, b[3] = {0}, out[3] = {0}, truth[3] = {7, 8, 9};
    open_stage(&s, 2, 1, 0, NULL);
    declare(&s, "a", 3, a);
    declare(&s, "b", 3, b);
    attach(&s);
    const ts_contract *contract = ts_client_contract(s.client);
    uint32_t owner = contract->slices[1].server, local = contract->slices[1].local;
    ck_assert_ok(ts_client_fetch(s.client, 1, out));
    ck_assert(!ts_client_fetched(s.client, 1));
    run_stage(&s, 1);
    const Terse__Pull *pull = last_heard(&s, owner, TERSE__HEADER__BODY_PULL)->header->pull;
    ck_assert(pull->params && pull->snapshot && pull->n_slices == 1 && pull->slices[0] == local);
    say_data(&s, owner, 0, true, true, local, truth, sizeof truth);
    ck_assert(ts_client_fetched(s.client, 1));
    ck_assert_mem_eq(out, truth, sizeof truth);
    ck_assert_float_eq(b[0], 0);

    terse_stats stats, again;
    ck_assert_ok(ts_client_request_stats(s.client));
    ck_assert(!ts_client_stats(s.client, &stats));
    for (uint32_t i = 0; i < 2; i++) {
        Terse__Stats answer = TERSE__STATS__INIT;
        Terse__SliceHash hash[2] = {TERSE__SLICE_HASH__INIT, TERSE__SLICE_HASH__INIT}, *hashes[2] = {&hash[0], &hash[1]};
        for (uint32_t g = 0; g < 2; g++) {
            if (contract->slices[g].server != i) continue;
            hash[contract->slices[g].local].slice = contract->slices[g].local;
            hash[contract->slices[g].local].xxh3 = 100 + g;
        }
        answer.bytes_in = 10;
        answer.bytes_out = 20;
        answer.n_hashes = contract->server_slices[i];
        answer.hashes = hashes;
        say_header(&s, i, TERSE__HEADER__BODY_STATS, &answer);
    }
    ck_assert(ts_client_stats(s.client, &stats));
    ck_assert(stats.push_bytes == 20 && stats.pull_bytes == 40 && stats.parameters == 6);
    const uint64_t in_order[2] = {100, 101}; /* wherever the slices lie */
    char expected[17];
    snprintf(expected, sizeof expected, "%016llx", (unsigned long long)XXH3_64bits(in_order, sizeof in_order));
    ck_assert_str_eq(stats.parameters_xxh3, expected);
    ck_assert(ts_client_stats(s.client, &again) && strcmp(again.parameters_xxh3, expected) == 0);
    close_stage(&s);
}
END_TEST

static void say_stats(stage *s, uint64_t hash_of_slice_0) {
    Terse__Stats answer = TERSE__STATS__INIT;
    Terse__SliceHash hash = TERSE__SLICE_HASH__INIT, *hashes[1] = {&hash};
    hash.xxh3 = hash_of_slice_0;
    answer.n_hashes = 1;
    answer.hashes = hashes;
    say_header(s, 0, TERSE__HEADER__BODY_STATS, &answer);
}

/* A call that has its answer while the worker comes back ends when it is in: until then parameters are written. */
START_TEST(what_was_asked_for_is_there_when_the_worker_is_back) {
    stage s;
    float w[3] = {0}, out[3] = {0}, truth[3] = {7, 8, 9};
    uint64_t next = 0;
    terse_stats stats;
    open_stage(&s, 1, 2, 0, NULL);
    declare(&s, "w", 3, w);
    attach(&s);
    ck_assert_ok(ts_client_fetch(s.client, 0, out));
    ck_assert_ok(ts_client_request_stats(s.client));
    Terse__Abort given_up = TERSE__ABORT__INIT;
    given_up.status = TERSE_ESTALE;
    given_up.incarnation = 1;
    given_up.reason = (char *)"silent";
    say_header(&s, 0, TERSE__HEADER__BODY_ABORT, &given_up);
    say_data(&s, 0, 0, true, true, 0, truth, sizeof truth);
    say_stats(&s, 100);
    ck_assert(!ts_client_fetched(s.client, 0));
    ck_assert(!ts_client_stats(s.client, &stats));
    ck_assert_int_eq(ts_client_get_state(s.client), TS_CLIENT_ATTACHING);
    run_stage(&s, 1);
    ck_assert_uint_eq(last_heard(&s, 0, TERSE__HEADER__BODY_HELLO)->header->hello->incarnation, 2);
    Terse__Welcome welcome = TERSE__WELCOME__INIT;
    Terse__Joined joined = TERSE__JOINED__INIT;
    joined.incarnation = 2;
    joined.n_next = 1;
    joined.next = &next;
    welcome.joined = &joined;
    say_header(&s, 0, TERSE__HEADER__BODY_WELCOME, &welcome);
    ck_assert(!ts_client_fetched(s.client, 0));
    say_data(&s, 0, 0, true, false, 0, truth, sizeof truth);
    ck_assert_int_eq(ts_client_get_state(s.client), TS_CLIENT_TRAINING);
    ck_assert(ts_client_fetched(s.client, 0));
    ck_assert(ts_client_stats(s.client, &stats));
    ck_assert_mem_eq(out, truth, sizeof truth);
    ck_assert_mem_eq(w, truth, sizeof truth);
    close_stage(&s);
}
END_TEST

START_TEST(leaving_waits_for_both_kinds_of_answer) {
    stage s;
    float w[3] = {0};
    open_stage(&s, 1, 1, 0, NULL);
    declare(&s, "w", 3, w);
    attach(&s);
    ck_assert_ok(ts_client_push(s.client, 0, w));
    ck_assert_ok(ts_client_done(s.client));
    ck_assert_ok(ts_client_done(s.client));
    run_stage(&s, 1);
    ck_assert_uint_eq(last_heard(&s, 0, TERSE__HEADER__BODY_DONE)->header->done->steps, 1);
    ck_assert_status(ts_client_push(s.client, 0, w), TERSE_ESTATE);
    say_ack(&s, 0, 1, TERSE_OK, NULL, 0);
    ck_assert_int_eq(ts_client_get_state(s.client), TS_CLIENT_LEAVING); /* the push is not answered */
    say_data(&s, 0, 1, true, false, 0, w, sizeof w);
    ck_assert_int_eq(ts_client_get_state(s.client), TS_CLIENT_DONE);
    ts_client_bye(s.client);
    run_stage(&s, 1);
    ck_assert_uint_eq(heard(&s, 0, TERSE__HEADER__BODY_BYE, NULL), 1);
    close_stage(&s);
}
END_TEST

/* Each allocation of making, declaring and starting fails once: a status, and nothing leaks or is used freed. */
START_TEST(memory_may_run_out_anywhere_before_training) {
    bool succeeded = false;
    for (int64_t countdown = 0; countdown < 400 && !succeeded; countdown++) {
        stage s;
        float w[3] = {0};
        int64_t three = 3;
        open_stage(&s, 2, 1, 0, NULL);
        ts_client_destroy(s.client);
        s.client = NULL;
        ts_mem_fail_after(countdown);
        terse_status status = ts_client_create(s.config, ts_sim_endpoint(s.network, s.worker_peer), &s.client);
        if (status == TERSE_OK) status = ts_client_declare(s.client, "w", &three, 1, w, NULL);
        if (status == TERSE_OK) status = ts_client_start(s.client);
        ts_mem_fail_after(-1);
        ck_assert(status == TERSE_OK || status == TERSE_ENOMEM);
        if (status == TERSE_OK && countdown > 20) {
            run_stage(&s, 1500000); /* what could not be sent is sent by the timer */
            for (uint32_t i = 0; i < 2; i++) ck_assert_uint_gt(heard(&s, i, TERSE__HEADER__BODY_HELLO, NULL), 0);
            succeeded = countdown > 100;
        }
        close_stage(&s);
    }
    ck_assert(succeeded);
}
END_TEST

TCase *test_client_life(void);
TCase *test_client_life(void) {
    TCase *tests = tcase_create("client_life");
    tcase_add_test(tests, worker_0_tells_the_contract_and_sets_the_parameters);
    tcase_add_test(tests, other_workers_start_from_the_servers_snapshot);
    tcase_add_test(tests, attaching_repeats_what_is_lost_and_ignores_what_is_doubled);
    tcase_add_test(tests, a_refusal_names_server_and_reason);
    tcase_add_test(tests, declaring_refuses_nonsense);
    tcase_add_test(tests, a_silent_server_is_named_and_the_others_are_told);
    tcase_add_test(tests, its_own_absence_is_not_the_servers_silence);
    tcase_add_test(tests, a_server_may_take_its_time_at_the_start);
    tcase_add_test(tests, an_abort_says_why);
    tcase_add_test(tests, nan_ends_the_job_by_name_or_is_kept_out);
    tcase_add_test(tests, first_values_that_are_not_finite_are_named_before_anything_is_sent);
    tcase_add_test(tests, damaged_and_foreign_frames_change_nothing);
    tcase_add_test(tests, sums_come_back_by_sequence);
    tcase_add_test(tests, fetch_and_stats_gather_from_all_servers);
    tcase_add_test(tests, what_was_asked_for_is_there_when_the_worker_is_back);
    tcase_add_test(tests, leaving_waits_for_both_kinds_of_answer);
    tcase_add_test(tests, memory_may_run_out_anywhere_before_training);
    return tests;
}
