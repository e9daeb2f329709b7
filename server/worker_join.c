/* SPDX-License-Identifier: Apache-2.0 */
#include "server/worker_join.h"

#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "server/consistency_clock.h"
#include "server/job.h"
#include "server/peer_link.h"
#include "server/session.h"
#include "server/worker_loss.h"
#include "server/worker_place.h"

#define RESEND_US 100000u
#define GAP_MAX 1024u
#define TURN_US 500000u /* so long one that cannot be let in yet holds up the next */

void ts_join_free(ts_join *join) {
    ts_mem_free(join->agreed);
    *join = (ts_join){0};
}

/* ---- the step ----------------------------------------------------------------------------------------------------------- */

/* The first round that no slice here has begun to close. */
static uint64_t open_round(const ts_job *job) {
    uint64_t open = 0;
    for (uint32_t s = 0; s < job->store.count; s++) {
        const ts_slice_state *slice = &job->store.slices[s];
        uint64_t version = slice->version + (slice->busy || slice->ready || slice->above != TS_ABOVE_NONE);
        if (version > open) open = version;
    }
    return open;
}

/* SSP, ASP: the slowest's step, or the worker's own where that is further. */
static uint64_t clock_here(const ts_job *job, uint32_t worker) {
    uint64_t clock = 0;
    for (uint32_t s = 0; s < job->store.count; s++) {
        const ts_slice_state *slice = &job->store.slices[s];
        const ts_slot *slot = &slice->slots[worker];
        uint64_t lowest = ts_clock_lowest(&job->members, slice, false), own = slot->next + (slot->frame != NULL);
        if (own > clock) clock = own;
        if (lowest != UINT64_MAX && lowest > clock) clock = lowest;
    }
    return clock;
}

static uint64_t step_here(const ts_job *job, uint32_t worker) {
    return job->consistency->alone ? clock_here(job, worker) : open_round(job);
}

static bool somebody_owes(const ts_job *job, uint64_t step) {
    for (uint32_t w = 0; w < job->members.count; w++)
        if (ts_membership_expects(&job->members, w, step)) return true;
    return false;
}

/* ---- at every server ------------------------------------------------------------------------------------------------------- */

typedef enum { AGREED, PASSED, BUSY } verdict;

/*
 * SSP. PASSED: the others are further here, and may have been told that they can go beyond the bound from this step. BUSY:
 * they are not so far that the worker's first push would be within it.
 */
static verdict look_at_bound(const ts_job *job, uint64_t from) {
    uint64_t bound = job->members.staleness;
    verdict what = AGREED;
    for (uint32_t s = 0; s < job->store.count && job->config->consistency.mode == TS_MODE_SSP; s++) {
        uint64_t lowest = ts_clock_lowest(&job->members, &job->store.slices[s], false);
        if (lowest != UINT64_MAX && lowest > from) return PASSED;
        if (from > bound && lowest < from - bound) what = BUSY;
    }
    return what;
}

/*
 * Whether the worker can still come in at the step. BUSY: a packet of its former life has to be used first, or the step is
 * beyond the bound yet.
 */
static verdict look(const ts_job *job, uint32_t worker, uint64_t from) {
    if (job->members.quorums.active) return AGREED; /* rounds take whoever is there */
    if (!job->consistency->alone) return open_round(job) > from ? PASSED : AGREED;
    for (uint32_t s = 0; s < job->store.count; s++) {
        const ts_slot *slot = &job->store.slices[s].slots[worker];
        if (slot->next + (slot->frame != NULL) > from) return PASSED;
        if (slot->frame) return BUSY;
    }
    return look_at_bound(job, from);
}

/* The packet goes back to the worker: its round, which is not decided, takes place without the former life. */
static bool is_undecided(const ts_job *job, const ts_slot *slot, uint32_t worker) {
    if (!job->members.quorums.active || !slot->frame) return false;
    const uint8_t *members = ts_quorums_of(&job->members.quorums, slot->step);
    return !members || !members[worker];
}

/* What the former life wanted is of no interest any more; what it pushed is settled here for good. */
static void settle_former(ts_job *job, uint32_t worker) {
    const ts_member *member = &job->members.members[worker];
    for (uint32_t s = 0; s < job->store.count; s++) {
        ts_slice_state *slice = &job->store.slices[s];
        ts_slot *slot = &slice->slots[worker];
        slot->owed = 0;
        if (is_undecided(job, slot, worker)) {
            ts_round_receipt(job, slice, TS_RECEIPT_RETURNED, worker, slot->step);
            ts_store_drop(slice, worker);
        }
        /* A life of which nothing came leaves what was settled before: its `next` is where it should have begun. */
        bool silent = member->returned && job->consistency->alone && !slot->frame && slot->next == member->from;
        if (!silent) slot->settled = slot->frame ? slot->step + 1 : slot->next;
    }
}

static void set_clock(ts_job *job, uint32_t worker, uint64_t from) {
    for (uint32_t s = 0; s < job->store.count && job->consistency->alone; s++) job->store.slices[s].slots[worker].next = from;
    if (!job->consistency->alone && from > job->members.floor) job->members.floor = from;
}

/*
 * The worker is a member again, or its step is moved. A step that is moved beyond the bound is taken at once: at the old one
 * the worker would itself be the slowest, whom the others, and so the step, would wait for for ever.
 */
static verdict let_in(ts_job *job, uint32_t worker, uint32_t incarnation, uint64_t from) {
    ts_member *member = &job->members.members[worker];
    bool moves = member->state == TS_MEMBER_ATTACHED && member->incarnation == incarnation;
    if (!moves) ts_loss_give_up(job, worker, "its next life has come"); /* else the others, and so the step, wait for it */
    if (job->state != TS_JOB_RUNNING) return BUSY;
    verdict what = look(job, worker, from);
    member->coming_us = ts_server_now(job->server);
    if (what == PASSED || (what == BUSY && !moves)) return what;
    if (moves) {
        ts_membership_move(&job->members, worker, from);
    } else {
        settle_former(job, worker);
        ts_membership_return(&job->members, worker, incarnation, from);
    }
    set_clock(job, worker, from);
    ts_link *link = &job->server->links[member->peer];
    link->last_heard_us = ts_server_now(job->server);
    ts_job_membership_changed(job);
    return what;
}

static void send_join(ts_job *job, uint32_t peer, Terse__Join *body) {
    Terse__Header header = TERSE__HEADER__INIT;
    header.job = job->id;
    header.body_case = TERSE__HEADER__BODY_JOIN;
    header.join = body;
    ts_link_control(job->server, peer, &header);
}

/* Another server's: takes what server 0 has chosen. */
static void follow(ts_job *job, uint32_t peer, const Terse__Join *message) {
    const ts_member *member = &job->members.members[message->worker];
    bool known = member->incarnation == message->incarnation && member->state == TS_MEMBER_ATTACHED;
    if (member->incarnation > message->incarnation || (member->incarnation == message->incarnation && !known)) return;
    if (known && member->from > message->from) return; /* an old one */
    if (!ts_job_initialised(job)) return;
    verdict what = look_at_bound(job, message->from) == BUSY ? BUSY : AGREED;
    if (!known || member->from != message->from) what = let_in(job, message->worker, message->incarnation, message->from);
    if (what == BUSY) return; /* it comes again */
    Terse__Join answer = TERSE__JOIN__INIT;
    answer.worker = message->worker;
    answer.incarnation = message->incarnation;
    answer.from = message->from;
    answer.passed = what == PASSED;
    answer.at = step_here(job, message->worker);
    send_join(job, peer, &answer);
}

void ts_join_welcome(const struct ts_job *job, uint32_t worker, Terse__Joined *joined, uint64_t *next) {
    const ts_member *member = &job->members.members[worker];
    joined->from = member->from;
    joined->incarnation = member->incarnation;
    joined->n_next = job->store.count;
    joined->next = next;
    for (uint32_t s = 0; s < job->store.count; s++) next[s] = job->store.slices[s].slots[worker].settled;
}

/* ---- server 0 ---------------------------------------------------------------------------------------------------------------- */

static uint32_t servers_of(const ts_job *job) { return job->server->transport->servers; }

static void say_plan(ts_job *job) {
    const ts_join *join = &job->join;
    for (uint32_t s = 1; s < servers_of(job); s++) {
        if (join->agreed[s]) continue;
        Terse__Join body = TERSE__JOIN__INIT;
        body.worker = join->worker;
        body.incarnation = join->incarnation;
        body.from = join->from;
        send_join(job, ts_transport_find(job->server->transport, TS_ROLE_SERVER, s), &body);
    }
}

static void begin_next(ts_job *job);

static void finish(ts_job *job) {
    ts_join *join = &job->join;
    join->active = false;
    ts_log(TS_LOG_INFO, "job", join->further ? "a new worker has come in" : "a worker is back",
           "worker=\"%s\" life=%u from_step=%llu left=%u ms=%.1f", ts_job_worker_name(job, join->worker), join->incarnation,
           (unsigned long long)join->from, job->members.count - job->members.gone,
           (double)(ts_server_now(job->server) - join->began_us) / 1e3);
    ts_session_welcome_back(job, join->worker);
    begin_next(job);
}

/* Chooses a step that is not before `least`, nor before one that another server may have agreed to, and takes it here. */
static void plan(ts_job *job, uint64_t least) {
    ts_join *join = &job->join;
    ts_member *member = &job->members.members[join->worker];
    uint64_t at = step_here(job, join->worker);
    if (least > at) at = least;
    bool ahead = !job->consistency->alone && !job->members.quorums.active && somebody_owes(job, at);
    join->from = at + (ahead ? join->gap : 0);
    if (member->told_life == join->incarnation && member->told_from > join->from) join->from = member->told_from;
    for (uint32_t s = 0; s < servers_of(job); s++) join->agreed[s] = false;
    join->agreed[0] = let_in(job, join->worker, join->incarnation, join->from) == AGREED;
    join->resend_us = ts_server_now(job->server) + RESEND_US;
    member->told_life = join->incarnation;
    member->told_from = join->from;
    say_plan(job);
}

static void look_whether_all(ts_job *job) {
    const ts_join *join = &job->join;
    for (uint32_t s = 0; s < servers_of(job); s++)
        if (!join->agreed[s]) return;
    finish(job);
}

static void begin(ts_job *job, uint32_t worker) {
    ts_join *join = &job->join;
    ts_member *member = &job->members.members[worker];
    if (!join->agreed) join->agreed = ts_mem_calloc(servers_of(job), sizeof *join->agreed);
    if (!join->agreed) return; /* it asks again */
    join->active = true;
    join->worker = worker;
    join->incarnation = member->wants_in;
    join->further = member->unborn;
    join->gap = 1;
    join->began_us = ts_server_now(job->server);
    member->wants_in = 0;
    plan(job, 0);
    look_whether_all(job);
}

/* Its life that would like to come back is given up already. */
static bool has_died_again(const ts_member *member, uint32_t incarnation) {
    return member->lost && member->incarnation == incarnation;
}

/* In turn, from the one after the last on. */
static void begin_next(ts_job *job) {
    uint32_t count = job->members.count, last = job->join.worker;
    for (uint32_t i = 1; i <= count && !job->join.active && job->state == TS_JOB_RUNNING; i++) {
        ts_member *member = &job->members.members[(last + i) % count];
        if (has_died_again(member, member->wants_in)) member->wants_in = 0;
        if (member->wants_in) begin(job, (last + i) % count);
    }
}

/*
 * One whose former life's packets wait for another worker's cannot come in before that has pushed; should it be one that
 * would like to come back, too, it has to come first.
 */
static void give_way(ts_job *job) {
    ts_join *join = &job->join;
    bool others = false;
    for (uint32_t w = 0; w < job->members.count; w++)
        others = others || (w != join->worker && job->members.members[w].wants_in);
    if (!join->active || !others || ts_server_now(job->server) - join->began_us < TURN_US) return;
    job->members.members[join->worker].wants_in = join->incarnation;
    join->active = false;
    begin_next(job);
}

static void on_answer(ts_job *job, uint32_t peer, const Terse__Join *message) {
    ts_join *join = &job->join;
    uint32_t server = job->server->transport->peers[peer].index;
    if (!join->active || message->worker != join->worker || message->incarnation != join->incarnation ||
        message->from != join->from)
        return;
    if (message->passed) {
        join->gap = join->gap < GAP_MAX ? join->gap * 2 : GAP_MAX;
        plan(job, message->at);
    } else {
        join->agreed[server] = true;
    }
    look_whether_all(job);
}

terse_status ts_join_message(struct ts_job *job, uint32_t peer, const Terse__Join *message) {
    TS_REQUIRE(message->incarnation > 0, TERSE_ECORRUPT);
    TS_REQUIRE(job->server->index == 0 || job->server->transport->peers[peer].index == 0, TERSE_EPEER);
    if (job->server->index > 0 && job->server->secret) ts_place_vouched(job, message->worker, message->incarnation);
    TS_REQUIRE(message->worker < job->members.count, TERSE_ECORRUPT);
    if (job->server->index == 0) {
        on_answer(job, peer, message);
        return TERSE_OK;
    }
    follow(job, peer, message);
    return TERSE_OK;
}

void ts_join_tick(struct ts_job *job) {
    ts_join *join = &job->join;
    if (!join->active || ts_server_now(job->server) < join->resend_us) return;
    if (has_died_again(&job->members.members[join->worker], join->incarnation)) {
        join->active = false;
        begin_next(job);
        return;
    }
    if (!join->agreed[0]) plan(job, 0);
    join->resend_us = ts_server_now(job->server) + RESEND_US;
    say_plan(job);
    look_whether_all(job);
    give_way(job);
}

/* ---- Hello --------------------------------------------------------------------------------------------------------------------- */

bool ts_join_is_return(const struct ts_job *job, uint32_t worker, const Terse__Hello *hello) {
    const ts_member *member = &job->members.members[worker];
    if (hello->incarnation == member->incarnation) return member->returned && member->state == TS_MEMBER_ATTACHED;
    return hello->incarnation > member->incarnation && (member->said_hello || member->state == TS_MEMBER_GONE);
}

const char *ts_join_objection(const struct ts_job *job) {
    if (!job->contract) return "its contract is not known yet";
    if (job->server->config->consistency.on_worker_loss != TS_LOSS_GO_ON) return "consistency.on_worker_loss is end";
    if (job->server->config->servers.replicas > 0) return "with servers.replicas a worker that was given up does not come back";
    if (job->config->optimizer.name == TS_OPTIMIZER_NONE)
        return "with optimizer none the parameters are the workers' own, and it has missed some of their changes";
    return NULL;
}

/* Why the worker cannot come back, or NULL. */
static const char *objection(const ts_job *job, uint32_t worker, const Terse__Hello *hello) {
    const ts_member *member = &job->members.members[worker];
    uint64_t total = job->contract ? job->contract->total_steps : 0;
    if (hello->protocol != TS_PROTOCOL_VERSION) return "it speaks another version of the protocol";
    if (hello->incarnation == UINT32_MAX) return "there is no number for a life after it";
    if (!ts_job_initialised(job)) return "the job has not begun yet, and another life of this worker was seen";
    if (ts_join_objection(job)) return ts_join_objection(job);
    if (member->state == TS_MEMBER_GONE && !member->lost) return "it has left the job before";
    if (total > 0 && step_here(job, worker) >= total) return "the training is at its end";
    return NULL;
}

terse_status ts_join_contract(struct ts_job *job, uint32_t worker, const ts_frame *frame) {
    ts_contract *contract = NULL;
    ts_error reason = {""}, detail = {""};
    terse_status status = ts_session_unpack(job, frame, &contract, &detail);
    if (status == TERSE_ENOMEM) return status;
    if (status != TERSE_OK) ts_error_set(&reason, status, "its contract is not valid: %s", detail.text);
    else if (ts_session_compare(job, worker, contract, &reason) == TERSE_OK)
        ts_error_set(&reason, TERSE_EMISMATCH, "its Hello announced another contract than it sent");
    ts_contract_destroy(contract);
    job->members.members[worker].suitor = 0;
    ts_session_refuse_alone(job, worker, TERSE_EMISMATCH, reason.text);
    return TERSE_OK;
}

terse_status ts_join_hello(struct ts_job *job, uint32_t worker, const Terse__Hello *hello) {
    ts_member *member = &job->members.members[worker];
    const ts_join *join = &job->join;
    bool here = member->incarnation == hello->incarnation; /* and so welcome, when all servers have agreed */
    if (here && !member->wants_in && !(join->active && join->worker == worker)) {
        ts_session_welcome_back(job, worker);
        return TERSE_OK;
    }
    member->asked_us = ts_server_now(job->server);
    if (here || job->server->index != 0) return TERSE_OK; /* server 0 knows more; it asks again */
    const char *why = objection(job, worker, hello);
    if (why) {
        ts_session_refuse_alone(job, worker, hello->protocol == TS_PROTOCOL_VERSION ? TERSE_ESTATE : TERSE_EVERSION, why);
        return TERSE_OK;
    }
    if (memcmp(hello->digest.data, job->contract->digest, TS_DIGEST_BYTES) != 0) {
        member->suitor = hello->incarnation;
        ts_session_ask_contract(job, worker);
        return TERSE_OK;
    }
    member->wants_in = hello->incarnation;
    begin_next(job);
    return TERSE_OK;
}
