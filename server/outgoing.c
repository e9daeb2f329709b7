/* SPDX-License-Identifier: Apache-2.0 */
#include "server/outgoing.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/wire/bundle.h"
#include "server/flow.h"
#include "server/job.h"
#include "server/peer_link.h"

terse_status ts_outgoing_create(ts_outgoing *outgoing, uint32_t slices) {
    ts_outgoing_packet *packets = ts_mem_calloc(slices, sizeof *packets);
    TS_REQUIRE(packets, TERSE_ENOMEM);
    *outgoing = (ts_outgoing){.packets = packets};
    return TERSE_OK;
}

void ts_outgoing_free(ts_outgoing *outgoing) {
    for (uint32_t i = 0; i < outgoing->count; i++) ts_buffer_unref(outgoing->packets[i].frame);
    ts_mem_free(outgoing->packets);
    *outgoing = (ts_outgoing){0};
}

static bool wants(const ts_outgoing_packet *packet, uint32_t worker) {
    const ts_slot *slot = &packet->slice->slots[worker];
    if (!(slot->owed & TS_OWED_DELTA) || slot->want > packet->version) return false;
    return packet->replaces || slot->have == packet->version - 1;
}

static void send_to(ts_job *job, uint32_t worker, ts_buffer *frame, const ts_outgoing_packet *packets, uint32_t count) {
    ts_member *member = &job->members.members[worker];
    if (member->state != TS_MEMBER_ATTACHED) return;
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < count; i++) wanted += wants(&packets[i], worker);
    bool send = wanted == count;
    if (send && !ts_flow_queue_has_room(job->server, member->peer, ts_buffer_bytes(frame))) {
        send = false; /* it gets it alone, when it has read what is there */
        ts_flow_note_withheld(job->server, member->peer);
    }
    if (send) ts_link_send(job->server, member->peer, frame);
    for (uint32_t i = 0; i < count; i++) {
        ts_slot *slot = &packets[i].slice->slots[worker];
        if (send) slot->owed &= (uint8_t)~TS_OWED_DELTA;
        if (slot->owed) member->reply_due = true;
    }
}

/* One finished frame to every worker that wants all of its packets; those who want a part get a frame of their own. */
static void send_frame(ts_job *job, ts_buffer *frame, const ts_outgoing_packet *packets, uint32_t count) {
    for (uint32_t w = 0; w < job->members.count; w++) send_to(job, w, frame, packets, count);
    for (uint32_t i = 0; i < count; i++) {
        packets[i].slice->sending = false;
        ts_rounds_consider(job, packets[i].slice); /* a worker that does not wait for its pull may have pushed again */
    }
    job->outgoing.frames++;
    job->outgoing.packets_sent += count;
}

static int by_frame(const void *left, const void *right) {
    const ts_outgoing_packet *a = left, *b = right;
    if (a->version != b->version) return a->version < b->version ? -1 : 1;
    if (a->replaces != b->replaces) return a->replaces ? 1 : -1;
    return a->slice->local < b->slice->local ? -1 : a->slice->local > b->slice->local;
}

static terse_status build(const ts_job *job, const ts_outgoing_packet *packets, uint32_t count, ts_buffer **out) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Data data = TERSE__DATA__INIT;
    ts_job_head(job, &header);
    header.body_case = TERSE__HEADER__BODY_DATA;
    header.data = &data;
    data.version = packets[0].version;
    data.snapshot = packets[0].replaces;
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) bytes += packets[i].len + TS_BUNDLE_ENTRY_MAX_BYTES;
    ts_buffer *frame = NULL;
    TS_TRY(ts_frame_begin_in(job->server->transport->pool, &header, bytes, &frame));
    ts_bundle_writer writer = ts_bundle_write(frame);
    terse_status status = TERSE_OK;
    for (uint32_t i = 0; status == TERSE_OK && i < count; i++)
        status = ts_bundle_add(&writer, packets[i].slice->local, packets[i].frame->data + packets[i].offset,
                               packets[i].len);
    if (status == TERSE_OK) status = ts_frame_finish(frame);
    if (status != TERSE_OK) {
        ts_buffer_unref(frame);
        return status;
    }
    *out = frame;
    return TERSE_OK;
}

void ts_outgoing_send(struct ts_job *job) {
    ts_outgoing *outgoing = &job->outgoing;
    if (outgoing->count == 0) return;
    qsort(outgoing->packets, outgoing->count, sizeof *outgoing->packets, by_frame);
    for (uint32_t from = 0, to; from < outgoing->count; from = to) {
        const ts_outgoing_packet *first = &outgoing->packets[from];
        for (to = from + 1; to < outgoing->count; to++)
            if (outgoing->packets[to].version != first->version || outgoing->packets[to].replaces != first->replaces)
                break;
        ts_buffer *frame = NULL;
        terse_status status = build(job, first, to - from, &frame);
        if (status != TERSE_OK) {
            ts_job_fail(job, status, "server %u cannot build the frame of version %llu: %s",
                           job->server->index, (unsigned long long)first->version, terse_strerror(status));
            break;
        }
        send_frame(job, frame, first, to - from);
        ts_buffer_unref(frame);
    }
    for (uint32_t i = 0; i < outgoing->count; i++) ts_buffer_unref(outgoing->packets[i].frame);
    outgoing->count = 0;
    outgoing->bytes = 0;
}

static ts_outgoing_packet packet_of(const ts_round_item *item, const ts_round_entry *entry) {
    return (ts_outgoing_packet){.slice = entry->slice,
                                .frame = item->frame,
                                .offset = entry->offset,
                                .len = entry->len,
                                .version = item->version + 1,
                                .replaces = item->replaces};
}

void ts_outgoing_take(struct ts_job *job, struct ts_round_item *item) {
    ts_outgoing *outgoing = &job->outgoing;
    uint32_t first = outgoing->count;
    for (uint32_t e = 0; e < item->entry_count; e++) {
        if (item->entries[e].status != TERSE_OK || item->entries[e].deferred) continue;
        ts_outgoing_packet packet = packet_of(item, &item->entries[e]);
        packet.slice->sending = true;
        ts_buffer_ref(packet.frame);
        outgoing->packets[outgoing->count++] = packet;
        outgoing->bytes += packet.len;
    }
    if (!item->finished) return;
    /* A large frame was finished in the work item; its packets only passed through the list. */
    send_frame(job, item->frame, outgoing->packets + first, outgoing->count - first);
    while (outgoing->count > first) {
        outgoing->count--;
        outgoing->bytes -= outgoing->packets[outgoing->count].len;
        ts_buffer_unref(outgoing->packets[outgoing->count].frame);
    }
}
