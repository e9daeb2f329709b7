/* SPDX-License-Identifier: Apache-2.0 */
#include "server/worker_loss.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "server/job.h"
#include "server/peer_link.h"
#include "server/worker_place.h"

#define ASK_AGAIN_US 200000u
#define TELL_AGAIN_US 200000u

/* Whether somebody is left who goes on, or has finished. */
static bool others_remain(const ts_job *job, uint32_t worker) {
    for (uint32_t w = 0; w < job->members.count; w++)
        if (w != worker && job->members.members[w].state != TS_MEMBER_EXPECTED && !job->members.members[w].lost) return true;
    return false;
}

/* Who came with a wrong secret, or another version, is no worker that was lost. */
static bool was_turned_away(const ts_job *job, uint32_t worker) {
    const ts_link *link = &job->server->links[ts_job_peer(job, worker)];
    return job->members.members[worker].state == TS_MEMBER_EXPECTED && (link->other_version || link->denied);
}

/* Whether the policy, and what there is of the job, let it go on without the worker. */
static bool may_go_on(const ts_job *job, uint32_t worker) {
    const ts_member *member = &job->members.members[worker];
    if (job->server->config->consistency.on_worker_loss != TS_LOSS_GO_ON || !ts_job_initialised(job)) return false;
    if (member->state == TS_MEMBER_GONE || was_turned_away(job, worker)) return false;
    return others_remain(job, worker) || (member->state == TS_MEMBER_ATTACHED && ts_place_keeps(job));
}

static void send_lost(ts_job *job, uint32_t peer, const uint32_t *workers, size_t count) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Lost body = TERSE__LOST__INIT;
    uint32_t *lives = ts_mem_calloc(count, sizeof *lives);
    if (!lives) return; /* asked for again */
    for (size_t i = 0; i < count; i++) lives[i] = job->members.members[workers[i]].incarnation;
    header.job = job->id;
    header.body_case = TERSE__HEADER__BODY_LOST;
    header.lost = &body;
    body.n_workers = body.n_incarnations = count;
    body.workers = (uint32_t *)(uintptr_t)workers; /* packing only reads */
    body.incarnations = lives;
    ts_link_control(job->server, peer, &header);
    ts_mem_free(lives);
}

/* The leading server says to one server, or to all, whom the job has given up. */
static void send_all(ts_job *job, uint32_t peer) {
    uint32_t *list = ts_mem_calloc(job->members.count, sizeof *list);
    size_t count = 0;
    if (!list) return;
    for (uint32_t w = 0; w < job->members.count; w++)
        if (job->members.members[w].lost && !job->members.members[w].unborn) list[count++] = w; /* those not all servers know */
    const ts_transport *transport = job->server->transport;
    for (uint32_t p = 0; p < transport->peer_count && count > 0; p++) {
        bool meant = peer == UINT32_MAX ? p != transport->self && transport->peers[p].role == TS_ROLE_SERVER : p == peer;
        if (meant) send_lost(job, p, list, count);
    }
    ts_mem_free(list);
}

/* With the command that brings it back: once, where the job is led. */
static void say_lost(const ts_job *job, uint32_t worker, const char *why, uint32_t used, uint32_t missing) {
    char command[2048] = "";
    if (ts_replica_leads(job->server)) ts_place_command(job, worker, command, sizeof command);
#define WHAT "worker=\"%s\" why=\"%s\" version=%llu packets_used=%u packets_missing=%u left=%u"
    ts_log(TS_LOG_WARN, "job", "a worker is lost, the job goes on without it", command[0] ? WHAT " bring_back=\"%s\"" : WHAT "%s",
           ts_job_worker_name(job, worker), why, (unsigned long long)ts_store_version(&job->store), used, missing,
           job->members.count - job->members.gone, command);
#undef WHAT
}

/* What was here of its last step, and what its loss leaves out. */
static void give_up(ts_job *job, uint32_t worker, const char *why) {
    uint32_t used = 0, missing = 0;
    if (job->members.members[worker].lost) return;
    for (uint32_t s = 0; s < job->store.count; s++) {
        const ts_slice_state *slice = &job->store.slices[s];
        used += slice->slots[worker].frame != NULL;
        missing += job->consistency->misses(&job->members, slice, worker);
    }
    if (ts_replica_leads(job->server) && missing > 0) job->members.lost_rounds++;
    ts_membership_lose(&job->members, worker);
    job->members.members[worker].lost_us = ts_server_now(job->server);
    say_lost(job, worker, why, used, missing);
    if (ts_job_initialised(job)) ts_job_membership_changed(job);
    else if (worker == 0) ts_job_fail(job, TERSE_ETIMEDOUT, "%s was lost before it had set the parameters", ts_job_worker_name(job, worker));
}

void ts_loss_give_up(struct ts_job *job, uint32_t worker, const char *why) { give_up(job, worker, why); }

void ts_loss_say(struct ts_job *job, uint32_t worker) {
    uint32_t lead = ts_replica_lead_peer(job->server);
    if (ts_replica_leads(job->server)) send_all(job, UINT32_MAX);
    else if (lead < job->server->transport->peer_count) send_lost(job, lead, &worker, 1);
}

bool ts_loss_note(struct ts_job *job, uint32_t worker, const char *why) {
    ts_member *member = &job->members.members[worker];
    uint64_t now_us = ts_server_now(job->server);
    if (!may_go_on(job, worker)) return false;
    if (ts_replica_leads(job->server)) {
        give_up(job, worker, why);
        send_all(job, UINT32_MAX);
        return true;
    }
    if (member->lost_asked_us > 0 && now_us - member->lost_asked_us < ASK_AGAIN_US) return true;
    member->lost_asked_us = now_us;
    uint32_t lead = ts_replica_lead_peer(job->server);
    if (lead == job->server->transport->peer_count) return true; /* the job is about to end for another reason */
    if (now_us - job->server->links[lead].last_heard_us > ts_server_deadline_us(job->server)) {
        give_up(job, worker, why); /* it has ended the job, and left */
        return true;
    }
    send_lost(job, lead, &worker, 1);
    return true;
}

/* The job has to end for the want of a worker that another server misses. */
static void fail_for(ts_job *job, uint32_t worker, const char *why) {
    const char *name = ts_job_worker_name(job, worker);
    if (job->server->links[ts_job_peer(job, worker)].lost_us > 0)
        ts_job_fail(job, TERSE_EPEER, "%s has ended without a goodbye: its process is gone", name);
    else ts_job_fail(job, TERSE_ETIMEDOUT, "%s has been silent: %s", name, why);
}

terse_status ts_loss_message(struct ts_job *job, uint32_t peer, const Terse__Lost *message) {
    TS_REQUIRE(message->n_workers == message->n_incarnations, TERSE_ECORRUPT);
    bool leads = ts_replica_leads(job->server);
    const char *from = ts_server_peer_name(job->server, peer);
    TS_REQUIRE(leads || peer == ts_replica_lead_peer(job->server), TERSE_EPEER);
    for (size_t i = 0; i < message->n_workers; i++) {
        uint32_t worker = message->workers[i];
        if (worker >= job->members.count) continue; /* a further one, that never came to this server */
        const ts_member *member = &job->members.members[worker];
        char why[160];
        /* 0: the other server has never heard of it, so it is in its first life, of which this one may have heard. */
        bool former = message->incarnations[i] > 0 && member->incarnation > message->incarnations[i];
        if (former || member->lost) continue;
        snprintf(why, sizeof why, leads ? "%s hears nothing of it" : "%s has given it up", from);
        bool gone = member->state == TS_MEMBER_GONE; /* it was done here, and died before it was there */
        if (!leads || gone) give_up(job, worker, why);
        if (leads && gone) send_all(job, UINT32_MAX);
        else if (leads && !member->done && !ts_loss_note(job, worker, why)) fail_for(job, worker, why);
        if (job->state != TS_JOB_RUNNING) return TERSE_OK;
    }
    if (leads) send_all(job, peer);
    return TERSE_OK;
}

void ts_loss_late(struct ts_job *job, uint32_t peer, const Terse__Lost *message) {
    if (!ts_replica_leads(job->server)) return;
    for (size_t i = 0; i < message->n_workers; i++)
        if (message->workers[i] >= job->members.count) return;
    if (job->state != TS_JOB_FINISHED) send_all(job, peer);
    else if (message->n_workers > 0) send_lost(job, peer, message->workers, message->n_workers);
}

void ts_loss_tell(struct ts_job *job, uint32_t worker) {
    uint32_t peer = ts_job_peer(job, worker);
    if (ts_server_now(job->server) - job->server->links[peer].last_abort_us < TELL_AGAIN_US) return;
    ts_link_stale(job->server, peer, job->id, job->members.members[worker].incarnation,
                  "nothing was heard of this worker for consistency.deadline_s, and the job has gone on without it");
    if (job->server->watch.dead_count > 0) ts_job_heartbeat(job, worker); /* it may wait for one of those */
}
