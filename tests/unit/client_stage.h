/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stage for tests of the client's core: one real client, and servers played
 * by hand over the in-process transport. Inline, so that only the tests that
 * use it need the client.
 */
#ifndef TS_UNIT_CLIENT_STAGE_H
#define TS_UNIT_CLIENT_STAGE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/net/sim_transport.h"
#include "common/wire/bundle.h"
#include "common/wire/frame.h"
#include "tests/unit/unit.h"
#include "worker/client/client.h"

#define MAX_FRAMES 64
#define MAX_SERVERS 2

/* What one played server has received, oldest first. */
typedef struct {
    ts_buffer *buffer[MAX_FRAMES];
    ts_frame frame[MAX_FRAMES];
    unsigned count;
} inbox;

typedef struct {
    ts_config *config;
    ts_sim_network *network;
    uint32_t servers, worker_peer;
    inbox received[MAX_SERVERS];
    ts_client *client;
    uint32_t life;           /* of the client, to which answers are said; 0: the first */
} stage;

static inline void on_frame(void *context, uint32_t peer, ts_buffer *buffer) {
    inbox *box = context;
    (void)peer;
    ck_assert_uint_lt(box->count, MAX_FRAMES);
    box->buffer[box->count] = ts_buffer_ref(buffer);
    ck_assert_ok(ts_frame_parse(buffer, &box->frame[box->count]));
    box->count++;
}

static inline void empty_inbox(inbox *box) {
    for (unsigned i = 0; i < box->count; i++) {
        ts_frame_release(&box->frame[i]);
        ts_buffer_unref(box->buffer[i]);
    }
    box->count = 0;
}

/* A stage with the client of worker `worker`; overrides end with NULL. absent: servers that are dead already; NULL: none. */
static inline void open_stage_without(stage *s, uint32_t servers, uint32_t workers, uint32_t worker, const char *const *overrides,
                                      const ts_dead_set *absent) {
    char path[] = "/tmp/terse-test-client-XXXXXX";
    int descriptor = mkstemp(path);
    ck_assert_int_ge(descriptor, 0);
    FILE *file = fdopen(descriptor, "w");
    ck_assert_ptr_nonnull(file);
    fputs("training: {data: none}\noptimizer: {name: sgd, lr: 0.1, momentum: 0}\n"
          "push: {default: dense}\npull: {default: dense}\nconsistency: {mode: bsp, deadline_s: 5, start_s: 9}\n", file);
    fclose(file);
    const char *list[16];
    unsigned count = 0;
    ts_error error = {""};
    while (overrides && overrides[count]) { list[count] = overrides[count]; count++; }
    memset(s, 0, sizeof *s);
    terse_status status = ts_config_load(path, list, count, &s->config, &error);
    unlink(path);
    ck_assert_msg(status == TERSE_OK, "%s", error.text);
    ts_sim_options options = {.seed = 1, .servers = servers, .workers = workers, .frame_limit_bytes = 64u << 20};
    ck_assert_ok(ts_sim_network_create(&options, &s->network));
    s->servers = servers;
    s->worker_peer = servers + worker;
    for (uint32_t i = 0; i < servers; i++)
        ts_sim_endpoint(s->network, i)->handler = (ts_transport_handler){.context = &s->received[i], .on_frame = on_frame};
    if (absent) ts_sim_endpoint(s->network, s->worker_peer)->absent = *absent;
    ck_assert_ok(ts_client_create(s->config, ts_sim_endpoint(s->network, s->worker_peer), &s->client));
}

static inline void open_stage(stage *s, uint32_t servers, uint32_t workers, uint32_t worker, const char *const *overrides) {
    open_stage_without(s, servers, workers, worker, overrides, NULL);
}

static inline void close_stage(stage *s) {
    ts_client_destroy(s->client);
    for (uint32_t i = 0; i < s->servers; i++) empty_inbox(&s->received[i]);
    ts_sim_network_destroy(s->network);
    ts_config_free(s->config);
}

/* Lets everything arrive; then `us` of fake time pass in ticks of 20 ms. */
static inline void run_stage(stage *s, uint64_t us) {
    uint64_t end = ts_sim_now_us(s->network) + us;
    for (;;) {
        uint64_t now = ts_sim_now_us(s->network), until = now + 20000 < end ? now + 20000 : end;
        uint32_t peer;
        while (ts_sim_step(s->network, until, &peer)) {
            ts_transport *endpoint = ts_sim_endpoint(s->network, peer);
            while (endpoint->ops->poll(endpoint)) {}
        }
        if (until >= end) return;
        ts_client_tick(s->client);
    }
}

/* A played server says something. */
static inline void say_frame(stage *s, uint32_t server, ts_buffer *frame) {
    ts_transport *endpoint = ts_sim_endpoint(s->network, server);
    ck_assert_ok(endpoint->ops->send(endpoint, s->worker_peer, frame));
    ts_buffer_unref(frame);
    run_stage(s, 1);
}

static inline void say_header(stage *s, uint32_t server, Terse__Header__BodyCase body_case, void *body) {
    Terse__Header header = TERSE__HEADER__INIT;
    header.body_case = body_case;
    header.welcome = body;
    ts_buffer *frame = NULL;
    ck_assert_ok(ts_frame_control(&header, &frame));
    say_frame(s, server, frame);
}

static inline void say_welcome(stage *s, uint32_t server, Terse__Welcome__Verdict verdict, terse_status status) {
    Terse__Welcome welcome = TERSE__WELCOME__INIT;
    welcome.verdict = verdict;
    welcome.status = (uint32_t)status;
    welcome.reason = (char *)"tensor w: shape 3 here, 4 there";
    say_header(s, server, TERSE__HEADER__BODY_WELCOME, &welcome);
}

static inline void say_ack(stage *s, uint32_t server, uint64_t step, terse_status status, const uint32_t *slices, size_t count) {
    Terse__Ack ack = TERSE__ACK__INIT;
    ack.step = step;
    ack.status = (uint32_t)status;
    ack.slices = (uint32_t *)(uintptr_t)slices;
    ack.n_slices = count;
    ack.reason = (char *)"for a reason";
    ack.incarnation = s->life;
    say_header(s, server, TERSE__HEADER__BODY_ACK, &ack);
}

static inline void say_data(stage *s, uint32_t server, uint64_t version, bool snapshot, bool params, uint32_t slice,
                     const void *packet, size_t len) {
    Terse__Data data = TERSE__DATA__INIT;
    data.version = version;
    data.snapshot = snapshot;
    data.params = params;
    Terse__Header header = TERSE__HEADER__INIT;
    header.body_case = TERSE__HEADER__BODY_DATA;
    header.data = &data;
    ts_buffer *frame = NULL;
    ck_assert_ok(ts_frame_begin(&header, len + 16, &frame));
    ts_bundle_writer writer = ts_bundle_write(frame);
    ck_assert_ok(ts_bundle_add(&writer, slice, packet, len));
    ck_assert_ok(ts_frame_finish(frame));
    say_frame(s, server, frame);
}

/* How many frames of a kind a server got; the last of them. */
static inline unsigned heard(const stage *s, uint32_t server, Terse__Header__BodyCase body_case, const ts_frame **last) {
    unsigned count = 0;
    for (unsigned i = 0; i < s->received[server].count; i++) {
        if (s->received[server].frame[i].header->body_case != body_case) continue;
        if (last) *last = &s->received[server].frame[i];
        count++;
    }
    return count;
}

static inline const ts_frame *last_heard(const stage *s, uint32_t server, Terse__Header__BodyCase body_case) {
    const ts_frame *last = NULL;
    ck_assert_uint_gt(heard(s, server, body_case, &last), 0);
    return last;
}

/* Adds what the packets of a push decode to. */
static inline void add_push(const stage *s, const ts_frame *frame, uint32_t tensor, float *sum) {
    const ts_contract *contract = ts_client_contract(s->client);
    ts_codec_spec spec = ts_contract_push_spec(contract, tensor, 0);
    ts_scratch *scratch = NULL;
    ck_assert_ok(ts_scratch_create(&scratch));
    ts_bundle_reader reader = ts_bundle_read(frame->payload, frame->payload_bytes, contract->server_slices[0]);
    uint32_t local;
    const uint8_t *packet;
    size_t len;
    while (ts_bundle_next(&reader, &local, &packet, &len) == TERSE_OK) {
        for (uint32_t i = 0; i < contract->slice_count; i++) {
            const ts_slice *slice = &contract->slices[i];
            if (slice->server != 0 || slice->local != local || slice->tensor != tensor) continue;
            ck_assert_ok(ts_decode_add(scratch, &spec, NULL, i - contract->tensors[tensor].first_slice,
                                       frame->header->push->step, packet, len, sum + slice->first));
        }
    }
    ts_scratch_destroy(scratch);
}

static inline uint32_t declare(stage *s, const char *name, int64_t n, float *param) {
    uint32_t id = 0;
    ck_assert_ok(ts_client_declare(s->client, name, &n, 1, param, &id));
    return id;
}

/* Attaches worker 0 with all servers saying yes and acknowledging whatever is set. */
static inline void attach(stage *s) {
    ck_assert_ok(ts_client_start(s->client));
    run_stage(s, 1);
    for (uint32_t i = 0; i < s->servers; i++) {
        uint32_t all[MAX_FRAMES], count = ts_client_contract(s->client)->server_slices[i];
        for (uint32_t j = 0; j < count; j++) all[j] = j;
        say_welcome(s, i, TERSE__WELCOME__VERDICT__ACCEPTED, TERSE_OK);
        say_ack(s, i, 0, TERSE_OK, all, count);
    }
    ck_assert_int_eq(ts_client_get_state(s->client), TS_CLIENT_TRAINING);
    for (uint32_t i = 0; i < s->servers; i++) empty_inbox(&s->received[i]);
}

#endif
