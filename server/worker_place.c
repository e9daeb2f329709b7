/* SPDX-License-Identifier: Apache-2.0 */
#include "server/worker_place.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "server/job.h"
#include "server/peer_link.h"

#define PROOF_US 2000000u /* so long a place is kept for who has come for it and has not proven yet that it knows the secret */

/* ---- which job ----------------------------------------------------------------------------------------------------------- */

static bool is_meant(const ts_server *server, uint32_t j, const char *name) {
    bool unnamed = strcmp(name, "default") == 0;
    if (server->jobs[j]->state != TS_JOB_RUNNING || server->jobs[j]->members.count == 0) return false;
    return (unnamed && server->transport->jobs[j].numbered) || strcmp(server->jobs[j]->name, name) == 0;
}

static void list_jobs(const ts_server *server, char *text, size_t capacity) {
    size_t at = 0;
    snprintf(text, capacity, "none");
    for (uint32_t j = 0; j < server->job_count && at + TS_JOB_NAME_CHARS + 3 < capacity; j++) {
        if (server->jobs[j]->state != TS_JOB_RUNNING || server->jobs[j]->members.count == 0) continue;
        int wrote = snprintf(text + at, capacity - at, "%s%s", at ? ", " : "", server->jobs[j]->name);
        if (wrote > 0) at += (size_t)wrote;
    }
}

static terse_status find_job(const ts_server *server, const char *name, ts_job **out, ts_error *reason) {
    char list[600];
    ts_job *found = NULL;
    uint32_t count = 0;
    for (uint32_t j = 0; j < server->job_count; j++) {
        if (!is_meant(server, j, name)) continue;
        found = server->jobs[j];
        count++;
    }
    list_jobs(server, list, sizeof list);
    if (count == 0)
        return ts_error_set(reason, TERSE_ENOTFOUND, "no job %s%s runs here that a worker could come into (worker.id); running: %s",
                            strcmp(name, "default") ? "" : "without a name of its own, as of the config with job.name=", name, list);
    if (count > 1)
        return ts_error_set(reason, TERSE_EINVAL, "several jobs without a name of their own run here: say which, as --set "
                            "job.name=%s; running: %s", found->name, list);
    *out = found;
    return TERSE_OK;
}

/* ---- which worker --------------------------------------------------------------------------------------------------------- */

static bool process_has_ended(const ts_job *job, uint32_t worker) {
    const ts_member *member = &job->members.members[worker];
    return member->unborn || job->server->links[member->peer].lost_us > 0;
}

/* Another process has the place, and will be let in. */
static bool is_coming(const ts_job *job, uint32_t worker) {
    const ts_member *member = &job->members.members[worker];
    const ts_link *link = &job->server->links[member->peer];
    return member->coming && link->lost_us == 0 &&
           ts_server_now(job->server) - link->last_heard_us <= ts_server_deadline_us(job->server);
}

/* Somebody has come for the place, and has not proven yet that it knows the secret: the place waits for it, but not for long. */
static bool is_sued(const ts_job *job, uint32_t worker) {
    const ts_server *server = job->server;
    for (uint32_t p = 0; server->suitors > 0 && p < server->link_count; p++) {
        const ts_peer *from = &server->transport->peers[p];
        const ts_link *link = &server->links[p];
        if (link->suing_us && from->job == job->id && from->index == worker && link->lost_us == 0 &&
            ts_server_now(server) - link->suing_us <= PROOF_US)
            return true;
    }
    return false;
}

/* Why nobody can take the worker's place, or NULL. */
static const char *objection(const ts_job *job, uint32_t worker) {
    const ts_member *member = &job->members.members[worker];
    if (is_coming(job, worker) || is_sued(job, worker)) return "another process is just coming in its place";
    if (member->incarnation == UINT32_MAX || member->wants_in == UINT32_MAX) return "it has had all the lives that there are numbers for";
    if (member->lost) return NULL;
    if (member->state == TS_MEMBER_GONE) return "it has left the job in order";
    if (member->done) return "it has pushed its last";
    if (member->state == TS_MEMBER_EXPECTED) return "it belongs to the launch, and has not attached yet";
    return process_has_ended(job, worker) ? NULL : "it lives";
}

static bool is_taken(const ts_transport_place *place, uint32_t count, uint32_t worker) {
    for (uint32_t i = 0; i < count; i++)
        if (place[i].worker == worker) return true;
    return false;
}

/* Who would be found by "any": of one that is stopped or cut off only its user knows whether it is dead. */
static bool is_free(const ts_job *job, uint32_t worker, const ts_transport_place *place, uint32_t given) {
    return worker < job->members.count && !is_taken(place, given, worker) && !objection(job, worker) &&
           process_has_ended(job, worker);
}

/* A job that has more workers takes more memory: delta's state, and without rounds the packet log. */
static terse_status check_room(const ts_job *job, uint32_t workers, ts_error *reason) {
    for (uint32_t s = 0; s < job->contract->servers; s++) {
        uint64_t need = 0, limit = ts_job_memory_limit(job);
        terse_status status = ts_job_memory_for(job, s, workers, &need);
        if (status == TERSE_ENOMEM) return ts_error_set(reason, status, "no memory");
        if (status == TERSE_ELIMIT)
            return ts_error_set(reason, status, "job %s has no room for a worker %u: with it server %u would need %llu bytes, "
                                "limits.job_bytes (or job.memory_bytes) allows %llu", job->name, workers - 1, s,
                                (unsigned long long)need, (unsigned long long)limit);
        TS_TRY(status);
    }
    return TERSE_OK;
}

/* What one launch asks for, and which places it was given so far. */
typedef struct {
    const ts_transport_wish *wish;
    uint32_t count;
    const ts_transport_place *place;
    uint32_t given;
} launch;

/* The first further number that nobody is to have. The launch's own count wherever in it they stand: together they leave no gap. */
static uint32_t next_number(const ts_job *job, const launch *of) {
    for (uint32_t next = job->members.count;; next++) {
        bool wished = false;
        for (uint32_t i = 0; i < of->count; i++) wished = wished || of->wish[i].wanted == next;
        if (!wished && !is_taken(of->place, of->given, next) && !is_sued(job, next)) return next;
    }
}

static terse_status choose_any(const ts_job *job, const launch *of, uint32_t *worker, ts_error *reason) {
    const ts_transport_wish *wish = &of->wish[of->given];
    uint32_t limit = job->server->config->limits.workers, next = next_number(job, of);
    for (uint32_t k = 0; k < wish->kept_count && k < TS_KEPT_MOST; k++) {
        *worker = wish->kept[k];
        if (is_free(job, *worker, of->place, of->given)) return TERSE_OK;
    }
    for (*worker = 0; *worker < job->members.count; ++*worker)
        if (is_free(job, *worker, of->place, of->given)) return TERSE_OK;
    *worker = next;
    if (next < limit) return check_room(job, next + 1, reason);
    return ts_error_set(reason, TERSE_ELIMIT, "none of the %u workers of job %s is lost, and limits.workers of the servers is %u",
                        job->members.count, job->name, limit);
}

static terse_status choose(const ts_job *job, const launch *of, uint32_t *worker, ts_error *reason) {
    uint32_t limit = job->server->config->limits.workers, wanted = of->wish[of->given].wanted;
    if (wanted == TS_WORKER_ANY) return choose_any(job, of, worker, reason);
    *worker = wanted;
    if (is_taken(of->place, of->given, wanted))
        return ts_error_set(reason, TERSE_EINVAL, "two processes of one launch would be worker %u", wanted);
    if (wanted < job->members.count) {
        const char *why = objection(job, wanted);
        if (!why) return TERSE_OK;
        return ts_error_set(reason, TERSE_EDUPLICATE, "nobody can come as worker %u of job %s: %s (%s). With --worker-id any "
                            "a process takes the place that is free", wanted, job->name, why, ts_job_worker_name(job, wanted));
    }
    const launch before = {.place = of->place, .given = of->given};
    bool fits = wanted < next_number(job, of) && !is_sued(job, wanted);
    uint32_t next = fits ? wanted : next_number(job, &before);
    if (fits && wanted < limit) return check_room(job, wanted + 1, reason);
    return ts_error_set(reason, TERSE_ELIMIT, "job %s has workers 0 to %u, and limits.workers is %u: %s %u%s", job->name,
                        job->members.count - 1, limit, fits ? "there can be no worker" : "a new one would be worker", next,
                        fits ? "" : ", not another number");
}

/* Why nobody can come into the job, or NULL. */
static const char *job_objection(const ts_job *job) {
    if (!ts_job_initialised(job)) return "it has not begun yet: its parameters have no first values";
    return ts_join_objection(job);
}

terse_status ts_place_wish(ts_server *server, const ts_transport_wish *wish, uint32_t count, ts_transport_place *place,
                           ts_error *reason) {
    ts_job *job = NULL;
    TS_REQUIRE(ts_replica_leads(server), ts_error_set(reason, TERSE_EAGAIN, "server %u does not lead; ask the one that does",
                                                      server->index));
    TS_TRY(find_job(server, wish[0].job, &job, reason));
    const char *why = server->draining ? "the servers are about to end" : job_objection(job);
    if (why) return ts_error_set(reason, TERSE_ESTATE, "nobody can come into job %s: %s", job->name, why);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t worker;
        TS_TRY(choose(job, &(launch){.wish = wish, .count = count, .place = place, .given = i}, &worker, reason));
        uint32_t life = 0;
        if (worker < job->members.count) {
            const ts_member *member = &job->members.members[worker];
            life = member->wants_in > member->incarnation ? member->wants_in : member->incarnation;
        }
        place[i] = (ts_transport_place){.job = job->id, .worker = worker, .incarnation = life + 1, .workers = job->members.launched};
    }
    return TERSE_OK;
}

/* ---- room for it ------------------------------------------------------------------------------------------------------------ */

/* The first two come of no server 0 that has the same config. */
static terse_status grow_part(ts_job *part, uint32_t count) {
    if (part->contract) TS_TRY(ts_store_grow(&part->store, part->contract, count));
    TS_TRY(ts_reduce_grow(&part->reduce, count));
    TS_TRY(ts_quorums_grow(&part->members.quorums, count));
    TS_TRY(ts_replica_grow(part, count));
    return ts_membership_grow(&part->members, count, part->server->transport->self);
}

/* With a stand-in's part that first: of it nobody hears before the own one has room. */
static terse_status grow(ts_job *job, uint32_t count) {
    bool more = count > job->members.count;
    TS_REQUIRE(!more || count <= job->server->config->limits.workers, TERSE_ELIMIT);
    if (more && job->contract) TS_TRY(ts_job_memory_for(job, job->server->index, count, NULL));
    if (job->standin) TS_TRY(grow_part(job->standin, count));
    return grow_part(job, count);
}

/* The job that a peer has come into, with room for it; NULL: it has ended, or there is no room, and the peer is dropped. */
static ts_job *make_room(ts_server *server, uint32_t p) {
    const ts_peer *from = &server->transport->peers[p];
    ts_job *job = from->job < server->job_count ? server->jobs[from->job] : NULL;
    if (!job || job->state != TS_JOB_RUNNING) return NULL; /* its first word is answered by that */
    terse_status status = grow(job, from->index + 1);
    if (status == TERSE_OK) return job;
    ts_log(TS_LOG_ERROR, "job", "a worker cannot come in", "worker=\"%s\" reason=\"%s\" limits.workers=%u limits.job_bytes=%llu",
           from->name, terse_strerror(status), server->config->limits.workers, (unsigned long long)server->config->limits.job_bytes);
    server->transport->ops->drop_peer(server->transport, p);
    return NULL;
}

/* in: the job takes it for the worker already. */
static void give_place(ts_server *server, uint32_t p, bool in) {
    ts_job *job = make_room(server, p);
    if (!job) return;
    ts_member *member = &job->members.members[server->transport->peers[p].index];
    member->peer = p;
    if (job->standin) job->standin->members.members[server->transport->peers[p].index].peer = p;
    server->links[p].last_heard_us = ts_server_now(server);
    if (in) return;
    member->coming = true;
    member->suitor = 0;
}

void ts_place_workers(ts_server *server, uint32_t first) {
    for (uint32_t p = first; p < server->transport->peer_count; p++) {
        ts_link *link = &server->links[p];
        link->last_heard_us = ts_server_now(server);
        if (server->secret) {
            link->suing_us = link->last_heard_us > 0 ? link->last_heard_us : 1;
            server->suitors++;
        } else {
            give_place(server, p, false);
        }
    }
}

/* Whether whoever has the worker's place now has proven itself, and lives. */
static bool is_held(const ts_job *job, uint32_t worker) {
    const ts_server *server = job->server;
    const ts_link *link = &server->links[job->members.members[worker].peer];
    return server->transport->peers[job->members.members[worker].peer].role == TS_ROLE_WORKER && link->proven && link->lost_us == 0 &&
           ts_server_now(server) - link->last_heard_us <= ts_server_deadline_us(server);
}

static void stop_suing(ts_server *server, uint32_t peer) {
    if (server->links[peer].suing_us == 0) return;
    server->links[peer].suing_us = 0;
    server->suitors--;
}

void ts_place_proven(ts_server *server, uint32_t peer) {
    const ts_peer *from = &server->transport->peers[peer];
    if (server->links[peer].suing_us == 0) return;
    stop_suing(server, peer);
    const ts_job *job = from->job < server->job_count ? server->jobs[from->job] : NULL;
    const ts_member *member = job && from->index < job->members.count ? &job->members.members[from->index] : NULL;
    if (member && member->peer == peer) return; /* on server 0's word */
    if (member && is_coming(job, from->index) && server->links[member->peer].proven) return; /* another was first: it is told so */
    /* It came for the place of a dead worker, and took so long that another has it by now: it is told so. */
    if (member && ts_replica_leads(server) && !member->lost && is_held(job, from->index) && !process_has_ended(job, from->index)) return;
    /* Other servers are asked by who was let in at server 0, of which this one has heard. */
    give_place(server, peer, !ts_replica_leads(server) && member && member->state == TS_MEMBER_ATTACHED);
}

void ts_place_vouched(struct ts_job *job, uint32_t worker, uint32_t incarnation) {
    ts_server *server = job->server;
    bool known = worker < job->members.count;
    if (known && (job->members.members[worker].incarnation >= incarnation || is_held(job, worker))) return;
    for (uint32_t p = server->link_count; server->suitors > 0 && p-- > 0;) { /* the last who has come */
        const ts_peer *from = &server->transport->peers[p];
        if (!server->links[p].suing_us || from->job != job->id || from->index != worker || server->links[p].lost_us > 0) continue;
        if (!known || job->members.members[worker].peer != p) give_place(server, p, false);
        return;
    }
}

static void say_something(const ts_job *job, uint32_t peer) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Heartbeat body = TERSE__HEARTBEAT__INIT;
    uint32_t dead[TS_REPLICA_DEAD_LISTED];
    ts_replica_heartbeat(job->server, &body, dead);
    ts_job_head(job, &header);
    header.body_case = TERSE__HEADER__BODY_HEARTBEAT;
    header.heartbeat = &body;
    ts_link_control(job->server, peer, &header);
}

void ts_place_lead_taken(ts_server *server) {
    for (uint32_t p = 0; server->suitors > 0 && p < server->link_count; p++)
        if (server->links[p].suing_us) server->links[p].suing_us = ts_server_now(server);
}

void ts_place_over(const struct ts_job *job) {
    ts_server *server = job->server;
    for (uint32_t p = 0; server->suitors > 0 && p < server->link_count; p++)
        if (server->transport->peers[p].job == job->id) stop_suing(server, p);
}

/*
 * Who says nothing of the secret to server 0 for as long as a start may take is not listened to any longer. The others are asked
 * later, by who has proven itself there; so long they say that they live.
 */
static void look_at_suitors(const ts_job *job) {
    ts_server *server = job->server;
    for (uint32_t p = 0; server->suitors > 0 && p < server->link_count; p++) {
        ts_link *link = &server->links[p];
        if (!link->suing_us || server->transport->peers[p].job != job->id) continue;
        bool late = ts_replica_leads(server) && ts_server_now(server) - link->suing_us > ts_config_start_us(server->config);
        if (!late && link->lost_us == 0 && ts_link_quiet(server, p)) say_something(job, p);
        if (!late && link->lost_us == 0) continue;
        stop_suing(server, p);
        if (!late) continue;
        ts_log(TS_LOG_WARN, "job", "a process that came for a worker's place has not proven that it knows the secret", "peer=\"%s\"",
               ts_server_peer_name(server, p));
        server->transport->ops->drop_peer(server->transport, p);
    }
}

void ts_place_command(const struct ts_job *job, uint32_t worker, char *text, size_t capacity) {
    char which[16] = "any", name[TS_JOB_NAME_CHARS + 24] = "";
    if (worker != UINT32_MAX) snprintf(which, sizeof which, "%u", worker);
    if (job->server->transport->jobs[job->id].numbered) snprintf(name, sizeof name, " --set job.name=%s", job->name);
    if (capacity > 0) text[0] = '\0';
    if (!job->server->join_command || ts_join_objection(job)) return;
    int len = snprintf(text, capacity, "%s%s --worker-id %s", job->server->join_command, name, which);
    if (capacity > 0 && (len < 0 || (size_t)len >= capacity)) text[0] = '\0'; /* half a command is none */
}

/* ---- orphans -------------------------------------------------------------------------------------------------------------------- */

bool ts_place_keeps(const struct ts_job *job) {
    const ts_server *server = job->server;
    return server->join_command && !server->draining && server->config->daemon.orphan_s > 0 && !ts_join_objection(job);
}

void ts_place_tick(struct ts_job *job) {
    uint64_t now_us = ts_server_now(job->server);
    double most_s = job->server->config->daemon.orphan_s;
    char command[2048];
    look_at_suitors(job);
    if (!ts_membership_orphaned(&job->members)) {
        job->orphaned_us = 0;
        return;
    }
    if (job->orphaned_us == 0) {
        job->orphaned_us = now_us;
        ts_place_command(job, UINT32_MAX, command, sizeof command);
        ts_log(TS_LOG_WARN, "job", "all workers are lost; the job waits for one to come back",
               "job=%s step=%llu orphan_s=%g bring_back=\"%s\"", job->name, (unsigned long long)ts_store_version(&job->store), most_s,
               command);
    }
    double patience_s = ts_replica_leads(job->server) ? most_s : most_s + job->server->config->consistency.deadline_s; /* server 0 says it before */
    if ((double)(now_us - job->orphaned_us) / 1e6 < patience_s) return;
    for (uint32_t w = 0; w < job->members.count; w++)
        if (is_coming(job, w)) return;
    ts_job_fail(job, TERSE_EPEER, "all workers have ended without a goodbye, and none has come back within daemon.orphan_s, which "
                "is %g", most_s);
}

bool ts_place_end_orphan(ts_server *server, const char *reason) {
    for (uint32_t j = 0; j < server->job_count; j++) {
        ts_job *job = server->jobs[j];
        if (job->state != TS_JOB_RUNNING || !ts_membership_orphaned(&job->members)) continue;
        ts_job_fail(job, TERSE_EPEER, "all workers have ended without a goodbye, none has come back, and %s", reason);
        return true;
    }
    return false;
}
