/* SPDX-License-Identifier: Apache-2.0 */
/* An owner's side of replicas: nothing follows from a packet before the stand-in holds it, too. */
#include <string.h>
#include <xxhash.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/wire/bundle.h"
#include "server/job.h"
#include "server/peer_link.h"

#define REPEAT_US 1000000u     /* what is not confirmed by then is sent again */
#define LOOK_EVERY_US 250000u
#define CHECK_EVERY 16u        /* versions of a slice between two comparisons */

bool ts_replica_holds_back(const ts_job *job, const ts_slice_state *slice) {
    const ts_replica *replica = &job->replica;
    return replica->mirrors && (slice->unconfirmed > 0 || slice->unset || replica->leaving > 0 || replica->joining > 0);
}

/* ---- packets --------------------------------------------------------------------------------------------------------- */

void ts_replica_admitted(ts_job *job, ts_slice_state *slice, uint32_t worker) {
    slice->slots[worker].unconfirmed = true;
    slice->slots[worker].forwarded_us = 0;
    slice->unconfirmed++;
    job->replica.told[job->replica.told_count++] = slice->local;
}

/* One message with some slices' packets of a worker, all of one step. Returns whether it is on its way. */
static bool send_packets(ts_job *job, uint32_t worker, const uint32_t *locals, uint32_t count) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Mirror body = TERSE__MIRROR__INIT;
    const ts_slot *first = &job->store.slices[locals[0]].slots[worker];
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += job->store.slices[locals[i]].slots[worker].len + TS_BUNDLE_ENTRY_MAX_BYTES;
    body.kind = TERSE__MIRROR__KIND__PACKETS;
    body.worker = worker;
    body.step = first->step;
    body.samples = first->samples;
    header.job = job->id;
    header.part = job->part + 1;
    header.body_case = TERSE__HEADER__BODY_MIRROR;
    header.mirror = &body;
    ts_buffer *frame = NULL;
    if (ts_frame_begin_in(job->server->transport->pool, &header, bytes, &frame) != TERSE_OK) return false;
    ts_bundle_writer writer = ts_bundle_write(frame);
    terse_status status = TERSE_OK;
    for (uint32_t i = 0; i < count && status == TERSE_OK; i++) {
        ts_slot *slot = &job->store.slices[locals[i]].slots[worker];
        status = ts_bundle_add(&writer, locals[i], slot->packet, slot->len);
        slot->forwarded_us = ts_server_now(job->server);
    }
    if (status == TERSE_OK) status = ts_frame_finish(frame);
    if (status == TERSE_OK) ts_link_send(job->server, job->replica.peer, frame);
    ts_buffer_unref(frame);
    job->replica.forwarded += count;
    return status == TERSE_OK;
}

void ts_replica_forward(ts_job *job, uint32_t worker) {
    ts_replica *replica = &job->replica;
    /* Else the stand-in could close the first round of one who comes in before it knows of it. Without memory now the tick tries again. */
    if (replica->told_count > 0 && replica->joining == 0) (void)send_packets(job, worker, replica->told, replica->told_count);
    replica->told_count = 0;
}

/* What of a worker's packets was not confirmed in time, or had to wait. */
static void repeat_packets(ts_job *job, uint32_t worker) {
    ts_replica *replica = &job->replica;
    uint64_t now_us = ts_server_now(job->server), step = 0;
    uint32_t samples = 0;
    size_t bytes = 0;
    for (uint32_t s = 0; s < job->store.count; s++) {
        const ts_slot *slot = &job->store.slices[s].slots[worker];
        bool sent = slot->forwarded_us > 0;
        if (!slot->unconfirmed || (sent && now_us - slot->forwarded_us < REPEAT_US)) continue;
        if (replica->told_count > 0 && (slot->step != step || slot->samples != samples || bytes + slot->len > TS_SERVER_FRAME_BYTES)) {
            ts_replica_forward(job, worker);
            bytes = 0;
        }
        step = slot->step;
        samples = slot->samples;
        bytes += slot->len + TS_BUNDLE_ENTRY_MAX_BYTES;
        replica->told[replica->told_count++] = s;
        replica->repeated += sent;
    }
    ts_replica_forward(job, worker);
}

/* ---- first values ---------------------------------------------------------------------------------------------------- */

static void send_set(ts_job *job, const uint32_t *locals, size_t count) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Mirror body = TERSE__MIRROR__INIT;
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += job->store.slices[locals[i]].n * sizeof(float) + TS_BUNDLE_ENTRY_MAX_BYTES;
    body.kind = TERSE__MIRROR__KIND__SET;
    header.job = job->id;
    header.part = job->part + 1;
    header.body_case = TERSE__HEADER__BODY_MIRROR;
    header.mirror = &body;
    ts_buffer *frame = NULL;
    if (count == 0 || ts_frame_begin_in(job->server->transport->pool, &header, bytes, &frame) != TERSE_OK) return;
    ts_bundle_writer writer = ts_bundle_write(frame);
    terse_status status = TERSE_OK;
    for (size_t i = 0; i < count && status == TERSE_OK; i++) {
        const ts_slice_state *slice = &job->store.slices[locals[i]];
        status = ts_bundle_add(&writer, slice->local, (const uint8_t *)slice->params, slice->n * sizeof(float));
    }
    if (status == TERSE_OK) status = ts_frame_finish(frame);
    if (status == TERSE_OK) ts_link_send(job->server, job->replica.peer, frame);
    ts_buffer_unref(frame);
}

size_t ts_replica_forward_set(ts_job *job, uint32_t *slices, size_t count) {
    ts_replica *replica = &job->replica;
    size_t confirmed = 0;
    for (size_t i = 0; i < count; i++) { /* a Set is a frame, so what is forwarded of it fits into one */
        if (job->store.slices[slices[i]].unset) replica->told[replica->told_count++] = slices[i];
        else slices[confirmed++] = slices[i];
    }
    send_set(job, replica->told, replica->told_count);
    replica->told_count = 0;
    return confirmed;
}

static void held_set(ts_job *job, const Terse__Mirror *message) {
    for (size_t i = 0; i < message->n_slices; i++) {
        ts_slice_state *slice = &job->store.slices[message->slices[i]];
        slice->unset = false;
        ts_rounds_consider(job, slice);
    }
    if (message->n_slices > 0)
        ts_link_ack(job, ts_job_peer(job, 0), 0, TERSE_OK, message->slices, message->n_slices, NULL);
    for (uint32_t w = 0; w < job->members.count; w++) job->members.members[w].reply_due = true;
}

/* ---- workers that leave and come ------------------------------------------------------------------------------------- */

static bool has_unconfirmed(const ts_job *job, uint32_t worker) {
    for (uint32_t s = 0; s < job->store.count; s++)
        if (job->store.slices[s].slots[worker].unconfirmed) return true;
    return false;
}

static void say_left(ts_job *job, uint32_t worker) {
    Terse__Mirror body = TERSE__MIRROR__INIT;
    body.kind = TERSE__MIRROR__KIND__LEFT;
    body.worker = worker;
    body.incarnation = job->members.members[worker].incarnation;
    body.from = job->members.floor; /* a life that is over before its coming was confirmed may have moved it */
    ts_replica_say(job, &body);
}

static void say_joined(ts_job *job, uint32_t worker) {
    const ts_member *member = &job->members.members[worker];
    Terse__Mirror body = TERSE__MIRROR__INIT;
    uint64_t *next = ts_mem_calloc((size_t)job->store.count + 1, sizeof *next);
    if (!next) return; /* the tick tries again */
    for (uint32_t s = 0; s < job->store.count; s++) next[s] = job->store.slices[s].slots[worker].settled;
    body.kind = TERSE__MIRROR__KIND__JOINED;
    body.worker = worker;
    body.incarnation = member->incarnation;
    body.from = member->from;
    body.n_next = job->store.count;
    body.next = next;
    ts_replica_say(job, &body);
    ts_mem_free(next);
}

/*
 * Who left is told when the stand-in has all of its packets that are here: those are in the rounds, and no others. And not
 * before it knows of who has come in: else it might close that one's first round, for which nobody else is waited.
 */
static void say_words(ts_job *job) {
    const ts_replica *replica = &job->replica;
    for (uint32_t w = 0; w < job->members.count; w++) {
        if (replica->words[w] == TS_REPLICA_SAY_JOINED) say_joined(job, w);
        else if (replica->words[w] == TS_REPLICA_SAY_LEFT && replica->joining == 0 && !has_unconfirmed(job, w)) say_left(job, w);
    }
}

void ts_replica_members_changed(ts_job *job) {
    ts_replica *replica = &job->replica;
    bool news = false;
    if (job->own) return;
    for (uint32_t w = 0; replica->mirrors && w < job->members.count; w++) {
        const ts_member *member = &job->members.members[w];
        bool known = replica->words[w] == TS_REPLICA_SAY_LEFT || replica->words[w] == TS_REPLICA_LEFT || member->unborn;
        if (known || member->state != TS_MEMBER_GONE || member->done_steps > 0) continue;
        replica->joining -= replica->words[w] == TS_REPLICA_SAY_JOINED;
        replica->words[w] = TS_REPLICA_SAY_LEFT;
        replica->leaving++;
        news = true;
    }
    if (news) say_words(job);
    ts_replica_follow_members(job);
}

void ts_replica_joins(ts_job *job, uint32_t worker) {
    ts_replica *replica = &job->replica;
    if (!replica->mirrors) return;
    replica->joining += replica->words[worker] != TS_REPLICA_SAY_JOINED;
    replica->words[worker] = TS_REPLICA_SAY_JOINED;
    say_joined(job, worker);
}

bool ts_replica_knows_left(const ts_job *job) { return !job->replica.mirrors || job->replica.leaving == 0; }

bool ts_replica_knows_joined(const ts_job *job, uint32_t worker) {
    return !job->replica.mirrors || job->replica.words[worker] != TS_REPLICA_SAY_JOINED;
}

static void consider_all(ts_job *job) {
    for (uint32_t s = 0; s < job->store.count; s++) ts_rounds_consider(job, &job->store.slices[s]);
}

static void held_left(ts_job *job, const Terse__Mirror *message) {
    uint8_t *word = &job->replica.words[message->worker];
    if (*word != TS_REPLICA_SAY_LEFT || message->incarnation != job->members.members[message->worker].incarnation) return;
    *word = TS_REPLICA_LEFT;
    if (--job->replica.leaving == 0) consider_all(job);
}

static void repeat_all(ts_job *job) {
    for (uint32_t w = 0; w < job->members.count; w++) repeat_packets(job, w);
}

static void held_joined(ts_job *job, const Terse__Mirror *message) {
    const ts_member *member = &job->members.members[message->worker];
    uint8_t *word = &job->replica.words[message->worker];
    if (*word != TS_REPLICA_SAY_JOINED || message->incarnation != member->incarnation || message->from != member->from) return;
    *word = TS_REPLICA_SILENT;
    if (--job->replica.joining == 0) {
        repeat_all(job);
        say_words(job);
        consider_all(job);
    }
    ts_join_confirmed(job, message->worker);
}

/* ---- sums ------------------------------------------------------------------------------------------------------------ */

static void say_sum(ts_job *job) {
    Terse__Mirror body = TERSE__MIRROR__INIT;
    body.kind = TERSE__MIRROR__KIND__REDUCED;
    body.sequence = job->reduce.last;
    body.n_values = job->reduce.sum_count;
    body.values = job->reduce.sum;
    body.away = ts_mem_calloc(job->members.count, sizeof *body.away);
    if (!body.away) return; /* the tick tries again */
    for (uint32_t w = 0; w < job->members.count; w++)
        if (job->members.members[w].away) body.away[body.n_away++] = w;
    job->replica.sum_said_us = ts_server_now(job->server);
    ts_replica_say(job, &body);
    ts_mem_free(body.away);
}

bool ts_replica_sum(ts_job *job) {
    job->replica.unconfirmed_sum = job->replica.mirrors;
    if (job->replica.mirrors) say_sum(job);
    return job->replica.mirrors;
}

static void held_sum(ts_job *job, uint64_t sequence) {
    if (!job->replica.unconfirmed_sum || sequence != job->reduce.last) return;
    job->replica.unconfirmed_sum = false;
    ts_reduce_answer(job);
}

/* ---- all of it ------------------------------------------------------------------------------------------------------- */

static void held_packets(ts_job *job, const Terse__Mirror *message) {
    for (size_t i = 0; i < message->n_slices; i++) {
        ts_slice_state *slice = &job->store.slices[message->slices[i]];
        ts_slot *slot = &slice->slots[message->worker];
        if (!slot->unconfirmed || slot->step != message->step) continue;
        slot->unconfirmed = false;
        slice->unconfirmed--;
        ts_rounds_consider(job, slice);
    }
    if (job->replica.words[message->worker] == TS_REPLICA_SAY_LEFT) say_words(job);
}

terse_status ts_replica_held(ts_job *job, const Terse__Mirror *message) {
    if (!message->held || !job->replica.mirrors) return TERSE_OK;
    switch (message->kind) {
    case TERSE__MIRROR__KIND__PACKETS: held_packets(job, message); return TERSE_OK;
    case TERSE__MIRROR__KIND__SET: held_set(job, message); return TERSE_OK;
    case TERSE__MIRROR__KIND__LEFT: held_left(job, message); return TERSE_OK;
    case TERSE__MIRROR__KIND__JOINED: held_joined(job, message); return TERSE_OK;
    case TERSE__MIRROR__KIND__REDUCED: held_sum(job, message->sequence); return TERSE_OK;
    default: return TERSE_ECORRUPT;
    }
}

void ts_replica_stop_mirroring(ts_job *job) {
    job->replica.mirrors = false;
    job->replica.leaving = job->replica.joining = 0;
    for (uint32_t s = 0; s < job->store.count; s++) {
        ts_slice_state *slice = &job->store.slices[s];
        for (uint32_t w = 0; w < job->members.count; w++) slice->slots[w].unconfirmed = false;
        slice->unconfirmed = 0;
        slice->unset = false;
    }
    if (job->replica.unconfirmed_sum) ts_reduce_answer(job);
    job->replica.unconfirmed_sum = false;
    for (uint32_t w = 0; w < job->members.count; w++) job->members.members[w].reply_due = true;
    consider_all(job);
}

void ts_replica_owner_tick(ts_job *job) {
    ts_replica *replica = &job->replica;
    ts_server *server = job->server;
    uint64_t now_us = ts_server_now(server);
    if (!replica->mirrors || now_us - replica->repeated_us < LOOK_EVERY_US) return;
    replica->repeated_us = now_us;
    /* While our own bytes stand in the queue nothing can be said of the other side. */
    if (server->transport->ops->queued(server->transport, replica->peer) > 0) return;
    if (replica->joining == 0) repeat_all(job);
    if (replica->leaving > 0 || replica->joining > 0) say_words(job);
    if (replica->unconfirmed_sum && now_us - replica->sum_said_us >= REPEAT_US) say_sum(job);
}

/* ---- comparing ------------------------------------------------------------------------------------------------------- */

/* Of the parameters and of what the workers got of them. */
static uint64_t state_of(ts_slice_state *slice) {
    const ts_log_entry *entry = ts_store_logged(slice, slice->version);
    uint64_t hash = XXH3_64bits(slice->params, slice->n * sizeof(float));
    return entry ? XXH3_64bits_withSeed(entry->frame->data + entry->offset, entry->len, hash) : hash;
}

void ts_replica_reached(ts_job *job, ts_slice_state *slice) {
    ts_replica *replica = &job->replica;
    if (!job->server->watch.on) return;
    bool due = (slice->version + slice->local) % CHECK_EVERY == 0;
    if (job->own && job->mute && due) ts_replica_compare(job, slice->local, slice->version, state_of(slice), true);
    if (job->own) ts_replica_catch_up(job, slice);
    if (!replica->mirrors || !due) return;
    Terse__Mirror body = TERSE__MIRROR__INIT;
    body.kind = TERSE__MIRROR__KIND__CHECK;
    body.n_slices = 1;
    body.slices = &slice->local;
    body.version = slice->version;
    body.hash = state_of(slice);
    ts_replica_say(job, &body);
}
