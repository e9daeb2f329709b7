/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"
#include "common/net/sim_transport.h"
#include "tests/unit/unit.h"

#define FRAMES 400

/* What one endpoint has heard. */
typedef struct {
    uint32_t count;
    uint32_t from[4 * FRAMES], number[4 * FRAMES];
    uint64_t at_us[4 * FRAMES];
    uint32_t spoilt;
    ts_sim_network *network;
} ear;

static void on_frame(void *context, uint32_t peer, ts_buffer *frame) {
    ear *e = context;
    ck_assert_uint_lt(e->count, 4 * FRAMES);
    ck_assert_uint_eq(frame->len, 8);
    e->from[e->count] = peer;
    e->number[e->count] = ts_load_u32(frame->data);
    e->at_us[e->count] = ts_sim_now_us(e->network);
    if (ts_load_u32(frame->data + 4) != ~e->number[e->count]) e->spoilt++;
    e->count++;
}

static ts_sim_network *open_network(const ts_sim_options *options, ear *ears) {
    ts_sim_network *network;
    ck_assert_ok(ts_sim_network_create(options, &network));
    for (uint32_t p = 0; p < options->servers + options->workers; p++) {
        memset(&ears[p], 0, sizeof ears[p]);
        ears[p].network = network;
        ts_sim_endpoint(network, p)->handler = (ts_transport_handler){.context = &ears[p], .on_frame = on_frame};
    }
    return network;
}

static terse_status say(ts_sim_network *network, uint32_t from, uint32_t to, uint32_t number) {
    ts_buffer *frame;
    ck_assert_ok(ts_buffer_create(8, &frame));
    ts_store_u32(frame->data, number);
    ts_store_u32(frame->data + 4, ~number);
    frame->len = 8;
    ts_transport *transport = ts_sim_endpoint(network, from);
    terse_status status = transport->ops->send(transport, to, frame);
    ts_buffer_unref(frame);
    return status;
}

static void run(ts_sim_network *network, uint64_t until_us) {
    uint32_t peer;
    while (ts_sim_step(network, until_us, &peer)) {
        ts_transport *transport = ts_sim_endpoint(network, peer);
        while (transport->ops->poll(transport)) {}
    }
    ck_assert_uint_eq(ts_sim_now_us(network), until_us);
}

static ts_sim_options calm(void) {
    return (ts_sim_options){.seed = 1, .servers = 1, .workers = 2, .delay_min_us = 10, .delay_max_us = 500,
                            .frame_limit_bytes = 1000};
}

static ear ears[3];

START_TEST(without_faults_all_arrives_in_order_and_in_time) {
    ts_sim_options options = calm();
    ts_sim_network *network = open_network(&options, ears);
    for (uint32_t i = 0; i < FRAMES; i++) {
        ck_assert_ok(say(network, 1, 0, i));
        ck_assert_ok(say(network, 2, 0, i));
    }
    run(network, 1000);
    ck_assert_uint_eq(ears[0].count, 2 * FRAMES);
    uint32_t next[3] = {0};
    for (uint32_t i = 0; i < ears[0].count; i++) {
        ck_assert_uint_eq(ears[0].number[i], next[ears[0].from[i]]++);
        ck_assert(ears[0].at_us[i] >= 10 && ears[0].at_us[i] <= 500);
        ck_assert(i == 0 || ears[0].at_us[i] >= ears[0].at_us[i - 1]);
    }
    ts_transport_counters counters;
    ts_transport *server = ts_sim_endpoint(network, 0), *worker = ts_sim_endpoint(network, 1);
    server->ops->counters(server, &counters);
    ck_assert_uint_eq(counters.frames_in, 2 * FRAMES);
    ck_assert_uint_eq(counters.bytes_in, 2 * FRAMES * 8);
    worker->ops->counters(worker, &counters);
    ck_assert_uint_eq(counters.frames_out, FRAMES);
    ck_assert_uint_eq(counters.bytes_out, FRAMES * 8);
    ts_sim_network_destroy(network);
}
END_TEST

START_TEST(peers_have_roles_and_numbers) {
    ts_sim_options options = calm();
    ts_sim_network *network = open_network(&options, ears);
    const ts_transport *transport = ts_sim_endpoint(network, 2);
    ck_assert_uint_eq(transport->self, 2);
    ck_assert_uint_eq(transport->servers, 1);
    ck_assert_uint_eq(transport->workers, 2);
    ck_assert_uint_eq(ts_transport_find(transport, TS_ROLE_SERVER, 0), 0);
    ck_assert_uint_eq(ts_transport_find(transport, TS_ROLE_WORKER, 1), 2);
    ck_assert_uint_eq(ts_transport_find(transport, TS_ROLE_WORKER, 2), transport->peer_count);
    ck_assert_str_eq(transport->peers[2].name, "worker 1");
    ts_sim_network_destroy(network);
}
END_TEST

/* One noisy run; what the server heard. */
static uint64_t noisy(uint64_t seed, ear *server, uint32_t *heard) {
    ts_sim_options options = calm();
    options.seed = seed;
    options.reorder = true;
    options.drop = 0.1;
    options.duplicate = 0.2;
    options.corrupt = 0.1;
    ts_sim_network *network = open_network(&options, ears);
    for (uint32_t i = 0; i < FRAMES; i++) ck_assert_ok(say(network, 1, 0, i));
    run(network, 1000);
    *server = ears[0];
    *heard = ears[0].count;
    uint64_t digest = 0;
    for (uint32_t i = 0; i < ears[0].count; i++) digest = digest * 1000003 + ears[0].number[i] + ears[0].at_us[i];
    ts_sim_network_destroy(network);
    return digest;
}

static ear server;

START_TEST(faults_come_as_often_as_asked_and_by_seed) {
    uint32_t heard;
    uint64_t first = noisy(5, &server, &heard);
    ck_assert(heard > FRAMES * 0.9 * 1.1 && heard < FRAMES * 0.9 * 1.3);
    ck_assert(server.spoilt > heard * 0.04 && server.spoilt < heard * 0.2);
    uint32_t turned = 0;
    for (uint32_t i = 1; i < heard; i++) turned += server.number[i] < server.number[i - 1];
    ck_assert_uint_gt(turned, FRAMES / 4);
    ck_assert_uint_eq(noisy(5, &server, &heard), first);
    ck_assert_uint_ne(noisy(6, &server, &heard), first);
}
END_TEST

START_TEST(corruption_spoils_a_copy_only) {
    ts_sim_options options = calm();
    options.corrupt = 1;
    ts_sim_network *network = open_network(&options, ears);
    ts_buffer *frame;
    ck_assert_ok(ts_buffer_create(8, &frame));
    memset(frame->data, 0xaa, 8);
    frame->len = 8;
    ts_transport *transport = ts_sim_endpoint(network, 0);
    ck_assert_ok(transport->ops->send(transport, 1, frame));
    run(network, 1000);
    ck_assert_uint_eq(ears[1].count, 1);
    for (int i = 0; i < 8; i++) ck_assert_uint_eq(frame->data[i], 0xaa);
    ts_buffer_unref(frame);
    ts_sim_network_destroy(network);
}
END_TEST

START_TEST(the_dead_hear_and_say_nothing_until_they_come_back) {
    ts_sim_options options = calm();
    ts_sim_network *network = open_network(&options, ears);
    ck_assert_ok(say(network, 1, 0, 1));
    ck_assert_ok(say(network, 0, 1, 2));
    ts_sim_kill(network, 1);
    run(network, 1000);
    ck_assert_uint_eq(ears[0].count, 0); /* what was under way from it went with it */
    ck_assert_uint_eq(ears[1].count, 0);
    ck_assert_ok(say(network, 0, 1, 3));
    run(network, 2000);
    ck_assert_uint_eq(ears[1].count, 0);
    ts_sim_revive(network, 1);
    run(network, 3000);
    ck_assert_uint_eq(ears[1].count, 0);
    ck_assert_ok(say(network, 0, 1, 4));
    ck_assert_ok(say(network, 1, 0, 5));
    run(network, 4000);
    ck_assert_uint_eq(ears[1].count, 1);
    ck_assert_uint_eq(ears[1].number[0], 4);
    ck_assert_uint_eq(ears[0].number[0], 5);
    ts_sim_network_destroy(network);
}
END_TEST

START_TEST(a_cut_link_carries_nothing_either_way) {
    ts_sim_options options = calm();
    ts_sim_network *network = open_network(&options, ears);
    ts_sim_cut(network, 0, 1, true);
    ck_assert_ok(say(network, 0, 1, 1));
    ck_assert_ok(say(network, 1, 0, 1));
    ck_assert_ok(say(network, 2, 0, 1));
    run(network, 1000);
    ck_assert_uint_eq(ears[1].count, 0);
    ck_assert_uint_eq(ears[0].count, 1);
    ts_sim_cut(network, 1, 0, false);
    ck_assert_ok(say(network, 0, 1, 2));
    run(network, 2000);
    ck_assert_uint_eq(ears[1].count, 1);
    ts_sim_network_destroy(network);
}
END_TEST

START_TEST(refusals_are_told_and_counted) {
    ts_sim_options options = calm();
    options.frame_limit_bytes = 7;
    ts_sim_network *network = open_network(&options, ears);
    ck_assert_status(say(network, 0, 1, 1), TERSE_ELIMIT);
    ck_assert_status(say(network, 0, 3, 1), TERSE_EPEER);
    ts_transport *transport = ts_sim_endpoint(network, 0);
    transport->ops->drop_peer(transport, 2);
    ck_assert_status(say(network, 0, 2, 1), TERSE_EPEER);
    ts_transport_counters counters;
    transport->ops->counters(transport, &counters);
    ck_assert_uint_eq(counters.dropped, 1);
    ck_assert_uint_eq(counters.frames_out, 0);
    ts_sim_network_destroy(network);
}
END_TEST

START_TEST(the_clock_moves_to_what_happens_and_no_further) {
    ts_sim_options options = calm();
    options.delay_min_us = options.delay_max_us = 100;
    ts_sim_network *network = open_network(&options, ears);
    uint32_t peer = 9;
    ck_assert(!ts_sim_step(network, 50, &peer));
    ck_assert_uint_eq(ts_sim_now_us(network), 50);
    ck_assert_ok(say(network, 0, 2, 1));
    ck_assert(!ts_sim_step(network, 149, &peer));
    ck_assert(ts_sim_step(network, 500, &peer));
    ck_assert_uint_eq(peer, 2);
    ck_assert_uint_eq(ts_sim_now_us(network), 150);
    ts_sim_network_destroy(network); /* with a frame in an inbox */
}
END_TEST

START_TEST(who_does_not_read_leaves_it_in_the_senders_queues) {
    ts_sim_options options = calm();
    ts_sim_network *network = open_network(&options, ears);
    const ts_transport *from = ts_sim_endpoint(network, 0);
    uint32_t peer = 9;
    ts_sim_stop_reading(network, 2, true);
    for (int i = 0; i < 3; i++) ck_assert_ok(say(network, 0, 2, 1));
    ck_assert(!ts_sim_step(network, 1000000, &peer));
    size_t queued = from->ops->queued(from, 2);
    ck_assert_uint_gt(queued, 0);
    ck_assert_uint_eq(from->ops->queued(from, 1), 0);
    ts_sim_stop_reading(network, 2, false);
    ck_assert_uint_eq(from->ops->queued(from, 2), 0);
    for (int i = 0; i < 3; i++) ck_assert(ts_sim_step(network, 3000000, &peer));
    ck_assert(!ts_sim_step(network, 3000000, &peer));
    ts_sim_stop_reading(network, 2, true);
    ck_assert_ok(say(network, 0, 2, 1));
    ts_sim_kill(network, 2); /* what was queued for the dead is gone */
    ck_assert_uint_eq(from->ops->queued(from, 2), 0);
    ts_sim_stop_reading(network, 1, true);
    ck_assert_ok(say(network, 0, 1, 1));
    ts_sim_network_destroy(network); /* with a frame in a queue */
}
END_TEST

TCase *test_sim_transport(void);
TCase *test_sim_transport(void) {
    TCase *tests = tcase_create("sim_transport");
    tcase_add_test(tests, without_faults_all_arrives_in_order_and_in_time);
    tcase_add_test(tests, peers_have_roles_and_numbers);
    tcase_add_test(tests, faults_come_as_often_as_asked_and_by_seed);
    tcase_add_test(tests, corruption_spoils_a_copy_only);
    tcase_add_test(tests, the_dead_hear_and_say_nothing_until_they_come_back);
    tcase_add_test(tests, a_cut_link_carries_nothing_either_way);
    tcase_add_test(tests, refusals_are_told_and_counted);
    tcase_add_test(tests, who_does_not_read_leaves_it_in_the_senders_queues);
    tcase_add_test(tests, the_clock_moves_to_what_happens_and_no_further);
    return tests;
}
