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

/* The part of a dead server that this one speaks for, beside its own; or NULL. */
static ts_job *taken_over(const ts_job *job) { return job->standin && !job->standin->mute ? job->standin : NULL; }

/* The part by which this server leads. */
static ts_job *leading_part(ts_job *job) { return ts_job_leads(job) ? job : taken_over(job); }

/* ---- the step ----------------------------------------------------------------------------------------------------------- */

/*
 * The first round that no slice of a part has begun to close. A stand-in may close a round of which its owner holds a packet
 * before the owner does, and an empty one below the floor: it may know sooner that somebody is done.
 */
static uint64_t open_round(const ts_job *part) {
    bool replicas = part->server->watch.on;
    uint64_t open = replicas ? part->members.floor : 0;
    for (uint32_t s = 0; s < part->store.count; s++) {
        const ts_slice_state *slice = &part->store.slices[s];
        bool begun = slice->busy || slice->ready || slice->above != TS_ABOVE_NONE || (replicas && slice->held > 0);
        if (slice->version + begun > open) open = slice->version + begun;
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
    const ts_job *other = taken_over(job);
    if (job->consistency->alone) return clock_here(job, worker);
    uint64_t open = open_round(job), others = other ? open_round(other) : 0;
    return others > open ? others : open;
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
    if (!job->consistency->alone) return step_here(job, worker) > from ? PASSED : AGREED;
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
    ts_replica_forget_early(job, worker);
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

static bool is_in(const ts_job *part, uint32_t worker, uint32_t incarnation) {
    const ts_member *member = &part->members.members[worker];
    return member->state == TS_MEMBER_ATTACHED && member->incarnation == incarnation;
}

void ts_join_enter(struct ts_job *part, uint32_t worker, uint32_t incarnation, uint64_t from) {
    if (is_in(part, worker, incarnation)) {
        ts_membership_move(&part->members, worker, from);
    } else {
        settle_former(part, worker);
        ts_membership_lose(&part->members, worker); /* a stand-in was told that it left, and not why */
        ts_membership_return(&part->members, worker, incarnation, from);
    }
    set_clock(part, worker, from);
}

/* A part with a stand-in tells it, before anything follows from it. */
static void enter(ts_job *part, uint32_t worker, uint32_t incarnation, uint64_t from) {
    ts_join_enter(part, worker, incarnation, from);
    ts_replica_joins(part, worker);
    ts_job_membership_changed(part);
}

/*
 * The worker is a member again, or its step is moved, wherever this server speaks. A step that is moved beyond the bound is taken
 * at once: at the old one the worker would itself be the slowest, whom the others, and so the step, would wait for for ever.
 */
static verdict let_in(ts_job *job, uint32_t worker, uint32_t incarnation, uint64_t from) {
    ts_member *member = &job->members.members[worker];
    bool moves = is_in(job, worker, incarnation);
    if (!moves) ts_loss_give_up(job, worker, "its next life has come"); /* else the others, and so the step, wait for it */
    if (job->state != TS_JOB_RUNNING) return BUSY;
    member->coming_us = ts_server_now(job->server);
    if (!ts_replica_knows_left(job)) return BUSY;
    verdict what = look(job, worker, from);
    if (what == PASSED || (what == BUSY && !moves)) return what;
    enter(job, worker, incarnation, from);
    if (taken_over(job)) enter(taken_over(job), worker, incarnation, from);
    ts_link *link = &job->server->links[member->peer];
    link->last_heard_us = ts_server_now(job->server);
    return what;
}

/* From or to a part, which the header says where it is not that of the other server's number. */
static void send_join(const ts_job *job, uint32_t peer, uint32_t part, Terse__Join *body) {
    Terse__Header header = TERSE__HEADER__INIT;
    header.job = job->id;
    header.part = part;
    header.body_case = TERSE__HEADER__BODY_JOIN;
    header.join = body;
    ts_link_control(job->server, peer, &header);
}

/* To the leading server: the worker is in at the part as it was said, or cannot be. */
static void answer(const ts_job *part, uint32_t peer, uint32_t worker, uint32_t incarnation, uint64_t from, bool passed) {
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Join body = TERSE__JOIN__INIT;
    const ts_job *job = part->own ? part->own : part;
    body.worker = worker;
    body.incarnation = incarnation;
    body.from = from;
    body.passed = passed;
    body.at = step_here(job, worker);
    ts_job_head(part, &header);
    send_join(part, peer, header.part, &body);
}

/* Another server's: takes what server 0 has chosen. part: that is asked. */
static void follow(ts_job *part, uint32_t peer, const Terse__Join *message) {
    ts_job *job = ts_job_own(part);
    const ts_member *member = &job->members.members[message->worker];
    bool known = is_in(job, message->worker, message->incarnation);
    if (member->incarnation > message->incarnation || (member->incarnation == message->incarnation && !known)) {
        if (job->server->watch.on && member->lost) ts_loss_say(job, message->worker); /* given up here when a server died */
        return;
    }
    bool behind = known && member->from > message->from; /* an old one; or of another server, that leads now */
    if (!ts_job_initialised(job) || (behind && !job->server->watch.on)) return;
    verdict what = behind ? PASSED : look_at_bound(job, message->from) == BUSY ? BUSY : AGREED;
    if (!known || member->from < message->from) what = let_in(job, message->worker, message->incarnation, message->from);
    if (what == BUSY || (what == AGREED && !ts_replica_knows_joined(job, message->worker))) return; /* it comes again */
    answer(part, peer, message->worker, message->incarnation, message->from, what == PASSED);
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

/* Asks all who have not agreed. */
static void say_plan(ts_job *job) {
    const ts_join *join = &job->join;
    for (uint32_t p = 0; p < servers_of(job); p++) {
        uint32_t host = ts_replica_host(job->server, p);
        if (join->agreed[p] || host == job->server->index || host == servers_of(job)) continue;
        Terse__Join body = TERSE__JOIN__INIT;
        body.worker = join->worker;
        body.incarnation = join->incarnation;
        body.from = join->from;
        send_join(job, ts_transport_find(job->server->transport, TS_ROLE_SERVER, host), host == p ? 0 : p + 1, &body);
    }
}

static void begin_next(ts_job *job);

static void finish(ts_job *job) {
    ts_join *join = &job->join;
    join->active = false;
    job->members.members[join->worker].unsure = false;
    ts_log(TS_LOG_INFO, "job", join->further ? "a new worker has come in" : "a worker is back",
           "worker=\"%s\" life=%u from_step=%llu left=%u ms=%.1f", ts_job_worker_name(job, join->worker), join->incarnation,
           (unsigned long long)join->from, job->members.count - job->members.gone,
           (double)(ts_server_now(job->server) - join->began_us) / 1e3);
    ts_session_welcome_back(leading_part(job), join->worker);
    begin_next(job);
}

/* All are asked, after who would take this server's place; when all have agreed, the worker hears so. */
static void advance(ts_job *job) {
    ts_join *join = &job->join;
    bool known = join->here && ts_replica_knows_joined(job, join->worker);
    if (!join->active || (job->server->watch.on && !known)) return;
    say_plan(job);
    if (!known) return;
    for (uint32_t p = 0; p < servers_of(job); p++)
        if (!join->agreed[p] && ts_replica_host(job->server, p) != job->server->index) return;
    finish(job);
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
    for (uint32_t p = 0; p < servers_of(job); p++) join->agreed[p] = false;
    join->here = let_in(job, join->worker, join->incarnation, join->from) == AGREED;
    member->told_life = join->incarnation;
    member->told_from = join->from;
    join->resend_us = ts_server_now(job->server) + RESEND_US;
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
    advance(job);
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
    bool waits = !job->server->watch.on; /* in rounds it never does, and a server's death would be waited for by all in turn */
    if (!join->active || !others || !waits || ts_server_now(job->server) - join->began_us < TURN_US) return;
    job->members.members[join->worker].wants_in = join->incarnation;
    join->active = false;
    begin_next(job);
}

static void on_answer(ts_job *job, uint32_t part, const Terse__Join *message) {
    ts_join *join = &job->join;
    if (!join->active || message->worker != join->worker || message->incarnation != join->incarnation ||
        message->from != join->from)
        return;
    if (message->passed) {
        join->gap = join->gap < GAP_MAX ? join->gap * 2 : GAP_MAX;
        plan(job, message->at);
    } else {
        join->agreed[part] = true;
    }
    advance(job);
}

terse_status ts_join_message(struct ts_job *job, uint32_t peer, const Terse__Header *header) {
    const Terse__Join *message = header->join;
    bool leads = ts_replica_leads(job->server);
    TS_REQUIRE(message->incarnation > 0 && header->part <= servers_of(job), TERSE_ECORRUPT);
    if (!leads && peer != ts_replica_lead_peer(job->server)) {
        TS_REQUIRE(job->server->watch.on, TERSE_EPEER);
        return TERSE_OK; /* of a death that led to it one of the two has not heard yet */
    }
    if (!leads && job->server->secret) ts_place_vouched(job, message->worker, message->incarnation);
    TS_REQUIRE(message->worker < job->members.count, TERSE_ECORRUPT);
    if (leads) {
        on_answer(job, header->part ? header->part - 1 : job->server->transport->peers[peer].index, message);
        return TERSE_OK;
    }
    ts_job *part = ts_replica_part(job, header->part);
    if (part) follow(part, peer, message);
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
    if (!join->here) plan(job, 0);
    join->resend_us = ts_server_now(job->server) + RESEND_US;
    advance(job);
    give_way(job);
}

void ts_join_confirmed(struct ts_job *job, uint32_t worker) {
    const ts_member *member = &job->members.members[worker];
    uint32_t lead = ts_replica_lead_peer(job->server);
    if (ts_replica_leads(job->server)) advance(job);
    else if (lead < job->server->transport->peer_count) answer(job, lead, worker, member->incarnation, member->from, false);
}

/* ---- another server's death ------------------------------------------------------------------------------------------------ */

/* A life that only one of two parts knows, or that one of them has given up: it is given up, and the worker comes as the next. */
static void give_up_half(ts_job *job, ts_job *part, uint32_t worker) {
    ts_member *here = &job->members.members[worker], *there = &part->members.members[worker];
    here->incarnation = there->incarnation = here->incarnation > there->incarnation ? here->incarnation : there->incarnation;
    ts_loss_give_up(job, worker, "a server that has died had not let it in, or had given it up");
    ts_membership_lose(&part->members, worker);
    ts_loss_say(job, worker);
}

/* The step was being moved: it is the later one that others may have agreed to, and at the earlier one nothing has come. */
static void agree_on_step(ts_job *job, ts_job *part, uint32_t worker) {
    const ts_member *here = &job->members.members[worker], *there = &part->members.members[worker];
    if (here->from < there->from) enter(job, worker, there->incarnation, there->from);
    else if (here->from > there->from) enter(part, worker, here->incarnation, here->from);
}

void ts_join_take_over(struct ts_job *part) {
    ts_job *job = part->own;
    for (uint32_t w = 0; w < job->members.count; w++) {
        ts_member *here = &job->members.members[w];
        const ts_member *there = &part->members.members[w];
        bool left = job->server->config->consistency.on_worker_loss == TS_LOSS_GO_ON && there->state == TS_MEMBER_GONE &&
                    there->done_steps == 0 && here->state != TS_MEMBER_GONE;
        if (!ts_replica_same_life(job, part, w) || left) give_up_half(job, part, w);
        if (!there->returned || there->state != TS_MEMBER_ATTACHED || here->state != TS_MEMBER_ATTACHED) continue;
        agree_on_step(job, part, w);
        here->unsure = here->unsure || part->part == 0;
        here->told_life = there->incarnation;
        here->told_from = there->from;
    }
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
    if (member->unsure) return NULL; /* it is in */
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
    job->members.members[worker].suitor = ts_job_own(job)->members.members[worker].suitor = 0;
    ts_session_refuse_alone(job, worker, TERSE_EMISMATCH, reason.text);
    return TERSE_OK;
}

terse_status ts_join_hello(struct ts_job *part, uint32_t worker, const Terse__Hello *hello) {
    ts_job *job = ts_job_own(part);
    ts_member *member = &job->members.members[worker];
    const ts_join *join = &job->join;
    bool here = member->incarnation == hello->incarnation; /* and so welcome, when all servers have agreed */
    if (here && hello->told) member->unsure = false;        /* by a leading server that knew it of all */
    if (here && !member->unsure && !member->wants_in && !(join->active && join->worker == worker)) {
        ts_session_welcome_back(part, worker);
        return TERSE_OK;
    }
    member->asked_us = ts_server_now(job->server);
    if ((here && !member->unsure) || !ts_job_leads(part)) return TERSE_OK; /* who leads knows more; it asks again */
    const char *why = objection(job, worker, hello);
    if (why) {
        ts_session_refuse_alone(part, worker, hello->protocol == TS_PROTOCOL_VERSION ? TERSE_ESTATE : TERSE_EVERSION, why);
        return TERSE_OK;
    }
    if (memcmp(hello->digest.data, job->contract->digest, TS_DIGEST_BYTES) != 0) {
        member->suitor = part->members.members[worker].suitor = hello->incarnation;
        ts_session_ask_contract(part, worker);
        return TERSE_OK;
    }
    if (join->active && join->worker == worker && join->incarnation == hello->incarnation) return TERSE_OK;
    member->wants_in = hello->incarnation;
    begin_next(job);
    return TERSE_OK;
}
