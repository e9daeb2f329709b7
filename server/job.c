/* SPDX-License-Identifier: Apache-2.0 */
#include "server/job.h"

#include <stdarg.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/config/config_plan.h"
#include "server/admission.h"
#include "server/flow.h"
#include "server/worker_loss.h"
#include "server/worker_place.h"
#include "server/peer_link.h"
#include "server/reply.h"
#include "server/stats.h"
#include "server/upstream_round.h"

#define LOST_GRACE_US 2000000u
#define TELL_DEAD_US 250000u

terse_status ts_job_create(ts_server *server, uint32_t id, uint32_t workers, ts_job **out) {
    const ts_transport_job *known = &server->transport->jobs[id];
    ts_job *job = ts_mem_calloc(1, sizeof *job);
    TS_REQUIRE(job, TERSE_ENOMEM);
    *job = (ts_job){.server = server, .id = id, .part = server->index, .turn = server->turn, .last_progress_us = ts_server_now(server)};
    memcpy(job->name, known->name, sizeof job->name);
    terse_status status = ts_membership_create(&job->members, workers);
    if (status == TERSE_OK) status = ts_reduce_create(&job->reduce, workers);
    if (status != TERSE_OK) {
        ts_job_destroy(job);
        return status;
    }
    for (uint32_t w = 0; w < workers; w++)
        job->members.members[w].peer = ts_transport_worker(server->transport, id, w);
    job->checkpoint = (ts_checkpoint){.on = ts_config_checkpoints(server->config), .chooses = ts_replica_leads(server), .lead.lock = -1};
    *out = job;
    return TERSE_OK;
}

/* All but who its workers are. Not while anything of it is in the executor. */
static void release(ts_job *job) {
    if (job->released) return;
    ts_job_destroy(job->standin);
    job->standin = NULL;
    ts_replica_free(job);
    job->rounds_done = ts_store_version(&job->store);
    ts_rounds_free(&job->rounds);
    ts_outgoing_free(&job->outgoing);
    ts_reduce_free(&job->reduce);
    ts_replies_free(&job->replies);
    ts_checkpoint_free(&job->checkpoint);
    ts_join_free(&job->join);
    ts_store_free(&job->store);
    ts_quorums_free(&job->members.quorums);
    ts_upstream_forget(job);
    ts_contract_destroy(job->contract);
    ts_config_free(job->config);
    job->contract = NULL;
    job->config = NULL;
    job->released = true;
}

void ts_job_destroy(ts_job *job) {
    if (!job) return;
    release(job);
    ts_membership_free(&job->members);
    ts_mem_free(job);
}

terse_status ts_job_begin(ts_job *job, ts_contract *contract, ts_config *config, uint32_t worker) {
    const ts_server *server = job->server;
    const ts_consistency *consistency = ts_consistency_find(config->consistency.mode);
    const ts_optimizer *optimizer = ts_optimizer_find(config->optimizer.name);
    ts_store store = {0};
    ts_rounds rounds = {0};
    ts_outgoing outgoing = {0};
    ts_replies replies = {0};
    ts_quorums quorums = {0};
    TS_REQUIRE(consistency && optimizer, TERSE_EUNSUPPORTED);
    if (server->upstream && !optimizer->aggregates) optimizer = &ts_optimizer_upstream;
    terse_status status = ts_store_create(&store, contract, config, optimizer, job->part, job->members.count);
    if (status == TERSE_OK) status = ts_rounds_create(&rounds, job, store.count, server->executor->threads);
    if (status == TERSE_OK) status = ts_outgoing_create(&outgoing, store.count);
    if (status == TERSE_OK) status = ts_replies_create(&replies, store.count);
    if (status == TERSE_OK) status = ts_quorums_create(&quorums, config, job->members.count);
    if (status == TERSE_OK && server->upstream) status = ts_upstream_begin(job, contract);
    if (status != TERSE_OK) {
        ts_quorums_free(&quorums);
        ts_replies_free(&replies);
        ts_outgoing_free(&outgoing);
        ts_rounds_free(&rounds);
        ts_store_free(&store);
        return status;
    }
    job->contract = contract;
    job->contract_worker = worker;
    job->config = config;
    job->consistency = consistency;
    job->optimizer = optimizer;
    job->store = store;
    job->rounds = rounds;
    job->outgoing = outgoing;
    job->replies = replies;
    job->members.quorums = quorums;
    job->members.staleness = config->consistency.staleness;
    return TERSE_OK;
}

static uint64_t least_set(uint64_t a, uint64_t b) { return a == 0 || (b > 0 && b < a) ? b : a; }

uint64_t ts_job_memory_limit(const ts_job *job) {
    const ts_config *config = job->config ? job->config : job->server->config;
    return least_set(config->job.memory_bytes, config->limits.job_bytes);
}

terse_status ts_job_memory_for(const ts_job *job, uint32_t server, uint32_t workers, uint64_t *need) {
    uint64_t limit = ts_job_memory_limit(job);
    ts_plan plan;
    if (limit == 0) return TERSE_OK;
    TS_TRY(ts_plan_of(job->config, job->contract, workers, &plan));
    uint64_t bytes = plan.server[server].memory;
    ts_plan_free(&plan);
    if (need) *need = bytes;
    return bytes <= limit ? TERSE_OK : TERSE_ELIMIT;
}

/* ---- the end --------------------------------------------------------------------------------------------------------- */

static void end(ts_job *job, ts_job_state state) {
    job->state = state;
    job->ended_us = ts_server_now(job->server);
    job->server->running_jobs--;
}

static void fail(ts_job *job, terse_status status, const char *format, va_list args) {
    ts_error_write(&job->message, format, args);
    job->failure = status;
    end(job, TS_JOB_FAILED);
    ts_log(TS_LOG_ERROR, "server", "the job ends", "job=%s status=%s reason=\"%s\"", job->name, terse_status_name(status),
           job->message.text);
    ts_checkpoint_way_on(job, status);
}

void ts_job_give_up(ts_job *job, terse_status status, const char *format, ...) {
    if (job->state != TS_JOB_RUNNING) return;
    va_list args;
    va_start(args, format);
    fail(job, status, format, args);
    va_end(args);
    ts_server_job_ended(job->server, job);
}

void ts_job_fail(ts_job *job, terse_status status, const char *format, ...) {
    ts_server *server = job->server;
    const ts_transport *transport = server->transport;
    if (job->own) job = job->own;
    if (job->state != TS_JOB_RUNNING) return;
    va_list args;
    va_start(args, format);
    fail(job, status, format, args);
    va_end(args);
    for (uint32_t p = 0; p < server->link_count; p++) { /* there may be no memory for the last peers' */
        const ts_peer *peer = &transport->peers[p];
        if (p != transport->self && (peer->role == TS_ROLE_SERVER || (peer->role == TS_ROLE_WORKER && peer->job == job->id)))
            ts_link_abort(server, p, job->id, status, job->message.text);
    }
    ts_server_job_ended(server, job);
}

/* What remains when it has ended: memory goes as soon as no work refers to it, its workers a while later. */
static void wind_up(ts_job *job) {
    ts_server *server = job->server;
    if (!ts_job_idle(job)) return;
    if (!server->upstream) release(job); /* which borrows the contract */
    bool linger = job->state == TS_JOB_FAILED && ts_server_now(server) - job->ended_us < ts_server_deadline_us(server);
    if (job->closed || linger) return; /* a worker that missed the Abort asks again */
    job->closed = true;
    ts_place_over(job);
    if (server->transport->ops->end_job) server->transport->ops->end_job(server->transport, job->id);
}

/* All are gone, but one's next life is being let in. */
static bool somebody_comes(const ts_job *job) {
    uint64_t now_us = ts_server_now(job->server);
    for (uint32_t w = 0; w < job->members.count; w++) {
        uint64_t coming_us = job->members.members[w].coming_us;
        if (coming_us > 0 && now_us - coming_us < ts_server_deadline_us(job->server)) return true;
    }
    return false;
}

static void check_finished(ts_job *job) {
    const ts_upstream *upstream = job->server->upstream;
    bool open = job->members.gone < job->members.count || ts_membership_orphaned(&job->members) || somebody_comes(job);
    if (open || !ts_job_idle(job) || ts_checkpoint_pending(job)) return;
    if (upstream && !upstream->ops->ended(upstream)) return;
    ts_log(TS_LOG_INFO, "server", "all workers are done", "job=%s rounds=%llu", job->name,
           (unsigned long long)ts_store_version(&job->store));
    end(job, TS_JOB_FINISHED);
    ts_server_job_ended(job->server, job);
}

/* ---- names ----------------------------------------------------------------------------------------------------------- */

void ts_job_head(const ts_job *job, Terse__Header *header) {
    header->job = job->id;
    header->part = job->part == job->server->index ? 0 : job->part + 1;
}

ts_job *ts_server_part(const ts_server *server, uint32_t i) {
    ts_job *own = server->jobs[i / 2];
    return i % 2 ? own->standin : own;
}

bool ts_job_idle(const ts_job *job) {
    if (job->rounds.running > 0 || job->checkpoint.running > 0) return false;
    return !job->standin || (job->standin->rounds.running == 0 && job->standin->checkpoint.running == 0);
}

ts_job_label ts_job_labelled(const ts_job *job) {
    ts_job_label label = {""};
    if (job->server->job_count > 1) snprintf(label.text, sizeof label.text, " of job %s", job->name);
    return label;
}

bool ts_job_initialised(const ts_job *job) { return job->contract && job->store.uninitialised == 0; }

uint32_t ts_job_peer(const ts_job *job, uint32_t worker) { return job->members.members[worker].peer; }

const char *ts_job_worker_name(const ts_job *job, uint32_t worker) {
    return ts_server_peer_name(job->server, ts_job_peer(job, worker));
}

static void note_training(ts_job *job) {
    if (job->training || job->own || !ts_membership_complete(&job->members) || !ts_job_initialised(job)) return;
    job->training = true;
    ts_log(TS_LOG_INFO, "job", "training starts", "job=%s workers=%u tensors=%u slices_here=%u parameters_here=%zu",
           job->name, job->members.count - job->members.lost, job->contract->tensor_count, job->store.count, job->store.elems);
    ts_checkpoint_advance(job);
}

/* Whether there is anything to be flushed. */
static bool runs(const ts_job *job) { return ts_job_runs(job) && job->contract; }

void ts_job_prepare(ts_job *job) {
    if (!runs(job)) return;
    note_training(job);
    ts_stats_serve(job);
    (void)ts_quorum_decide(job);
}

bool ts_job_send(ts_job *job) {
    if (!runs(job)) return false;
    uint32_t before = job->rounds.ready_count;
    if (job->rounds.running == 0 || job->outgoing.bytes >= TS_OUTGOING_GATHER_BYTES) ts_outgoing_send(job);
    /* What goes out can make slices ready whose workers did not wait for it. */
    return runs(job) && (job->rounds.ready_count > before || ts_quorum_decide(job));
}

void ts_job_reply(ts_job *job) {
    if (!runs(job)) return;
    const ts_transport *transport = job->server->transport;
    for (uint32_t w = 0; w < job->members.count; w++) {
        const ts_member *member = &job->members.members[w];
        bool room = member->reply_later && transport->ops->queued(transport, member->peer) <=
                                               ts_flow_reply_limit(job->server, member->peer) / 2;
        if (member->reply_due || room) ts_reply_serve(job, w);
    }
}

void ts_job_membership_changed(ts_job *job) {
    ts_replica_members_changed(job);
    for (uint32_t s = 0; s < job->store.count; s++) ts_rounds_consider(job, &job->store.slices[s]);
    if (ts_job_leads(job)) ts_reduce_check(job);
}

/* Its process has ended, so long ago that what it said before has been read. */
static bool is_lost(const ts_job *job, const ts_link *link) {
    uint64_t deadline_us = ts_server_deadline_us(job->server), grace_us = deadline_us < LOST_GRACE_US ? deadline_us : LOST_GRACE_US;
    return link->lost_us > 0 && ts_server_now(job->server) - link->lost_us > grace_us;
}

/* Whether the job does without a worker that has ended, or said nothing for the deadline. */
static bool goes_on(ts_job *job, uint32_t worker, bool ended, double seconds) {
    char why[64] = "its process has ended";
    if (!ended) snprintf(why, sizeof why, "silent for %.1f s", seconds);
    return ts_loss_note(job, worker, why);
}

/* Processes that start may be slow to; who was refused, or speaks another language, is not waited for. */
static uint64_t patience_us(const ts_job *job, const ts_member *member) {
    const ts_link *link = &job->server->links[member->peer];
    bool refused = link->denied > 0 || link->other_version > 0;
    bool starts = member->state == TS_MEMBER_EXPECTED || !ts_job_initialised(job);
    return starts && !refused ? ts_config_start_us(job->server->config) : ts_server_deadline_us(job->server);
}

/* Whether something that it has pushed, as it says, has not come and is waited for. */
static bool owes_more(const ts_job *job, uint32_t worker) {
    for (uint32_t s = 0; ts_job_initialised(job) && s < job->store.count; s++) {
        const ts_slice_state *slice = &job->store.slices[s];
        const ts_slot *slot = &slice->slots[worker];
        if (job->consistency->alone ? ts_membership_expects(&job->members, worker, slot->next + (slot->frame != NULL))
                                    : job->consistency->misses(&job->members, slice, worker))
            return true;
    }
    return false;
}

/* A worker that has ended, or said nothing for the deadline: gone when it was done, else given up, or the end of the job. */
static void check_silence(ts_job *job, uint32_t worker) {
    ts_server *server = job->server;
    const ts_member *member = &job->members.members[worker];
    const ts_link *link = &server->links[member->peer];
    uint64_t silent_us = ts_server_now(server) - link->last_heard_us, version;
    bool lost = is_lost(job, link);
    if (member->state == TS_MEMBER_GONE || (!lost && silent_us <= patience_us(job, member))) return;
    const char *name = ts_job_worker_name(job, worker);
    double seconds = (double)silent_us / 1e6;
    if (member->done && !owes_more(job, worker)) {
        ts_log(TS_LOG_WARN, "job", "a worker that is done fell silent and counts as gone", "worker=\"%s\"", name);
        ts_membership_gone(&job->members, worker);
        ts_job_membership_changed(job);
    } else if (goes_on(job, worker, lost, seconds)) {
        return;
    } else if (lost) {
        ts_job_fail(job, TERSE_EPEER, "%s has ended without a goodbye: its process is gone", name);
    } else if (member->state == TS_MEMBER_EXPECTED) {
        ts_job_fail(job, TERSE_ETIMEDOUT, "%s has not attached: nothing was heard of it for %.1f s%s", name,
                       seconds, link->other_version ? "; frames of another wire version came from it"
                       : link->denied ? "; its secret is missing or not ours (auth.secret_file)" : "");
    } else if (ts_job_misses(job, worker, &version)) {
        ts_job_fail(job, TERSE_ETIMEDOUT, "%s has been silent for %.1f s; round %llu waited for it", name,
                       seconds, (unsigned long long)version);
    } else {
        ts_job_fail(job, TERSE_ETIMEDOUT, "%s has been silent for %.1f s; no round waited for it yet", name,
                       seconds);
    }
}

void ts_job_heartbeat(ts_job *job, uint32_t worker) {
    uint32_t dead[TS_REPLICA_DEAD_LISTED];
    char waiting[256];
    ts_job_waiting(job, waiting, sizeof waiting);
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Heartbeat body = TERSE__HEARTBEAT__INIT;
    ts_job_head(job, &header);
    header.body_case = TERSE__HEADER__BODY_HEARTBEAT;
    header.heartbeat = &body;
    body.step = ts_store_version(&job->store);
    body.waiting = waiting;
    ts_replica_heartbeat(job->server, &body, dead);
    ts_link_control(job->server, ts_job_peer(job, worker), &header);
}

/* Who has not said that it knows of a server's death is told again. */
static bool heartbeat_due(ts_job *job, uint32_t worker) {
    uint32_t peer = ts_job_peer(job, worker);
    ts_link *link = &job->server->links[peer];
    uint64_t now_us = ts_server_now(job->server);
    if (ts_link_quiet(job->server, peer)) return true;
    if (link->dead_known >= job->server->watch.dead_count || now_us - link->dead_told_us < TELL_DEAD_US) return false;
    link->dead_told_us = now_us;
    return true;
}

void ts_job_heartbeats(ts_job *job) {
    for (uint32_t w = 0; w < job->members.count; w++)
        if (job->members.members[w].state != TS_MEMBER_GONE) ts_job_heartbeat(job, w);
}

/* Who is gone hears nothing, but for a process that is coming in its place, or has asked to and waits for the others' packets. */
static bool is_talked_to(const ts_job *job, uint32_t worker) {
    const ts_member *member = &job->members.members[worker];
    bool asks = member->asked_us > 0 && ts_server_now(job->server) - member->asked_us < ts_server_deadline_us(job->server);
    return member->state != TS_MEMBER_GONE || ((member->coming || asks) && job->server->links[member->peer].lost_us == 0);
}

void ts_job_tick(ts_job *job) {
    for (uint32_t w = 0; w < job->members.count && job->state == TS_JOB_RUNNING; w++) check_silence(job, w);
    if (job->state == TS_JOB_RUNNING) {
        ts_admission_tick(job);
        ts_replica_owner_tick(job);
        if (job->standin && !job->standin->mute) ts_admission_tick(job->standin);
        ts_checkpoint_advance(job);
        if (job->standin) ts_checkpoint_advance(job->standin);
        ts_quorum_tick(job);
        ts_join_tick(job);
        ts_place_tick(job);
        if (job->server->upstream) ts_upstream_tick(job);
        for (uint32_t w = 0; w < job->members.count; w++)
            if (is_talked_to(job, w) && heartbeat_due(job, w)) ts_job_heartbeat(job, w);
        check_finished(job);
    }
    if (job->state != TS_JOB_RUNNING) wind_up(job);
}
