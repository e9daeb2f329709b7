/* SPDX-License-Identifier: Apache-2.0 */
#include "server/admission.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/contract/contract_limits.h"
#include "common/wire/bundle.h"
#include "server/flow.h"
#include "server/job.h"
#include "server/peer_link.h"
#include "server/upstream_round.h"
#include "server/reply.h"

/* So long a packet may wait for its round before its worker is told that it has arrived: well below the worker's
 * first retransmission, and long enough that ordinary rounds need no acknowledgement but their data. */
#define ACK_AFTER_US 100000u

/* Slices of one verdict, for one Ack. */
typedef struct {
    uint32_t *slices; /* [own] */
    size_t count;
} verdict_list;

typedef enum { REPEATED, EARLY, LATE, OVERSIZE, UNSET, NO_ROOM, BEHIND, VERDICTS } verdict;

static const struct {
    terse_status status;
    const char *reason;
} verdicts[VERDICTS] = {
    [REPEATED] = {TERSE_EDUPLICATE, NULL},
    [EARLY] = {TERSE_ESTATE, "the step is ahead of the slice's version"},
    [LATE] = {TERSE_ESTALE, "the round was closed without it, the worker is done with this step, or another life of it pushed"},
    [OVERSIZE] = {TERSE_ELIMIT, "the packet is larger than any of this slice can be"},
    [UNSET] = {TERSE_ESTATE, "the parameters have no first values yet"},
    [NO_ROOM] = {TERSE_EAGAIN, "this worker's share of limits.traffic_bytes is full; the packet may come again"},
    [BEHIND] = {TERSE_EAGAIN, "the server speaks for one that is dead, and is not where that one was yet; the packet may come again"},
};

/* Indices and values raw take 8 bytes an element; nothing that an encoder writes takes more than that and a header. */
static bool oversize(const ts_slice_state *slice, size_t len) { return len > slice->n * 9 + 4096; }

/* A stand-in took over with a work under way that its owner had done: the worker is right to be ahead of it. */
static bool catches_up(const ts_job *job, const ts_slice_state *slice, uint64_t step) {
    return job->own && (!slice->initialised || step == slice->version + 1);
}

/* One packet's verdict; VERDICTS means it is to be held. */
static verdict judge(const ts_job *job, const ts_slice_state *slice, uint32_t worker, uint64_t step, size_t len) {
    if (!slice->initialised) return catches_up(job, slice, step) ? BEHIND : UNSET;
    if (oversize(slice, len)) return OVERSIZE;
    switch (job->consistency->admit(&job->members, slice, worker, step)) {
    case TERSE_OK: return VERDICTS;
    case TERSE_EDUPLICATE: return REPEATED;
    case TERSE_ESTATE: return catches_up(job, slice, step) ? BEHIND : EARLY;
    default: return LATE;
    }
}

/* What the worker wants to hear of a packet; place: of the packet in its frame. */
static void owe_push(ts_job *job, ts_slice_state *slice, uint32_t worker, const Terse__Push *push, size_t place,
                     verdict what) {
    uint64_t have = push->n_have == 0 ? push->step : push->have[push->n_have == 1 ? 0 : place];
    if (push->pull) ts_reply_owe(job, slice, worker, have, push->step + 1);
    if ((job->members.quorums.active || !push->pull) && what != LATE) ts_reply_owe_word(job, slice, worker, push->step + 1);
}

/* A packet that waits in its slot already: its worker has not heard of it, so the next tick says so. */
static void say_again(ts_job *job, ts_slice_state *slice, uint32_t worker, uint64_t now_us) {
    ts_slot *slot = &slice->slots[worker];
    ts_member *member = &job->members.members[worker];
    slot->acked = false;
    slot->arrived_us = now_us > ACK_AFTER_US ? now_us - ACK_AFTER_US : 0;
    member->unacked_since_us = slot->arrived_us > 0 ? slot->arrived_us : 1;
}

/* A Push under way. */
typedef struct {
    ts_job *job;
    uint32_t worker;
    ts_buffer *buffer;       /* [borrow] */
    const Terse__Push *push;
    bool compact;            /* held packets are copied out, since they are little of a large frame */
    bool tight;              /* not all of it fits into the worker's share */
    uint32_t open;           /* the slice whose packet is taken all the same */
    verdict_list refused[VERDICTS];
} admission;

/* Whether the worker's share has room for what is to be held of the frame. */
static void measure(admission *a, size_t useful) {
    ts_store *store = &a->job->store;
    size_t limit = ts_flow_held_limit(a->job->server, ts_job_peer(a->job, a->worker));
    a->compact = useful + 1024 < a->buffer->capacity / 2;
    size_t cost = a->compact ? useful : a->buffer->capacity;
    if (useful == 0 || store->books->held[a->worker] + cost <= limit) return;
    ts_store_compact(store, a->worker);
    /* Rounds that do not wait are decided by who has delivered all of one: its packets have to be held together. */
    a->tight = store->books->held[a->worker] + cost > limit && !a->job->members.quorums.active;
    if (!a->tight) return;
    a->compact = true;
    a->open = ts_store_first_open(store);
}

static bool fits(const admission *a, const ts_slice_state *slice, size_t len) {
    return !a->tight || slice->local == a->open ||
           a->job->store.books->held[a->worker] + len <= ts_flow_held_limit(a->job->server, ts_job_peer(a->job, a->worker));
}

/* Reads the bundle once to the end, so that a frame is taken whole or not at all. */
static terse_status look_through(admission *a, const ts_frame *frame, size_t *count) {
    ts_bundle_reader reader = ts_bundle_read(frame->payload, frame->payload_bytes, a->job->store.count);
    uint32_t number;
    const uint8_t *packet;
    size_t len, useful = 0;
    terse_status status;
    *count = 0;
    while ((status = ts_bundle_next(&reader, &number, &packet, &len)) == TERSE_OK) {
        if (judge(a->job, &a->job->store.slices[number], a->worker, a->push->step, len) == VERDICTS) useful += len;
        ++*count;
    }
    if (status != TERSE_EAGAIN) return status;
    TS_REQUIRE(a->push->n_have <= 1 || a->push->n_have == *count, TERSE_ECORRUPT);
    measure(a, useful);
    return TERSE_OK;
}

static terse_status hold(admission *a, ts_slice_state *slice, const uint8_t *packet, size_t len, uint64_t now_us) {
    if (!a->compact) {
        ts_store_hold(slice, a->worker, a->buffer, packet, len, a->push->step, now_us);
        return TERSE_OK;
    }
    ts_buffer *copy;
    TS_TRY(ts_buffer_create(len, &copy));
    if (len > 0) memcpy(copy->data, packet, len);
    copy->len = len;
    ts_store_hold(slice, a->worker, copy, copy->data, len, a->push->step, now_us);
    ts_buffer_unref(copy);
    return TERSE_OK;
}

static terse_status take_packet(admission *a, uint32_t number, size_t place, const uint8_t *packet, size_t len,
                                uint64_t now_us) {
    ts_job *job = a->job;
    ts_slice_state *slice = &job->store.slices[number];
    ts_member *member = &job->members.members[a->worker];
    verdict what = judge(job, slice, a->worker, a->push->step, len);
    if (what == VERDICTS && !fits(a, slice, len)) what = NO_ROOM;
    if (what == VERDICTS) {
        TS_TRY(hold(a, slice, packet, len, now_us));
        slice->slots[a->worker].samples = a->push->samples;
        owe_push(job, slice, a->worker, a->push, place, what);
        if (member->unacked_since_us == 0) member->unacked_since_us = now_us;
        if (job->replica.mirrors) ts_replica_admitted(job, slice, a->worker);
        ts_rounds_consider(job, slice);
        return TERSE_OK;
    }
    bool late = what == LATE && job->members.quorums.active;
    if (what == REPEATED || late) owe_push(job, slice, a->worker, a->push, place, what);
    if (late) ts_round_receipt(job, slice, TS_RECEIPT_RETURNED, a->worker, a->push->step);
    const ts_slot *slot = &slice->slots[a->worker];
    if (what == REPEATED && slot->frame && slot->step == a->push->step) say_again(job, slice, a->worker, now_us);
    else a->refused[what].slices[a->refused[what].count++] = number;
    return TERSE_OK;
}

terse_status ts_admission_push(struct ts_job *job, uint32_t worker, ts_buffer *buffer, const ts_frame *frame) {
    admission a = {.job = job, .worker = worker, .buffer = buffer, .push = frame->header->push};
    uint64_t now_us = ts_server_now(job->server);
    uint32_t incarnation = a.push->incarnation ? a.push->incarnation : 1;
    size_t count;
    /* An answer to another life's packet would be taken for one to a packet of the same step. */
    if (incarnation != job->members.members[worker].incarnation) return TERSE_OK;
    TS_TRY(look_through(&a, frame, &count));
    uint32_t *lists = ts_mem_calloc(count * VERDICTS, sizeof *lists);
    TS_REQUIRE(lists, TERSE_ENOMEM);
    for (unsigned v = 0; v < VERDICTS; v++) a.refused[v].slices = lists + v * count;
    ts_bundle_reader reader = ts_bundle_read(frame->payload, frame->payload_bytes, job->store.count);
    uint32_t number;
    const uint8_t *packet;
    size_t len;
    terse_status status = TERSE_OK;
    for (size_t place = 0; status == TERSE_OK && ts_bundle_next(&reader, &number, &packet, &len) == TERSE_OK; place++)
        status = take_packet(&a, number, place, packet, len, now_us);
    if (job->replica.mirrors) ts_replica_forward(job, worker);
    for (unsigned v = 0; v < VERDICTS; v++)
        if (a.refused[v].count > 0)
            ts_link_ack(job, ts_job_peer(job, worker), a.push->step, verdicts[v].status,
                        a.refused[v].slices, a.refused[v].count, verdicts[v].reason);
    if (a.refused[NO_ROOM].count > 0)
        ts_flow_note_refused(job->server, ts_job_peer(job, worker), a.refused[NO_ROOM].count);
    ts_mem_free(lists);
    return status;
}

/* How many float32 of a packet, which may lie anywhere, are NaN or infinite. first: [out] the first of them. */
static size_t count_nonfinite(const uint8_t *packet, size_t n, size_t *first) {
    size_t found = 0;
    for (size_t i = n; i-- > 0;) {
        float value;
        memcpy(&value, packet + i * sizeof value, sizeof value);
        if (isfinite(value)) continue;
        found++;
        *first = i;
    }
    return found;
}

/* First values that no training could leave again are refused, and their worker is told; it fails, and ends the job. */
static terse_status check_first_values(ts_job *job, uint32_t worker, uint32_t number, const uint8_t *packet) {
    const ts_slice_state *slice = &job->store.slices[number];
    char reason[TS_CONTRACT_NAME_BYTES + 128];
    size_t at = 0, found = count_nonfinite(packet, slice->n, &at);
    if (found == 0 || job->config->optimizer.name == TS_OPTIMIZER_NONE) return TERSE_OK;
    snprintf(reason, sizeof reason, "tensor %s holds %zu values that are not finite, the first at element %zu",
             job->contract->tensors[slice->tensor].name, found, job->contract->slices[slice->global].first + at);
    ts_log(TS_LOG_WARN, "admission", "first values were refused", "from=\"%s\" reason=\"%s\"", ts_job_worker_name(job, worker),
           reason);
    ts_link_ack(job, ts_job_peer(job, worker), 0, TERSE_ENONFINITE, &number, 1, reason);
    return TERSE_ENONFINITE;
}

terse_status ts_admission_set(struct ts_job *job, uint32_t worker, const ts_frame *frame) {
    TS_REQUIRE(worker == 0 && !ts_checkpoint_resumes(&job->checkpoint), TERSE_EPEER);
    ts_bundle_reader reader = ts_bundle_read(frame->payload, frame->payload_bytes, job->store.count);
    uint32_t number;
    const uint8_t *packet;
    size_t len, count = 0;
    terse_status status;
    while ((status = ts_bundle_next(&reader, &number, &packet, &len)) == TERSE_OK) {
        TS_REQUIRE(len == job->store.slices[number].n * sizeof(float), TERSE_ECORRUPT);
        TS_TRY(check_first_values(job, worker, number, packet));
        count++;
    }
    if (status != TERSE_EAGAIN) return status;
    uint32_t *slices = ts_mem_calloc(count, sizeof *slices);
    TS_REQUIRE(slices, TERSE_ENOMEM);
    reader = ts_bundle_read(frame->payload, frame->payload_bytes, job->store.count);
    bool above = job->server->upstream != NULL;
    for (count = 0; ts_bundle_next(&reader, &number, &packet, &len) == TERSE_OK; count++) {
        if (above) ts_upstream_offer(job, number, packet);
        else if (ts_store_set(&job->store, number, packet)) {
            job->last_progress_us = ts_server_now(job->server);
            job->store.slices[number].unset = job->replica.mirrors;
        }
        slices[count] = number;
    }
    if (job->replica.mirrors) count = ts_replica_forward_set(job, slices, count);
    /* With an upstream other values may hold: worker 0 repeats itself until all are here, and then asks for them. */
    if (!above && count > 0) ts_link_ack(job, ts_job_peer(job, worker), 0, TERSE_OK, slices, count, NULL);
    else if (above && ts_upstream_offered(job))
        ts_link_ack(job, ts_job_peer(job, worker), 0, TERSE_ESTALE, slices, count,
                    "the servers above may have others: pull a snapshot");
    ts_mem_free(slices);
    for (uint32_t w = 0; w < job->members.count; w++) job->members.members[w].reply_due = true; /* those who wait */
    return TERSE_OK;
}

static void ack_worker(ts_job *job, uint32_t worker, uint32_t *slices, uint64_t now_us) {
    ts_member *member = &job->members.members[worker];
    uint64_t step = 0, oldest_us = 0;
    size_t count = 0;
    for (uint32_t s = 0; s < job->store.count; s++) {
        ts_slot *slot = &job->store.slices[s].slots[worker];
        if (!slot->frame || slot->acked) continue;
        if (now_us - slot->arrived_us < ACK_AFTER_US || slot->unconfirmed) {
            if (oldest_us == 0 || slot->arrived_us < oldest_us) oldest_us = slot->arrived_us;
            continue;
        }
        if (count > 0 && slot->step != step) {
            ts_link_ack(job, member->peer, step, TERSE_OK, slices, count, NULL);
            count = 0;
        }
        step = slot->step;
        slices[count++] = s;
        slot->acked = true;
    }
    if (count > 0) ts_link_ack(job, member->peer, step, TERSE_OK, slices, count, NULL);
    member->unacked_since_us = oldest_us;
}

void ts_admission_tick(struct ts_job *job) {
    uint64_t now_us = ts_server_now(job->server);
    uint32_t *slices = NULL;
    for (uint32_t w = 0; w < job->members.count; w++) {
        const ts_member *member = &job->members.members[w];
        if (member->unacked_since_us == 0 || now_us - member->unacked_since_us < ACK_AFTER_US) continue;
        if (member->state != TS_MEMBER_ATTACHED) continue;
        if (!slices) slices = ts_mem_calloc(job->store.count, sizeof *slices);
        if (!slices) return; /* the worker repeats itself, and the next tick tries again */
        ack_worker(job, w, slices, now_us);
    }
    ts_mem_free(slices);
}
