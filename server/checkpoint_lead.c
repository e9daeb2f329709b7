/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints at server 0: when there is one, who has reported, when it is complete. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "server/checkpoint.h"
#include "server/job.h"

#define RESEND_US 100000u
#define FIRST_GAP 2u       /* versions: a plan sent now arrives before what leads to the version after the next */
#define GAP_MAX 1024u
#define PATIENCE_US 600000000u /* for disks, once this server's part is written */
#define SAME_REQUEST_US 1000000u /* mpirun hands a signal to all ranks: they ask for the same */

/* Number among the answers: parts, then workers. */
static uint32_t number_of(const ts_job *job, bool worker, uint32_t index) {
    return worker ? job->server->transport->servers + index : index;
}

terse_status ts_checkpoint_lead_reserve(struct ts_job *job) {
    ts_checkpoint_lead_state *lead = &job->checkpoint.lead;
    size_t answers = (size_t)job->server->transport->servers + job->members.launched;
    lead->answers = ts_mem_calloc(answers, sizeof *lead->answers);
    lead->parts = ts_mem_calloc(answers, sizeof *lead->parts);
    return lead->answers && lead->parts ? TERSE_OK : TERSE_ENOMEM;
}

static bool leads_to(const ts_job *job, uint32_t worker, uint64_t version) {
    return job->members.members[worker].state != TS_MEMBER_GONE && ts_membership_expects(&job->members, worker, version - 1);
}

/* Whether the cut waits for a worker's part: it owes the push that leads to it. */
static bool wanted(const ts_job *job, uint32_t worker) { return leads_to(job, worker, job->checkpoint.version); }

/* Nobody will bring the slices to the version. */
static bool out_of_reach(const ts_job *job, uint64_t version) {
    for (uint32_t w = 0; w < job->members.count; w++)
        if (leads_to(job, w, version)) return false;
    return ts_checkpoint_position(job) < version;
}

void ts_checkpoint_say_all(struct ts_job *job, Terse__Checkpoint__Kind kind, uint64_t keep_from, bool unanswered) {
    const ts_checkpoint *c = &job->checkpoint;
    uint32_t servers = job->server->transport->servers;
    uint64_t serial = c->serial, version = c->version; /* a part of this server's own answers at once, and may end it */
    for (uint32_t i = 1; i < servers + job->members.launched; i++) {
        bool worker = i >= servers;
        if (unanswered && (!c->lead.active || c->serial != serial)) return;
        if (unanswered && (c->lead.answers[i] & TS_ANSWER_PLANNED)) continue;
        if (worker && job->members.members[i - servers].state != TS_MEMBER_ATTACHED) continue;
        Terse__Checkpoint message = TERSE__CHECKPOINT__INIT;
        message.kind = kind;
        message.serial = serial;
        message.version = version;
        message.keep_from = keep_from;
        ts_checkpoint_send(job, worker, worker ? i - servers : i, &message);
    }
}

/*
 * To those who have not answered. Who would lead in our place hears of a plan before anybody else does, so that no serial
 * ever means two checkpoints.
 */
static void say_plan(ts_job *job) {
    ts_checkpoint *c = &job->checkpoint;
    const ts_server *server = job->server;
    bool heir = server->watch.on && !job->own && !ts_replica_is_dead(server, 1);
    c->lead.resend_us = ts_server_now(server) + RESEND_US;
    if (heir && !(c->lead.answers[1] & TS_ANSWER_PLANNED)) {
        Terse__Checkpoint message = TERSE__CHECKPOINT__INIT;
        message.kind = TERSE__CHECKPOINT__KIND__PLAN;
        ts_checkpoint_send(job, false, 1, &message);
    } else {
        ts_checkpoint_say_all(job, TERSE__CHECKPOINT__KIND__PLAN, 0, true);
    }
}

/* The next version to cut at, or 0. */
static uint64_t choose_version(const ts_job *job, uint64_t now) {
    const ts_config *config = job->server->config;
    const ts_checkpoint_lead_state *lead = &job->checkpoint.lead;
    uint64_t every = config->checkpoint.every_steps, total = job->contract->total_steps, version = 0;
    if (lead->requested) {
        version = now + lead->gap;
    } else if (every > 0) {
        uint64_t from = now + (lead->gap > FIRST_GAP ? lead->gap : 1);
        version = from <= UINT64_MAX - every ? (from - 1) / every * every + every : 0;
    }
    if (total > 0 && version > total) version = lead->requested || config->checkpoint.at_end ? total : 0;
    if (total > 0 && version == 0 && config->checkpoint.at_end) version = total;
    /* After the last step nothing moves any more: it is never too late for that. */
    bool ended = total > 0 && now == total && ts_checkpoint_position(job) == total;
    return (version > now || (ended && version == now)) && version > lead->planned_version ? version : 0;
}

/* The job ends as it was asked to. */
static void stop(ts_job *job, const char *outcome) {
    ts_checkpoint *c = &job->checkpoint;
    ts_job_fail(job, TERSE_ESHUTDOWN, "stopped by %s: %s", c->lead.stop_reason, outcome);
}

static void end_plan(ts_job *job) {
    ts_checkpoint_lead_state *lead = &job->checkpoint.lead;
    size_t answers = (size_t)job->server->transport->servers + job->members.launched;
    lead->active = lead->committing = false;
    lead->written_us = 0;
    memset(lead->answers, 0, answers * sizeof *lead->answers);
    memset(lead->parts, 0, answers * sizeof *lead->parts);
}

/* A worker that has left has taken its residual along; what a lost one had is lost either way, and the log said so. */
bool ts_checkpoint_may_plan(const struct ts_job *job) { return job->members.gone <= job->members.lost; }

/* This checkpoint will not be; never once its manifest is being written. reason: NULL when nothing is wrong. */
static void abandon(ts_job *job, const char *reason) {
    ts_checkpoint *c = &job->checkpoint;
    assert(!c->lead.committing);
    if (reason)
        ts_log(TS_LOG_WARN, "checkpoint", "a checkpoint was given up; the training goes on", "step=%" PRIu64 " reason=\"%s\"",
               c->version, reason);
    ts_checkpoint_say_all(job, TERSE__CHECKPOINT__KIND__ABANDONED, 0, false);
    end_plan(job);
    if (!ts_checkpoint_cutting(c)) ts_checkpoint_drop(job);
    if (reason && c->lead.stop) {
        char outcome[TS_ERROR_CHARS];
        snprintf(outcome, sizeof outcome, "no checkpoint could be written: %.900s", reason);
        stop(job, outcome);
    }
}

/* Another one instead. After the last step workers would leave if they were told that this one will not be. */
static void plan_anew(ts_job *job) {
    ts_checkpoint *c = &job->checkpoint;
    if (!ts_checkpoint_is_last(job, c->version) || !ts_checkpoint_may_plan(job)) {
        abandon(job, NULL);
        return;
    }
    c->lead.planned_version = 0;
    end_plan(job);
    if (!ts_checkpoint_cutting(c)) ts_checkpoint_drop(job);
}

/* Some slices are through with the last step, and the others will be: then there is a checkpoint to be had. */
static bool is_in_the_last_step(const ts_job *job, uint64_t now) {
    uint64_t total = job->contract->total_steps;
    return total > 0 && now == total && ts_checkpoint_position(job) < total && job->checkpoint.lead.planned_version < total &&
           !out_of_reach(job, total);
}

static void plan(ts_job *job) {
    ts_checkpoint *c = &job->checkpoint;
    uint64_t now = ts_checkpoint_furthest(job), version = choose_version(job, now);
    if (version == 0 && c->lead.requested) {
        if (is_in_the_last_step(job, now)) return;
        c->lead.requested = false;
        if (c->lead.stop) stop(job, "the training is at its end");
        return;
    }
    if (version == 0 || ts_checkpoint_cutting(c) || c->unread > 0 || !ts_checkpoint_may_plan(job)) return;
    ts_checkpoint_look_behind(job);
    uint64_t serial = c->lead.next_serial++, before = c->lead.planned_version;
    c->lead.active = true; /* before: an executor that works at once may write the part inside the call, and this may be given up there */
    c->lead.planned_version = version;
    c->lead.answers[0] |= TS_ANSWER_PLANNED;
    if (ts_checkpoint_plan(job, serial, version) != TS_PLAN_TAKEN) {
        c->lead.planned_version = before;
        end_plan(job); /* another at the next tick */
        return;
    }
    if (!c->lead.active) return;
    c->lead.requested = false;
    ts_log(TS_LOG_DEBUG, "checkpoint", "planned", "serial=%" PRIu64 " step=%" PRIu64 " now=%" PRIu64, serial, version, now);
    say_plan(job);
}

static const char *name_of(const ts_job *job, bool worker, uint32_t index) {
    const ts_transport *transport = job->server->transport;
    uint32_t host = worker ? 0 : ts_replica_host(job->server, index);
    if (host == transport->servers) host = index; /* nobody speaks for it any more */
    return ts_server_peer_name(job->server, worker ? ts_job_peer(job, index) : ts_transport_find(transport, TS_ROLE_SERVER, host));
}

/* Whether all whose parts are wanted have reported; else `text` names the first that has not. */
static bool all_reported(const ts_job *job, char *text, size_t capacity) {
    const ts_checkpoint_lead_state *lead = &job->checkpoint.lead;
    uint32_t servers = job->server->transport->servers;
    for (uint32_t i = 0; i < servers + job->members.launched; i++) {
        bool worker = i >= servers;
        if (lead->answers[i] & TS_ANSWER_REPORTED || (worker && !wanted(job, i - servers))) continue;
        snprintf(text, capacity, "%s", name_of(job, worker, worker ? i - servers : i));
        return false;
    }
    return true;
}

/* The first part that was not reported and will not be, since nobody speaks for it any more; the number of servers: none. */
static uint32_t first_orphan(const ts_job *job) {
    uint32_t servers = job->server->transport->servers, part = 0;
    while (part < servers && ((job->checkpoint.lead.answers[part] & TS_ANSWER_REPORTED) || ts_replica_host(job->server, part) < servers))
        part++;
    return part;
}

static void follow(ts_job *job) {
    ts_checkpoint *c = &job->checkpoint;
    uint64_t now_us = ts_server_now(job->server);
    char missing[160] = "", reason[256];
    if (out_of_reach(job, c->version)) {
        abandon(job, c->lead.stop ? "the training ended before" : NULL);
        return;
    }
    uint32_t orphan = first_orphan(job), servers = job->server->transport->servers;
    if (orphan < servers) {
        snprintf(reason, sizeof reason, "server %u and server %u are both gone, and with them the first one's part", orphan,
                 (orphan + 1) % servers);
        abandon(job, reason);
        return;
    }
    if (c->state == TS_CUT_WRITTEN && all_reported(job, missing, sizeof missing)) {
        c->lead.committing = true;
        ts_checkpoint_commit(job);
        return;
    }
    uint64_t patience_us = job->members.gone < job->members.count ? PATIENCE_US : ts_server_deadline_us(job->server);
    if (c->lead.written_us > 0 && now_us - c->lead.written_us > patience_us) {
        snprintf(reason, sizeof reason, "%s has not written its part for %.0f s", missing, (double)patience_us / 1e6);
        abandon(job, reason);
        return;
    }
    if (now_us >= c->lead.resend_us) say_plan(job);
}

void ts_checkpoint_lead_advance(struct ts_job *job) {
    ts_checkpoint *c = &job->checkpoint;
    if (!ts_job_own(job)->training || job->server->upstream) return;
    if (c->lead.gap == 0) c->lead.gap = FIRST_GAP;
    if (c->lead.active && c->lead.requested && c->state == TS_CUT_AHEAD && c->queued == 0 && c->version > ts_checkpoint_furthest(job)) {
        if (c->version <= ts_checkpoint_furthest(job) + c->lead.gap) {
            c->lead.requested = false; /* this one will do */
        } else { /* what was asked for comes before what was planned for later */
            c->lead.planned_version = 0;
            abandon(job, NULL);
        }
    }
    if (c->lead.active && !c->lead.committing) follow(job);
    if (!c->lead.active && ts_job_runs(job)) plan(job);
}

void ts_checkpoint_lead_own(struct ts_job *job) {
    ts_checkpoint *c = &job->checkpoint;
    if (!c->lead.active) return; /* given up meanwhile */
    if (c->state == TS_CUT_FAILED) {
        abandon(job, c->reason.text);
        return;
    }
    c->lead.answers[0] |= TS_ANSWER_REPORTED;
    c->lead.parts[0] = c->part;
    c->lead.written_us = ts_server_now(job->server);
}

void ts_checkpoint_lead_committed(struct ts_job *job, terse_status status, const ts_error *error, const ts_ckpt_manifest *of,
                                  uint64_t keep_from) {
    ts_checkpoint *c = &job->checkpoint;
    assert(c->lead.active && c->lead.committing);
    if (status != TERSE_OK) {
        c->lead.committing = false;
        abandon(job, error->text[0] ? error->text : terse_strerror(status));
        return;
    }
    uint64_t bytes = 0;
    uint32_t parts = job->server->transport->servers + job->members.launched;
    for (uint32_t i = 0; i < parts; i++) bytes += c->lead.parts[i].bytes;
    c->committed_serial = of->serial;
    ts_checkpoint_remember(job, of->version);
    c->lead.gap = FIRST_GAP;
    ts_log(TS_LOG_INFO, "checkpoint", "a checkpoint is complete", "step=%" PRIu64 " folder=%s/%s bytes=%" PRIu64 " took_s=%.2f",
           c->version, c->dir, c->folder, bytes, (double)(ts_server_now(job->server) - c->began_us) / 1e6);
    ts_checkpoint_say_all(job, TERSE__CHECKPOINT__KIND__COMMITTED, keep_from, false);
    end_plan(job);
    c->state = TS_CUT_NONE;
    c->lead.planned_version = c->version;
    if (ts_checkpoint_last_is_complete(job) && !c->lead.stop) c->lead.requested = false;
    if (!c->lead.stop || c->lead.requested) {
        ts_checkpoint_advance(job);
        return;
    }
    char outcome[TS_ERROR_CHARS];
    snprintf(outcome, sizeof outcome, "checkpoint %.700s/%s is complete; the same command goes on from step %" PRIu64, c->dir,
             c->folder, c->version);
    stop(job, outcome);
}

void ts_checkpoint_lead_lost(struct ts_job *job, uint32_t part) {
    ts_checkpoint *c = &job->checkpoint;
    bool reported = c->lead.answers[part] & TS_ANSWER_REPORTED;
    if (ts_checkpoint_last_is_complete(job)) return;
    c->lead.requested = true; /* the part is held once from now on: all the more is there to be had on the disk */
    c->lead.planned_version = 0;
    if (!c->lead.active || c->lead.committing || reported) return;
    ts_log(TS_LOG_WARN, "checkpoint", "a checkpoint was given up, since a server died before its part was written",
           "step=%" PRIu64 " server=%u another_follows=%s", c->version, part, ts_checkpoint_may_plan(job) ? "yes" : "no");
    plan_anew(job);
}

/* ---- what the others say ---------------------------------------------------------------------------------------------------- */

/*
 * Tells who reports a part what has become of the checkpoint. After the last step nothing is said that would let a worker
 * leave, as long as it may be needed for another one, should the server that leads die.
 */
static void answer(ts_job *job, bool worker, uint32_t index, const Terse__Checkpoint *of) {
    const ts_checkpoint *c = &job->checkpoint;
    bool current = c->lead.active && of->serial == c->serial, after_last = ts_checkpoint_is_last(job, of->version);
    bool another = (c->lead.active && !current && ts_checkpoint_is_last(job, c->version)) ||
                   (of->serial == c->lead.inherited && ts_checkpoint_may_plan(job) && !ts_checkpoint_last_is_complete(job));
    Terse__Checkpoint message = TERSE__CHECKPOINT__INIT;
    message.serial = of->serial;
    message.version = of->version;
    message.kind = current ? TERSE__CHECKPOINT__KIND__NOTED
                   : c->committed && of->serial == c->committed_serial ? TERSE__CHECKPOINT__KIND__COMMITTED
                   : c->lead.shadowed && of->serial == c->lead.inherited ? TERSE__CHECKPOINT__KIND__NOTED
                                                                       : TERSE__CHECKPOINT__KIND__ABANDONED;
    bool lets_go = message.kind != TERSE__CHECKPOINT__KIND__COMMITTED && after_last;
    if (lets_go && (another || (current && worker && job->server->watch.on))) return;
    ts_checkpoint_send(job, worker, index, &message);
}

static void on_request(ts_job *job, const Terse__Checkpoint *message) {
    ts_checkpoint *c = &job->checkpoint;
    uint64_t now_us = ts_server_now(job->server);
    char reason[64];
    bool same = c->lead.requested_us > 0 && now_us - c->lead.requested_us < SAME_REQUEST_US && !message->stop;
    if (same || c->lead.stop) return;
    snprintf(reason, sizeof reason, "%s", message->reason[0] ? message->reason : "a request");
    bool taken = ts_checkpoint_request(job, message->stop ? reason : NULL);
    bool done = job->members.done == job->members.count; /* it ends by itself */
    if (!taken && message->stop && !done) ts_job_fail(job, TERSE_ESHUTDOWN, "stopped by %s before the training began", reason);
}

static void on_report(ts_job *job, bool worker, uint32_t index, const Terse__Checkpoint *message) {
    ts_checkpoint *c = &job->checkpoint;
    uint32_t number = number_of(job, worker, index);
    char reason[TS_ERROR_CHARS];
    if (c->lead.active && message->serial == c->serial) {
        c->lead.answers[number] |= TS_ANSWER_PLANNED;
        bool counts = !c->lead.committing && (!worker || wanted(job, index)); /* one that was given up may be back, and say so */
        if (message->kind == TERSE__CHECKPOINT__KIND__FAILED && counts) {
            snprintf(reason, sizeof reason, "%s: %.800s", name_of(job, worker, index), message->reason);
            abandon(job, reason);
        } else if (message->kind == TERSE__CHECKPOINT__KIND__WRITTEN && !c->lead.committing) {
            c->lead.answers[number] |= TS_ANSWER_REPORTED;
            c->lead.parts[number] = (ts_ckpt_part){.bytes = message->bytes, .seal = message->seal};
        }
    }
    answer(job, worker, index, message);
    ts_checkpoint_advance(job);
}

static void on_planned(ts_job *job, bool worker, uint32_t index) {
    ts_checkpoint_lead_state *lead = &job->checkpoint.lead;
    uint8_t *known = &lead->answers[number_of(job, worker, index)];
    bool news = !(*known & TS_ANSWER_PLANNED);
    *known |= TS_ANSWER_PLANNED;
    if (news && !worker && index == 1 && job->server->watch.on && !job->own) say_plan(job); /* now everybody may know */
}

static void on_passed(ts_job *job, bool worker, uint32_t index, const Terse__Checkpoint *message) {
    ts_checkpoint *c = &job->checkpoint;
    if (!c->lead.active || c->lead.committing || message->serial != c->serial || (worker && !wanted(job, index))) return;
    ts_log(TS_LOG_DEBUG, "checkpoint", "a plan came too late", "step=%" PRIu64 " gap=%" PRIu64, c->version, c->lead.gap);
    if (c->lead.gap < GAP_MAX) c->lead.gap *= 2;
    if (c->lead.stop) c->lead.requested = true;
    plan_anew(job);
}

terse_status ts_checkpoint_lead_message(struct ts_job *job, bool worker, uint32_t index, const Terse__Checkpoint *message) {
    ts_checkpoint *c = &job->checkpoint;
    /* Who has come later has no part in checkpoints: their number of workers is that of the launch which goes on from them. */
    TS_REQUIRE(!worker || index < job->members.launched || message->kind == TERSE__CHECKPOINT__KIND__REQUEST, TERSE_EUNSUPPORTED);
    bool mine = c->lead.active && message->serial == c->serial;
    switch (message->kind) {
    case TERSE__CHECKPOINT__KIND__WHICH:
        TS_REQUIRE(!worker, TERSE_EPEER);
        ts_checkpoint_say_from(job, index);
        break;
    case TERSE__CHECKPOINT__KIND__PLANNED:
        if (mine) on_planned(job, worker, index);
        break;
    case TERSE__CHECKPOINT__KIND__PASSED: on_passed(job, worker, index, message); break;
    case TERSE__CHECKPOINT__KIND__WRITTEN:
        TS_REQUIRE(message->bytes > 0, TERSE_ECORRUPT);
        on_report(job, worker, index, message);
        break;
    case TERSE__CHECKPOINT__KIND__FAILED: on_report(job, worker, index, message); break;
    case TERSE__CHECKPOINT__KIND__REQUEST: on_request(job, message); break;
    default: return TERSE_EPEER;
    }
    return TERSE_OK;
}
