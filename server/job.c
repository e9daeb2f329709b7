/* SPDX-License-Identifier: Apache-2.0 */
#include "server/job.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "server/admission.h"
#include "server/flow.h"
#include "server/peer_link.h"
#include "server/reply.h"
#include "server/stats.h"
#include "server/upstream_round.h"

terse_status ts_job_create(ts_server *server, uint32_t id, ts_job **out) {
    const ts_consistency *consistency = ts_consistency_find(server->config->consistency.mode);
    const ts_optimizer *optimizer = ts_optimizer_find(server->config->optimizer.name);
    TS_REQUIRE(consistency && optimizer, TERSE_EUNSUPPORTED);
    ts_job *job = ts_mem_calloc(1, sizeof *job);
    TS_REQUIRE(job, TERSE_ENOMEM);
    if (server->upstream && !optimizer->aggregates) optimizer = &ts_optimizer_upstream;
    *job = (ts_job){.server = server, .id = id, .consistency = consistency, .optimizer = optimizer};
    job->last_progress_us = ts_server_now(server);
    uint32_t workers = server->transport->jobs[id].workers;
    terse_status status = ts_membership_create(&job->members, workers);
    if (status == TERSE_OK) status = ts_reduce_create(&job->reduce, workers);
    job->members.staleness = server->config->consistency.staleness;
    if (status == TERSE_OK) status = ts_quorums_create(&job->members.quorums, server->config, workers);
    if (status != TERSE_OK) {
        ts_job_destroy(job);
        return status;
    }
    for (uint32_t w = 0; w < workers; w++) job->members.members[w].peer = ts_transport_worker(server->transport, id, w);
    *out = job;
    return TERSE_OK;
}

void ts_job_destroy(ts_job *job) {
    if (!job) return;
    ts_rounds_free(&job->rounds);
    ts_outgoing_free(&job->outgoing);
    ts_reduce_free(&job->reduce);
    ts_replies_free(&job->replies);
    ts_store_free(&job->store);
    ts_membership_free(&job->members);
    ts_upstream_forget(job);
    ts_contract_destroy(job->contract);
    ts_mem_free(job);
}

terse_status ts_job_begin(ts_job *job, ts_contract *contract, uint32_t worker) {
    const ts_server *server = job->server;
    ts_store store = {0};
    ts_rounds rounds = {0};
    ts_outgoing outgoing = {0};
    ts_replies replies = {0};
    terse_status status =
        ts_store_create(&store, contract, server->config, job->optimizer, server->index, job->members.count);
    if (status == TERSE_OK) status = ts_rounds_create(&rounds, job, store.count, server->executor->threads);
    if (status == TERSE_OK) status = ts_outgoing_create(&outgoing, store.count);
    if (status == TERSE_OK) status = ts_replies_create(&replies, store.count);
    if (status == TERSE_OK && server->upstream) status = ts_upstream_begin(job, contract);
    if (status != TERSE_OK) {
        ts_replies_free(&replies);
        ts_outgoing_free(&outgoing);
        ts_rounds_free(&rounds);
        ts_store_free(&store);
        return status;
    }
    job->contract = contract;
    job->contract_worker = worker;
    job->store = store;
    job->rounds = rounds;
    job->outgoing = outgoing;
    job->replies = replies;
    return TERSE_OK;
}

bool ts_job_initialised(const ts_job *job) { return job->contract && job->store.uninitialised == 0; }

uint32_t ts_job_peer(const ts_job *job, uint32_t worker) { return job->members.members[worker].peer; }

const char *ts_job_worker_name(const ts_job *job, uint32_t worker) {
    return ts_server_peer_name(job->server, ts_job_peer(job, worker));
}

static void note_training(ts_job *job) {
    if (job->training || job->members.attached < job->members.count || !ts_job_initialised(job)) return;
    job->training = true;
    ts_log(TS_LOG_INFO, "job", "training starts", "workers=%u tensors=%u slices_here=%u parameters_here=%zu",
           job->members.count, job->contract->tensor_count, job->store.count, job->store.elems);
}

static void serve_replies(ts_job *job) {
    const ts_transport *transport = job->server->transport;
    size_t half = ts_flow_reply_limit(job->server) / 2;
    for (uint32_t w = 0; w < job->members.count; w++) {
        const ts_member *member = &job->members.members[w];
        bool room = member->reply_later && transport->ops->queued(transport, member->peer) <= half;
        if (member->reply_due || room) ts_reply_serve(job, w);
    }
}

void ts_job_flush(ts_job *job) {
    if (job->server->state != TS_SERVER_RUNNING || !job->contract) return;
    note_training(job);
    ts_stats_serve(job);
    uint32_t before;
    do { /* what goes out can make slices ready whose workers did not wait for it */
        before = job->rounds.ready_count;
        ts_quorum_decide(job);
        if (!ts_stats_due(job)) ts_rounds_advance(job);
        if (job->rounds.running == 0 || job->outgoing.bytes >= TS_OUTGOING_GATHER_BYTES) ts_outgoing_send(job);
    } while (job->rounds.ready_count > before && job->server->state == TS_SERVER_RUNNING);
    serve_replies(job);
}

void ts_job_membership_changed(ts_job *job) {
    for (uint32_t s = 0; s < job->store.count; s++) ts_rounds_consider(job, &job->store.slices[s]);
    if (job->server->index == 0) ts_reduce_check(job);
}

/* A worker that said nothing for the deadline: gone when it was done, else the end of the job. */
static void check_silence(ts_job *job, uint32_t worker) {
    ts_server *server = job->server;
    const ts_member *member = &job->members.members[worker];
    const ts_link *link = &server->links[member->peer];
    uint64_t silent_us = ts_server_now(server) - link->last_heard_us, version;
    if (member->state == TS_MEMBER_GONE || silent_us <= ts_server_deadline_us(server)) return;
    const char *name = ts_job_worker_name(job, worker);
    double seconds = (double)silent_us / 1e6;
    if (member->done) {
        ts_log(TS_LOG_WARN, "job", "a worker that is done fell silent and counts as gone", "worker=\"%s\"", name);
        ts_membership_gone(&job->members, worker);
        ts_job_membership_changed(job);
    } else if (member->state == TS_MEMBER_EXPECTED) {
        ts_server_fail(server, TERSE_ETIMEDOUT, "%s has not attached: nothing was heard of it for %.1f s%s", name,
                       seconds, link->other_version ? "; frames of another wire version came from it" : "");
    } else if (ts_job_misses(job, worker, &version)) {
        ts_server_fail(server, TERSE_ETIMEDOUT, "%s has been silent for %.1f s; round %llu waited for it", name,
                       seconds, (unsigned long long)version);
    } else {
        ts_server_fail(server, TERSE_ETIMEDOUT, "%s has been silent for %.1f s; no round waited for it yet", name,
                       seconds);
    }
}

static void heartbeat(ts_job *job, uint32_t worker) {
    if (!ts_link_quiet(job->server, ts_job_peer(job, worker))) return;
    char waiting[256];
    ts_job_waiting(job, waiting, sizeof waiting);
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Heartbeat body = TERSE__HEARTBEAT__INIT;
    header.job = job->id;
    header.body_case = TERSE__HEADER__BODY_HEARTBEAT;
    header.heartbeat = &body;
    body.step = ts_store_version(&job->store);
    body.waiting = waiting;
    ts_link_control(job->server, ts_job_peer(job, worker), &header);
}

void ts_job_tick(ts_job *job) {
    ts_server *server = job->server;
    for (uint32_t w = 0; w < job->members.count && server->state == TS_SERVER_RUNNING; w++) check_silence(job, w);
    if (server->state != TS_SERVER_RUNNING) return;
    ts_admission_tick(job);
    ts_quorum_tick(job);
    if (server->upstream) ts_upstream_tick(job);
    for (uint32_t w = 0; w < job->members.count; w++)
        if (job->members.members[w].state != TS_MEMBER_GONE) heartbeat(job, w);
    ts_job_flush(job);
}
