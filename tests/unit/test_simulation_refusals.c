/* SPDX-License-Identifier: Apache-2.0 */
/* Whole clusters in which one worker's packets are bent on their way, with a checksum that is right. */
#include <string.h>

#include "common/wire/bundle.h"
#include "common/wire/frame.h"
#include "tests/sim/cluster.h"
#include "tests/unit/unit.h"

#define SERVER 0u
#define WORKERS 2u
#define VICTIM_PEER 2u /* worker 1 behind the one server; its slice 0 is meant */
#define SECOND 1000000ull
#define STEPS 12u

typedef struct {
    uint64_t step;         /* of the packet that is bent */
    unsigned times;        /* transmissions of it that are, from the first on */
    bool nan;              /* its first value becomes NaN (fp16, behind `delta`'s byte); else its last byte is cut off */
    unsigned lose;         /* answers ESTALE that are lost */
    unsigned bent, stale, corrupt;
    uint8_t head[STEPS];   /* the first byte of each step's packet, as it was first sent */
    bool seen[STEPS];
} meddler;

/* The frame again, with slice 0 bent. */
static ts_buffer *bend(meddler *m, const ts_frame *frame) {
    ts_buffer *out = NULL;
    ck_assert_ok(ts_frame_begin(frame->header, frame->payload_bytes + 64, &out));
    ts_bundle_writer writer = ts_bundle_write(out);
    ts_bundle_reader reader = ts_bundle_read(frame->payload, frame->payload_bytes, 64);
    uint32_t slice;
    const uint8_t *packet;
    size_t len;
    while (ts_bundle_next(&reader, &slice, &packet, &len) == TERSE_OK) {
        uint8_t copy[4096];
        ck_assert_uint_lt(len, sizeof copy);
        memcpy(copy, packet, len);
        if (slice == 0 && m->nan) memcpy(copy + 1, "\x00\x7E", 2);
        ck_assert_ok(ts_bundle_add(&writer, slice, copy, slice == 0 && !m->nan ? len - 1 : len));
    }
    ck_assert_ok(ts_frame_finish(out));
    m->bent++;
    return out;
}

/* The first byte of slice 0's packet, or false when the frame has none. */
static bool first_byte(const ts_frame *frame, uint8_t *byte) {
    ts_bundle_reader reader = ts_bundle_read(frame->payload, frame->payload_bytes, 64);
    uint32_t slice = 1;
    const uint8_t *packet;
    size_t len = 0;
    if (ts_bundle_next(&reader, &slice, &packet, &len) != TERSE_OK || slice != 0 || len == 0) return false;
    *byte = packet[0];
    return true;
}

static ts_buffer *pushed(meddler *m, ts_buffer *buffer, const ts_frame *frame) {
    uint64_t step = frame->header->push->step;
    uint8_t byte;
    if (step >= STEPS || !first_byte(frame, &byte)) return ts_buffer_ref(buffer);
    if (!m->seen[step]) m->head[step] = byte;
    m->seen[step] = true;
    return step == m->step && m->bent < m->times ? bend(m, frame) : ts_buffer_ref(buffer);
}

static ts_buffer *meddle(void *context, uint64_t now_us, uint32_t from, uint32_t to, ts_buffer *buffer) {
    meddler *m = context;
    (void)now_us;
    ts_frame frame;
    if ((from != VICTIM_PEER && to != VICTIM_PEER) || ts_frame_parse(buffer, &frame) != TERSE_OK) return ts_buffer_ref(buffer);
    ts_buffer *out = NULL;
    if (from == VICTIM_PEER && frame.header->body_case == TERSE__HEADER__BODY_PUSH) {
        out = pushed(m, buffer, &frame);
    } else {
        bool ack = to == VICTIM_PEER && frame.header->body_case == TERSE__HEADER__BODY_ACK;
        bool stale = ack && frame.header->ack->status == TERSE_ESTALE;
        m->stale += stale;
        m->corrupt += ack && frame.header->ack->status == TERSE_ECORRUPT;
        if (!stale || m->stale > m->lose) out = ts_buffer_ref(buffer);
    }
    ts_frame_release(&frame);
    return out;
}

static void run(meddler *m, const char *const *overrides, unsigned count, ts_cluster_result *out) {
    ts_cluster_spec spec = {.network = {.seed = 3, .servers = 1, .workers = WORKERS, .delay_min_us = 100, .delay_max_us = 2000,
                                        .frame_limit_bytes = 1 << 20, .meddle = m ? meddle : NULL, .meddler = m},
                            .overrides = overrides, .override_count = count, .limit_us = 200 * SECOND};
    for (uint32_t w = 0; w < WORKERS; w++) spec.steps[w] = STEPS;
    ck_assert_ok(ts_cluster_run(&spec, out));
}

START_TEST(a_packet_that_is_corrupt_for_ever_ends_the_job_and_is_named) {
    meddler m = {.step = 2, .times = 1000};
    ts_cluster_result got;
    run(&m, NULL, 0, &got);
    ck_assert(got.ended && !got.finished);
    ck_assert_uint_eq(m.bent, 5);
    static const char *const says[] = {"server 0", "refused the same packet 5 times", "tensor a.weight", "elements 0 to 99",
                                       "step 2"};
    for (unsigned i = 0; i < 5; i++) ck_assert_msg(strstr(got.message, says[i]), "%s is not in: %s", says[i], got.message);
    ck_assert_uint_lt(got.took_us, 5 * SECOND);
    ts_cluster_result_free(&got);
}
END_TEST

START_TEST(a_packet_that_is_corrupt_now_and_then_changes_nothing) {
    meddler m = {.step = 2, .times = 4};
    ts_cluster_result got, clean;
    run(&m, NULL, 0, &got);
    run(NULL, NULL, 0, &clean);
    ck_assert_msg(got.finished, "%s", got.message);
    ck_assert_uint_eq(m.corrupt, 4);
    ck_assert_str_eq(got.xxh3, clean.xxh3);
    ts_cluster_result_free(&got);
    ts_cluster_result_free(&clean);
}
END_TEST

/* The chain begins anew as soon as the worker hears of it; until then each packet is left out, and no round waits. */
START_TEST(a_delta_chain_begins_anew_after_a_packet_of_nan) {
    static const char *const modes[] = {"consistency.mode=bsp", "consistency.mode=ssp", "consistency.mode=asp"};
    for (unsigned i = 0; i < 9; i++) {
        const char *overrides[] = {"push.default=delta:1000 | fp16", "push.rules=[]", "error_feedback.momentum_correction=0",
                                   i % 3 == 2 ? "error_feedback.enabled=false" : "optimizer.momentum=0", modes[i / 3]};
        unsigned lose = i % 3 == 1 ? 2 : 0;
        meddler m = {.step = 3, .times = 1, .nan = true, .lose = lose};
        ts_cluster_result got, clean;
        run(&m, overrides, 5, &got);
        run(NULL, overrides, 5, &clean);
        ck_assert_msg(got.finished, "%s", got.message);
        ck_assert_uint_eq(m.bent, 1);
        ck_assert_uint_eq(m.stale, 1 + lose);
        ck_assert_uint_eq(m.corrupt, 0);
        for (unsigned step = 1; step < STEPS; step++) /* 0 refreshes, 1 goes on from the packet before */
            ck_assert_msg(m.head[step] == (step != 4 + lose), "case %u, step %u: %u", i, step, m.head[step]);
        ck_assert_msg(got.took_us < clean.took_us + SECOND / 2, "case %u took %.2f s, without a fault %.2f s", i,
                      (double)got.took_us * 1e-6, (double)clean.took_us * 1e-6);
        ts_cluster_result_free(&got);
        ts_cluster_result_free(&clean);
    }
}
END_TEST

TCase *test_simulation_refusals(void);
TCase *test_simulation_refusals(void) {
    TCase *tests = tcase_create("simulation_refusals");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_packet_that_is_corrupt_for_ever_ends_the_job_and_is_named);
    tcase_add_test(tests, a_packet_that_is_corrupt_now_and_then_changes_nothing);
    tcase_add_test(tests, a_delta_chain_begins_anew_after_a_packet_of_nan);
    return tests;
}
