/* SPDX-License-Identifier: Apache-2.0 */
/* Pushing: clip, feedback, encode, acknowledge or take back. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "worker/client/client_internal.h"

static terse_status check_push(ts_client *client, uint32_t t) {
    if (client->state == TS_CLIENT_FAILED) return client->failure;
    if (client->state != TS_CLIENT_TRAINING)
        return ts_client_refuse(client, TERSE_ESTATE, "push is allowed between start and done only");
    if (t >= client->contract->tensor_count)
        return ts_client_refuse(client, TERSE_ENOTFOUND, "no tensor has number %" PRIu32, t);
    ts_client_tensor *tensor = &client->tensors[t];
    if (tensor->phase == TS_TENSOR_PULLING && !tensor->deferred) return TERSE_EAGAIN;
    if (tensor->on_demand && tensor->phase == TS_TENSOR_PUSHED && !tensor->deferred) {
        if (tensor->unanswered) return TERSE_EAGAIN;
        tensor->step++; /* settled, and not pulled: param stays behind */
        tensor->phase = TS_TENSOR_IDLE;
        client->pushed_tensors--;
    }
    if (tensor->phase != TS_TENSOR_IDLE)
        return ts_client_refuse(client, TERSE_ESTATE, "tensor %s: step %" PRIu64 " was pushed already%s",
                                ts_client_tensor_name(client, t), tensor->step,
                                tensor->phase == TS_TENSOR_PUSHED ? ", and its pull is missing" : "");
    return TERSE_OK;
}

static bool keeps_chain(const ts_client *client, uint32_t slice) {
    return ts_pipeline_is_stateful(&client->contract->tensors[client->contract->slices[slice].tensor].push);
}

/* A packet is settled: it is the servers', or given back. */
static void release(ts_client *client, uint32_t slice) {
    client->outbox.slots[slice].state = TS_SLOT_FREE;
    if (client->keep) ts_keep_release(client->keep, slice);
}

/* A refused packet of the tensor's slice i goes back to where it came from: the residual, or with EF21 out of the estimate. */
static terse_status take_back_slice(ts_client *client, uint32_t t, uint32_t i, float *residuals) {
    const ts_tensor *declared = &client->contract->tensors[t];
    const ts_outbox_slot *slot = &client->outbox.slots[declared->first_slice + i];
    const ts_slice *slice = &client->contract->slices[declared->first_slice + i];
    ts_guard *guard = client->keep ? ts_keep_guard(client->keep, t) : NULL;
    float *residual = residuals + slice->first, *estimate = client->tensors[t].memory.estimate;
    if (guard) {
        ts_decoded said;
        ts_codec_spec spec = ts_contract_push_spec(client->contract, t, client->worker);
        TS_TRY(ts_decode(client->scratch, &spec, NULL, i, slot->step, slot->bytes, slot->len, &said));
        ts_guard_give_back(guard, t, i, slice->first, &said, residuals);
        release(client, declared->first_slice + i);
        ts_guard_settle(guard);
        return TERSE_OK;
    }
    if (estimate) memset(residual, 0, slice->n * sizeof *residual);
    TS_TRY(ts_encoder_take_back(client->tensors[t].encoder, client->scratch, i, slot->step, slot->bytes, slot->len,
                                residual));
    for (size_t j = 0; estimate && j < slice->n; j++) estimate[slice->first + j] -= residual[j];
    release(client, declared->first_slice + i);
    return TERSE_OK;
}

/* All of the tensor's refused packets. Its residuals stored as bfloat16 change with the next ts_feedback_write_brief. */
static terse_status take_back(ts_client *client, uint32_t t, float *residuals) {
    const ts_tensor *declared = &client->contract->tensors[t];
    terse_status status = TERSE_OK;
    bool any = false;
    for (uint32_t i = 0; i < declared->slices && status == TERSE_OK; i++) {
        ts_outbox_slot *slot = &client->outbox.slots[declared->first_slice + i];
        bool returns = slot->state == TS_SLOT_REFUSED && client->config->error_feedback.enabled;
        if (returns && client->keep && !any) ts_keep_begin(client->keep, t);
        any = any || returns;
        if (returns) status = take_back_slice(client, t, i, residuals);
        if (!slot->restart) continue;
        ts_encoder_restart(client->tensors[t].encoder, i);
        slot->whole_from = client->tensors[t].step;
        slot->restart = false;
    }
    if (!any || !client->keep || status != TERSE_OK) return status;
    if (client->tensors[t].memory.brief) client->counters.let_go += ts_feedback_write_brief(&client->tensors[t].memory, residuals);
    ts_keep_end(client->keep, t);
    if (client->tensors[t].memory.brief) ts_feedback_read_brief(&client->tensors[t].memory, residuals);
    return TERSE_OK;
}

/* An encoded packet counts as sent from here on. */
static void hold(ts_client *client, uint32_t slice, uint64_t step, size_t len) {
    ts_outbox_slot *slot = &client->outbox.slots[slice];
    slot->len = len;
    slot->step = step;
    slot->samples = client->samples;
    slot->corrupt = 0;
    if (client->keep) ts_keep_hold(client->keep, slice, step, len, slot->samples);
}

/* Begins the step's encoding: everything that happens to the tensor as a whole. Without the lock. */
static terse_status begin_encode(ts_client *client, uint32_t t, const float *gradient, float scale, float *residual) {
    const ts_config *config = client->config;
    const ts_tensor *declared = &client->contract->tensors[t];
    ts_client_tensor *tensor = &client->tensors[t];
    if (tensor->memory.estimate) ts_feedback_start_difference(&tensor->memory);
    ts_encode_input input = {.gradient = gradient,
                             .gradient_scale = scale,
                             .residual = residual,
                             .velocity = tensor->memory.velocity,
                             .momentum = (float)config->error_feedback.momentum_correction,
                             .nesterov = config->optimizer.nesterov,
                             .masking = config->error_feedback.masking,
                             .step = tensor->step,
                             .blank = !config->error_feedback.enabled,
                             .unbiased = !config->error_feedback.enabled,
                             .ratio = gradient ? ts_config_warmup_ratio(config, &declared->push, tensor->step) : 1.0, /* all that is left */
                             .nonfinite = config->error_feedback.nonfinite,
                             .guard = client->keep ? ts_keep_guard(client->keep, t) : NULL};
    if (config->error_feedback.variant == TS_FEEDBACK_DECAYED) input.decay = (float)config->error_feedback.beta;
    if (declared->worker_momentum && config->optimizer.weight_decay > 0) {
        input.params = tensor->param;
        input.weight_decay = (float)config->optimizer.weight_decay;
    }
    return ts_encoder_begin(tensor->encoder, client->scratch, &input, NULL);
}

/* Room for a slice's packet, and its encoding. Without the lock. */
static terse_status write_slice(ts_client *client, uint32_t t, uint32_t i, size_t bound, size_t *len) {
    ts_encoder *encoder = client->tensors[t].encoder;
    uint32_t slice = client->contract->tensors[t].first_slice + i;
    ts_outbox_slot *slot = &client->outbox.slots[slice];
    if (client->keep) {
        TS_TRY(ts_keep_reserve(client->keep, slice, bound, &slot->capacity));
        ts_keep_vacate(client->keep, slice);
    } else {
        TS_TRY(ts_outbox_reserve(slot, bound));
    }
    return ts_encoder_slice(encoder, client->scratch, i, slot->bytes, slot->capacity, len);
}

/* Part i of a tensor, as a packet that waits for others. */
static terse_status encode_slice(ts_client *client, uint32_t t, uint32_t i, uint32_t slice, size_t bound) {
    size_t len = 0;
    bool away = ts_client_let_go_for(client, client->contract->slices[slice].n * sizeof(float));
    terse_status status = write_slice(client, t, i, bound, &len);
    if (away) ts_client_take_back(client);
    if (status != TERSE_OK) return status;
    if (client->state == TS_CLIENT_FAILED) return client->failure;
    hold(client, slice, client->tensors[t].step, len);
    if (!client->keep || ts_keep_early(client->keep, t)) ts_client_gather(client, slice);
    return TERSE_OK;
}

/* The same for a packet whose length is known before: written where it travels, where it can go on what is there already. */
static terse_status encode_in_place(ts_client *client, uint32_t t, uint32_t i, uint32_t slice, size_t bytes) {
    ts_gathering into;
    size_t len = 0;
    if (!ts_client_gather_open(client, slice, bytes, &into)) return encode_slice(client, t, i, slice, bytes);
    bool away = ts_client_let_go_for(client, client->contract->slices[slice].n * sizeof(float));
    terse_status status = ts_encoder_slice(client->tensors[t].encoder, client->scratch, i, into.packet, bytes, &len);
    if (away) ts_client_take_back(client);
    if (status == TERSE_OK && client->state == TS_CLIENT_FAILED) status = client->failure;
    if (status != TERSE_OK) {
        ts_buffer_unref(into.writer.frame);
        return status;
    }
    assert(len == bytes);
    ts_outbox_frame(&client->outbox.slots[slice], ts_buffer_ref(into.writer.frame), into.packet, len);
    hold(client, slice, client->tensors[t].step, len);
    ts_client_gather_close(client, slice, &into);
    return TERSE_OK;
}

/* Holds back while so much is unanswered that memory would be written only to leave the caches before it is read. */
static void keep_near(ts_client *client) {
    uint64_t since = ts_client_now(client);
    size_t left = client->unanswered_bytes;
    if (!client->ahead || !client->transport->near_bytes || !client->pause) return;
    if (client->undecoded_bytes >= client->ahead_bytes) ts_client_decode_arrived(client);
    while (client->unanswered_bytes >= client->transport->near_bytes && !client->impatient &&
           client->state != TS_CLIENT_FAILED) {
        client->pause(client->pause_context);
        if (client->undecoded_bytes > 0) ts_client_decode_arrived(client);
        uint64_t now = ts_client_now(client);
        if (client->unanswered_bytes < left) since = now;
        left = client->unanswered_bytes;
        client->impatient = now - since > TS_CLIENT_PATIENCE_US; /* others are behind: they may be, and we need not be */
    }
}

/* A frame with the packet of part i, which is encoded into it. out: [own]. packet: [out] inside. */
static terse_status write_alone(ts_client *client, uint32_t t, uint32_t i, uint32_t slice, size_t bytes, ts_buffer **out,
                                uint8_t **packet) {
    const ts_slice *place = &client->contract->slices[slice];
    ts_buffer *frame;
    size_t len = 0;
    TS_TRY(ts_client_begin_alone(client, &client->servers[place->server], slice, bytes, &frame));
    ts_client_let_go(client);
    ts_bundle_writer writer = ts_bundle_write(frame);
    terse_status status = ts_bundle_room(&writer, place->local, bytes, packet);
    if (status == TERSE_OK) status = ts_encoder_slice(client->tensors[t].encoder, client->scratch, i, *packet, bytes, &len);
    if (status == TERSE_OK) status = ts_frame_finish(frame);
    ts_client_take_back(client);
    if (status != TERSE_OK) {
        ts_buffer_unref(frame);
        return status;
    }
    assert(len == bytes);
    *out = frame;
    return TERSE_OK;
}

/* The same for a large packet whose length is known before: written where it travels, or not at all, and sent at once. */
static terse_status encode_alone(ts_client *client, uint32_t t, uint32_t i, uint32_t slice, size_t bytes) {
    ts_client_tensor *tensor = &client->tensors[t];
    ts_client_server *server = &client->servers[client->contract->slices[slice].server];
    ts_outbox_slot *slot = &client->outbox.slots[slice];
    ts_buffer *frame;
    uint8_t *packet = NULL;
    keep_near(client);
    uint32_t peer = server->peer;
    terse_status status = ts_client_lend(client, t, slice, bytes, &frame);
    if (status == TERSE_OK) packet = (uint8_t *)(uintptr_t)frame->outside; /* only read */
    if (status == TERSE_EUNSUPPORTED) status = write_alone(client, t, i, slice, bytes, &frame, &packet);
    TS_TRY(status);
    if (client->state == TS_CLIENT_FAILED) {
        ts_buffer_unref(frame);
        return client->failure;
    }
    ts_outbox_frame(slot, frame, packet, bytes);
    slot->step = tensor->step;
    slot->samples = client->samples;
    slot->state = TS_SLOT_SENT;
    tensor->unanswered++;
    client->unanswered_bytes += bytes;
    client->sends_large = true;
    client->counters.push_payload_bytes += bytes;
    if (server->peer != peer) { /* its server has died meanwhile: the frame's head is not for the one that stands in */
        ts_client_send_packets(client, server, &client->contract->slices[slice].local, 1);
        return TERSE_OK;
    }
    ts_client_send(client, server, ts_buffer_ref(frame));
    ts_client_asked(client, server, 0);
    return TERSE_OK;
}

static terse_status encode_slices(ts_client *client, uint32_t t) {
    const ts_tensor *declared = &client->contract->tensors[t];
    ts_client_tensor *tensor = &client->tensors[t];
    bool fixed = ts_encoder_fixed(tensor->encoder) && !client->keep; /* frames do not outlive the process */
    terse_status status = TERSE_OK;
    for (uint32_t i = 0; i < declared->slices && status == TERSE_OK; i++) {
        size_t bound = ts_encoder_bound(tensor->encoder, client->scratch, i);
        bool alone = fixed && bound >= client->alone_bytes;
        status = (alone ? encode_alone : fixed ? encode_in_place : encode_slice)(client, t, i, declared->first_slice + i, bound);
    }
    return status;
}

/* The push is complete, and what waited for that travels. */
static void end_push(ts_client *client, uint32_t t) {
    const ts_tensor *declared = &client->contract->tensors[t];
    if (!client->keep || ts_keep_early(client->keep, t)) return;
    ts_keep_end(client->keep, t);
    for (uint32_t i = 0; i < declared->slices; i++) ts_client_gather(client, declared->first_slice + i);
}

/* EF21: the estimate takes over what was encoded, as the servers will. Without the lock; packets stay until the next step. */
static terse_status follow_estimate(ts_client *client, uint32_t t) {
    const ts_tensor *declared = &client->contract->tensors[t];
    ts_codec_spec spec = ts_contract_push_spec(client->contract, t, client->worker);
    for (uint32_t i = 0; i < declared->slices; i++) {
        const ts_outbox_slot *slot = &client->outbox.slots[declared->first_slice + i];
        float *estimate = client->tensors[t].memory.estimate + client->contract->slices[declared->first_slice + i].first;
        TS_TRY(ts_decode_add(client->scratch, &spec, NULL, i, client->tensors[t].step, slot->bytes, slot->len, estimate));
    }
    return TERSE_OK;
}

/* Counts what was kept out, and says so the first, second, fourth, eighth … time: it may happen in every step. */
static void note_nonfinite(ts_client *client, uint32_t t, const ts_encode_report *report) {
    const ts_config *config = client->config;
    client->counters.nonfinite += report->nonfinite_count;
    uint64_t times = ++client->counters.nonfinite_gradients;
    if (config->error_feedback.nonfinite == TS_NONFINITE_ERROR || (times & (times - 1))) return;
    ts_log(TS_LOG_WARN, "client", config->error_feedback.nonfinite == TS_NONFINITE_SKIP
           ? "a gradient that is not finite was left out" : "elements of a gradient that are not finite were left out",
           "tensor=%s step=%" PRIu64 " elements=%zu first=%zu times=%" PRIu64, ts_client_tensor_name(client, t),
           client->tensors[t].step, report->nonfinite_count, report->nonfinite_first, times);
}

/* The same for values that the quantiser could not say in full. */
static void note_beyond(ts_client *client, uint32_t t, const ts_encode_report *report) {
    uint64_t times = ++client->counters.beyond_gradients;
    if (times & (times - 1)) return;
    ts_log(TS_LOG_WARN, "client", "values beyond the quantiser's range were cut; the rest of each stays in the residual",
           "tensor=%s step=%" PRIu64 " values=%zu times=%" PRIu64, ts_client_tensor_name(client, t),
           client->tensors[t].step, report->beyond, times);
}

static terse_status encode(ts_client *client, uint32_t t, const float *gradient, float scale) {
    uint64_t step = client->tensors[t].step;
    ts_encode_report report = {0};
    ts_feedback *memory = &client->tensors[t].memory;
    float *residual = memory->brief ? client->expanded : memory->residual;
    size_t bytes = client->contract->tensors[t].n * sizeof(float);
    uint64_t began = ts_client_now(client);
    if (memory->brief) ts_feedback_read_brief(memory, residual);
    terse_status status = take_back(client, t, residual);
    bool away = ts_client_let_go_for(client, bytes);
    if (client->keep) ts_keep_begin(client->keep, t);
    if (status == TERSE_OK) status = begin_encode(client, t, gradient, scale, residual);
    if (away) ts_client_take_back(client);
    if (status == TERSE_OK) status = encode_slices(client, t);
    ts_encoder_report(client->tensors[t].encoder, &report);
    if (report.nonfinite_count) note_nonfinite(client, t, &report);
    if (report.beyond) note_beyond(client, t, &report);
    if (status == TERSE_ENONFINITE)
        return ts_client_fail(client, status, "the gradient of %s holds %zu values that are not finite, "
                              "the first at element %zu, in step %" PRIu64 " (error_feedback.nonfinite: error)",
                              ts_client_tensor_name(client, t), report.nonfinite_count, report.nonfinite_first, step);
    away = ts_client_let_go_for(client, memory->estimate || memory->brief ? bytes : 0);
    if (status == TERSE_OK && memory->estimate) status = follow_estimate(client, t);
    client->counters.let_go += report.let_go;
    if (memory->brief) client->counters.let_go += ts_feedback_write_brief(memory, residual);
    if (away) ts_client_take_back(client);
    if (status == TERSE_OK) end_push(client, t);
    client->counters.encode_us += ts_client_now(client) - began;
    if (status != TERSE_OK)
        return ts_client_fail(client, status, "encoding %s in step %" PRIu64 ": %s", ts_client_tensor_name(client, t), step,
                              terse_strerror(status));
    return TERSE_OK;
}

terse_status ts_client_push_deferred(ts_client *client) {
    uint32_t tensors = client->contract->tensor_count;
    double sum = 0;
    ts_client_let_go(client);
    for (uint32_t t = 0; t < tensors; t++)
        sum += ts_feedback_sum_of_squares(client->tensors[t].deferred, client->contract->tensors[t].n);
    ts_client_take_back(client);
    float scale = ts_feedback_clip_scale(sum, client->config->error_feedback.clip_norm, client->transport->workers);
    for (uint32_t t = 0; t < tensors; t++) {
        ts_client_tensor *tensor = &client->tensors[t];
        const float *gradient = tensor->deferred;
        tensor->deferred = NULL;
        TS_TRY(encode(client, t, gradient, scale));
        if (gradient == tensor->dense) memset(tensor->dense, 0, client->contract->tensors[t].n * sizeof(float));
    }
    client->deferred_tensors = 0;
    return TERSE_OK;
}

/* A step begins: in the newest round that we know of, for all tensors alike, since a round takes all of us or nothing. */
static void join_newest_round(ts_client *client) {
    uint64_t newest = 0;
    for (uint32_t i = 0; i < client->contract->slice_count; i++)
        if (client->slices[i].version > newest) newest = client->slices[i].version;
    for (uint32_t t = 0; t < client->contract->tensor_count; t++)
        if (client->tensors[t].step < newest) client->tensors[t].step = newest;
}

/* The tensor's next step begins. */
static terse_status begin_push(ts_client *client, uint32_t t) {
    TS_TRY(ts_client_resume(client));
    ts_client_cut(client, t);
    if (client->state == TS_CLIENT_FAILED) return client->failure;
    if (client->settles && client->pushed_tensors == 0) join_newest_round(client);
    client->tensors[t].phase = TS_TENSOR_PUSHED;
    client->pushed_tensors++;
    return TERSE_OK;
}

terse_status ts_client_push_rest(ts_client *client, uint32_t t) {
    TS_TRY(check_push(client, t));
    TS_TRY(begin_push(client, t));
    TS_TRY(encode(client, t, NULL, 1.0f));
    if (client->pushed_tensors == client->contract->tensor_count) ts_client_flush(client);
    return TERSE_OK;
}

/* Whether a packet of the tensor was refused. */
static bool any_refused(const ts_client *client, uint32_t t) {
    const ts_tensor *declared = &client->contract->tensors[t];
    for (uint32_t i = declared->first_slice; i < declared->first_slice + declared->slices; i++)
        if (client->outbox.slots[i].state == TS_SLOT_REFUSED) return true;
    return false;
}

terse_status ts_client_take_back_all(ts_client *client) {
    for (uint32_t t = 0; t < client->contract->tensor_count; t++) {
        if (!any_refused(client, t)) continue;
        ts_feedback *memory = &client->tensors[t].memory;
        float *residual = memory->brief ? client->expanded : memory->residual;
        if (memory->brief) ts_feedback_read_brief(memory, residual);
        TS_TRY(take_back(client, t, residual));
        if (memory->brief && !client->keep) client->counters.let_go += ts_feedback_write_brief(memory, residual);
    }
    return TERSE_OK;
}

/* Takes the gradient in, at once or (with clipping) when the step is complete. */
static terse_status push(ts_client *client, uint32_t t, const float *gradient, bool lends) {
    TS_TRY(begin_push(client, t));
    client->tensors[t].lends = lends;
    if (client->config->error_feedback.clip_norm > 0) {
        client->tensors[t].deferred = gradient;
        if (++client->deferred_tensors == client->contract->tensor_count) TS_TRY(ts_client_push_deferred(client));
    } else {
        TS_TRY(encode(client, t, gradient, 1.0f));
    }
    if (client->pushed_tensors == client->contract->tensor_count) ts_client_flush(client); /* nothing more can join */
    return TERSE_OK;
}

static terse_status push_dense(ts_client *client, uint32_t tensor, const float *gradient, bool lends) {
    TS_TRY(check_push(client, tensor));
    if (!gradient)
        return ts_client_refuse(client, TERSE_EINVAL, "tensor %s: no gradient", ts_client_tensor_name(client, tensor));
    return push(client, tensor, gradient, lends);
}

terse_status ts_client_push(ts_client *client, uint32_t tensor, const float *gradient) {
    return push_dense(client, tensor, gradient, false);
}

terse_status ts_client_push_lent(ts_client *client, uint32_t tensor, const float *gradient) {
    return push_dense(client, tensor, gradient, true);
}

terse_status ts_client_push_sparse(ts_client *client, uint32_t t, const uint32_t *index, const float *value, size_t count) {
    TS_TRY(check_push(client, t));
    ts_client_tensor *tensor = &client->tensors[t];
    size_t n = client->contract->tensors[t].n;
    for (size_t i = 0; i < count; i++)
        if (index[i] >= n || (i && index[i] <= index[i - 1]))
            return ts_client_refuse(client, TERSE_EINVAL, "tensor %s: index %" PRIu32 " at place %zu must be below %zu and "
                                    "above the one before it", ts_client_tensor_name(client, t), index[i], i, n);
    if (!tensor->dense) tensor->dense = ts_mem_aligned(n, sizeof(float));
    TS_REQUIRE(tensor->dense, TERSE_ENOMEM);
    for (size_t i = 0; i < count; i++) tensor->dense[index[i]] = value[i];
    terse_status status = push(client, t, tensor->dense, false);
    if (!tensor->deferred)
        for (size_t i = 0; i < count; i++) tensor->dense[index[i]] = 0;
    return status;
}

void ts_client_set_samples(ts_client *client, uint32_t samples) { client->samples = samples; }

bool ts_client_sends_large(const ts_client *client) { return client->sends_large; }

bool ts_client_pushed(ts_client *client, uint32_t tensor) {
    if (client->stale) return true; /* it is settled by coming back, which is not for the middle of a step */
    if (client->state == TS_CLIENT_ATTACHING) return false;
    return tensor < client->contract->tensor_count && !client->tensors[tensor].unanswered && !client->tensors[tensor].deferred;
}

terse_status ts_client_check_wait(ts_client *client, uint32_t t, uint64_t version, bool pull) {
    if (t >= client->contract->tensor_count)
        return ts_client_refuse(client, TERSE_ENOTFOUND, "no tensor has number %" PRIu32, t);
    const ts_client_tensor *tensor = &client->tensors[t];
    const char *name = ts_client_tensor_name(client, t);
    if (version <= tensor->step) return TERSE_OK;
    if (version > tensor->step + 1 || (tensor->phase == TS_TENSOR_IDLE && !pull))
        return ts_client_refuse(client, TERSE_ENOTFOUND, "tensor %s: step %" PRIu64 " was not pushed yet", name, version - 1);
    if (tensor->deferred)
        return ts_client_refuse(client, TERSE_ESTATE, "tensor %s: with error_feedback.clip_norm a step is sent when all its "
                                "tensors are pushed; push the others before this wait", name);
    /* This pull came before the push, when there was nothing to come. */
    if (pull && tensor->phase == TS_TENSOR_PUSHED)
        return ts_client_refuse(client, TERSE_ESTATE, "tensor %s: step %" PRIu64 " was pushed, and its pull is missing", name,
                                tensor->step);
    return TERSE_OK;
}

static void answer(ts_client *client, uint32_t slice, ts_slot_state state) {
    ts_outbox_slot *slot = &client->outbox.slots[slice];
    if (slot->state == TS_SLOT_SENT && slot->frame && slot->len >= client->alone_bytes) client->unanswered_bytes -= slot->len;
    if (slot->state == TS_SLOT_SENT) client->tensors[client->contract->slices[slice].tensor].unanswered--;
    slot->state = state;
    /* Its frame can be had again at once; an estimate may still be to follow what it says. */
    bool needed = client->tensors[client->contract->slices[slice].tensor].memory.estimate != NULL;
    if (state == TS_SLOT_FREE && !needed) ts_buffer_unref(ts_outbox_take_frame(slot));
    if (state == TS_SLOT_FREE && client->keep) ts_keep_release(client->keep, slice);
}

void ts_client_slot_settled(ts_client *client, uint32_t slice) {
    ts_outbox_slot *slot = &client->outbox.slots[slice];
    ts_buffer_unref(ts_outbox_take_frame(slot));
    release(client, slice);
}

void ts_client_acknowledge(ts_client *client, uint32_t slice, uint64_t version) {
    const ts_outbox_slot *slot = &client->outbox.slots[slice];
    if ((slot->state == TS_SLOT_SENT || slot->state == TS_SLOT_ACKED) && slot->step < version)
        answer(client, slice, TS_SLOT_FREE);
}

/* The packet is sent again, in case it was damaged behind the checksum; but not for ever. */
static void note_corrupt(ts_client *client, ts_client_server *server, uint32_t slice, const Terse__Ack *ack) {
    ts_outbox_slot *slot = &client->outbox.slots[slice];
    if (slot->state != TS_SLOT_SENT || slot->step != ack->step) return;
    const ts_slice *where = &client->contract->slices[slice];
    server->rto_at_us = ts_client_now(client) + TS_CLIENT_REFUSED_US;
    if (++slot->corrupt < TS_CLIENT_REFUSALS_MAX) return;
    ts_client_fail(client, TERSE_ECORRUPT, "%s has refused the same packet %u times: tensor %s, elements %zu to %zu, step "
                   "%" PRIu64 ": %s. It was damaged in this worker's memory, or the programs differ",
                   ts_client_server_name(client, server), slot->corrupt, ts_client_tensor_name(client, where->tensor),
                   where->first, where->first + where->n - 1, ack->step, ack->reason);
}

/* It will never be used. */
static void note_stale(ts_client *client, uint32_t slice, const Terse__Ack *ack) {
    ts_outbox_slot *slot = &client->outbox.slots[slice];
    bool chain = keeps_chain(client, slice);
    /* Said again of a packet before the last that began anew, it is no news: what goes out must not depend on how often. */
    if (chain && ack->step >= slot->whole_from) slot->restart = true;
    if (slot->step != ack->step || (slot->state != TS_SLOT_SENT && !(chain && slot->state == TS_SLOT_ACKED))) return;
    answer(client, slice, TS_SLOT_REFUSED);
    client->tensors[client->contract->slices[slice].tensor].arrived = true;
    client->counters.refused_packets++;
}

/* What became of one slice's packet. Returns false when the client has failed. */
static bool note_verdict(ts_client *client, ts_client_server *server, uint32_t slice, const Terse__Ack *ack) {
    const ts_outbox_slot *slot = &client->outbox.slots[slice];
    if (ack->settled) {
        ts_client_progress(client, server, 0);
        ts_client_on_nothing_new(client, slice, ack->step + 1);
    }
    if (ack->status == TERSE_ECORRUPT) {
        note_corrupt(client, server, slice, ack);
        return client->state != TS_CLIENT_FAILED;
    }
    if (ack->status == TERSE_ESTALE) {
        if (slot->state == TS_SLOT_SENT && slot->step == ack->step) ts_client_progress(client, server, 0);
        note_stale(client, slice, ack);
        return true;
    }
    if (slot->state != TS_SLOT_SENT || slot->step != ack->step) return true;
    ts_client_progress(client, server, 0);
    bool on_demand = client->tensors[client->contract->slices[slice].tensor].on_demand;
    if (ack->status == TERSE_OK || ack->status == TERSE_EDUPLICATE) {
        if (client->settles || on_demand) return true; /* held, or used already, of which we are told by itself */
        answer(client, slice, TS_SLOT_ACKED);
        return true;
    }
    ts_client_fail(client, (terse_status)ack->status, "%s refused step %" PRIu64 " of %s: %s",
                   ts_client_server_name(client, server), ack->step,
                   ts_client_tensor_name(client, client->contract->slices[slice].tensor), ack->reason);
    return false;
}

void ts_client_on_push_ack(ts_client *client, ts_client_server *server, const Terse__Ack *ack) {
    if (ack->status == TERSE_EAGAIN) {
        server->crowded = true;
        server->rto_at_us = ts_client_now(client) + TS_CLIENT_CROWDED_US;
        return;
    }
    if (ack->status == TERSE_OK && ack->step == 0 && client->worker == 0 && !ack->settled) {
        /* It may be a late answer to Set, which names the same slices. Should the push have been lost, it goes again
         * after the longest pause; else its data comes before. */
        server->rto_us = TS_CLIENT_RTO_MAX_US;
        server->rto_at_us = ts_client_now(client) + server->rto_us;
        return;
    }
    for (size_t i = 0; i < ack->n_slices; i++) {
        if (ack->slices[i] >= server->slice_count) continue;
        if (!note_verdict(client, server, server->slices[ack->slices[i]], ack)) return;
    }
    ts_client_maybe_done(client);
}
