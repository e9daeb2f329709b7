/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in's side of replicas: it holds what the owner has admitted, and says so when it does. */
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/wire/bundle.h"
#include "server/job.h"
#include "server/peer_link.h"

static ts_replica_early *early_of(ts_job *job, const ts_slice_state *slice, uint32_t worker) {
    return &job->replica.early[(size_t)slice->local * job->members.count + worker];
}

static void say_held(ts_job *job, uint32_t worker, uint64_t step, uint32_t *slices, uint32_t count) {
    Terse__Mirror body = TERSE__MIRROR__INIT;
    if (count == 0) return;
    body.kind = TERSE__MIRROR__KIND__PACKETS;
    body.held = true;
    body.worker = worker;
    body.step = step;
    body.n_slices = count;
    body.slices = slices;
    ts_replica_say(job, &body);
}

/* A packet that comes again may be another one, when the owner found that it does not decode. Returns whether it is here. */
static bool is_same(ts_slice_state *slice, uint32_t worker, const uint8_t *packet, size_t len) {
    const ts_slot *slot = &slice->slots[worker];
    if (slot->len == len && (len == 0 || memcmp(slot->packet, packet, len) == 0)) return true;
    if (!slice->busy) ts_store_drop(slice, worker);
    return false;
}

/* A packet under way. */
typedef struct {
    ts_buffer *frame; /* [borrow] */
    const uint8_t *packet;
    size_t len;
    uint64_t step;
    uint32_t worker, samples;
} forwarded;

static void keep_early(ts_job *job, const ts_slice_state *slice, const forwarded *what) {
    ts_replica_early *early = early_of(job, slice, what->worker);
    if (early->frame) return; /* a repetition */
    *early = (ts_replica_early){.frame = ts_buffer_ref(what->frame), .packet = what->packet, .len = what->len,
                                .step = what->step, .samples = what->samples};
}

/* Takes it if it is time; the caller then looks whether the round can close. Returns whether it is held here, or has been used. */
static bool take_packet(ts_job *job, ts_slice_state *slice, const forwarded *what) {
    ts_slot *slot = &slice->slots[what->worker];
    if (what->len > slice->n * 9 + 4096) return false;
    if (!slice->initialised) { /* it is being loaded; what the owner has admitted is of the step that it goes on from */
        if (ts_checkpoint_resumes(&job->checkpoint)) keep_early(job, slice, what);
        return false;
    }
    if (what->step < slice->version) return true;
    if (what->step > slice->version) {
        if (what->step == slice->version + 1) keep_early(job, slice, what);
        return false;
    }
    if (slot->frame && is_same(slice, what->worker, what->packet, what->len)) return true;
    if (slot->frame) return false; /* at work with another one */
    ts_store_hold(slice, what->worker, what->frame, what->packet, what->len, what->step, ts_server_now(job->server));
    slot->samples = what->samples;
    slot->acked = true; /* the owner sees to that */
    return true;
}

static terse_status take_packets(ts_job *job, ts_buffer *buffer, const ts_frame *frame) {
    const Terse__Mirror *message = frame->header->mirror;
    ts_bundle_reader reader = ts_bundle_read(frame->payload, frame->payload_bytes, job->store.count);
    forwarded what = {.frame = buffer, .step = message->step, .worker = message->worker, .samples = message->samples};
    uint32_t *told = job->replica.told, count = 0, number;
    terse_status status;
    while ((status = ts_bundle_next(&reader, &number, &what.packet, &what.len)) == TERSE_OK) {
        if (take_packet(job, &job->store.slices[number], &what)) told[count++] = number;
        ts_rounds_consider(job, &job->store.slices[number]);
    }
    say_held(job, message->worker, message->step, told, count);
    return status == TERSE_EAGAIN ? TERSE_OK : status;
}

static terse_status take_set(ts_job *job, const ts_frame *frame) {
    ts_bundle_reader reader = ts_bundle_read(frame->payload, frame->payload_bytes, job->store.count);
    uint32_t *told = job->replica.told, count = 0, number;
    const uint8_t *packet;
    size_t len;
    terse_status status;
    while ((status = ts_bundle_next(&reader, &number, &packet, &len)) == TERSE_OK) {
        TS_REQUIRE(len == job->store.slices[number].n * sizeof(float), TERSE_ECORRUPT);
        (void)ts_store_set(&job->store, number, packet);
        told[count++] = number;
    }
    Terse__Mirror body = TERSE__MIRROR__INIT;
    body.kind = TERSE__MIRROR__KIND__SET;
    body.held = true;
    body.n_slices = count;
    body.slices = told;
    if (count > 0) ts_replica_say(job, &body);
    return status == TERSE_EAGAIN ? TERSE_OK : status;
}

static void take_left(ts_job *job, uint32_t worker) {
    ts_membership_gone(&job->members, worker);
    job->members.members[worker].done_steps = 0; /* what has not come will not come */
    ts_job_membership_changed(job);
    Terse__Mirror body = TERSE__MIRROR__INIT;
    body.kind = TERSE__MIRROR__KIND__LEFT;
    body.held = true;
    body.worker = worker;
    ts_replica_say(job, &body);
}

static terse_status take_sum(ts_job *job, const Terse__Mirror *message) {
    TS_TRY(ts_reduce_adopt(job, message->sequence, message->values, message->n_values));
    Terse__Mirror body = TERSE__MIRROR__INIT;
    body.kind = TERSE__MIRROR__KIND__REDUCED;
    body.held = true;
    body.sequence = message->sequence;
    ts_replica_say(job, &body);
    return TERSE_OK;
}

terse_status ts_replica_take(ts_job *job, ts_buffer *buffer, const ts_frame *frame) {
    const Terse__Mirror *message = frame->header->mirror;
    TS_REQUIRE(!message->held && job->mute, TERSE_ESTATE);
    switch (message->kind) {
    case TERSE__MIRROR__KIND__PACKETS: return take_packets(job, buffer, frame);
    case TERSE__MIRROR__KIND__SET: return take_set(job, frame);
    case TERSE__MIRROR__KIND__LEFT: take_left(job, message->worker); return TERSE_OK;
    case TERSE__MIRROR__KIND__REDUCED: return take_sum(job, message);
    case TERSE__MIRROR__KIND__CHECK:
        TS_REQUIRE(message->n_slices == 1, TERSE_ECORRUPT);
        ts_replica_compare(job, message->slices[0], message->version, message->hash, false);
        return TERSE_OK;
    default: return TERSE_ECORRUPT;
    }
}

void ts_replica_catch_up(ts_job *job, ts_slice_state *slice) {
    for (uint32_t w = 0; w < job->members.count; w++) {
        ts_replica_early *early = early_of(job, slice, w);
        if (!early->frame || early->step > slice->version) continue;
        forwarded what = {.frame = early->frame, .packet = early->packet, .len = early->len, .step = early->step,
                          .worker = w, .samples = early->samples};
        ts_buffer *frame = early->frame;
        *early = (ts_replica_early){0};
        if (take_packet(job, slice, &what) && job->mute) say_held(job, w, what.step, &slice->local, 1);
        ts_buffer_unref(frame);
    }
}

void ts_replica_loaded(ts_job *job, ts_slice_state *slice) {
    ts_replica_catch_up(job, slice);
    ts_rounds_consider(job, slice);
}

void ts_replica_compare(ts_job *job, uint32_t local, uint64_t version, uint64_t hash, bool here) {
    ts_replica_check *check = &job->replica.checks[local];
    if (here) {
        check->here = true;
        check->here_version = version;
        check->here_hash = hash;
    } else {
        check->there = true;
        check->there_version = version;
        check->there_hash = hash;
    }
    if (!check->here || !check->there || check->here_version != check->there_version) return;
    job->replica.compared++;
    if (check->here_hash == check->there_hash) return;
    const ts_slice_state *slice = &job->store.slices[local];
    const ts_slice *place = &job->contract->slices[slice->global];
    ts_job_fail(job, TERSE_ECORRUPT, "server %u and its stand-in, server %u, do not agree on version %llu of %s[%zu:%zu]: "
                "one of the two has computed or stored it wrongly", job->part, job->server->index, (unsigned long long)version,
                job->contract->tensors[slice->tensor].name, place->first, place->first + place->n);
}
