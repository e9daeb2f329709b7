/* SPDX-License-Identifier: Apache-2.0 */
/* The server's core: rounds and pulls. */
#include <string.h>

#include "common/wire/bundle.h"
#include "tests/sim/server_rig.h"
#include "tests/unit/unit.h"

/* ---- rounds ---------------------------------------------------------------------------------------------------------------------- */

START_TEST(newcomers_wait_for_the_first_values) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS], replica[RIG_ELEMS] = {0};
    rig_hello(r, 0, r->contract, TS_PROTOCOL_VERSION);
    rig_run(r, 1000);
    rig_send_contract(r, 0, r->contract);
    rig_hello(r, 1, r->contract, TS_PROTOCOL_VERSION);
    rig_run(r, 1000);
    rig_hello(r, 1, r->contract, TS_PROTOCOL_VERSION); /* its first one may have come before the contract */
    rig_run(r, 1000);
    rig_pull(r, 1, 0, 0, true, false);
    rig_run(r, 200000);
    ck_assert_uint_eq(rig_got(r, 1, TERSE__HEADER__BODY_DATA, NULL), 0);
    rig_initial(params);
    rig_set(r, 1, params); /* only worker 0 may */
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_got(r, 1, TERSE__HEADER__BODY_ACK, NULL), 0);
    rig_set(r, 0, params);
    rig_run(r, 1000);
    unsigned slices;
    uint64_t step;
    ck_assert_status(rig_last_ack(r, 0, &slices, &step), TERSE_OK);
    ck_assert_uint_eq(slices, 7);
    ck_assert_uint_eq(step, 0);
    rig_apply(r, 1, replica);
    ck_assert_mem_eq(replica, params, sizeof params);
    rig_destroy(r);
}
END_TEST

START_TEST(a_dense_round_is_plain_sgd_on_the_mean) {
    rig *r = rig_create(3, RIG_DENSE);
    float params[RIG_ELEMS], replica[RIG_ELEMS], g[3][RIG_ELEMS];
    rig_attach_all(r, params);
    for (uint64_t step = 0; step < 3; step++) {
        rig_forget(r);
        for (uint32_t w = 3; w-- > 0;) { /* any order of arrival */
            rig_gradient(w, step, g[w]);
            rig_push(r, w, step, g[w]);
            if (w > 0) rig_run(r, 1000);
            if (w > 0) ck_assert_uint_eq(rig_got(r, w, TERSE__HEADER__BODY_DATA, NULL), 0);
        }
        rig_run(r, 1000);
        for (size_t i = 0; i < RIG_ELEMS; i++) params[i] += -0.5f * ((g[0][i] + g[1][i] + g[2][i]) * (1.0f / 3.0f));
        for (uint32_t w = 0; w < 3; w++) {
            ck_assert_uint_eq(rig_apply(r, w, replica), step + 1);
            ck_assert_mem_eq(replica, params, sizeof params);
            ck_assert_uint_eq(rig_got(r, w, TERSE__HEADER__BODY_DATA, NULL), 1); /* small slices share a frame */
            ck_assert_uint_eq(r->in[w].count, 1);                            /* which is all that is said */
        }
        ck_assert_uint_eq(r->in[0].frames[0]->len, r->in[2].frames[0]->len);
        ck_assert_mem_eq(r->in[0].frames[0]->data, r->in[2].frames[0]->data, r->in[0].frames[0]->len);
    }
    rig_destroy(r);
}
END_TEST

START_TEST(a_sum_that_overflows_ends_the_job) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS], g[RIG_ELEMS];
    rig_attach_all(r, params);
    for (size_t i = 0; i < RIG_ELEMS; i++) g[i] = i == 5 ? 3e38f : 0.0f; /* finite; twice that is not */
    for (uint32_t w = 0; w < 2; w++) rig_push(r, w, 0, g);
    rig_run(r, 1000);
    ck_assert_int_eq(ts_server_get_state(r->server), TS_SERVER_FAILED);
    ck_assert_ptr_nonnull(strstr(ts_server_message(r->server), "cannot close round 0: parameters would no longer be finite"));
    rig_destroy(r);
}
END_TEST

START_TEST(rounds_close_slice_by_slice) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS], replica[RIG_ELEMS] = {0}, g[RIG_ELEMS];
    rig_attach_all(r, params);
    rig_gradient(0, 0, g);
    rig_push(r, 0, 0, g);
    rig_send(r, 1, rig_push_frame(r, 1, 0, g, 2, true));
    rig_run(r, 1000);
    ts_frame frame = {0};
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_DATA, &frame), 1);
    ts_bundle_reader reader = ts_bundle_read(frame.payload, frame.payload_bytes, RIG_SLICES);
    uint32_t s;
    const uint8_t *packet;
    size_t len;
    ck_assert_ok(ts_bundle_next(&reader, &s, &packet, &len));
    ck_assert_uint_eq(s, 1);
    ck_assert_status(ts_bundle_next(&reader, &s, &packet, &len), TERSE_EAGAIN);
    ts_frame_release(&frame);
    rig_send(r, 1, rig_push_frame(r, 1, 0, g, 5, true));
    rig_run(r, 1000);
    rig_apply(r, 0, replica);
    for (size_t i = 0; i < RIG_ELEMS; i++) ck_assert_float_eq(replica[i], params[i] - 0.5f * g[i]);
    rig_destroy(r);
}
END_TEST

START_TEST(repeated_pushes_count_once_and_are_answered) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS], replica[RIG_ELEMS], g[RIG_ELEMS], other[RIG_ELEMS];
    unsigned slices;
    uint64_t step;
    rig_attach_all(r, params);
    rig_gradient(0, 0, g);
    rig_gradient(1, 0, other);
    rig_push(r, 0, 0, g);
    rig_push(r, 0, 0, g);
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_DATA, NULL), 0); /* nobody closes a round by pushing twice */
    rig_run(r, 300000);
    ck_assert_status(rig_last_ack(r, 0, &slices, &step), TERSE_OK);
    ck_assert_uint_eq(slices, 7);
    rig_push(r, 1, 0, other);
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_apply(r, 0, replica), 1);
    for (size_t i = 0; i < RIG_ELEMS; i++) ck_assert_float_eq(replica[i], params[i] - 0.5f * ((g[i] + other[i]) * 0.5f));
    rig_forget(r);
    rig_push(r, 0, 0, g); /* its Data was lost */
    rig_run(r, 1000);
    ck_assert_status(rig_last_ack(r, 0, &slices, &step), TERSE_EDUPLICATE);
    ck_assert_uint_eq(slices, 7);
    float again[RIG_ELEMS];
    ck_assert_uint_eq(rig_apply(r, 0, again), 1);
    ck_assert_mem_eq(again, replica, sizeof again);
    rig_forget(r);
    rig_push(r, 0, 2, g);
    rig_run(r, 1000);
    ck_assert_status(rig_last_ack(r, 0, &slices, &step), TERSE_ESTATE);
    ck_assert_uint_eq(step, 2);
    rig_destroy(r);
}
END_TEST

START_TEST(pushes_that_wait_are_acknowledged_after_a_while) {
    rig *r = rig_create(2, RIG_DENSE);
    float params[RIG_ELEMS], g[RIG_ELEMS];
    unsigned slices;
    rig_attach_all(r, params);
    rig_gradient(0, 0, g);
    rig_push(r, 0, 0, g);
    rig_run(r, 50000);
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_ACK, NULL), 0);
    rig_run(r, 150000);
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_ACK, NULL), 1);
    ck_assert_status(rig_last_ack(r, 0, &slices, NULL), TERSE_OK);
    ck_assert_uint_eq(slices, 7);
    rig_run(r, 500000);
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_ACK, NULL), 1);
    rig_destroy(r);
}
END_TEST

/* ---- pulls -------------------------------------------------------------------------------------------------------------------------- */

static void sparse_rounds(rig *r, uint64_t from, uint64_t to) {
    float g[RIG_ELEMS];
    for (uint64_t step = from; step < to; step++)
        for (uint32_t w = 0; w < r->workers; w++) {
            rig_gradient(w, step, g);
            rig_push(r, w, step, g);
            rig_run(r, 1000);
        }
}

START_TEST(replicas_follow_the_reference_bit_for_bit) {
    rig *r = rig_create(2, RIG_SPARSE);
    float params[RIG_ELEMS], replica[2][RIG_ELEMS], snapshot[RIG_ELEMS], fetched[RIG_ELEMS];
    rig_attach_all(r, params);
    for (int w = 0; w < 2; w++) memcpy(replica[w], params, sizeof params);
    sparse_rounds(r, 0, 5);
    for (uint32_t w = 0; w < 2; w++) ck_assert_uint_eq(rig_apply(r, w, replica[w]), 5);
    ck_assert_mem_eq(replica[0], replica[1], sizeof params);
    rig_forget(r);
    rig_pull(r, 1, 0, 5, true, false);
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_apply(r, 1, snapshot), 5);
    ck_assert_mem_eq(snapshot, replica[0], sizeof snapshot);
    rig_forget(r);
    rig_pull(r, 0, 0, 0, true, true); /* the parameters themselves are ahead of what was said of them */
    rig_run(r, 1000);
    rig_apply(r, 0, fetched);
    ck_assert(memcmp(fetched, snapshot, sizeof fetched) != 0);
    rig_forget(r);
    sparse_rounds(r, 5, 6); /* from a snapshot the log goes on */
    rig_apply(r, 0, replica[0]);
    rig_apply(r, 1, snapshot);
    ck_assert_mem_eq(snapshot, replica[0], sizeof snapshot);
    rig_destroy(r);
}
END_TEST

/* Once encoded and framed, however many workers get it: it is one buffer that goes to all. */
static void one_buffer_for_all(const char *config) {
    for (uint32_t workers = 1; workers <= RIG_WORKERS_MAX; workers++) {
        rig *r = rig_create(workers, config);
        float params[RIG_ELEMS];
        rig_attach_all(r, params);
        for (uint64_t step = 0; step < 4; step++) {
            rig_forget(r);
            sparse_rounds(r, step, step + 1);
            for (uint32_t w = 0; w < workers; w++) {
                ck_assert_uint_eq(rig_got(r, w, TERSE__HEADER__BODY_DATA, NULL), 1);
                ck_assert_uint_eq(r->in[w].count, 1);
                ck_assert_ptr_eq(r->in[w].frames[0], r->in[0].frames[0]);
            }
        }
        rig_destroy(r);
    }
}

START_TEST(a_rounds_pull_is_encoded_once_for_all_workers) {
    one_buffer_for_all(RIG_SPARSE);
    one_buffer_for_all(RIG_DENSE);
    one_buffer_for_all(RIG_AVERAGE);
}
END_TEST

START_TEST(workers_behind_get_the_log_or_a_snapshot) {
    rig *r = rig_create(1, RIG_SPARSE);
    float params[RIG_ELEMS], replica[RIG_ELEMS], behind[RIG_ELEMS];
    rig_attach_all(r, params);
    memcpy(replica, params, sizeof params);
    sparse_rounds(r, 0, 1);
    rig_apply(r, 0, replica);
    memcpy(behind, replica, sizeof behind);
    rig_forget(r);
    sparse_rounds(r, 1, 2);
    rig_apply(r, 0, replica);
    rig_forget(r);
    rig_pull(r, 0, 1, 2, false, false);
    rig_run(r, 1000);
    ts_frame frame = {0};
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_DATA, &frame), 1);
    ck_assert(!frame.header->data->snapshot);
    ts_frame_release(&frame);
    rig_apply(r, 0, behind);
    ck_assert_mem_eq(behind, replica, sizeof behind);
    rig_forget(r);
    sparse_rounds(r, 2, 6);
    rig_apply(r, 0, replica);
    rig_forget(r);
    rig_pull(r, 0, 2, 3, false, false); /* older than the log */
    rig_pull(r, 0, 2, 3, false, false); /* asking twice costs once */
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_apply(r, 0, behind), 6);
    ck_assert_mem_eq(behind, replica, sizeof behind);
    rig_destroy(r);
}
END_TEST

START_TEST(aggregate_only_pulls_carry_the_exact_average) {
    rig *r = rig_create(2, RIG_AVERAGE);
    float params[RIG_ELEMS], average[RIG_ELEMS], g[2][RIG_ELEMS];
    rig_attach_all(r, params);
    for (uint64_t step = 0; step < 3; step++) {
        rig_forget(r);
        for (uint32_t w = 0; w < 2; w++) {
            rig_gradient(w, step, g[w]);
            for (size_t i = 0; i < RIG_ELEMS; i++) g[w][i] *= 1e-6f; /* lost, were it added to the parameters first */
            rig_push(r, w, step, g[w]);
        }
        rig_run(r, 1000);
        ck_assert_uint_eq(rig_apply(r, 1, average), step + 1);
        for (size_t i = 0; i < RIG_ELEMS; i++) ck_assert_float_eq(average[i], (g[0][i] + g[1][i]) * 0.5f);
    }
    rig_destroy(r);
}
END_TEST

START_TEST(pulling_later_than_pushing_works_too) {
    rig *r = rig_create(1, RIG_DENSE);
    float params[RIG_ELEMS], replica[RIG_ELEMS] = {0}, g[RIG_ELEMS];
    rig_attach_all(r, params);
    rig_gradient(0, 0, g);
    rig_pull(r, 0, 0, 1, false, false);
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_DATA, NULL), 0);
    rig_send(r, 0, rig_push_frame(r, 0, 0, g, 7, false));
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_DATA, NULL), 1);
    rig_send(r, 0, rig_push_frame(r, 0, 1, g, 7, false));
    rig_send(r, 0, rig_push_frame(r, 0, 2, g, 7, false));
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_DATA, NULL), 1);
    rig_pull(r, 0, 1, 3, false, false);
    rig_run(r, 1000);
    ck_assert_uint_eq(rig_apply(r, 0, replica), 3);
    for (size_t i = 0; i < RIG_ELEMS; i++) ck_assert_float_eq(replica[i], params[i] - 1.5f * g[i]);
    rig_destroy(r);
}
END_TEST

START_TEST(first_values_that_are_not_finite_are_refused_by_name) {
    static const char *const settings[] = {RIG_DENSE, RIG_AVERAGE};
    for (int none = 0; none < 2; none++) {
        rig *r = rig_create(1, settings[none]);
        float params[RIG_ELEMS];
        unsigned slices;
        ts_frame ack = {0};
        rig_initial(params);
        params[70] = -INFINITY; /* of the second slice */
        params[80] = NAN;
        rig_hello(r, 0, r->contract, TS_PROTOCOL_VERSION);
        rig_run(r, 1000);
        rig_send_contract(r, 0, r->contract);
        rig_run(r, 1000);
        rig_forget(r);
        rig_set(r, 0, params);
        rig_run(r, 1000);
        ck_assert_status(rig_last_ack(r, 0, &slices, NULL), none ? TERSE_OK : TERSE_ENONFINITE);
        ck_assert_uint_eq(slices, none ? 7 : 2);
        ck_assert_uint_eq(rig_got(r, 0, TERSE__HEADER__BODY_ACK, &ack), 1);
        if (!none) ck_assert_str_eq(ack.header->ack->reason, "tensor a holds 2 values that are not finite, the first at element 70");
        ts_frame_release(&ack);
        rig_forget(r);
        params[70] = params[80] = 1; /* nothing had been taken */
        rig_set(r, 0, params);
        rig_run(r, 1000);
        ck_assert_status(rig_last_ack(r, 0, &slices, NULL), TERSE_OK);
        ck_assert_uint_eq(slices, 7);
        rig_destroy(r);
    }
}
END_TEST

TCase *test_server_rounds(void);
TCase *test_server_rounds(void) {
    TCase *tests = tcase_create("server_rounds");
    tcase_add_test(tests, newcomers_wait_for_the_first_values);
    tcase_add_test(tests, a_dense_round_is_plain_sgd_on_the_mean);
    tcase_add_test(tests, a_sum_that_overflows_ends_the_job);
    tcase_add_test(tests, rounds_close_slice_by_slice);
    tcase_add_test(tests, repeated_pushes_count_once_and_are_answered);
    tcase_add_test(tests, pushes_that_wait_are_acknowledged_after_a_while);
    tcase_add_test(tests, replicas_follow_the_reference_bit_for_bit);
    tcase_add_test(tests, a_rounds_pull_is_encoded_once_for_all_workers);
    tcase_add_test(tests, workers_behind_get_the_log_or_a_snapshot);
    tcase_add_test(tests, aggregate_only_pulls_carry_the_exact_average);
    tcase_add_test(tests, pulling_later_than_pushing_works_too);
    tcase_add_test(tests, first_values_that_are_not_finite_are_refused_by_name);
    return tests;
}
