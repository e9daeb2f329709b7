/* SPDX-License-Identifier: Apache-2.0 */
#include "server/dispatch.h"

#include "common/base/log.h"
#include "server/admission.h"
#include "server/challenge.h"
#include "server/job.h"
#include "server/worker_loss.h"
#include "server/peer_link.h"
#include "server/reply.h"
#include "server/session.h"

#define ABORT_PAUSE_US 200000u /* the reason why a job failed is repeated to whoever still talks, this often at most */

/* Bytes after the warm-up count from a worker's first push of a later step. */
static void note_step(ts_job *job, uint32_t peer, uint64_t step, size_t bytes) {
    ts_link *link = &job->server->links[peer];
    if (link->steady || step < job->config->error_feedback.warmup.steps) return;
    link->steady = true;
    ts_replica_steady(job);
    link->steady_in_base = link->bytes_in - bytes;
    link->steady_out_base = link->bytes_out;
}

static void abort_from(ts_job *job, uint32_t peer, const Terse__Abort *abort) {
    terse_status status = abort->status == TERSE_OK ? TERSE_EPEER : (terse_status)abort->status;
    ts_job_fail(job, status, "%s ended the job: %s", ts_server_peer_name(job->server, peer), abort->reason);
}

/* Messages that only an attached worker may send. */
static terse_status from_attached(ts_job *job, uint32_t worker, ts_buffer *buffer, const ts_frame *frame) {
    const Terse__Header *header = frame->header;
    ts_member *member = &job->members.members[worker];
    TS_REQUIRE(member->state == TS_MEMBER_ATTACHED, TERSE_ESTATE);
    switch (header->body_case) {
    case TERSE__HEADER__BODY_PUSH:
        note_step(job, member->peer, header->push->step, buffer->len);
        return ts_admission_push(job, worker, buffer, frame);
    case TERSE__HEADER__BODY_PULL: return ts_reply_pull(job, worker, header->pull);
    case TERSE__HEADER__BODY_SET: return ts_admission_set(job, worker, frame);
    case TERSE__HEADER__BODY_DONE: return ts_session_done(job, worker, header->done);
    case TERSE__HEADER__BODY_REDUCE:
        TS_REQUIRE(ts_job_leads(job), TERSE_ESTATE);
        return ts_reduce_take(job, worker, header->reduce);
    case TERSE__HEADER__BODY_CHECKPOINT: return ts_checkpoint_message(job, member->peer, header->checkpoint);
    case TERSE__HEADER__BODY_STATS_REQUEST: member->stats_due = true; return TERSE_OK;
    default: return TERSE_EUNSUPPORTED;
    }
}

static terse_status from_worker(ts_job *job, uint32_t worker, ts_buffer *buffer, const ts_frame *frame) {
    switch (frame->header->body_case) {
    case TERSE__HEADER__BODY_HELLO: return ts_session_hello(job, worker, frame->header->hello);
    case TERSE__HEADER__BODY_CONTRACT: return ts_session_contract(job, worker, frame);
    case TERSE__HEADER__BODY_HEARTBEAT:
        ts_replica_told_by_worker(job->server, ts_job_peer(job, worker), frame->header->heartbeat);
        if (frame->header->heartbeat->leaving) ts_reduce_without(job, worker);
        return TERSE_OK;
    case TERSE__HEADER__BODY_BYE: ts_session_bye(job, worker); return TERSE_OK;
    default: return from_attached(job, worker, buffer, frame);
    }
}

/* A process that is none of the job's workers at its end: given up, replaced, or come too late. */
static bool is_outside(const ts_job *job, uint32_t peer) {
    const ts_peer *from = &job->server->transport->peers[peer];
    if (from->role != TS_ROLE_WORKER) return false;
    if (from->index >= job->members.count) return true;
    const ts_member *member = &job->members.members[from->index];
    return member->lost || member->peer != peer;
}

/* To one that was done and only counted as gone, since it was silent: it may not know that it is, and the rest is over. */
static void answer_silent(ts_job *job, uint32_t peer, const Terse__Header *header, bool again) {
    const ts_peer *from = &job->server->transport->peers[peer];
    if (from->role != TS_ROLE_WORKER || job->members.members[from->index].left) return;
    switch (header->body_case) {
    case TERSE__HEADER__BODY_DONE: ts_link_ack(job, peer, header->done->steps, TERSE_OK, NULL, 0, NULL); return;
    case TERSE__HEADER__BODY_PUSH:
    case TERSE__HEADER__BODY_PULL:
    case TERSE__HEADER__BODY_REDUCE:
    case TERSE__HEADER__BODY_STATS_REQUEST:
        if (again) ts_link_abort(job->server, peer, job->id, TERSE_ESHUTDOWN, "the job has ended without this worker");
        return;
    default: return;
    }
}

/* A frame for a job that has ended: whoever still talks may have missed why. Where only this server has, the others say it. */
static void from_late(ts_job *job, uint32_t peer, const ts_frame *frame) {
    ts_server *server = job->server;
    const Terse__Header *header = frame->header;
    if (server->watch.is_dead) return;
    if (header->body_case == TERSE__HEADER__BODY_LOST) ts_loss_late(job, peer, header->lost);
    bool again = ts_server_now(server) - server->links[peer].last_abort_us >= ABORT_PAUSE_US;
    if (job->state == TS_JOB_FINISHED) {
        if (!is_outside(job, peer)) answer_silent(job, peer, header, again);
        else if (again) ts_link_abort(server, peer, job->id, TERSE_ESHUTDOWN, "the job has ended without this worker");
        return;
    }
    if (job->closed || header->body_case == TERSE__HEADER__BODY_BYE || header->body_case == TERSE__HEADER__BODY_ABORT) return;
    if (again) ts_link_abort(server, peer, job->id, job->failure, job->message.text);
}

/* A new life of a worker that was given up. */
static bool comes_back(const ts_job *job, uint32_t worker, const Terse__Header *header) {
    if (header->body_case == TERSE__HEADER__BODY_CONTRACT) return job->members.members[worker].suitor > 0;
    return header->body_case == TERSE__HEADER__BODY_HELLO && header->hello->incarnation > job->members.members[worker].incarnation;
}

/*
 * Whether only a later life of the worker is listened to: it was given up; or the process has just come, and its predecessor,
 * which was only stopped, had taken the life that it was told to be.
 */
static bool is_former(const ts_job *job, uint32_t worker, const Terse__Header *header) {
    const ts_member *member = &job->members.members[worker];
    if (member->lost) return !comes_back(job, worker, header);
    return member->coming && header->body_case == TERSE__HEADER__BODY_HELLO && header->hello->incarnation == member->incarnation;
}

/* The process is that worker no more: another one has come in its place. */
static bool is_replaced(const ts_job *job, uint32_t peer) {
    const ts_peer *from = &job->server->transport->peers[peer];
    return from->role == TS_ROLE_WORKER && from->index < job->members.count && job->members.members[from->index].peer != peer;
}

static void tell_replaced(ts_job *job, uint32_t peer, const ts_frame *frame) {
    Terse__Header__BodyCase kind = frame->header->body_case;
    if (kind == TERSE__HEADER__BODY_BYE || kind == TERSE__HEADER__BODY_ABORT) return;
    if (ts_server_now(job->server) - job->server->links[peer].last_abort_us >= ABORT_PAUSE_US)
        ts_link_abort(job->server, peer, job->id, TERSE_EDUPLICATE, "another process has come in this worker's place");
}

/* Of a process that has come and was not let in yet only its wish to be is of interest: whatever else it says ends nothing. */
static bool waits_for_more(const ts_job *job, uint32_t peer, const Terse__Header *header) {
    const ts_peer *from = &job->server->transport->peers[peer];
    bool comes = from->role == TS_ROLE_WORKER && from->index < job->members.count && job->members.members[from->index].coming;
    return comes && header->body_case != TERSE__HEADER__BODY_HELLO && header->body_case != TERSE__HEADER__BODY_CONTRACT;
}

/* Who was done and silent counted as gone; now it is heard, and may still ask for something. */
static void hear_again(ts_job *job, uint32_t worker, const Terse__Header *header) {
    Terse__Header__BodyCase kind = header->body_case;
    if (kind == TERSE__HEADER__BODY_BYE || kind == TERSE__HEADER__BODY_HELLO || kind == TERSE__HEADER__BODY_CONTRACT) return;
    if (ts_membership_heard(&job->members, worker))
        ts_log(TS_LOG_INFO, "job", "a worker that counted as gone is heard again", "worker=\"%s\"", ts_job_worker_name(job, worker));
    if (job->standin && !job->standin->mute) (void)ts_membership_heard(&job->standin->members, worker);
}

/* A parsed frame. Returns why it was not taken. */
static terse_status take(ts_server *server, uint32_t peer, ts_buffer *buffer, const ts_frame *frame) {
    const ts_peer *from = &server->transport->peers[peer];
    if (from->role == TS_ROLE_SERVER && frame->header->body_case == TERSE__HEADER__BODY_MIRROR)
        return ts_replica_message(server, peer, buffer, frame);
    TS_REQUIRE(frame->header->job < server->job_count, TERSE_ENOTFOUND);
    ts_job *job = server->jobs[frame->header->job];
    terse_status refused;
    TS_REQUIRE(from->role == TS_ROLE_SERVER || (from->role == TS_ROLE_WORKER && from->job == job->id), TERSE_EPEER);
    if (from->role == TS_ROLE_WORKER && !ts_challenge_passes(job, peer, frame, &refused)) return refused;
    if (job->state == TS_JOB_RUNNING && is_replaced(job, peer)) {
        tell_replaced(job, peer, frame);
        return TERSE_OK;
    }
    if (job->state != TS_JOB_RUNNING) {
        from_late(job, peer, frame);
        return TERSE_OK;
    }
    if (waits_for_more(job, peer, frame->header)) return TERSE_OK;
    if (from->role == TS_ROLE_WORKER && from->index < job->members.count && is_former(job, from->index, frame->header)) {
        if (frame->header->body_case != TERSE__HEADER__BODY_ABORT) ts_loss_tell(job, from->index);
        return TERSE_OK;
    }
    if (frame->header->body_case == TERSE__HEADER__BODY_ABORT) {
        abort_from(job, peer, frame->header->abort);
        return TERSE_OK;
    }
    if (from->role == TS_ROLE_SERVER && frame->header->body_case == TERSE__HEADER__BODY_MEMBERS)
        return ts_quorum_members(job, peer, frame->header->members);
    if (from->role == TS_ROLE_SERVER && frame->header->body_case == TERSE__HEADER__BODY_LOST)
        return ts_loss_message(job, peer, frame->header->lost);
    if (from->role == TS_ROLE_SERVER && frame->header->body_case == TERSE__HEADER__BODY_JOIN)
        return ts_join_message(job, peer, frame->header);
    if (from->role == TS_ROLE_SERVER && frame->header->body_case == TERSE__HEADER__BODY_CHECKPOINT) {
        ts_job *meant = ts_replica_part(job, frame->header->part);
        return meant ? ts_checkpoint_message(meant, peer, frame->header->checkpoint) : TERSE_OK;
    }
    TS_REQUIRE(from->role == TS_ROLE_WORKER && from->index < job->members.count, TERSE_EPEER);
    hear_again(job, from->index, frame->header);
    ts_job *part = ts_replica_part(job, frame->header->part);
    return part ? from_worker(part, from->index, buffer, frame) : TERSE_OK; /* not yet: it asks again */
}

void ts_dispatch_frame(ts_server *server, uint32_t peer, ts_buffer *buffer) {
    ts_frame frame = {0};
    if (peer >= server->link_count) return;
    ts_link *link = &server->links[peer];
    if (buffer->len > server->config->limits.frame_bytes) {
        link->rejected++;
        return;
    }
    terse_status status = ts_frame_parse(buffer, &frame);
    if (status != TERSE_OK) {
        if (status == TERSE_EVERSION) link->other_version++;
        else link->corrupt++;
        return;
    }
    link->frames_in++;
    link->bytes_in += buffer->len;
    link->last_heard_us = ts_server_now(server);
    status = take(server, peer, buffer, &frame);
    if (status != TERSE_OK) {
        link->rejected++;
        if (link->rejected == 1)
            ts_log(TS_LOG_WARN, "dispatch", "a frame was refused", "from=\"%s\" kind=%d status=%s",
                   ts_server_peer_name(server, peer), (int)frame.header->body_case, terse_status_name(status));
    }
    ts_frame_release(&frame);
}
