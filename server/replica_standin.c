/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in's side of replicas: it holds what the owner has admitted, and says so when it does. */
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/wire/bundle.h"
#include "server/job.h"
#include "server/peer_link.h"

static ts_replica_early *early_of(ts_job *job, const ts_slice_state *slice, uint32_t worker) {
    return &job->replica.early[(size_t)worker * job->store.count + slice->local];
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

static void say_held_word(ts_job *job, const Terse__Mirror *message) {
    Terse__Mirror body = TERSE__MIRROR__INIT;
    body.kind = message->kind;
    body.held = true;
    body.worker = message->worker;
    body.incarnation = message->incarnation;
    body.from = message->from;
    ts_replica_say(job, &body);
}

/* Of a further worker that never came to this server there is nothing here that could be waited for. */
static void take_left(ts_job *job, const Terse__Mirror *message) {
    ts_member *member = message->worker < job->members.count ? &job->members.members[message->worker] : NULL;
    if (member && message->incarnation < member->incarnation) return; /* said of a former life */
    if (member) {
        ts_membership_gone(&job->members, message->worker);
        member->incarnation = message->incarnation; /* whose coming may not have been heard of here */
        member->done_steps = 0; /* what has not come will not come */
    }
    if (message->from > job->members.floor) job->members.floor = message->from;
    ts_job_membership_changed(job);
    say_held_word(job, message);
}

/* It would be in rounds here that the owner closes without it, or the other way round. */
static bool is_passed(const ts_job *job, uint64_t from) {
    for (uint32_t s = 0; s < job->store.count; s++)
        if (job->store.slices[s].version > from) return true;
    return false;
}

static terse_status take_joined(ts_job *job, const Terse__Mirror *message) {
    uint32_t worker = message->worker;
    const ts_member *member = &job->members.members[worker];
    bool known = member->state == TS_MEMBER_ATTACHED && member->incarnation == message->incarnation;
    bool former = message->incarnation < member->incarnation || (message->incarnation == member->incarnation && !known);
    TS_REQUIRE(message->n_next == job->store.count && message->incarnation > 0, TERSE_ECORRUPT);
    if (former || (known && message->from < member->from) || !ts_job_initialised(job)) return TERSE_OK;
    if (!known || member->from != message->from) {
        if (is_passed(job, message->from)) {
            ts_job_fail(job, TERSE_ECORRUPT, "server %u lets %s in at step %llu, which its stand-in, server %u, is past", job->part,
                        ts_job_worker_name(ts_job_own(job), worker), (unsigned long long)message->from, job->server->index);
            return TERSE_OK;
        }
        ts_join_enter(job, worker, message->incarnation, message->from);
        for (uint32_t s = 0; s < job->store.count; s++) job->store.slices[s].slots[worker].settled = message->next[s];
        ts_job_membership_changed(job);
        ts_replica_follow_members(job->own); /* it may have said here already that it is done */
    }
    say_held_word(job, message);
    return TERSE_OK;
}

static terse_status take_sum(ts_job *job, const Terse__Mirror *message) {
    TS_TRY(ts_reduce_adopt(job, message->sequence, message->values, message->n_values));
    for (uint32_t w = 0; w < job->members.count; w++) job->members.members[w].away = false;
    for (size_t i = 0; i < message->n_away; i++) /* the owner may have had others that never came to this server */
        if (message->away[i] < job->members.count) job->members.members[message->away[i]].away = true;
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
    case TERSE__MIRROR__KIND__LEFT: take_left(job, message); return TERSE_OK;
    case TERSE__MIRROR__KIND__JOINED: return take_joined(job, message);
    case TERSE__MIRROR__KIND__REDUCED: return take_sum(job, message);
    case TERSE__MIRROR__KIND__CHECK:
        TS_REQUIRE(message->n_slices == 1, TERSE_ECORRUPT);
        ts_replica_compare(job, message->slices[0], message->version, message->hash, false);
        return TERSE_OK;
    default: return TERSE_ECORRUPT;
    }
}

void ts_replica_forget_early(ts_job *job, uint32_t worker) {
    for (uint32_t s = 0; job->replica.early && s < job->store.count; s++) {
        ts_replica_early *early = early_of(job, &job->store.slices[s], worker);
        ts_buffer_unref(early->frame);
        *early = (ts_replica_early){0};
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
