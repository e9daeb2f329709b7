/* SPDX-License-Identifier: Apache-2.0 */
#include "server/quorum.h"

#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "server/job.h"
#include "server/peer_link.h"

#define ASK_AGAIN_US 200000u

terse_status ts_quorums_create(ts_quorums *quorums, const ts_config *config, uint32_t workers) {
    ts_quorums made = {.active = config->consistency.stragglers != TS_STRAGGLERS_WAIT,
                       .applies_late = config->consistency.late == TS_LATE_APPLY,
                       .workers = workers};
    if (made.active) {
        made.rounds = ts_mem_calloc(TS_QUORUM_ROUNDS, sizeof *made.rounds);
        made.members = ts_mem_calloc(TS_QUORUM_ROUNDS, workers);
        if (!made.rounds || !made.members) {
            ts_quorums_free(&made);
            return TERSE_ENOMEM;
        }
    }
    *quorums = made;
    return TERSE_OK;
}

void ts_quorums_free(ts_quorums *quorums) {
    ts_mem_free(quorums->rounds);
    ts_mem_free(quorums->members);
    *quorums = (ts_quorums){0};
}

terse_status ts_quorums_grow(ts_quorums *quorums, uint32_t workers) {
    if (!quorums->active || workers <= quorums->workers) return TERSE_OK;
    uint8_t *members = ts_mem_calloc(TS_QUORUM_ROUNDS, workers);
    TS_REQUIRE(members, TERSE_ENOMEM);
    for (size_t r = 0; r < TS_QUORUM_ROUNDS; r++)
        memcpy(members + r * workers, quorums->members + r * quorums->workers, quorums->workers);
    ts_mem_free(quorums->members);
    quorums->members = members;
    quorums->workers = workers;
    return TERSE_OK;
}

static uint8_t *entry_of(const ts_quorums *quorums, uint64_t round) {
    return quorums->members + (round % TS_QUORUM_ROUNDS) * quorums->workers;
}

const uint8_t *ts_quorums_of(const ts_quorums *quorums, uint64_t round) {
    return quorums->active && quorums->rounds[round % TS_QUORUM_ROUNDS] == round + 1 ? entry_of(quorums, round) : NULL;
}

static void send_members(ts_job *job, uint32_t peer, uint64_t round, bool question) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Members body = TERSE__MEMBERS__INIT;
    const uint8_t *members = question ? NULL : ts_quorums_of(&job->members.quorums, round);
    uint32_t *list = ts_mem_calloc(job->members.count, sizeof *list);
    if (!list) return; /* asked for again */
    for (uint32_t w = 0; members && w < job->members.count; w++)
        if (members[w]) list[body.n_workers++] = w;
    body.workers = list;
    body.version = round;
    body.generation = question ? 0 : job->members.generation;
    ts_job_head(job, &header);
    header.body_case = TERSE__HEADER__BODY_MEMBERS;
    header.members = &body;
    ts_link_control(job->server, peer, &header);
    ts_mem_free(list);
}

/* A packet of a round that is decided without its worker: told, and gone. */
static void return_packet(ts_job *job, ts_slice_state *slice, uint32_t worker, uint64_t step) {
    ts_slot *slot = &slice->slots[worker];
    ts_store_drop(slice, worker);
    slot->owed &= (uint8_t)~TS_OWED_WORD;
    ts_round_receipt(job, slice, TS_RECEIPT_RETURNED, worker, step);
    ts_link_ack(job, ts_job_peer(job, worker), step, TERSE_ESTALE, &slice->local, 1,
                "the round was closed without it");
}

/* A round is decided: what is held of others goes back, and slices that waited for this can close. */
static void act(ts_job *job, uint64_t round) {
    const uint8_t *members = ts_quorums_of(&job->members.quorums, round);
    for (uint32_t s = 0; s < job->store.count; s++) {
        ts_slice_state *slice = &job->store.slices[s];
        for (uint32_t w = 0; w < job->members.count && !job->members.quorums.applies_late; w++)
            if (!members[w] && slice->slots[w].frame && slice->slots[w].step == round) return_packet(job, slice, w, round);
        ts_rounds_consider(job, slice);
    }
}

/* Whether all that the worker says in the round is here, and nothing of the round before is still at work. */
static bool has_delivered(const ts_job *job, uint32_t worker, uint64_t round) {
    for (uint32_t s = 0; s < job->store.count; s++) {
        const ts_slice_state *slice = &job->store.slices[s];
        const ts_slot *slot = &slice->slots[worker];
        if (slice->busy || slice->version != round || !slot->frame || slot->step > round) return false;
    }
    return true;
}

/* Whether the policy lets the round go on with `delivered` of `owing` members. */
static bool enough(ts_job *job, uint32_t delivered, uint32_t owing) {
    ts_quorums *quorums = &job->members.quorums;
    const ts_config *config = job->config;
    uint32_t wanted = config->consistency.quorum < owing ? config->consistency.quorum : owing;
    if (delivered > 0 && quorums->since_us == 0) quorums->since_us = ts_server_now(job->server);
    if (delivered == owing) return delivered > 0;
    if (delivered == 0 || delivered < wanted) return false;
    if (config->consistency.stragglers == TS_STRAGGLERS_BACKUP) return true;
    return ts_server_now(job->server) - quorums->since_us >= (uint64_t)(config->consistency.straggler_s * 1e6);
}

/* Decides one round. Returns whether it could. */
static bool decide_one(ts_job *job) {
    ts_quorums *quorums = &job->members.quorums;
    uint64_t round = quorums->next;
    uint32_t delivered = 0, owing = 0;
    uint8_t *members = entry_of(quorums, round);
    for (uint32_t s = 0; s < job->store.count; s++)
        if (job->store.slices[s].version != round || job->store.slices[s].busy) return false;
    quorums->rounds[round % TS_QUORUM_ROUNDS] = 0; /* the entry's old round is forgotten */
    for (uint32_t w = 0; w < job->members.count; w++) {
        members[w] = has_delivered(job, w, round);
        delivered += members[w];
        /* Who stands at a barrier for the others pushes nothing before it opens. */
        owing += members[w] || (ts_membership_expects(&job->members, w, round) && !ts_reduce_waits(job, w));
    }
    if (!enough(job, delivered, owing)) return false;
    quorums->rounds[round % TS_QUORUM_ROUNDS] = round + 1;
    quorums->next++;
    quorums->since_us = 0;
    quorums->lost += delivered < owing;
    job->members.generation++;
    const ts_transport *transport = job->server->transport;
    for (uint32_t p = 0; p < transport->peer_count; p++)
        if (p != transport->self && transport->peers[p].role == TS_ROLE_SERVER) send_members(job, p, round, false);
    act(job, round);
    return true;
}

bool ts_quorum_decide(struct ts_job *job) {
    if (!job->members.quorums.active || job->server->index != 0 || job->store.count == 0) return false;
    return job->store.uninitialised == 0 && decide_one(job);
}

terse_status ts_quorum_members(struct ts_job *job, uint32_t peer, const Terse__Members *message) {
    ts_quorums *quorums = &job->members.quorums;
    uint64_t round = message->version;
    TS_REQUIRE(quorums->active, TERSE_EPEER);
    for (size_t i = 0; i < message->n_workers; i++)
        TS_REQUIRE(message->workers[i] < job->members.count, TERSE_ECORRUPT);
    if (job->server->index == 0) {
        if (ts_quorums_of(quorums, round)) send_members(job, peer, round, false);
        return TERSE_OK;
    }
    TS_REQUIRE(job->server->transport->peers[peer].index == 0 && message->n_workers > 0, TERSE_EPEER);
    if (round < ts_store_version(&job->store) || ts_quorums_of(quorums, round)) return TERSE_OK; /* repeated */
    memset(entry_of(quorums, round), 0, quorums->workers);
    for (size_t i = 0; i < message->n_workers; i++) entry_of(quorums, round)[message->workers[i]] = 1;
    quorums->rounds[round % TS_QUORUM_ROUNDS] = round + 1;
    act(job, round);
    return TERSE_OK;
}

void ts_quorum_tick(struct ts_job *job) {
    ts_quorums *quorums = &job->members.quorums;
    uint64_t now_us = ts_server_now(job->server), round = ts_store_version(&job->store);
    if (!quorums->active || job->server->index == 0 || job->store.count == 0 || ts_quorums_of(quorums, round)) return;
    if (now_us - quorums->asked_us < ASK_AGAIN_US) return;
    bool waits = false;
    bool closed = round < job->members.floor; /* at server 0: who has come in waits for what it makes, though nothing may be held here */
    for (uint32_t s = 0; s < job->store.count; s++)
        waits = waits || ((closed || job->store.slices[s].held > 0) && job->store.slices[s].version == round);
    if (!waits) return;
    quorums->asked_us = now_us;
    send_members(job, ts_transport_find(job->server->transport, TS_ROLE_SERVER, 0), round, true);
}
