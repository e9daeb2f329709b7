/* SPDX-License-Identifier: Apache-2.0 */
#include "server/reply.h"

#include "common/base/log.h"
#include "common/wire/bundle.h"
#include "server/job.h"
#include "server/peer_link.h"

/* ---- frames for one worker ------------------------------------------------------------------------------------------ */

/* Packets of one kind and version gather in a frame; another kind, or a slice out of order, begins the next. */
typedef struct {
    ts_job *job;
    uint32_t peer;
    ts_buffer *frame; /* NULL between frames */
    ts_bundle_writer writer;
    uint64_t version;
    bool snapshot, params;
    terse_status status; /* the first failure; later calls do nothing */
} reply_builder;

static void end_frame(reply_builder *reply) {
    if (!reply->frame) return;
    if (reply->status == TERSE_OK) reply->status = ts_frame_finish(reply->frame);
    if (reply->status == TERSE_OK) ts_link_send(reply->job->server, reply->peer, reply->frame);
    ts_buffer_unref(reply->frame);
    reply->frame = NULL;
}

static void begin_frame(reply_builder *reply, uint64_t version, bool snapshot, bool params, size_t bytes) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Data data = TERSE__DATA__INIT;
    header.job = reply->job->id;
    header.body_case = TERSE__HEADER__BODY_DATA;
    header.data = &data;
    data.version = version;
    data.snapshot = snapshot;
    data.params = params;
    reply->version = version;
    reply->snapshot = snapshot;
    reply->params = params;
    reply->status = ts_frame_begin(&header, bytes, &reply->frame);
    if (reply->status == TERSE_OK) reply->writer = ts_bundle_write(reply->frame);
    else reply->frame = NULL;
}

static void add(reply_builder *reply, uint32_t slice, uint64_t version, bool snapshot, bool params,
                const uint8_t *packet, size_t len) {
    if (reply->frame && (reply->version != version || reply->snapshot != snapshot || reply->params != params ||
                         reply->writer.previous >= (int64_t)slice || reply->frame->len + len > TS_SERVER_FRAME_BYTES))
        end_frame(reply);
    if (reply->status == TERSE_OK && !reply->frame)
        begin_frame(reply, version, snapshot, params, len + 2 * TS_BUNDLE_ENTRY_MAX_BYTES);
    if (reply->status == TERSE_OK) reply->status = ts_bundle_add(&reply->writer, slice, packet, len);
}

/* ---- what is said ---------------------------------------------------------------------------------------------------- */

static void add_snapshot(reply_builder *reply, const ts_slice_state *slice) {
    /* Whoever starts from a snapshot must be able to go on with the log, so it is of the reference. */
    const float *values = slice->kind == TS_DOWNLINK_REFERENCE ? slice->reference : slice->params;
    add(reply, slice->local, slice->version, true, false, (const uint8_t *)values, slice->n * sizeof(float));
}

static void add_delta(reply_builder *reply, const ts_slice_state *slice, uint64_t have) {
    bool logged = slice->kind != TS_DOWNLINK_REPLACE && slice->version - have <= slice->log_entries;
    for (uint64_t v = have + 1; logged && v <= slice->version; v++) logged = ts_store_logged(slice, v) != NULL;
    if (!logged && slice->kind == TS_DOWNLINK_AVERAGE) {
        /* An average that is gone cannot be told by values that replace. */
        ts_link_ack(reply->job->server, reply->peer, reply->job->id, have, TERSE_ESTALE, &slice->local, 1,
                    "the averages that this worker missed are no longer kept");
        return;
    }
    if (!logged) {
        add_snapshot(reply, slice);
        return;
    }
    for (uint64_t v = have + 1; v <= slice->version; v++) {
        const ts_log_entry *entry = ts_store_logged(slice, v);
        add(reply, slice->local, v, false, false, entry->frame->data + entry->offset, entry->len);
    }
}

static void serve_slot(reply_builder *reply, const ts_slice_state *slice, ts_slot *slot) {
    if ((slot->owed & TS_OWED_DELTA) && slice->version >= slot->want && !slice->sending) {
        slot->owed &= (uint8_t)~TS_OWED_DELTA;
        if (slot->have < slice->version) add_delta(reply, slice, slot->have);
    }
    if ((slot->owed & TS_OWED_SNAPSHOT) && slice->version >= slot->want_snapshot) {
        slot->owed &= (uint8_t)~TS_OWED_SNAPSHOT;
        add_snapshot(reply, slice);
    }
    if ((slot->owed & TS_OWED_PARAMS) && slice->version >= slot->want_params) {
        slot->owed &= (uint8_t)~TS_OWED_PARAMS;
        add(reply, slice->local, slice->version, true, true, (const uint8_t *)slice->params,
            slice->n * sizeof(float));
    }
}

void ts_reply_serve(struct ts_job *job, uint32_t worker) {
    ts_member *member = &job->members.members[worker];
    const ts_transport *transport = job->server->transport;
    size_t limit = (size_t)job->server->config->limits.window_bytes;
    reply_builder reply = {.job = job, .peer = member->peer};
    member->reply_due = member->reply_later = false;
    if (member->state != TS_MEMBER_ATTACHED) return;
    for (uint32_t s = 0; s < job->store.count && reply.status == TERSE_OK; s++) {
        ts_slice_state *slice = &job->store.slices[s];
        ts_slot *slot = &slice->slots[worker];
        if (!slot->owed || !slice->initialised || slice->busy) continue; /* a busy slice looks again when it closes */
        if (transport->ops->queued(transport, member->peer) > limit) {
            member->reply_later = true;
            break;
        }
        serve_slot(&reply, slice, slot);
    }
    end_frame(&reply);
    if (reply.status != TERSE_OK) {
        /* The worker asks again after a while; until then memory may have come back. */
        job->server->links[member->peer].send_failures++;
        ts_log(TS_LOG_WARN, "reply", "cannot build a reply", "to=\"%s\" status=%s",
               ts_server_peer_name(job->server, member->peer), terse_status_name(reply.status));
    }
}

/* ---- what is asked --------------------------------------------------------------------------------------------------- */

void ts_reply_owe(struct ts_job *job, ts_slice_state *slice, uint32_t worker, uint64_t have, uint64_t want) {
    ts_slot *slot = &slice->slots[worker];
    bool newer_owed = (slot->owed & TS_OWED_DELTA) && slot->want > want;
    if (newer_owed) return; /* a late repetition of an old wish */
    slot->owed |= TS_OWED_DELTA;
    slot->have = have;
    slot->want = want;
    if (slice->version >= want) job->members.members[worker].reply_due = true;
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
    for (size_t i = 0; i < pull->n_slices; i++) TS_REQUIRE(pull->slices[i] < job->store.count, TERSE_ECORRUPT);
    TS_REQUIRE(pull->snapshot || pull->want > pull->have, TERSE_ECORRUPT);
    size_t count = pull->n_slices ? pull->n_slices : job->store.count;
    for (size_t i = 0; i < count; i++) {
        ts_slice_state *slice = &job->store.slices[pull->n_slices ? pull->slices[i] : i];
        if (pull->snapshot) owe_snapshot(&slice->slots[worker], pull->params, pull->want);
        else ts_reply_owe(job, slice, worker, pull->have, pull->want);
    }
    job->members.members[worker].reply_due = true;
    return TERSE_OK;
}
