/* SPDX-License-Identifier: Apache-2.0 */
/* The client's rounds: push, residual, outbox, pull, against servers played by hand. */
#include <string.h>

#include "tests/unit/client_stage.h"
#include "worker/client/feedback.h"

START_TEST(a_dense_round) {
    stage s;
    float w[3] = {1, 2, 3}, g[3] = {-1, 0.5f, 8}, got[3] = {0}, next[3] = {7, 8, 9};
    open_stage(&s, 1, 1, 0, NULL);
    declare(&s, "w", 3, w);
    attach(&s);
    ck_assert_ok(ts_client_push(s.client, 0, g));
    ck_assert(!ts_client_pushed(s.client, 0));
    ck_assert_status(ts_client_push(s.client, 0, g), TERSE_ESTATE); /* the pull is missing */
    ck_assert_ptr_nonnull(strstr(ts_client_message(s.client), "w: step 0"));
    ck_assert_ok(ts_client_pull(s.client, 0));
    ck_assert_status(ts_client_push(s.client, 0, g), TERSE_EAGAIN);
    run_stage(&s, 1);
    const ts_frame *push = last_heard(&s, 0, TERSE__HEADER__BODY_PUSH);
    ck_assert(push->header->push->pull && push->header->push->step == 0);
    add_push(&s, push, 0, got);
    ck_assert_mem_eq(got, g, sizeof g);
    ck_assert(!ts_client_pulled(s.client, 0));
    say_data(&s, 0, 1, true, false, 0, next, sizeof next);
    ck_assert(ts_client_pushed(s.client, 0)); /* by its data */
    ck_assert_float_eq(w[0], 1);              /* nothing is written before the user allows it */
    ck_assert(ts_client_pulled(s.client, 0));
    ck_assert_mem_eq(w, next, sizeof w);
    ck_assert_uint_eq(ts_client_step(s.client), 1);
    ck_assert_ok(ts_client_push(s.client, 0, g));
    run_stage(&s, 1);
    ck_assert_uint_eq(last_heard(&s, 0, TERSE__HEADER__BODY_PUSH)->header->push->step, 1);
    close_stage(&s);
}
END_TEST

START_TEST(sent_and_residual_make_up_the_gradient) {
    stage s;
    enum { N = 1000 };
    static float w[N], g[N], sum[N];
    open_stage(&s, 1, 1, 0, (const char *[]){"push.default=topk:0.05 | fp32", "servers.slice_elems=256", NULL});
    declare(&s, "w", N, w);
    attach(&s);
    for (int i = 0; i < N; i++) g[i] = (float)((i * 7919) % 1009) - 500;
    ck_assert_ok(ts_client_push(s.client, 0, g));
    run_stage(&s, 1);
    memset(sum, 0, sizeof sum);
    add_push(&s, last_heard(&s, 0, TERSE__HEADER__BODY_PUSH), 0, sum);
    const float *residual = ts_client_residual(s.client, 0);
    int sent = 0;
    for (int i = 0; i < N; i++) {
        sent += sum[i] != 0;
        ck_assert_float_eq(sum[i] + residual[i], g[i]);
    }
    ck_assert_int_eq(sent, 50);
    close_stage(&s);
}
END_TEST

START_TEST(a_refused_packet_returns_to_the_residual) {
    stage s;
    enum { N = 64 };
    float w[N] = {0}, g[N], zero[N] = {0};
    uint32_t slice = 0;
    open_stage(&s, 1, 1, 0, (const char *[]){"push.default=topk:0.1 | fp32", NULL});
    declare(&s, "w", N, w);
    attach(&s);
    for (int i = 0; i < N; i++) g[i] = (float)(i + 1);
    ck_assert_ok(ts_client_push(s.client, 0, g));
    ck_assert_ok(ts_client_pull(s.client, 0));
    run_stage(&s, 1);
    say_ack(&s, 0, 0, TERSE_ESTALE, &slice, 1);
    ck_assert(ts_client_pushed(s.client, 0));
    ck_assert_uint_eq(ts_client_get_counters(s.client)->refused_packets, 1);
    say_data(&s, 0, 1, true, false, 0, w, sizeof w);
    ck_assert(ts_client_pulled(s.client, 0));
    ck_assert_ok(ts_client_push(s.client, 0, zero));
    run_stage(&s, 1);
    float sum[N] = {0};
    add_push(&s, last_heard(&s, 0, TERSE__HEADER__BODY_PUSH), 0, sum);
    for (int i = 0; i < N; i++) ck_assert_float_eq(sum[i] + ts_client_residual(s.client, 0)[i], g[i]);
    close_stage(&s);
}
END_TEST

/* The first byte of the packet that a push of a `delta` tensor of one slice has sent: how many steps it goes back. */
static unsigned steps_back(stage *s, const float *gradient) {
    ck_assert_ok(ts_client_push(s->client, 0, gradient));
    ck_assert_ok(ts_client_pull(s->client, 0));
    run_stage(s, 1);
    const ts_frame *push = last_heard(s, 0, TERSE__HEADER__BODY_PUSH);
    ts_bundle_reader reader = ts_bundle_read(push->payload, push->payload_bytes, 1);
    uint32_t local;
    const uint8_t *packet;
    size_t len;
    ck_assert_ok(ts_bundle_next(&reader, &local, &packet, &len));
    return packet[0];
}

/* The network may deliver an answer twice, or late: a chain begins anew once, not whenever that is heard. */
START_TEST(a_refusal_that_is_heard_again_restarts_no_chain) {
    stage s;
    enum { N = 8 };
    float w[N] = {0}, g[N] = {1, 2, 3};
    const unsigned back[] = {0, 1, 0, 1, 1, 0};
    uint32_t slice = 0;
    open_stage(&s, 1, 1, 0, (const char *[]){"push.default=delta:100 | int8", NULL});
    declare(&s, "w", N, w);
    attach(&s);
    for (uint64_t step = 0; step < 6; step++) {
        ck_assert_uint_eq(steps_back(&s, g), back[step]);
        if (step == 1) say_ack(&s, 0, step, TERSE_ESTALE, &slice, 1);
        if (step == 2 || step == 3) say_ack(&s, 0, 1, TERSE_ESTALE, &slice, 1);
        say_data(&s, 0, step + 1, true, false, 0, w, sizeof w);
        ck_assert(ts_client_pulled(s.client, 0));
        if (step == 4) say_ack(&s, 0, step, TERSE_ESTALE, &slice, 1); /* overtaken by the round's Data: news all the same */
    }
    ck_assert_uint_eq(ts_client_get_counters(s.client)->refused_packets, 1);
    close_stage(&s);
}
END_TEST

START_TEST(pushes_are_repeated_until_answered_and_pulls_until_served) {
    stage s;
    float w[2] = {0}, g[2] = {1, 2};
    uint32_t slice = 0;
    open_stage(&s, 1, 1, 0, (const char *[]){"consistency.deadline_s=90", NULL});
    declare(&s, "w", 2, w);
    attach(&s);
    for (int step = 0; step < 2; step++) { /* an OK of step 0 could be Set's, so step 1 is where it counts */
        empty_inbox(&s.received[0]);
        ck_assert_ok(ts_client_push(s.client, 0, g));
        ck_assert_ok(ts_client_pull(s.client, 0));
        run_stage(&s, 3500000);
        /* At 0, 1 and 3 s; then, as an answer took 3.5 s, patience is at its longest. */
        ck_assert_uint_eq(heard(&s, 0, TERSE__HEADER__BODY_PUSH, NULL), step ? 1 : 3);
        if (step) run_stage(&s, 5000000);
        if (step) ck_assert_uint_eq(heard(&s, 0, TERSE__HEADER__BODY_PUSH, NULL), 2);
        if (!step) say_data(&s, 0, 1, true, false, 0, g, sizeof g);
        if (!step) ck_assert(ts_client_pulled(s.client, 0));
    }
    say_ack(&s, 0, 1, TERSE_OK, &slice, 1);
    ck_assert(ts_client_pushed(s.client, 0));
    run_stage(&s, 8500000);
    ck_assert_uint_eq(heard(&s, 0, TERSE__HEADER__BODY_PUSH, NULL), 2);
    const Terse__Pull *pull = last_heard(&s, 0, TERSE__HEADER__BODY_PULL)->header->pull;
    ck_assert(pull->have == 1 && pull->want == 2 && !pull->snapshot && pull->n_slices == 0);
    ck_assert_uint_gt(heard(&s, 0, TERSE__HEADER__BODY_HEARTBEAT, NULL), 0);
    close_stage(&s);
}
END_TEST

/* A downlink packet as a server would make it. */
static size_t encode_delta(const stage *s, uint64_t step, const float *delta, size_t n, uint8_t *out, size_t capacity) {
    ts_codec_spec spec = ts_contract_pull_spec(ts_client_contract(s->client), 0);
    ts_encoder *encoder = NULL;
    ts_scratch *scratch = NULL;
    float *residual = calloc(n, sizeof *residual);
    size_t len = 0;
    ck_assert(residual);
    ck_assert_ok(ts_encoder_create(&spec, &encoder));
    ck_assert_ok(ts_scratch_create(&scratch));
    ts_encode_input input = {.gradient = delta, .gradient_scale = 1, .residual = residual, .step = step};
    ck_assert_ok(ts_encoder_begin(encoder, scratch, &input, NULL));
    ck_assert_ok(ts_encoder_slice(encoder, scratch, 0, out, capacity, &len));
    ts_encoder_destroy(encoder);
    ts_scratch_destroy(scratch);
    free(residual);
    return len;
}

START_TEST(versions_are_applied_in_order_and_once) {
    stage s;
    enum { N = 8 };
    float w[N] = {0}, g[N] = {1}, first[N] = {0, 1}, second[N] = {0, 10};
    uint8_t one[4096], two[4096];
    open_stage(&s, 1, 1, 0, (const char *[]){"pull.default=topk:0.5 | fp32", NULL});
    declare(&s, "w", N, w);
    attach(&s);
    size_t one_len = encode_delta(&s, 0, first, N, one, sizeof one), two_len = encode_delta(&s, 1, second, N, two, sizeof two);
    ck_assert_ok(ts_client_push(s.client, 0, g));
    ck_assert_ok(ts_client_pull(s.client, 0));
    say_data(&s, 0, 2, false, false, 0, two, two_len);
    ck_assert(!ts_client_pulled(s.client, 0));
    say_data(&s, 0, 1, false, false, 0, one, one_len);
    say_data(&s, 0, 1, false, false, 0, one, one_len);
    ck_assert(ts_client_pulled(s.client, 0));
    ck_assert_float_eq(w[1], 1);
    say_data(&s, 0, 1, false, false, 0, one, one_len);
    ck_assert_ok(ts_client_push(s.client, 0, g));
    ck_assert_ok(ts_client_pull(s.client, 0));
    ck_assert(ts_client_pulled(s.client, 0)); /* version 2 has waited */
    ck_assert_float_eq(w[1], 11);
    ck_assert_ok(ts_client_push(s.client, 0, g));
    ck_assert_ok(ts_client_pull(s.client, 0));
    say_data(&s, 0, 3, false, false, 0, (const uint8_t *)"nonsense", 8); /* well framed, but no packet */
    ck_assert(!ts_client_pulled(s.client, 0));
    ck_assert_int_eq(ts_client_get_state(s.client), TS_CLIENT_TRAINING);
    say_data(&s, 0, 3, false, false, 0, one, encode_delta(&s, 2, first, N, one, sizeof one));
    ck_assert(ts_client_pulled(s.client, 0));
    ck_assert_float_eq(w[1], 12);
    close_stage(&s);
}
END_TEST

typedef struct {
    stage *stage;
    const uint8_t *packet;
    size_t len;
} repetition;

static void say_again(void *context) {
    repetition *r = context;
    if (r->packet) say_data(r->stage, 0, 1, false, false, 0, r->packet, r->len);
    r->packet = NULL;
}

static void no_more(void *context) { (void)context; }

START_TEST(a_packet_that_comes_again_while_it_is_decoded_is_in_nobodys_way) {
    stage s;
    enum { N = 32768, ROOM = 1 << 19 }; /* large: decoded without the lock */
    float *w = calloc(N, sizeof *w), *g = calloc(N, sizeof *g), *step = calloc(N, sizeof *step);
    uint8_t *one = malloc(ROOM), *two = malloc(ROOM);
    ck_assert(w && g && step && one && two);
    for (size_t i = 1; i < N; i += 2) step[i] = 1;
    open_stage(&s, 1, 1, 0, (const char *[]){"pull.default=topk:0.5 | fp32", NULL});
    declare(&s, "w", N, w);
    attach(&s);
    size_t one_len = encode_delta(&s, 0, step, N, one, ROOM), two_len = encode_delta(&s, 1, step, N, two, ROOM);
    repetition again = {.stage = &s};
    ts_client_set_lock(s.client, no_more, say_again, &again);
    ck_assert_ok(ts_client_push(s.client, 0, g));
    ck_assert_ok(ts_client_pull(s.client, 0));
    say_data(&s, 0, 1, false, false, 0, one, one_len);
    again.packet = one;
    again.len = one_len;
    ck_assert(ts_client_pulled(s.client, 0));
    ck_assert_ptr_null(again.packet); /* it has come */
    ck_assert_ok(ts_client_push(s.client, 0, g));
    ck_assert_ok(ts_client_pull(s.client, 0));
    say_data(&s, 0, 2, false, false, 0, two, two_len);
    ck_assert(ts_client_pulled(s.client, 0));
    ck_assert_float_eq(w[1], 2);
    close_stage(&s);
    free(w);
    free(g);
    free(step);
    free(one);
    free(two);
}
END_TEST

typedef struct {
    stage *stage;
    unsigned at, left; /* when the lock is let go of, counted from 0 */
} death;

/* Server 1 says that server 0 is dead. */
static void say_dead(void *context) {
    death *d = context;
    uint32_t dead = 0;
    Terse__Heartbeat beat = TERSE__HEARTBEAT__INIT;
    beat.replicas = 1;
    beat.dead = &dead;
    beat.n_dead = 1;
    if (d->left++ == d->at) say_header(d->stage, 1, TERSE__HEADER__BODY_HEARTBEAT, &beat);
}

/* One push, during which its server dies. Both servers have a slice 0: whose it is only the head says. */
static void push_past_a_death(terse_status (*push)(ts_client *client, uint32_t tensor, const float *gradient), unsigned at) {
    stage s;
    enum { N = 32768 }; /* large: encoded without the lock, into the frame that it travels in */
    float *w = calloc(2 * N, sizeof *w), *g = malloc(N * sizeof *g), *sum = calloc(N, sizeof *sum);
    ck_assert(w && g && sum);
    for (size_t i = 0; i < N; i++) g[i] = (float)(i % 1000) + 1;
    open_stage(&s, 2, 1, 0, (const char *[]){"error_feedback.enabled=false", NULL});
    declare(&s, "a", N, w);
    declare(&s, "b", N, w + N);
    attach(&s);
    const ts_contract *contract = ts_client_contract(s.client);
    uint32_t t = contract->slices[0].server == 0 ? 0 : 1;
    ck_assert_uint_eq(contract->slices[t].server, 0);
    ck_assert_uint_eq(contract->slices[0].local, contract->slices[1].local);
    death news = {.stage = &s, .at = at};
    ts_client_set_lock(s.client, no_more, say_dead, &news);
    ck_assert_ok(push(s.client, t, g));
    ts_client_set_lock(s.client, NULL, NULL, NULL);
    ck_assert_uint_gt(news.left, at);
    run_stage(&s, 1);
    ck_assert_uint_eq(heard(&s, 0, TERSE__HEADER__BODY_PUSH, NULL), 0);
    ck_assert_uint_eq(heard(&s, 1, TERSE__HEADER__BODY_PUSH, NULL), 1);
    const ts_frame *pushed = last_heard(&s, 1, TERSE__HEADER__BODY_PUSH);
    ck_assert_uint_eq(pushed->header->part, 1); /* server 0's */
    add_push(&s, pushed, t, sum);
    ck_assert_mem_eq(sum, g, N * sizeof *g);
    close_stage(&s);
    free(w);
    free(g);
    free(sum);
}

START_TEST(a_large_packet_whose_server_dies_while_it_is_encoded_names_it_to_its_stand_in) {
    for (unsigned at = 0; at < 2; at++) { /* for the tensor, and for its slice */
        push_past_a_death(ts_client_push, at);
        push_past_a_death(ts_client_push_lent, at);
    }
}
END_TEST

START_TEST(without_optimizer_the_average_replaces) {
    stage s;
    enum { N = 8 };
    float w[N] = {5, 5, 5}, g[N] = {1}, average[N] = {0, 1};
    uint8_t packet[4096];
    open_stage(&s, 1, 1, 0, (const char *[]){"optimizer.name=none", NULL});
    declare(&s, "w", N, w);
    attach(&s);
    for (uint64_t step = 0; step < 2; step++) {
        size_t len = encode_delta(&s, step, average, N, packet, sizeof packet);
        ck_assert_ok(ts_client_push(s.client, 0, g));
        ck_assert_ok(ts_client_pull(s.client, 0));
        say_data(&s, 0, step + 1, false, false, 0, packet, len);
        ck_assert(ts_client_pulled(s.client, 0));
        ck_assert_mem_eq(w, average, sizeof w);
    }
    close_stage(&s);
}
END_TEST

START_TEST(small_tensors_share_a_frame_and_large_ones_do_not_wait) {
    stage s;
    enum { LARGE = 200000 };
    static float small[8][16], large[LARGE], g[LARGE];
    open_stage(&s, 1, 1, 0, (const char *[]){"servers.slice_elems=65536", NULL});
    const char *names[8] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    for (int i = 0; i < 8; i++) declare(&s, names[i], 16, small[i]);
    uint32_t last = declare(&s, "large", LARGE, large);
    attach(&s);
    for (uint32_t t = 8; t-- > 0;) ck_assert_ok(ts_client_push(s.client, t, g)); /* the last layer first */
    run_stage(&s, 1);
    ck_assert_uint_eq(heard(&s, 0, TERSE__HEADER__BODY_PUSH, NULL), 0); /* others may join */
    run_stage(&s, 60000);
    ck_assert_uint_eq(heard(&s, 0, TERSE__HEADER__BODY_PUSH, NULL), 1); /* but nobody waits for them long */
    ck_assert_ok(ts_client_push(s.client, last, g));
    run_stage(&s, 1);
    ck_assert_uint_gt(heard(&s, 0, TERSE__HEADER__BODY_PUSH, NULL), 3);
    close_stage(&s);
}
END_TEST

START_TEST(clipping_scales_by_the_norm_of_the_whole_step) {
    stage s;
    float a[1] = {0}, b[1] = {0}, ga[1] = {6}, gb[1] = {8}, got[1] = {0};
    open_stage(&s, 1, 4, 0, (const char *[]){"error_feedback.clip_norm=10", NULL});
    declare(&s, "a", 1, a);
    declare(&s, "b", 1, b);
    attach(&s);
    ck_assert_ok(ts_client_push(s.client, 0, ga));
    ck_assert_ok(ts_client_pull(s.client, 0));
    ck_assert(!ts_client_pushed(s.client, 0));
    ck_assert_status(ts_client_check_wait(s.client, 0, 1, false), TERSE_ESTATE);
    ck_assert_status(ts_client_check_wait(s.client, 0, 1, true), TERSE_ESTATE);
    ck_assert_status(ts_client_done(s.client), TERSE_ESTATE);
    run_stage(&s, 100000);
    ck_assert_uint_eq(heard(&s, 0, TERSE__HEADER__BODY_PUSH, NULL), 0);
    ck_assert_ok(ts_client_push(s.client, 1, gb));
    run_stage(&s, 1);
    add_push(&s, last_heard(&s, 0, TERSE__HEADER__BODY_PUSH), 0, got);
    ck_assert_float_eq_tol(got[0], 3, 1e-6f); /* norm 10, allowed 10 / sqrt(4) */
    ck_assert_float_eq(ts_feedback_clip_scale(24.0, 10, 4), 1);
    close_stage(&s);
}
END_TEST

/* A wait that can never end is refused instead. */
START_TEST(waits_in_vain_are_refused) {
    stage s;
    float w[1] = {0}, g[1] = {1};
    open_stage(&s, 1, 1, 0, NULL);
    declare(&s, "w", 1, w);
    attach(&s);
    ck_assert_status(ts_client_check_wait(s.client, 9, 1, true), TERSE_ENOTFOUND);
    ck_assert_status(ts_client_check_wait(s.client, 0, 1, false), TERSE_ENOTFOUND); /* no push yet */
    ck_assert_ok(ts_client_check_wait(s.client, 0, 1, true)); /* a pull without a push has nothing to wait for */
    ck_assert(ts_client_pulled(s.client, 0));
    ck_assert_ok(ts_client_push(s.client, 0, g));
    ck_assert_ok(ts_client_check_wait(s.client, 0, 1, false));
    ck_assert_status(ts_client_check_wait(s.client, 0, 1, true), TERSE_ESTATE); /* that pull came before the push */
    ck_assert_ptr_nonnull(strstr(ts_client_message(s.client), "its pull is missing"));
    ck_assert_status(ts_client_check_wait(s.client, 0, 2, true), TERSE_ENOTFOUND);
    ck_assert_ok(ts_client_pull(s.client, 0));
    ck_assert_ok(ts_client_check_wait(s.client, 0, 1, true));
    run_stage(&s, 1);
    say_data(&s, 0, 1, true, false, 0, w, sizeof w);
    ck_assert(ts_client_pulled(s.client, 0));
    ck_assert_ok(ts_client_check_wait(s.client, 0, 1, false));
    close_stage(&s);
}
END_TEST

START_TEST(sparse_pushes_are_dense_ones_with_zeros) {
    stage s;
    float w[6] = {0}, got[6] = {0}, want[6] = {0, 3, 0, 0, -2, 0}, value[2] = {3, -2};
    uint32_t index[2] = {1, 4}, wrong[2] = {4, 1}, beyond[1] = {6};
    open_stage(&s, 1, 1, 0, NULL);
    declare(&s, "w", 6, w);
    attach(&s);
    ck_assert_status(ts_client_push_sparse(s.client, 0, wrong, value, 2), TERSE_EINVAL);
    ck_assert_status(ts_client_push_sparse(s.client, 0, beyond, value, 1), TERSE_EINVAL);
    for (int step = 0; step < 2; step++) {
        ck_assert_ok(ts_client_push_sparse(s.client, 0, index, value, step ? 0 : 2)); /* the second has no pairs */
        ck_assert_ok(ts_client_pull(s.client, 0));
        run_stage(&s, 1);
        add_push(&s, last_heard(&s, 0, TERSE__HEADER__BODY_PUSH), 0, got);
        ck_assert_mem_eq(got, want, sizeof want);
        say_data(&s, 0, (uint64_t)step + 1, true, false, 0, w, sizeof w);
        ck_assert(ts_client_pulled(s.client, 0));
    }
    close_stage(&s);
}
END_TEST

typedef struct {
    unsigned left, back;
} lock_count;

static void note_left(void *context) { ((lock_count *)context)->left++; }
static void note_back(void *context) { ((lock_count *)context)->back++; }

/* How often a push and a pull of some tensors let go of the lock; what is pulled comes in the opposite order. */
static unsigned times_let_go(uint32_t tensors, uint32_t elems) {
    stage s;
    lock_count lock = {0};
    uint32_t next = 0;
    float *w = calloc((size_t)tensors * elems, sizeof *w), *x = calloc(elems, sizeof *x);
    ck_assert(w && x);
    open_stage(&s, 1, 1, 0, NULL);
    for (uint32_t t = 0; t < tensors; t++) {
        char name[16];
        snprintf(name, sizeof name, "w%u", t);
        declare(&s, name, elems, w + (size_t)t * elems);
    }
    attach(&s);
    ts_client_set_lock(s.client, note_back, note_left, &lock);
    for (uint32_t t = 0; t < tensors; t++) {
        ck_assert_ok(ts_client_push(s.client, t, x));
        ck_assert_ok(ts_client_pull(s.client, t));
    }
    run_stage(&s, 1);
    for (uint32_t t = tensors; t-- > 0;) {
        x[0] = (float)t + 1;
        say_data(&s, 0, 1, true, false, t, x, elems * sizeof *x);
        ck_assert(ts_client_pulled_all(s.client, &next) == (t == 0));
        ck_assert_uint_eq(next, t == 0 ? tensors : 0);
        ck_assert_float_eq(w[(size_t)t * elems], (float)t + 1);
    }
    ck_assert_uint_eq(lock.left, lock.back);
    close_stage(&s);
    free(w);
    free(x);
    return lock.left;
}

START_TEST(the_lock_is_let_go_of_for_work_that_is_worth_it) {
    ck_assert_uint_eq(times_let_go(20, 256), 1);  /* 1 KiB each, twice in a push and once in a pull: 60 KiB */
    ck_assert_uint_eq(times_let_go(2, 16384), 6); /* 64 KiB each, every time */
}
END_TEST

TCase *test_client(void);
TCase *test_client(void) {
    TCase *tests = tcase_create("client");
    tcase_add_test(tests, a_dense_round);
    tcase_add_test(tests, sent_and_residual_make_up_the_gradient);
    tcase_add_test(tests, a_refused_packet_returns_to_the_residual);
    tcase_add_test(tests, a_refusal_that_is_heard_again_restarts_no_chain);
    tcase_add_test(tests, pushes_are_repeated_until_answered_and_pulls_until_served);
    tcase_add_test(tests, versions_are_applied_in_order_and_once);
    tcase_add_test(tests, a_packet_that_comes_again_while_it_is_decoded_is_in_nobodys_way);
    tcase_add_test(tests, a_large_packet_whose_server_dies_while_it_is_encoded_names_it_to_its_stand_in);
    tcase_add_test(tests, without_optimizer_the_average_replaces);
    tcase_add_test(tests, small_tensors_share_a_frame_and_large_ones_do_not_wait);
    tcase_add_test(tests, clipping_scales_by_the_norm_of_the_whole_step);
    tcase_add_test(tests, waits_in_vain_are_refused);
    tcase_add_test(tests, the_lock_is_let_go_of_for_work_that_is_worth_it);
    tcase_add_test(tests, sparse_pushes_are_dense_ones_with_zeros);
    return tests;
}
