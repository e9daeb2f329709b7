/* SPDX-License-Identifier: Apache-2.0 */
#include "server/peer_link.h"

#include "server/flow.h"
#include "server/job.h"

uint64_t ts_server_deadline_us(const ts_server *server) {
    return (uint64_t)(server->config->consistency.deadline_s * 1e6);
}

uint64_t ts_link_patience_us(const ts_server *server, const ts_link *link) {
    return link->frames_in > 0 ? ts_server_deadline_us(server) : ts_config_start_us(server->config);
}

const char *ts_server_peer_name(const ts_server *server, uint32_t peer) {
    return server->transport->peers[peer].name;
}

void ts_link_send(ts_server *server, uint32_t peer, ts_buffer *frame) {
    ts_link *link = &server->links[peer];
    if (server->transport->ops->send(server->transport, peer, frame) != TERSE_OK) {
        link->send_failures++;
        return;
    }
    link->frames_out++;
    link->bytes_out += ts_buffer_bytes(frame);
    link->last_sent_us = ts_server_now(server);
}

void ts_link_answer(ts_server *server, uint32_t peer, ts_buffer *frame) {
    if (ts_flow_queue_has_room(server, peer, ts_buffer_bytes(frame))) ts_link_send(server, peer, frame);
    else ts_flow_note_withheld(server, peer);
}

void ts_link_control(ts_server *server, uint32_t peer, Terse__Header *header) {
    ts_buffer *frame;
    if (ts_frame_control(header, &frame) != TERSE_OK) {
        server->links[peer].send_failures++;
        return;
    }
    if (header->body_case == TERSE__HEADER__BODY_ABORT) ts_link_send(server, peer, frame); /* nobody asks for it */
    else ts_link_answer(server, peer, frame);
    ts_buffer_unref(frame);
}

static void send_ack(const ts_job *job, uint32_t peer, Terse__Ack *ack, const uint32_t *slices, size_t count) {
    Terse__Header header = TERSE__HEADER__INIT;
    if (job->mute) return;
    ts_job_head(job, &header);
    header.body_case = TERSE__HEADER__BODY_ACK;
    header.ack = ack;
    const ts_peer *to = &job->server->transport->peers[peer];
    uint32_t life = to->role == TS_ROLE_WORKER && to->index < job->members.count ? job->members.members[to->index].incarnation : 0;
    ack->incarnation = life > 1 ? life : 0;
    ack->n_slices = count;
    ack->slices = (uint32_t *)(uintptr_t)slices; /* protobuf-c has no const; packing only reads */
    ts_link_control(job->server, peer, &header);
}

void ts_link_ack(const ts_job *job, uint32_t peer, uint64_t step, terse_status status,
                 const uint32_t *slices, size_t count, const char *reason) {
    Terse__Ack ack = TERSE__ACK__INIT;
    ack.step = step;
    ack.status = (uint32_t)status;
    if (reason) ack.reason = (char *)(uintptr_t)reason;
    send_ack(job, peer, &ack, slices, count);
}

void ts_link_settled(const ts_job *job, uint32_t peer, uint64_t step, const uint32_t *slices, size_t count) {
    Terse__Ack ack = TERSE__ACK__INIT;
    ack.step = step;
    ack.status = TERSE_OK;
    ack.settled = true;
    send_ack(job, peer, &ack, slices, count);
}

static void send_abort(ts_server *server, uint32_t peer, uint32_t job, Terse__Abort *body) {
    Terse__Header header = TERSE__HEADER__INIT;
    header.job = job;
    header.body_case = TERSE__HEADER__BODY_ABORT;
    header.abort = body;
    server->links[peer].last_abort_us = ts_server_now(server);
    ts_link_control(server, peer, &header);
}

void ts_link_abort(ts_server *server, uint32_t peer, uint32_t job, terse_status status, const char *reason) {
    send_abort(server, peer, job, &(Terse__Abort){.base = PROTOBUF_C_MESSAGE_INIT(&terse__abort__descriptor),
                                                  .status = (uint32_t)status, .reason = (char *)(uintptr_t)reason});
}

void ts_link_stale(ts_server *server, uint32_t peer, uint32_t job, uint32_t incarnation, const char *reason) {
    send_abort(server, peer, job, &(Terse__Abort){.base = PROTOBUF_C_MESSAGE_INIT(&terse__abort__descriptor),
                                                  .status = TERSE_ESTALE, .reason = (char *)(uintptr_t)reason,
                                                  .incarnation = incarnation});
}

bool ts_link_quiet(const ts_server *server, uint32_t peer) {
    uint64_t silent_us = ts_server_now(server) - server->links[peer].last_sent_us;
    if (server->transport->ops->queued(server->transport, peer) > 0) return false; /* it will hear of us when it reads */
    return silent_us >= ts_heartbeat_us(ts_server_deadline_us(server));
}
