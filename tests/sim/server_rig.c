/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/server_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/wire/bundle.h"
#include "tests/unit/unit.h"

const size_t rig_slice_first[RIG_SLICES] = {0, 64, 100}, rig_slice_elems[RIG_SLICES] = {64, 36, 5};

/* ---- the rig ----------------------------------------------------------------------------------------------------------- */

static void keep_frame(void *context, uint32_t peer, ts_buffer *frame) {
    rig_inbox *in = context;
    (void)peer;
    ck_assert_uint_lt(in->count, RIG_INBOX);
    in->frames[in->count++] = ts_buffer_ref(frame);
}

ts_config *rig_config(const char *more) {
    char path[] = "/tmp/terse-test-XXXXXX.yaml";
    int descriptor = mkstemps(path, 5);
    ck_assert_int_ge(descriptor, 0);
    FILE *file = fdopen(descriptor, "w");
    fprintf(file, "training: {model: rig, data: none, seed: 7}\nworker: {plugin: /dev/null}\n"
                  "servers: {slice_elems: 64, history: 2}\nconsistency: {deadline_s: 4, start_s: %d, on_worker_loss: %s%s}\n%s",
            strstr(more, RIG_SLOW_START) ? 9 : 1, strstr(more, RIG_ENDS) ? "end" : "go_on",
            strstr(more, RIG_BACKUP) ? ", stragglers: backup, quorum: 2" : "", more);
    fclose(file);
    ts_config *config = NULL;
    ts_error error = {""};
    terse_status status = ts_config_load(path, NULL, 0, &config, &error);
    unlink(path);
    ck_assert_msg(status == TERSE_OK, "%s", error.text);
    return config;
}

ts_contract *rig_contract(const ts_config *config, int64_t first_extent) {
    ts_contract *contract;
    uint32_t id;
    int64_t a[] = {first_extent}, b[] = {5};
    const ts_pipeline *push = &config->push.parsed, *pull = &config->pull.parsed;
    ck_assert_ok(ts_config_contract(config, &contract));
    ck_assert_ok(ts_contract_add(contract, "a", a, 1, push, pull, false, &id, NULL));
    ck_assert_ok(ts_contract_add(contract, "b", b, 1, push, pull, false, &id, NULL));
    ck_assert_ok(ts_contract_seal(contract, 1));
    return contract;
}

rig *rig_create_on(uint32_t workers, const char *more, ts_executor *executor) {
    rig *r = calloc(1, sizeof *r);
    ts_sim_options options = {.seed = 1, .servers = 1, .workers = workers, .frame_limit_bytes = 1 << 26, .spare = RIG_WORKERS_MAX - workers};
    ts_log_set_level(TS_LOG_NONE);
    r->workers = workers;
    r->config = rig_config(more);
    ck_assert_ok(ts_sim_network_create(&options, &r->network));
    ck_assert_ok(ts_scratch_create(&r->scratch));
    r->contract = rig_contract(r->config, 100);
    for (uint32_t w = 0; w < workers; w++)
        ts_sim_endpoint(r->network, 1 + w)->handler =
            (ts_transport_handler){.context = &r->in[w], .on_frame = keep_frame};
    ck_assert_ok(ts_server_create(r->config, ts_sim_endpoint(r->network, 0), executor, &r->server));
    return r;
}

rig *rig_create(uint32_t workers, const char *more) { return rig_create_on(workers, more, &ts_executor_inline); }

static void clear_inbox(rig_inbox *in) {
    for (uint32_t i = 0; i < in->count; i++) ts_buffer_unref(in->frames[i]);
    in->count = 0;
}

void rig_destroy(rig *r) {
    ts_server_destroy(r->server);
    for (uint32_t w = 0; w < RIG_WORKERS_MAX; w++) clear_inbox(&r->in[w]);
    ts_contract_destroy(r->contract);
    ts_scratch_destroy(r->scratch);
    ts_sim_network_destroy(r->network);
    ts_config_free(r->config);
    free(r);
}

/* Delivers everything that is due, ticking every 50 ms. */
void rig_run(rig *r, uint64_t us) {
    uint64_t end = ts_sim_now_us(r->network) + us;
    for (;;) {
        uint64_t now = ts_sim_now_us(r->network), until = now + 50000 < end ? now + 50000 : end;
        uint32_t peer;
        while (ts_sim_step(r->network, until, &peer)) {
            ts_transport *endpoint = ts_sim_endpoint(r->network, peer);
            endpoint->ops->poll(endpoint);
            ts_server_flush(r->server);
        }
        ts_server_flush(r->server);
        ts_server_tick(r->server);
        if (until == end) break;
    }
}

void rig_send(rig *r, uint32_t w, ts_buffer *frame) {
    ts_transport *endpoint = ts_sim_endpoint(r->network, 1 + w);
    ck_assert_ok(endpoint->ops->send(endpoint, 0, frame));
    ts_buffer_unref(frame);
}

void rig_send_body(rig *r, uint32_t w, Terse__Header__BodyCase kind, void *body) {
    Terse__Header header = TERSE__HEADER__INIT;
    ts_buffer *frame;
    header.body_case = kind;
    header.hello = body; /* all members of the union are pointers */
    ck_assert_ok(ts_frame_control(&header, &frame));
    rig_send(r, w, frame);
}

/* How many frames of a kind the worker got; the last of them, parsed, when out is given. */
uint32_t rig_got(rig *r, uint32_t w, Terse__Header__BodyCase kind, ts_frame *out) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < r->in[w].count; i++) {
        ts_frame frame = {0};
        ck_assert_ok(ts_frame_parse(r->in[w].frames[i], &frame));
        if (frame.header->body_case != kind) {
            ts_frame_release(&frame);
            continue;
        }
        found++;
        if (out && found > 1) ts_frame_release(out);
        if (out) *out = frame;
        else ts_frame_release(&frame);
    }
    return found;
}

void rig_forget(rig *r) {
    for (uint32_t w = 0; w < RIG_WORKERS_MAX; w++) clear_inbox(&r->in[w]);
}

uint32_t rig_come(rig *r, uint32_t wanted, uint32_t *worker) {
    const ts_transport_wish wish = {.job = "default", .wanted = wanted};
    uint32_t peer = 0;
    ts_error reason = {""};
    terse_status status = ts_sim_come(r->network, &wish, worker, &peer, &reason);
    ck_assert_msg(status == TERSE_OK, "%s", reason.text);
    ts_sim_endpoint(r->network, peer)->handler = (ts_transport_handler){.context = &r->in[peer - 1], .on_frame = keep_frame};
    return peer - 1;
}

/* ---- what workers say ------------------------------------------------------------------------------------------------------- */

void rig_hello(rig *r, uint32_t w, const ts_contract *contract, uint32_t protocol) {
    Terse__Hello body = TERSE__HELLO__INIT;
    body.protocol = protocol;
    body.digest.data = (uint8_t *)(uintptr_t)contract->digest;
    body.digest.len = TS_DIGEST_BYTES;
    body.worker = w;
    body.incarnation = 1;
    body.workers = r->workers;
    rig_send_body(r, w, TERSE__HEADER__BODY_HELLO, &body);
}

void rig_send_contract(rig *r, uint32_t w, const ts_contract *contract) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Contract body = TERSE__CONTRACT__INIT;
    ts_buffer *frame;
    uint8_t *bytes;
    size_t len;
    header.body_case = TERSE__HEADER__BODY_CONTRACT;
    header.contract = &body;
    ck_assert_ok(ts_contract_pack(contract, &bytes, &len));
    ck_assert_ok(ts_frame_begin(&header, len, &frame));
    ck_assert_ok(ts_buffer_reserve(frame, len));
    memcpy(frame->data + frame->len, bytes, len);
    frame->len += len;
    ck_assert_ok(ts_frame_finish(frame));
    ts_mem_free(bytes);
    rig_send(r, w, frame);
}

ts_buffer *rig_raw_bundle(Terse__Header__BodyCase kind, void *body, const float *values, unsigned slices) {
    Terse__Header header = TERSE__HEADER__INIT;
    ts_buffer *frame;
    header.body_case = kind;
    header.hello = body;
    ck_assert_ok(ts_frame_begin(&header, 1024, &frame));
    ts_bundle_writer writer = ts_bundle_write(frame);
    for (uint32_t s = 0; s < RIG_SLICES; s++)
        if (slices >> s & 1)
            ck_assert_ok(
                ts_bundle_add(&writer, s, (const uint8_t *)(values + rig_slice_first[s]), rig_slice_elems[s] * sizeof(float)));
    ck_assert_ok(ts_frame_finish(frame));
    return frame;
}

void rig_set(rig *r, uint32_t w, const float *values) {
    Terse__Set body = TERSE__SET__INIT;
    rig_send(r, w, rig_raw_bundle(TERSE__HEADER__BODY_SET, &body, values, 7));
}

/* Encodes a whole gradient with nothing left over from earlier steps and pushes some of its slices. */
ts_buffer *rig_push_frame(rig *r, uint32_t w, uint64_t step, const float *gradient, unsigned slices, bool pull) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Push push = TERSE__PUSH__INIT;
    ts_buffer *frame;
    push.step = step;
    push.pull = pull;
    header.body_case = TERSE__HEADER__BODY_PUSH;
    header.push = &push;
    ck_assert_ok(ts_frame_begin(&header, 1024, &frame));
    ts_bundle_writer writer = ts_bundle_write(frame);
    for (uint32_t t = 0, local = 0; t < 2; t++) {
        float residual[100] = {0};
        ts_codec_spec spec = ts_contract_push_spec(r->contract, t, w);
        ts_encoder *encoder;
        ts_encode_input input = {.gradient = gradient + (t ? 100 : 0), .gradient_scale = 1, .residual = residual};
        input.step = step;
        ck_assert_ok(ts_encoder_create(&spec, &encoder));
        ck_assert_ok(ts_encoder_begin(encoder, r->scratch, &input, NULL));
        for (uint32_t part = 0; part < ts_codec_slices(&spec); part++, local++) {
            uint8_t packet[4096];
            size_t len;
            ck_assert_uint_le(ts_encoder_bound(encoder, r->scratch, part), sizeof packet);
            ck_assert_ok(ts_encoder_slice(encoder, r->scratch, part, packet, sizeof packet, &len));
            if (slices >> local & 1) ck_assert_ok(ts_bundle_add(&writer, local, packet, len));
        }
        ts_encoder_destroy(encoder);
    }
    ck_assert_ok(ts_frame_finish(frame));
    return frame;
}

void rig_push(rig *r, uint32_t w, uint64_t step, const float *gradient) {
    rig_send(r, w, rig_push_frame(r, w, step, gradient, 7, true));
}

void rig_pull(rig *r, uint32_t w, uint64_t have, uint64_t want, bool snapshot, bool params) {
    Terse__Pull body = TERSE__PULL__INIT;
    body.have = have;
    body.want = want;
    body.snapshot = snapshot;
    body.params = params;
    rig_send_body(r, w, TERSE__HEADER__BODY_PULL, &body);
}

void rig_done(rig *r, uint32_t w, uint64_t steps) {
    Terse__Done body = TERSE__DONE__INIT;
    body.steps = steps;
    rig_send_body(r, w, TERSE__HEADER__BODY_DONE, &body);
}

void rig_bye(rig *r, uint32_t w) {
    Terse__Bye body = TERSE__BYE__INIT;
    rig_send_body(r, w, TERSE__HEADER__BODY_BYE, &body);
}

/* Multiples of 1/4, so that sums and means of few are exact. */
void rig_gradient(uint32_t w, uint64_t step, float *out) {
    for (size_t i = 0; i < RIG_ELEMS; i++) out[i] = (float)((i * (w + 1) + step) % 17) * 0.25f - 2.0f;
}

void rig_initial(float *out) {
    for (size_t i = 0; i < RIG_ELEMS; i++) out[i] = (float)i * 0.5f;
}

/* All workers attached and the parameters set; inboxes empty. */
void rig_attach_all(rig *r, float *params) {
    rig_initial(params);
    rig_hello(r, 0, r->contract, TS_PROTOCOL_VERSION);
    rig_run(r, 1000);
    rig_send_contract(r, 0, r->contract);
    rig_run(r, 1000);
    rig_set(r, 0, params);
    for (uint32_t w = 1; w < r->workers; w++) rig_hello(r, w, r->contract, TS_PROTOCOL_VERSION);
    rig_run(r, 1000);
    for (uint32_t w = 0; w < r->workers; w++) ck_assert_uint_ge(rig_got(r, w, TERSE__HEADER__BODY_WELCOME, NULL), 1);
    rig_forget(r);
}

/* Applies every Data frame of the rig_inbox to a replica, as a worker does. Returns the version reached by slice 0. */
uint64_t rig_apply(rig *r, uint32_t w, float *replica) {
    uint64_t version = 0;
    for (uint32_t i = 0; i < r->in[w].count; i++) {
        ts_frame frame = {0};
        ck_assert_ok(ts_frame_parse(r->in[w].frames[i], &frame));
        if (frame.header->body_case != TERSE__HEADER__BODY_DATA) {
            ts_frame_release(&frame);
            continue;
        }
        const Terse__Data *data = frame.header->data;
        ts_bundle_reader reader = ts_bundle_read(frame.payload, frame.payload_bytes, RIG_SLICES);
        uint32_t s;
        const uint8_t *packet;
        size_t len;
        while (ts_bundle_next(&reader, &s, &packet, &len) == TERSE_OK) {
            float *to = replica + rig_slice_first[s];
            if (s == 0) version = data->version;
            if (data->snapshot) {
                ck_assert_uint_eq(len, rig_slice_elems[s] * sizeof(float));
                memcpy(to, packet, len);
                continue;
            }
            ts_codec_spec spec = ts_contract_pull_spec(r->contract, s);
            if (r->config->optimizer.name == TS_OPTIMIZER_NONE) memset(to, 0, rig_slice_elems[s] * sizeof(float));
            ck_assert_ok(ts_decode_add(r->scratch, &spec, NULL, 0, data->version - 1, packet, len, to));
        }
        ts_frame_release(&frame);
    }
    return version;
}

/* The status of the last Ack a worker got, and its slices as a bit mask. */
terse_status rig_last_ack(rig *r, uint32_t w, unsigned *slices, uint64_t *step) {
    ts_frame frame = {0};
    ck_assert_uint_ge(rig_got(r, w, TERSE__HEADER__BODY_ACK, &frame), 1);
    const Terse__Ack *ack = frame.header->ack;
    terse_status status = (terse_status)ack->status;
    *slices = 0;
    for (size_t i = 0; i < ack->n_slices; i++) *slices |= 1u << ack->slices[i];
    if (step) *step = ack->step;
    ts_frame_release(&frame);
    return status;
}

void rig_heartbeat(rig *r, uint32_t w) {
    Terse__Heartbeat body = TERSE__HEARTBEAT__INIT;
    rig_send_body(r, w, TERSE__HEADER__BODY_HEARTBEAT, &body);
}

