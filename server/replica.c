/* SPDX-License-Identifier: Apache-2.0 */
#include "server/replica.h"

#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "server/job.h"
#include "server/peer_link.h"
#include "server/session.h"
#include "server/worker_place.h"

#define LEADER_GRACE_US 1500000u /* beyond the deadline: so long whoever has to decide may take */

terse_status ts_replica_watch_create(ts_server *server) {
    server->watch.on = server->config->servers.replicas > 0;
    char id[TS_CKPT_ID_CHARS + 1];
    server->watch.dead = ts_mem_calloc(server->transport->servers, sizeof *server->watch.dead);
    TS_REQUIRE(server->watch.dead, TERSE_ENOMEM);
    if (server->index == 0 && ts_ckpt_make_id(id) == TERSE_OK) (void)ts_ckpt_get_hex(id, &server->watch.epoch);
    return TERSE_OK;
}

void ts_replica_watch_free(ts_server *server) {
    ts_mem_free(server->watch.dead);
    server->watch.dead = NULL;
}

bool ts_replica_is_dead(const ts_server *server, uint32_t number) {
    return number < server->transport->servers && server->watch.dead[number];
}

static uint32_t next_of(const ts_server *server, uint32_t number) { return (number + 1) % server->transport->servers; }

static uint32_t before(const ts_server *server, uint32_t number) {
    return (number + server->transport->servers - 1) % server->transport->servers;
}

static uint32_t peer_of(const ts_server *server, uint32_t number) {
    return ts_transport_find(server->transport, TS_ROLE_SERVER, number);
}

uint32_t ts_replica_host(const ts_server *server, uint32_t part) {
    if (!server->watch.on || !server->watch.dead[part]) return part;
    uint32_t standin = next_of(server, part);
    return standin == part || server->watch.dead[standin] ? server->transport->servers : standin;
}

terse_status ts_replica_whole(const ts_server *server, ts_error *reason) {
    for (uint32_t p = 0; p < server->transport->servers; p++) {
        if (ts_replica_host(server, p) < server->transport->servers) continue;
        return ts_error_set(reason, TERSE_EPEER, "%s and %s, which stood in for it, are both dead, so no job can run here; end the "
                            "daemon (terse stop) and start it anew", ts_server_peer_name(server, peer_of(server, p)),
                            ts_server_peer_name(server, peer_of(server, next_of(server, p))));
    }
    return TERSE_OK;
}

bool ts_replica_leads(const ts_server *server) { return ts_replica_host(server, 0) == server->index; }

uint32_t ts_replica_lead_peer(const ts_server *server) {
    uint32_t lead = ts_replica_host(server, 0);
    return lead < server->transport->servers ? peer_of(server, lead) : server->transport->peer_count;
}

void ts_replica_heartbeat(const ts_server *server, Terse__Heartbeat *body, uint32_t *list) {
    body->replicas = server->watch.on;
    body->dead = list;
    for (uint32_t s = 0; s < server->transport->servers && body->n_dead < server->watch.dead_count; s++)
        if (server->watch.dead[s] && body->n_dead < TS_REPLICA_DEAD_LISTED) list[body->n_dead++] = s;
}

bool ts_replica_epoch_is_held(const ts_server *server) {
    uint32_t heir = next_of(server, 0);
    return !server->watch.on || server->index != 0 || heir == 0 || server->watch.dead[heir] || server->watch.epoch_held;
}

/* ---- parts ----------------------------------------------------------------------------------------------------------- */

static terse_status copy_contract(const ts_job *own, ts_contract **contract, ts_config **config) {
    uint8_t *bytes = NULL;
    size_t len = 0;
    ts_error detail = {""};
    TS_TRY(ts_contract_pack(own->contract, &bytes, &len));
    terse_status status = ts_contract_unpack(bytes, len, own->server->transport->servers, contract, &detail);
    ts_mem_free(bytes);
    if (status != TERSE_OK) return status;
    status = ts_config_of_contract(*contract, own->server->config, config, &detail);
    if (status != TERSE_OK) ts_contract_destroy(*contract);
    return status;
}

/* Memory of a part, when its slices are known. */
static terse_status reserve(ts_job *job, bool owner) {
    ts_replica *replica = &job->replica;
    size_t slices = job->store.count ? job->store.count : 1;
    replica->told = ts_mem_calloc(slices, sizeof *replica->told);
    replica->checks = ts_mem_calloc(slices, sizeof *replica->checks);
    TS_REQUIRE(replica->told && replica->checks, TERSE_ENOMEM);
    if (owner) replica->words = ts_mem_calloc(job->members.count, sizeof *replica->words);
    else replica->early = ts_mem_calloc(slices * job->members.count, sizeof *replica->early);
    replica->workers = job->members.count;
    return replica->words || replica->early ? TERSE_OK : TERSE_ENOMEM;
}

static terse_status make_standin(ts_job *own, ts_job **out) {
    ts_server *server = own->server;
    ts_job *job = NULL;
    ts_contract *contract = NULL;
    ts_config *config = NULL;
    TS_TRY(ts_job_create(server, own->id, own->members.launched, &job));
    job->own = own;
    job->part = before(server, own->part);
    job->mute = !server->watch.dead[job->part];
    job->replica.peer = peer_of(server, job->part);
    terse_status status = ts_reduce_grow(&job->reduce, own->members.count); /* some may have come already */
    if (status == TERSE_OK) status = ts_membership_grow(&job->members, own->members.count, server->transport->self);
    if (status == TERSE_OK) status = copy_contract(own, &contract, &config);
    if (status == TERSE_OK) {
        status = ts_job_begin(job, contract, config, own->contract_worker);
        if (status != TERSE_OK) {
            ts_contract_destroy(contract);
            ts_config_free(config);
        }
    }
    if (status == TERSE_OK) status = reserve(job, false);
    if (status != TERSE_OK) ts_job_destroy(job);
    else *out = job;
    return status;
}

terse_status ts_replica_begin(ts_job *own) {
    ts_server *server = own->server;
    if (!server->watch.on) return TERSE_OK;
    uint32_t standin = next_of(server, own->part);
    own->replica.peer = peer_of(server, standin);
    own->replica.mirrors = !server->watch.dead[standin];
    TS_TRY(reserve(own, true));
    TS_TRY(make_standin(own, &own->standin));
    ts_replica_follow_members(own);
    return TERSE_OK;
}

terse_status ts_replica_allows(const ts_job *job, const ts_contract *contract, ts_error *reason) {
    const ts_server *server = job->server;
    if (!server->watch.on) return TERSE_OK;
    if (server->transport->servers < 2)
        return ts_error_set(reason, TERSE_EUNSUPPORTED, "servers.replicas 1 needs a second server; there is one");
    if (server->upstream)
        return ts_error_set(reason, TERSE_EUNSUPPORTED, "servers.replicas of a relay must be 0");
    if (contract->mode != TS_MODE_BSP || (contract->rounds && strstr(contract->rounds, "stragglers=")))
        return ts_error_set(reason, TERSE_EUNSUPPORTED, "servers.replicas 1 of server %u needs consistency.mode bsp and "
                            "consistency.stragglers wait", server->index);
    return TERSE_OK;
}

void ts_replica_free(ts_job *job) {
    ts_replica *replica = &job->replica;
    for (size_t i = 0; replica->early && i < (size_t)job->store.count * replica->workers; i++)
        ts_buffer_unref(replica->early[i].frame);
    ts_mem_free(replica->early);
    ts_mem_free(replica->words);
    ts_mem_free(replica->told);
    ts_mem_free(replica->checks);
    *replica = (ts_replica){0};
}

terse_status ts_replica_grow(ts_job *job, uint32_t workers) {
    ts_replica *replica = &job->replica;
    size_t slices = job->store.count ? job->store.count : 1;
    if (workers <= replica->workers || !(replica->words || replica->early)) return TERSE_OK;
    if (replica->words) {
        uint8_t *words = ts_mem_realloc(replica->words, workers, sizeof *words);
        TS_REQUIRE(words, TERSE_ENOMEM);
        memset(words + replica->workers, TS_REPLICA_SILENT, workers - replica->workers);
        replica->words = words;
    } else {
        ts_replica_early *early = ts_mem_realloc(replica->early, workers * slices, sizeof *early);
        TS_REQUIRE(early, TERSE_ENOMEM);
        memset(early + replica->workers * slices, 0, (workers - replica->workers) * slices * sizeof *early);
        replica->early = early;
    }
    replica->workers = workers;
    return TERSE_OK;
}

ts_job *ts_replica_part(ts_job *own, uint32_t part) {
    if (part == 0 || part - 1 == own->part) return own;
    ts_job *standin = own->standin;
    return standin && part - 1 == standin->part && !standin->mute ? standin : NULL;
}

/* A first life has its number where its Hello was heard: not at a stand-in. */
bool ts_replica_same_life(const ts_job *own, const ts_job *part, uint32_t worker) {
    const ts_member *a = &own->members.members[worker], *b = &part->members.members[worker];
    return a->incarnation == b->incarnation || (!a->returned && !b->returned);
}

void ts_replica_follow_members(ts_job *own) {
    ts_job *part = own->standin;
    bool news = false;
    if (!part) return;
    for (uint32_t w = 0; w < own->members.count; w++) {
        const ts_member *from = &own->members.members[w];
        ts_member *to = &part->members.members[w];
        uint32_t generation = part->members.generation;
        to->peer = from->peer;
        if (!ts_replica_same_life(own, part, w)) continue; /* the owner says that, too */
        bool left = from->state == TS_MEMBER_GONE && from->done_steps == 0; /* the owner says when, while it lives */
        if (from->done && (!left || !part->mute)) ts_membership_done(&part->members, w, from->done_steps);
        if (!part->mute) {
            to->said_hello = from->said_hello;
            to->incarnation = from->incarnation;
            memcpy(to->digest, from->digest, sizeof to->digest);
            if (from->state != TS_MEMBER_EXPECTED) ts_membership_attach(&part->members, w);
            if (from->lost) ts_membership_lose(&part->members, w);
            if (from->state == TS_MEMBER_GONE) ts_membership_gone(&part->members, w);
            to->left = from->left;
        }
        news = news || part->members.generation != generation;
    }
    if (news) ts_job_membership_changed(part);
}

/* ---- deaths ---------------------------------------------------------------------------------------------------------- */

/* This server speaks for the part now. */
static void take_over(ts_job *part) {
    uint32_t held = 0;
    part->mute = false;
    for (uint32_t s = 0; s < part->store.count; s++) held += part->store.slices[s].held;
    ts_log(TS_LOG_WARN, "replica", "the slices of a server that is dead are this one's now",
           "job=%s of=%u slices=%u version=%llu packets_held=%u", part->name, part->part, part->store.count,
           (unsigned long long)ts_store_version(&part->store), held);
    ts_join_take_over(part);
    if (part->part == 0) ts_place_lead_taken(part->server);
    ts_replica_follow_members(part->own);
    for (uint32_t w = 0; w < part->members.count; w++) part->members.members[w].reply_due = true;
    ts_checkpoint_take_over(part);
}

/* Whether everything that some job still needs has somebody who speaks for it; else the jobs end. */
static void check_second_death(ts_server *server) {
    for (uint32_t p = 0; p < server->transport->servers; p++) {
        if (ts_replica_host(server, p) < server->transport->servers) continue;
        for (uint32_t j = 0; j < server->job_count; j++) {
            ts_job *job = server->jobs[j];
            if (job->state != TS_JOB_RUNNING || job->members.done == job->members.count) continue;
            ts_job_fail(job, TERSE_EPEER, "%s and %s, which stood in for it, are both gone, and with them their slices",
                        ts_server_peer_name(server, peer_of(server, p)),
                        ts_server_peer_name(server, peer_of(server, next_of(server, p))));
        }
    }
}

static void say_alive(ts_server *server, uint32_t peer) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Mirror body = TERSE__MIRROR__INIT;
    uint32_t *list = ts_mem_calloc(server->transport->servers, sizeof *list);
    if (!list) return;
    for (uint32_t s = 0; s < server->transport->servers; s++)
        if (server->watch.dead[s]) list[body.n_dead++] = s;
    body.dead = list;
    body.job_epoch = server->watch.epoch;
    header.part = server->index + 1;
    header.body_case = TERSE__HEADER__BODY_MIRROR;
    header.mirror = &body;
    ts_link_control(server, peer, &header);
    ts_mem_free(list);
}

static void say_alive_to_all(ts_server *server) {
    server->watch.said_us = ts_server_now(server);
    for (uint32_t s = 0; s < server->transport->servers; s++)
        if (s != server->index && !server->watch.dead[s]) say_alive(server, peer_of(server, s));
}

/* The others have gone on without this server: it ends, and only it. */
static void end_alone(ts_server *server, const char *who) {
    server->watch.is_dead = true;
    ts_server_give_up(server, TERSE_ESTALE, "%s says that server %u is dead, and the others have gone on without it", who, server->index);
}

static void bury(ts_server *server, uint32_t number, const char *why) {
    uint32_t peer = peer_of(server, number), unprotected = before(server, number);
    if (server->watch.dead[number] || server->state != TS_SERVER_RUNNING) return;
    server->watch.dead[number] = 1;
    server->watch.dead_count++;
    ts_log(TS_LOG_WARN, "replica", "a server is dead, the jobs go on without it", "server=\"%s\" why=\"%s\"",
           ts_server_peer_name(server, peer), why);
    say_alive(server, peer); /* should it only have slept, it learns of it */
    if (server->transport->ops->drop_peer) server->transport->ops->drop_peer(server->transport, peer);
    say_alive_to_all(server);
    for (uint32_t j = 0; j < server->job_count; j++) {
        ts_job *job = server->jobs[j];
        if (job->state != TS_JOB_RUNNING) continue;
        if (job->part == unprotected && job->replica.mirrors) {
            ts_log(TS_LOG_WARN, "replica", "this server's slices are held once only from now on", "job=%s", job->name);
            ts_replica_stop_mirroring(job);
        }
        if (job->standin && job->standin->part == number && job->standin->mute) take_over(job->standin);
        ts_session_decided(job);
        ts_job_heartbeats(job);
        ts_checkpoint_server_died(job, number);
    }
    check_second_death(server);
}

static void take_list(ts_server *server, const uint32_t *dead, size_t count, const char *who) {
    char why[160];
    snprintf(why, sizeof why, "%s says so", who);
    for (size_t i = 0; i < count; i++) {
        if (dead[i] == server->index) {
            end_alone(server, who);
            return;
        }
        if (dead[i] < server->transport->servers) bury(server, dead[i], why);
    }
}

void ts_replica_told_by_worker(ts_server *server, uint32_t peer, const Terse__Heartbeat *heartbeat) {
    if (!server->watch.on) return;
    server->links[peer].dead_known = (uint32_t)heartbeat->n_dead;
    for (size_t i = 0; i < heartbeat->n_dead; i++)
        if (heartbeat->dead[i] == server->index) end_alone(server, ts_server_peer_name(server, peer));
}

/* What another server calls the epoch. Who would lead after server 0 answers at once, for so long nobody is welcomed there. */
static void hear_epoch(ts_server *server, uint32_t from, uint64_t epoch) {
    bool news = server->watch.epoch == 0 && epoch != 0;
    if (news) server->watch.epoch = epoch;
    if (news && server->index == next_of(server, 0)) say_alive(server, peer_of(server, 0));
    if (server->index != 0 || server->watch.epoch_held || from != next_of(server, 0) || epoch != server->watch.epoch) return;
    server->watch.epoch_held = true;
    for (uint32_t j = 0; j < server->job_count; j++)
        if (server->jobs[j]->state == TS_JOB_RUNNING) ts_session_decided(server->jobs[j]);
}

/* Since when nothing is heard of a server, beyond what is allowed; 0: it is not silent. */
static bool is_silent(const ts_server *server, uint32_t number, uint64_t grace_us) {
    const ts_link *link = &server->links[peer_of(server, number)];
    if (number == server->index || server->watch.dead[number]) return false;
    if (link->lost_us > 0 && ts_server_now(server) - link->lost_us >= grace_us) return true;
    return ts_server_now(server) - link->last_heard_us > ts_link_patience_us(server, link) + grace_us;
}

static void look_for_silence(ts_server *server) {
    uint32_t leader = ts_replica_host(server, 0);
    for (uint32_t s = 0; s < server->transport->servers; s++) {
        bool decides = server->index == leader || (s == leader && server->index == 1);
        char why[96];
        if (!decides || !is_silent(server, s, 0)) continue;
        snprintf(why, sizeof why, "silent for %.1f s",
                 (double)(ts_server_now(server) - server->links[peer_of(server, s)].last_heard_us) / 1e6);
        if (server->links[peer_of(server, s)].lost_us > 0) snprintf(why, sizeof why, "its process has ended");
        bury(server, s, why);
    }
    /* Whoever should decide is silent, and so is the one who should decide then, if he is not dead already. */
    uint32_t heir = leader == 0 ? next_of(server, 0) : 0;
    if (leader < server->transport->servers && is_silent(server, leader, LEADER_GRACE_US) &&
        (server->watch.dead[heir] || is_silent(server, heir, 0))) {
        ts_log(TS_LOG_WARN, "replica", "the leading server is silent, and so is its stand-in", "leader=%u", leader);
        bury(server, leader, "silent, and nobody who leads says so");
        bury(server, heir, "it did not take the lead");
    }
}

void ts_replica_watch_tick(ts_server *server) {
    if (!server->watch.on || server->transport->servers < 2 || server->state != TS_SERVER_RUNNING) return;
    if (server->watch.said_us == 0 || ts_server_now(server) - server->watch.said_us >= ts_heartbeat_us(ts_server_deadline_us(server)))
        say_alive_to_all(server);
    look_for_silence(server);
    if (server->stays && server->running_jobs == 0 && ts_replica_lead_peer(server) == server->transport->peer_count) {
        ts_error reason = {""};
        (void)!ts_replica_whole(server, &reason);
        ts_server_give_up(server, TERSE_EPEER, "%s", reason.text);
    }
}

void ts_replica_steady(ts_job *job) {
    if (!job->replica.steady) job->replica.steady_base = job->replica.bytes_in;
    job->replica.steady = true;
}

/* ---- messages -------------------------------------------------------------------------------------------------------- */

void ts_replica_say(const ts_job *job, Terse__Mirror *body) {
    Terse__Header header = TERSE__HEADER__INIT;
    ts_buffer *frame;
    header.job = job->id;
    header.part = job->part + 1;
    header.body_case = TERSE__HEADER__BODY_MIRROR;
    header.mirror = body;
    if (ts_frame_control(&header, &frame) != TERSE_OK) return; /* said again by whoever waits for it */
    ts_link_send(job->server, job->replica.peer, frame);
    ts_buffer_unref(frame);
}

terse_status ts_replica_message(ts_server *server, uint32_t peer, ts_buffer *buffer, const ts_frame *frame) {
    const Terse__Header *header = frame->header;
    const Terse__Mirror *message = header->mirror;
    uint32_t from = server->transport->peers[peer].index;
    TS_REQUIRE(server->watch.on, TERSE_ESTATE);
    if (server->watch.dead[from]) {
        say_alive(server, peer); /* it sleeps no more, and does not know yet */
        return TERSE_OK;
    }
    if (message->kind == TERSE__MIRROR__KIND__ALIVE) {
        hear_epoch(server, from, message->job_epoch);
        take_list(server, message->dead, message->n_dead, ts_server_peer_name(server, peer));
        return TERSE_OK;
    }
    TS_REQUIRE(header->job < server->job_count && header->part > 0, TERSE_ECORRUPT);
    ts_job *own = server->jobs[header->job];
    own->replica.bytes_in += buffer->len;
    if (own->state != TS_JOB_RUNNING || !own->contract) return TERSE_OK; /* it will come again, or is not needed any more */
    TS_REQUIRE(header->part - 1 < own->contract->servers, TERSE_ECORRUPT);
    bool joins = message->kind == TERSE__MIRROR__KIND__JOINED && !message->held;
    if (joins && server->secret) ts_place_vouched(own, message->worker, message->incarnation);
    if (joins && message->worker >= own->members.count) return TERSE_OK; /* it has not come to this server yet */
    bool leaves = message->kind == TERSE__MIRROR__KIND__LEFT && !message->held; /* perhaps before it had come to this server */
    TS_REQUIRE(leaves || message->worker < own->members.count, TERSE_ECORRUPT);
    for (size_t i = 0; i < message->n_slices; i++)
        TS_REQUIRE(message->slices[i] < own->contract->server_slices[header->part - 1], TERSE_ECORRUPT);
    if (header->part - 1 == own->part && peer == own->replica.peer) return ts_replica_held(own, message);
    ts_job *standin = own->standin;
    TS_REQUIRE(standin && header->part - 1 == standin->part && peer == standin->replica.peer, TERSE_EPEER);
    return ts_replica_take(standin, buffer, frame);
}
