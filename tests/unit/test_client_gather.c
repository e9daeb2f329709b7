/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/client_stage.h"

/* Small packets on their way into frames, of server 0's slices. */
enum { TENSORS = 40, ELEMS = 4096 };

typedef struct {
    stage s;
    float w[TENSORS][ELEMS], g[TENSORS][ELEMS]; /* tensor t's gradient is t + 1 everywhere */
    unsigned left, said[TENSORS];               /* how often the lock was left, and a tensor was found in a frame */
} scene;

static scene *open_scene(uint32_t servers, uint32_t tensors, uint32_t elems) {
    scene *c = calloc(1, sizeof *c);
    ck_assert_ptr_nonnull(c);
    open_stage(&c->s, servers, 1, 0, NULL);
    for (uint32_t t = 0; t < tensors; t++) {
        char name[16];
        snprintf(name, sizeof name, "w%02u", t);
        declare(&c->s, name, elems, c->w[t]);
        for (uint32_t i = 0; i < elems; i++) c->g[t][i] = (float)t + 1;
    }
    attach(&c->s);
    return c;
}

static void close_scene(scene *c) {
    close_stage(&c->s);
    free(c);
}

static void push(scene *c, uint32_t t) { ck_assert_ok(ts_client_push(c->s.client, t, c->g[t])); }

/* Reads the frame and counts what is in it. Returns how many packets that is. */
static unsigned read_push(scene *c, const ts_frame *frame) {
    const ts_contract *contract = ts_client_contract(c->s.client);
    ts_bundle_reader reader = ts_bundle_read(frame->payload, frame->payload_bytes, contract->server_slices[0]);
    unsigned count = 0;
    uint32_t local;
    const uint8_t *packet;
    size_t len;
    terse_status status;
    while ((status = ts_bundle_next(&reader, &local, &packet, &len)) == TERSE_OK) {
        const ts_slice *slice = NULL;
        for (uint32_t i = 0; i < contract->slice_count; i++)
            if (contract->slices[i].server == 0 && contract->slices[i].local == local) slice = &contract->slices[i];
        ck_assert_ptr_nonnull(slice);
        float *sum = calloc(slice->n, sizeof *sum);
        ck_assert_ptr_nonnull(sum);
        add_push(&c->s, frame, slice->tensor, sum);
        for (size_t i = 0; i < slice->n; i++) ck_assert_float_eq(sum[i], (float)slice->tensor + 1);
        free(sum);
        c->said[slice->tensor]++;
        count++;
    }
    ck_assert_int_eq(status, TERSE_EAGAIN);
    return count;
}

/* Of the number-th push that came, oldest first; 0 when there is none. */
static unsigned packets_at(scene *c, uint32_t server, unsigned number) {
    const inbox *box = &c->s.received[server];
    for (unsigned i = 0; i < box->count; i++)
        if (box->frame[i].header->body_case == TERSE__HEADER__BODY_PUSH && number-- == 0) return read_push(c, &box->frame[i]);
    return 0;
}

static unsigned packets_of(scene *c, unsigned number) { return packets_at(c, 0, number); }

START_TEST(equal_packets_fill_frames_which_leave_when_they_are_full) {
    scene *c = open_scene(1, 31, ELEMS);
    for (uint32_t t = 0; t < 31; t++) {
        push(c, t);
        run_stage(&c->s, 1);
        unsigned frames = t == 30 ? 3 : t >= 29 ? 2 : t >= 14 ? 1 : 0; /* 15 packets of 16 KiB and what is in front of them */
        ck_assert_uint_eq(heard(&c->s, 0, TERSE__HEADER__BODY_PUSH, NULL), frames);
    }
    ck_assert_uint_eq(packets_of(c, 0), 15);
    ck_assert_uint_eq(packets_of(c, 1), 15);
    ck_assert_uint_eq(packets_of(c, 2), 1);
    for (uint32_t t = 0; t < 31; t++) ck_assert_uint_eq(c->said[t], 1);
    close_scene(c);
}
END_TEST

START_TEST(whatever_order_they_come_in_they_share_a_frame) {
    static const uint32_t orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 1, 3, 2}, {1, 3, 0, 2}};
    for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
        scene *c = open_scene(1, 4, 100);
        for (int i = 0; i < 4; i++) push(c, orders[o][i]);
        run_stage(&c->s, 1);
        ck_assert_uint_eq(heard(&c->s, 0, TERSE__HEADER__BODY_PUSH, NULL), 1);
        ck_assert_uint_eq(packets_of(c, 0), 4);
        close_scene(c);
    }
}
END_TEST

START_TEST(what_a_header_says_is_so_of_all_that_is_in_its_frame) {
    scene *c = open_scene(1, 4, 100);
    for (uint32_t t = 0; t < 4; t++) {
        ts_client_set_samples(c->s.client, t < 2 ? 5 : 6);
        push(c, t);
    }
    run_stage(&c->s, 1);
    ck_assert_uint_eq(heard(&c->s, 0, TERSE__HEADER__BODY_PUSH, NULL), 2);
    ck_assert_uint_eq(packets_of(c, 0), 2);
    ck_assert(c->said[0] == 1 && c->said[1] == 1);
    ck_assert_uint_eq(packets_of(c, 1), 2);
    ck_assert_uint_eq(last_heard(&c->s, 0, TERSE__HEADER__BODY_PUSH)->header->push->samples, 6);
    close_scene(c);
}
END_TEST

START_TEST(packets_of_one_frame_are_answered_for_and_repeated_one_by_one) {
    scene *c = open_scene(1, 3, 100);
    for (uint32_t t = 0; t < 3; t++) {
        push(c, t);
        ck_assert_ok(ts_client_pull(c->s.client, t));
    }
    run_stage(&c->s, 1);
    empty_inbox(&c->s.received[0]);
    say_data(&c->s, 0, 1, true, false, 1, c->g[1], 100 * sizeof(float));
    run_stage(&c->s, 1500000);
    ck_assert_uint_eq(heard(&c->s, 0, TERSE__HEADER__BODY_PUSH, NULL), 1);
    ck_assert_uint_eq(packets_of(c, 0), 2);
    ck_assert(c->said[0] == 1 && c->said[1] == 0 && c->said[2] == 1);
    close_scene(c);
}
END_TEST

START_TEST(frames_are_made_as_large_as_what_lately_came_together) {
    scene *c = open_scene(1, TENSORS, ELEMS);
    for (uint32_t t = 0; t < TENSORS; t++) {
        push(c, t);
        ts_client_flush(c->s.client);
        run_stage(&c->s, 1);
        ck_assert_uint_eq(packets_of(c, t), 1);
    }
    const inbox *box = &c->s.received[0];
    ck_assert_uint_gt(box->buffer[0]->capacity, 8 * sizeof c->g[0]); /* others might have come */
    ck_assert_uint_lt(box->buffer[box->count - 1]->capacity, 2 * sizeof c->g[0]);
    close_scene(c);
}
END_TEST

static void come_back(void *context) { (void)context; }

/* Somebody else has the lock, for so long that what waits is sent. */
static void let_others(void *context) {
    scene *c = context;
    c->left++;
    run_stage(&c->s, 60000);
}

START_TEST(a_frame_may_leave_while_another_packet_is_written_into_it) {
    scene *c = open_scene(1, 12, ELEMS);
    ts_client_set_lock(c->s.client, come_back, let_others, c);
    for (uint32_t t = 0; t < 12; t++) push(c, t);
    ts_client_set_lock(c->s.client, NULL, NULL, NULL);
    run_stage(&c->s, 1);
    ck_assert_uint_gt(c->left, 6);
    unsigned frames = heard(&c->s, 0, TERSE__HEADER__BODY_PUSH, NULL), packets = 0;
    ck_assert_uint_gt(frames, 3);
    for (unsigned i = 0; i < frames; i++) packets += packets_of(c, i);
    ck_assert_uint_eq(packets, 12);
    for (uint32_t t = 0; t < 12; t++) ck_assert_uint_eq(c->said[t], 1);
    close_scene(c);
}
END_TEST

START_TEST(what_waits_for_a_dead_server_goes_to_its_stand_in) {
    scene *c = open_scene(2, 12, 100);
    const ts_contract *contract = ts_client_contract(c->s.client);
    uint32_t its[12], count = 0, dead = 0;
    for (uint32_t t = 0; t < 12; t++)
        if (contract->slices[contract->tensors[t].first_slice].server == 0) its[count++] = t;
    ck_assert_uint_ge(count, 4);
    push(c, its[0]);
    push(c, its[1]);
    Terse__Heartbeat beat = TERSE__HEARTBEAT__INIT;
    beat.replicas = 1;
    beat.dead = &dead;
    beat.n_dead = 1;
    say_header(&c->s, 1, TERSE__HEADER__BODY_HEARTBEAT, &beat);
    push(c, its[2]);
    run_stage(&c->s, 60000);
    ck_assert_uint_eq(heard(&c->s, 0, TERSE__HEADER__BODY_PUSH, NULL), 0);
    ck_assert_uint_eq(heard(&c->s, 1, TERSE__HEADER__BODY_PUSH, NULL), 1);
    ck_assert_uint_eq(last_heard(&c->s, 1, TERSE__HEADER__BODY_PUSH)->header->part, 1); /* server 0's */
    ck_assert_uint_eq(packets_at(c, 1, 0), 3);
    close_scene(c);
}
END_TEST

TCase *test_client_gather(void);
TCase *test_client_gather(void) {
    TCase *tests = tcase_create("client_gather");
    tcase_add_test(tests, equal_packets_fill_frames_which_leave_when_they_are_full);
    tcase_add_test(tests, whatever_order_they_come_in_they_share_a_frame);
    tcase_add_test(tests, what_a_header_says_is_so_of_all_that_is_in_its_frame);
    tcase_add_test(tests, packets_of_one_frame_are_answered_for_and_repeated_one_by_one);
    tcase_add_test(tests, frames_are_made_as_large_as_what_lately_came_together);
    tcase_add_test(tests, a_frame_may_leave_while_another_packet_is_written_into_it);
    tcase_add_test(tests, what_waits_for_a_dead_server_goes_to_its_stand_in);
    return tests;
}
