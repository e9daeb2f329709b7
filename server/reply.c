/* SPDX-License-Identifier: Apache-2.0 */
#include "server/reply.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/wire/bundle.h"
#include "server/flow.h"
#include "server/job.h"
#include "server/peer_link.h"

terse_status ts_replies_create(ts_replies *replies, uint32_t slices) {
    uint32_t *told = ts_mem_calloc(slices, 2 * sizeof *told); /* data and a word can both be due */
    TS_REQUIRE(told, TERSE_ENOMEM);
    *replies = (ts_replies){.told = told};
    return TERSE_OK;
}

void ts_replies_free(ts_replies *replies) {
    ts_mem_free(replies->packets);
    ts_mem_free(replies->told);
    *replies = (ts_replies){0};
}

/* ---- frames for one worker ------------------------------------------------------------------------------------------ */

/* What shares a header comes together, in order of slices; older versions of all slices before newer ones. */
static int by_frame(const void *left, const void *right) {
    const ts_reply_packet *a = left, *b = right;
    if (a->params != b->params) return a->params ? 1 : -1;
    if (a->version != b->version) return a->version < b->version ? -1 : 1;
    if (a->snapshot != b->snapshot) return a->snapshot ? 1 : -1;
    if (a->answers != b->answers) return a->answers < b->answers ? -1 : 1;
    return a->slice < b->slice ? -1 : a->slice > b->slice;
}

static bool same_frame(const ts_reply_packet *a, const ts_reply_packet *b) {
    return a->params == b->params && a->version == b->version && a->snapshot == b->snapshot && a->answers == b->answers;
}

/* One frame of packets alike. */
static terse_status send_frame(ts_job *job, uint32_t peer, const ts_reply_packet *packets, size_t count, size_t bytes) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Data data = TERSE__DATA__INIT;
    ts_job_head(job, &header);
    header.body_case = TERSE__HEADER__BODY_DATA;
    header.data = &data;
    data.version = packets->version;
    data.snapshot = packets->snapshot;
    data.params = packets->params;
    data.answers = packets->answers;
    ts_buffer *frame = NULL;
    TS_TRY(ts_frame_begin(&header, bytes, &frame));
    ts_bundle_writer writer = ts_bundle_write(frame);
    terse_status status = TERSE_OK;
    for (size_t i = 0; i < count && status == TERSE_OK; i++)
        status = ts_bundle_add(&writer, packets[i].slice, packets[i].packet, packets[i].len);
    if (status == TERSE_OK) status = ts_frame_finish(frame);
    if (status == TERSE_OK) ts_link_send(job->server, peer, frame);
    ts_buffer_unref(frame);
    return status;
}

static terse_status send_packets(ts_job *job, uint32_t peer) {
    ts_replies *replies = &job->replies;
    const ts_reply_packet *packets = replies->packets;
    if (replies->count == 0) return TERSE_OK;
    qsort(replies->packets, replies->count, sizeof *packets, by_frame);
    for (size_t from = 0, to; from < replies->count; from = to) {
        size_t bytes = packets[from].len + 2 * TS_BUNDLE_ENTRY_MAX_BYTES;
        for (to = from + 1; to < replies->count && same_frame(&packets[from], &packets[to]); to++) {
            if (bytes + packets[to].len > TS_SERVER_FRAME_BYTES || packets[to].slice == packets[to - 1].slice) break;
            bytes += packets[to].len + TS_BUNDLE_ENTRY_MAX_BYTES;
        }
        TS_TRY(send_frame(job, peer, packets + from, to - from, bytes));
    }
    return TERSE_OK;
}

static void send_told(ts_job *job, uint32_t peer) {
    ts_replies *replies = &job->replies;
    if (replies->told_count == 0) return;
    ts_link_settled(job, peer, replies->told_step, replies->told, replies->told_count);
    replies->told_count = 0;
}

/* ---- what is said ---------------------------------------------------------------------------------------------------- */

static terse_status add(ts_job *job, const ts_reply_packet *packet) {
    ts_replies *replies = &job->replies;
    if (replies->count == replies->room) {
        size_t room = replies->room ? replies->room * 2 : 64;
        ts_reply_packet *grown = ts_mem_realloc(replies->packets, room, sizeof *grown);
        TS_REQUIRE(grown, TERSE_ENOMEM);
        replies->packets = grown;
        replies->room = room;
    }
    replies->packets[replies->count++] = *packet;
    replies->bytes += packet->len;
    return TERSE_OK;
}

static void tell(ts_job *job, uint32_t peer, uint32_t slice, uint64_t step) {
    ts_replies *replies = &job->replies;
    if (replies->told_step != step) send_told(job, peer);
    replies->told_step = step;
    replies->told[replies->told_count++] = slice;
}

static terse_status add_snapshot(ts_job *job, const ts_slice_state *slice, uint64_t answers) {
    /* Whoever starts from a snapshot must be able to go on with the log, so it is of the reference. */
    const float *values = slice->kind == TS_DOWNLINK_REFERENCE ? slice->reference : slice->params;
    return add(job, &(ts_reply_packet){.slice = slice->local, .version = slice->version, .snapshot = true,
                                       .answers = answers, .packet = (const uint8_t *)values,
                                       .len = slice->n * sizeof(float)});
}

static terse_status add_delta(ts_job *job, uint32_t peer, const ts_slice_state *slice, uint64_t have, uint64_t answers) {
    bool logged = slice->kind != TS_DOWNLINK_REPLACE && slice->version - have <= slice->log_entries;
    for (uint64_t v = have + 1; logged && v <= slice->version; v++) logged = ts_store_logged(slice, v) != NULL;
    if (!logged && slice->kind == TS_DOWNLINK_AVERAGE) {
        /* An average that is gone cannot be told by values that replace. */
        ts_link_ack(job, peer, have, TERSE_ESTALE, &slice->local, 1,
                    "the averages that this worker missed are no longer kept");
        return TERSE_OK;
    }
    if (!logged) return add_snapshot(job, slice, answers);
    for (uint64_t v = have + 1; v <= slice->version; v++) {
        const ts_log_entry *entry = ts_store_logged(slice, v);
        TS_TRY(add(job, &(ts_reply_packet){.slice = slice->local, .version = v,
                                           .answers = v == slice->version ? answers : 0,
                                           .packet = entry->frame->data + entry->offset, .len = entry->len}));
    }
    return TERSE_OK;
}

/* Whether the worker may see the slice as it is, and nothing of it is on its way already. */
static bool presentable(const ts_job *job, const ts_slice_state *slice, uint32_t worker, uint64_t want) {
    if (slice->sending || (slice->changed && slice->kind != TS_DOWNLINK_REPLACE)) return false;
    return job->consistency->answers(&job->members, slice, worker, want, false);
}

static terse_status serve_slot(ts_job *job, uint32_t worker, const ts_slice_state *slice, ts_slot *slot) {
    uint32_t peer = ts_job_peer(job, worker);
    bool alone = job->consistency->alone;
    if ((slot->owed & TS_OWED_DELTA) && presentable(job, slice, worker, slot->want)) {
        slot->owed &= (uint8_t)~TS_OWED_DELTA;
        if (slot->have < slice->version) TS_TRY(add_delta(job, peer, slice, slot->have, alone ? slot->want : 0));
        else if (alone) tell(job, peer, slice->local, slot->want - 1);
    }
    if ((slot->owed & TS_OWED_WORD) && slot->next >= slot->want_word &&
        job->consistency->answers(&job->members, slice, worker, slot->want_word, false)) {
        slot->owed &= (uint8_t)~TS_OWED_WORD;
        tell(job, peer, slice->local, slot->want_word - 1);
    }
    if ((slot->owed & TS_OWED_SNAPSHOT) && slice->version >= slot->want_snapshot) {
        slot->owed &= (uint8_t)~TS_OWED_SNAPSHOT;
        TS_TRY(add_snapshot(job, slice, 0));
    }
    if ((slot->owed & TS_OWED_PARAMS) && slice->version >= slot->want_params) {
        slot->owed &= (uint8_t)~TS_OWED_PARAMS;
        TS_TRY(add(job, &(ts_reply_packet){.slice = slice->local, .version = slice->version, .snapshot = true,
                                           .params = true, .packet = (const uint8_t *)slice->params,
                                           .len = slice->n * sizeof(float)}));
    }
    return TERSE_OK;
}

void ts_reply_serve(struct ts_job *job, uint32_t worker) {
    ts_member *member = &job->members.members[worker];
    const ts_transport *transport = job->server->transport;
    size_t limit = ts_flow_reply_limit(job->server, member->peer);
    ts_replies *replies = &job->replies;
    terse_status status = TERSE_OK;
    member->reply_due = member->reply_later = false;
    if (member->state != TS_MEMBER_ATTACHED) return;
    replies->count = replies->bytes = 0;
    for (uint32_t s = 0; s < job->store.count && status == TERSE_OK; s++) {
        ts_slice_state *slice = &job->store.slices[s];
        ts_slot *slot = &slice->slots[worker];
        if (!slot->owed || !slice->initialised || slice->unset || slice->busy) continue; /* a busy slice looks again when it closes */
        if (transport->ops->queued(transport, member->peer) + replies->bytes > limit) {
            member->reply_later = true;
            break;
        }
        status = serve_slot(job, worker, slice, slot);
    }
    send_told(job, member->peer);
    terse_status sent = send_packets(job, member->peer);
    if (status == TERSE_OK) status = sent;
    if (status != TERSE_OK) {
        /* The worker asks again after a while; until then memory may have come back. */
        job->server->links[member->peer].send_failures++;
        ts_log(TS_LOG_WARN, "reply", "cannot build a reply", "to=\"%s\" status=%s",
               ts_server_peer_name(job->server, member->peer), terse_status_name(status));
    }
}

/* ---- what is asked --------------------------------------------------------------------------------------------------- */

bool ts_reply_needs_version(const struct ts_job *job, const ts_slice_state *slice) {
    if (slice->kind == TS_DOWNLINK_REPLACE || (!slice->changed && slice->held == 0)) return false;
    for (uint32_t w = 0; w < job->members.count; w++) {
        const ts_slot *slot = &slice->slots[w];
        if ((slot->owed & TS_OWED_DELTA) && job->consistency->answers(&job->members, slice, w, slot->want, true))
            return true;
    }
    return false;
}

void ts_reply_wake(struct ts_job *job, const ts_slice_state *slice) {
    for (uint32_t w = 0; w < job->members.count; w++)
        if (slice->slots[w].owed) job->members.members[w].reply_due = true;
}

/* A new wish: answered at the next flush, or after work that it makes possible. */
static void note_wish(ts_job *job, ts_slice_state *slice, uint32_t worker, uint64_t want) {
    if (job->consistency->alone) ts_rounds_consider(job, slice);
    if (job->consistency->answers(&job->members, slice, worker, want, false))
        job->members.members[worker].reply_due = true;
}

void ts_reply_owe(struct ts_job *job, ts_slice_state *slice, uint32_t worker, uint64_t have, uint64_t want) {
    ts_slot *slot = &slice->slots[worker];
    bool newer_owed = (slot->owed & TS_OWED_DELTA) && slot->want > want;
    if (newer_owed) return; /* a late repetition of an old wish */
    slot->owed |= TS_OWED_DELTA;
    slot->have = have;
    slot->want = want;
    note_wish(job, slice, worker, want);
}

void ts_reply_owe_word(struct ts_job *job, ts_slice_state *slice, uint32_t worker, uint64_t want) {
    ts_slot *slot = &slice->slots[worker];
    if ((slot->owed & TS_OWED_WORD) && slot->want_word > want) return;
    slot->owed |= TS_OWED_WORD;
    slot->want_word = want;
    note_wish(job, slice, worker, want);
}

static void owe_snapshot(ts_slot *slot, bool params, uint64_t want) {
    if (params) {
        slot->owed |= TS_OWED_PARAMS;
        slot->want_params = want;
    } else {
        slot->owed |= TS_OWED_SNAPSHOT;
        slot->want_snapshot = want;
    }
}

terse_status ts_reply_pull(struct ts_job *job, uint32_t worker, const Terse__Pull *pull) {
    bool by_version = !job->consistency->alone;
    for (size_t i = 0; i < pull->n_slices; i++) TS_REQUIRE(pull->slices[i] < job->store.count, TERSE_ECORRUPT);
    TS_REQUIRE(pull->snapshot || pull->want > (by_version ? pull->have : 0), TERSE_ECORRUPT);
    size_t count = pull->n_slices ? pull->n_slices : job->store.count;
    for (size_t i = 0; i < count; i++) {
        ts_slice_state *slice = &job->store.slices[pull->n_slices ? pull->slices[i] : i];
        if (pull->snapshot) owe_snapshot(&slice->slots[worker], pull->params, pull->want);
        else ts_reply_owe(job, slice, worker, pull->have, pull->want);
    }
    job->members.members[worker].reply_due = true;
    return TERSE_OK;
}
