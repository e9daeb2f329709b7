/* SPDX-License-Identifier: Apache-2.0 */
/* Large dense packets travel from where they lie: gradients that the user lends for a step, and a server's parameters. */
#include <math.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/kernels.h"
#include "server/job.h"
#include "server/server_internal.h"
#include "tests/unit/client_stage.h"

#define N 50000u /* one slice of 200 KB */
#define RETRY_US 3000000u

static const char *const dense[] = {"error_feedback.enabled=false", NULL};
static float w[N], g[N], kept[N];

static void fill_gradient(void) {
    for (size_t i = 0; i < N; i++) kept[i] = g[i] = i % 7 ? (float)i - 1000.5f : 0.0f;
}

/* The one packet of the last push. */
static const uint8_t *pushed_packet(const stage *s, size_t *len) {
    const ts_frame *push = last_heard(s, 0, TERSE__HEADER__BODY_PUSH);
    ts_bundle_reader reader = ts_bundle_read(push->payload, push->payload_bytes, 1);
    uint32_t local;
    const uint8_t *packet;
    ck_assert_ok(ts_bundle_next(&reader, &local, &packet, len));
    return packet;
}

static void expect_pushed(const stage *s, const float *values) {
    size_t len;
    const uint8_t *packet = pushed_packet(s, &len);
    ck_assert_uint_eq(len, N * sizeof(float));
    ck_assert_mem_eq(packet, values, len);
}

static void begin(stage *s, const char *const *overrides) {
    fill_gradient();
    open_stage(s, 1, 1, 0, overrides);
    declare(s, "w", N, w);
    attach(s);
}

START_TEST(a_lent_gradient_is_sent_as_it_is_and_needed_until_the_answer) {
    stage s;
    begin(&s, dense);
    ck_assert(!ts_client_has_lent(s.client));
    ck_assert_ok(ts_client_push_lent(s.client, 0, g));
    ck_assert_ok(ts_client_pull(s.client, 0));
    ck_assert(ts_client_has_lent(s.client));
    run_stage(&s, 1);
    expect_pushed(&s, g);
    ck_assert(ts_client_has_lent(s.client)); /* it may have to be sent again */
    say_data(&s, 0, 1, true, false, 0, w, sizeof w);
    ck_assert(!ts_client_has_lent(s.client));
    ck_assert(ts_client_pulled(s.client, 0));
    close_stage(&s);
}
END_TEST

/* Whether it was lent or not, what is sent again is what was pushed. */
static void expect_repeated(bool lent) {
    stage s;
    begin(&s, dense);
    ck_assert_ok((lent ? ts_client_push_lent : ts_client_push)(s.client, 0, g));
    ck_assert(ts_client_has_lent(s.client) == lent);
    ck_assert_ok(ts_client_pull(s.client, 0));
    run_stage(&s, 1);
    ck_assert_ok(ts_client_recall(s.client));
    ck_assert(!ts_client_has_lent(s.client));
    memset(g, 0x55, sizeof g);
    run_stage(&s, RETRY_US);
    ck_assert_uint_gt(ts_client_get_counters(s.client)->retransmits, 0);
    expect_pushed(&s, kept);
    close_stage(&s);
}

START_TEST(what_is_recalled_can_be_sent_again) {
    expect_repeated(true);
    expect_repeated(false);
}
END_TEST

/* A frame that was queued before is the same frame, and the transport may hand it on after the recall. */
START_TEST(a_frame_under_way_says_the_same_after_a_recall) {
    ts_buffer *frame, *owner, *before, *after;
    uint8_t lent[64];
    for (size_t i = 0; i < sizeof lent; i++) lent[i] = (uint8_t)i;
    ck_assert_ok(ts_buffer_create(1, &owner));
    ck_assert_ok(ts_buffer_create(8, &frame));
    memcpy(frame->data, "ab", 2);
    frame->len = 2;
    ts_buffer_put_outside(frame, lent, sizeof lent, owner);
    frame->data[frame->len++] = 'c';
    ck_assert_uint_eq(ts_buffer_bytes(frame), 67);
    ck_assert(!ts_buffer_sole(owner));
    ck_assert_ok(ts_buffer_flat(frame, &before));
    ck_assert_uint_eq(before->len, 67);
    ck_assert_mem_eq(before->data, "ab", 2);
    ck_assert_mem_eq(before->data + 2, lent, sizeof lent);
    ck_assert_int_eq(before->data[66], 'c');
    ck_assert_ok(ts_buffer_bring_in(frame));
    ck_assert(ts_buffer_sole(owner));
    memset(lent, 0, sizeof lent);
    ck_assert_ok(ts_buffer_flat(frame, &after));
    ck_assert_mem_eq(after->data, before->data, 67);
    ts_buffer_unref(before);
    ts_buffer_unref(after);
    ck_assert_ok(ts_buffer_flat(owner, &after)); /* in a row already */
    ck_assert_ptr_eq(after, owner);
    ts_buffer_unref(after);
    ts_buffer_unref(frame);
    ts_buffer_unref(owner);
}
END_TEST

/* What an encoder would change is encoded: pushes have the same bits, lent or not. */
START_TEST(gradients_that_an_encoder_would_change_are_not_lent) {
    const float odd[] = {-0.0f, 1e-40f, -1e-42f};
    for (size_t o = 0; o < sizeof odd / sizeof odd[0]; o++) {
        stage s;
        begin(&s, dense);
        g[N - 1] = odd[o];
        kept[N - 1] = 0.0f;
        ck_assert_ok(ts_client_push_lent(s.client, 0, g));
        ck_assert(!ts_client_has_lent(s.client));
        run_stage(&s, 1);
        expect_pushed(&s, kept);
        close_stage(&s);
    }
}
END_TEST

START_TEST(what_is_not_finite_is_refused_all_the_same) {
    stage s;
    begin(&s, dense);
    g[12345] = INFINITY;
    ck_assert_status(ts_client_push_lent(s.client, 0, g), TERSE_ENONFINITE);
    ck_assert_ptr_nonnull(strstr(ts_client_message(s.client), "element 12345"));
    ck_assert_uint_eq(heard(&s, 0, TERSE__HEADER__BODY_PUSH, NULL), 0);
    close_stage(&s);
}
END_TEST

/* Whatever keeps a residual, is encoded, is answered by others, or is not answered for, is not lent. */
START_TEST(only_plain_rounds_lend) {
    static const char *const others[][3] = {{NULL}, {"error_feedback.enabled=false", "push.default=fp16", NULL},
                                            {"error_feedback.enabled=false", "consistency.mode=asp", NULL}};
    for (size_t o = 0; o < sizeof others / sizeof others[0]; o++) {
        stage s;
        begin(&s, others[o]);
        ck_assert_ok(ts_client_push_lent(s.client, 0, g));
        ck_assert_msg(!ts_client_has_lent(s.client), "case %zu", o);
        close_stage(&s);
    }
    stage s;
    begin(&s, dense);
    ck_assert_ok(ts_client_prefetch(s.client, 0, false));
    ck_assert_ok(ts_client_push_lent(s.client, 0, g));
    ck_assert(!ts_client_has_lent(s.client));
    close_stage(&s);
}
END_TEST

START_TEST(plain_floats_are_told_alike_at_each_level) {
    enum { ELEMS = 100 };
    const struct { float x; bool plain; } values[] = {{0.0f, true}, {-0.0f, false}, {1.17549435e-38f, true}, {-1.17549435e-38f, true},
        {1.17549421e-38f, false}, {1e-45f, false}, {-1e-45f, false}, {3.40282347e38f, true}, {-3.40282347e38f, true},
        {INFINITY, false}, {-INFINITY, false}, {NAN, false}, {1.0f, true}};
    float x[ELEMS];
    for (ts_simd level = TS_SIMD_SCALAR; level <= ts_cpu_simd(); level++) {
        for (size_t at = 0; at < ELEMS; at++) {
            for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
                for (size_t i = 0; i < ELEMS; i++) x[i] = i % 3 ? -2.5f : 0.0f;
                x[at] = values[v].x;
                ck_assert(ts_kernels_get(level)->plain(x, ELEMS) == values[v].plain);
                ck_assert(ts_kernels_get(level)->plain(x, at)); /* what comes behind is not looked at */
            }
        }
    }
}
END_TEST

/* ---- a server's parameters ------------------------------------------------------------------------------------------- */

typedef struct {
    stage s;
    ts_server *server; /* in the place of the played one */
} duo;

static void serve(duo *d, uint64_t us) {
    stage *s = &d->s;
    uint64_t end = ts_sim_now_us(s->network) + us;
    while (ts_sim_now_us(s->network) < end) {
        uint32_t peer;
        while (ts_sim_step(s->network, ts_sim_now_us(s->network) + 1000, &peer)) {
            ts_transport *endpoint = ts_sim_endpoint(s->network, peer);
            while (endpoint->ops->poll(endpoint)) {}
            ts_server_flush(d->server);
        }
        ts_server_flush(d->server);
        ts_server_tick(d->server);
        ts_client_tick(s->client);
    }
}

static void begin_duo(duo *d) {
    ts_log_set_level(TS_LOG_NONE);
    fill_gradient();
    for (size_t i = 0; i < N; i++) w[i] = (float)(i % 100);
    open_stage(&d->s, 1, 1, 0, (const char *[]){"error_feedback.enabled=false", "optimizer.lr=0.5", "servers.slice_elems=40000", NULL});
    ck_assert_ok(ts_server_create(d->s.config, ts_sim_endpoint(d->s.network, 0), &ts_executor_inline, &d->server));
    declare(&d->s, "w", N, w);
    ck_assert_ok(ts_client_start(d->s.client));
    serve(d, 10000);
    ck_assert_int_eq(ts_client_get_state(d->s.client), TS_CLIENT_TRAINING);
}

static void end_duo(duo *d) {
    ts_server_destroy(d->server);
    close_stage(&d->s);
}

static void one_step(duo *d) {
    ck_assert_ok(ts_client_push_lent(d->s.client, 0, g));
    ck_assert_ok(ts_client_pull(d->s.client, 0));
    serve(d, 10000);
    ck_assert(ts_client_pulled(d->s.client, 0));
    ck_assert(!ts_client_has_lent(d->s.client));
}

static ts_slice_state *largest_slice(const duo *d) {
    ts_store *store = &d->server->jobs[0]->store;
    for (uint32_t s = 0; s < store->count; s++)
        if (store->slices[s].n == store->largest_elems) return &store->slices[s];
    ck_abort_msg("no slice");
    return NULL;
}

/* One slice is large enough to be sent from where it is, the other is copied. All sums are exact. */
START_TEST(parameters_are_sent_as_they_are) {
    duo d = {0};
    static float want[N];
    begin_duo(&d);
    memcpy(want, w, sizeof want);
    for (unsigned step = 0; step < 3; step++) {
        one_step(&d);
        for (size_t i = 0; i < N; i++) want[i] -= 0.5f * g[i];
        ck_assert_mem_eq(w, want, sizeof want);
    }
    ck_assert_uint_eq(ts_client_get_counters(d.s.client)->dropped_frames, 0);
    ck_assert_uint_eq(ts_client_get_counters(d.s.client)->retransmits, 0);
    end_duo(&d);
}
END_TEST

/* A frame that is still under way when the next round closes keeps the version that it says it has. */
START_TEST(a_frame_under_way_keeps_its_version) {
    duo d = {0};
    begin_duo(&d);
    one_step(&d);
    ts_slice_state *slice = largest_slice(&d);
    const float *before = slice->params;
    one_step(&d);
    ck_assert_ptr_eq(slice->params, before); /* nobody reads them any more: they change where they are */
    ts_buffer *under_way = ts_buffer_ref(slice->values);
    static float said[N];
    memcpy(said, slice->params, slice->n * sizeof(float));
    one_step(&d);
    ck_assert_ptr_ne(slice->params, before);
    ck_assert_mem_eq(under_way->data, said, slice->n * sizeof(float));
    ck_assert_mem_ne(slice->params, said, slice->n * sizeof(float));
    ck_assert(ts_buffer_sole(under_way));
    ts_buffer_unref(under_way);
    end_duo(&d);
}
END_TEST

/* Without memory for a copy nothing of the slice has changed. */
START_TEST(without_memory_the_parameters_stay_the_frame_s) {
    duo d = {0};
    begin_duo(&d);
    ts_slice_state *slice = largest_slice(&d);
    ts_buffer *under_way = ts_buffer_ref(slice->values);
    for (int64_t fail = 0; fail < 2; fail++) {
        ts_mem_fail_after(fail);
        terse_status status = ts_store_own_params(slice);
        ts_mem_fail_after(-1);
        ck_assert_status(status, TERSE_ENOMEM);
        ck_assert_ptr_eq(slice->values, under_way);
        ck_assert_ptr_eq(slice->params, under_way->data);
    }
    ck_assert_ok(ts_store_own_params(slice));
    ck_assert_ptr_ne(slice->values, under_way);
    ts_buffer_unref(under_way);
    end_duo(&d);
}
END_TEST

TCase *test_lent(void);
TCase *test_lent(void) {
    TCase *tests = tcase_create("lent");
    tcase_add_test(tests, a_lent_gradient_is_sent_as_it_is_and_needed_until_the_answer);
    tcase_add_test(tests, what_is_recalled_can_be_sent_again);
    tcase_add_test(tests, a_frame_under_way_says_the_same_after_a_recall);
    tcase_add_test(tests, gradients_that_an_encoder_would_change_are_not_lent);
    tcase_add_test(tests, what_is_not_finite_is_refused_all_the_same);
    tcase_add_test(tests, only_plain_rounds_lend);
    tcase_add_test(tests, plain_floats_are_told_alike_at_each_level);
    tcase_add_test(tests, parameters_are_sent_as_they_are);
    tcase_add_test(tests, a_frame_under_way_keeps_its_version);
    tcase_add_test(tests, without_memory_the_parameters_stay_the_frame_s);
    return tests;
}
