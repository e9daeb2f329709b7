/* SPDX-License-Identifier: Apache-2.0 */
#include "server/checkpoint.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "server/consistency_clock.h"
#include "server/job.h"
#include "server/peer_link.h"
#include "server/session.h"

#define REPORT_US 1000000u /* between two reports of the same part to server 0 */

/* DIR, or DIR/JOB where there may be others or the job has a name: the same command finds it again. */
static terse_status folder_of(ts_job *job) {
    ts_checkpoint *c = &job->checkpoint;
    const ts_transport_job *of = &job->server->transport->jobs[job->id];
    bool named = job->server->stays || job->server->transport->job_count > 1 || job->id > 0 || strcmp(of->name, "default") != 0;
    bool plain = !strchr(of->name, '/') && strcmp(of->name, "..") != 0 && strcmp(of->name, ".") != 0;
    TS_REQUIRE(!named || plain, TERSE_EINVAL);
    snprintf(c->job_folder, sizeof c->job_folder, "%s", named ? of->name : "");
    return ts_ckpt_path(job->server->config->checkpoint.dir, c->job_folder[0] ? c->job_folder : NULL, NULL, &c->dir);
}

/* The job's folder, lock and past. */
static terse_status open_folder(ts_job *job, ts_error *error) {
    ts_checkpoint *c = &job->checkpoint;
    if (job->server->transport->jobs[job->id].numbered) { /* a number is no name to find it by again */
        ts_log(TS_LOG_WARN, "checkpoint", "no checkpoints of this job: job.name is not set, or is that of another job here",
               "job=%s", job->name);
        c->on = false;
        ts_session_decided(job);
        return TERSE_OK;
    }
    TS_TRY(folder_of(job));
    TS_TRY(ts_ckpt_probe_folder(c->dir, error));
    TS_TRY(ts_ckpt_make_id(c->epoch));
    memcpy(c->run, c->epoch, sizeof c->run);
    if (job->part == 0) TS_TRY(ts_checkpoint_lead_reserve(job));
    if (c->chooses) {
        TS_TRY(ts_ckpt_lock(c->dir, c->epoch, job->server->watch.on, &c->lead.lock, error));
        TS_TRY(ts_checkpoint_choose(job, error));
        ts_session_decided(job);
    }
    return TERSE_OK;
}

void ts_checkpoint_remember(struct ts_job *job, uint64_t version) {
    ts_checkpoint *c = &job->checkpoint;
    c->committed = true;
    c->committed_version = version;
    snprintf(job->server->last_checkpoint, sizeof job->server->last_checkpoint, "step %" PRIu64 " in %s", version, c->dir);
}

void ts_checkpoint_free(ts_checkpoint *c) {
    assert(c->running == 0);
    ts_ckpt_writer_destroy(c->writer);
    ts_ckpt_reader_close(c->reader);
    if (c->dir && c->lead.lock >= 0) close(c->lead.lock);
    ts_mem_free(c->dir);
    ts_mem_free(c->from_dir);
    ts_mem_free(c->without);
    ts_mem_free(c->entries);
    ts_mem_free(c->lost);
    ts_mem_free(c->queue);
    ts_mem_free(c->lead.answers);
    ts_mem_free(c->lead.parts);
    *c = (ts_checkpoint){.lead.lock = -1};
}

bool ts_checkpoint_decided(const struct ts_job *job) {
    return !job->checkpoint.on || job->checkpoint.from != TS_FROM_UNKNOWN;
}

ts_job *ts_checkpoint_lead(struct ts_job *job) {
    ts_job *own = ts_job_own(job);
    if (ts_job_leads(own)) return own;
    return own->standin && ts_job_leads(own->standin) ? own->standin : NULL;
}

static terse_status from_lead(ts_job *job, const Terse__Checkpoint *message);

void ts_checkpoint_send(struct ts_job *job, bool worker, uint32_t index, Terse__Checkpoint *message) {
    const ts_checkpoint *c = &job->checkpoint;
    ts_server *server = job->server;
    Terse__Header header = TERSE__HEADER__INIT;
    uint32_t host = worker ? 0 : ts_replica_host(server, index);
    ts_job_head(job, &header);
    header.body_case = TERSE__HEADER__BODY_CHECKPOINT;
    header.checkpoint = message;
    message->run = (char *)(uintptr_t)c->run;
    message->epoch = (char *)(uintptr_t)c->epoch;
    message->part = worker ? 0 : header.part;
    if (message->serial == 0) {
        message->serial = c->serial;
        message->version = c->version;
    }
    if (worker) {
        ts_link_control(server, ts_job_peer(job, index), &header);
        return;
    }
    header.part = host == index ? 0 : index + 1;
    if (host < server->transport->servers && host != server->index) {
        ts_link_control(server, ts_transport_find(server->transport, TS_ROLE_SERVER, host), &header);
    } else if (host == server->index) {
        ts_job *to = ts_replica_part(ts_job_own(job), index + 1);
        terse_status status = !to ? TERSE_ENOTFOUND : ts_job_leads(to) ? ts_checkpoint_lead_message(to, false, job->part, message) : from_lead(to, message);
        (void)status; /* what is refused comes again, as over a network */
    }
}

/* ---- this server's part ------------------------------------------------------------------------------------------------- */

void ts_checkpoint_drop(struct ts_job *job) {
    ts_checkpoint *c = &job->checkpoint;
    char file[TS_CKPT_NAME_CHARS];
    assert(!ts_checkpoint_cutting(c));
    ts_ckpt_writer_destroy(c->writer);
    c->writer = NULL;
    ts_ckpt_part_file(false, job->part, job->server->transport->servers, file);
    if (c->state == TS_CUT_WRITTEN) ts_ckpt_remove(c->dir, c->folder, file);
    c->state = TS_CUT_NONE;
    for (uint32_t i = c->taken; i < c->queued; i++) {
        c->queue[i]->saving = false;
        ts_rounds_consider(job, c->queue[i]);
    }
    c->queued = c->taken = 0;
    ts_checkpoint_let_pass(job);
}

/* A slice is at the cut: nobody changes it until it is written. */
static void hold(ts_job *job, ts_slice_state *slice) {
    ts_checkpoint *c = &job->checkpoint;
    slice->saving = true;
    slice->ledger = slice->slots;
    c->queue[c->queued++] = slice;
    if (slice->alone) ts_round_receipt(job, slice, TS_RECEIPT_CUT, 0, c->version);
}

void ts_checkpoint_let_pass(struct ts_job *job) {
    for (uint32_t s = 0; s < job->store.count; s++) {
        ts_slice_state *slice = &job->store.slices[s];
        if (slice->cut_step == 0) continue;
        slice->cut_step = 0;
        ts_rounds_consider(job, slice);
    }
}

/* How far the workers are at a slice that knows no rounds: the furthest, and the last of those who still owe something. */
static uint64_t furthest(const ts_slice_state *slice, uint32_t workers) {
    uint64_t most = 0;
    for (uint32_t w = 0; w < workers; w++)
        if (slice->slots[w].next > most) most = slice->slots[w].next;
    return most;
}

static uint64_t last(const ts_job *job, const ts_slice_state *slice) {
    uint64_t lowest = ts_clock_lowest(&job->members, slice, false), most = furthest(slice, job->members.count);
    return lowest < most ? lowest : most;
}

uint64_t ts_checkpoint_position(const struct ts_job *job) {
    uint64_t position = UINT64_MAX;
    if (!job->consistency->alone || job->store.count == 0) return ts_store_version(&job->store);
    for (uint32_t s = 0; s < job->store.count; s++) {
        uint64_t at = last(job, &job->store.slices[s]);
        if (at < position) position = at;
    }
    return position;
}

uint64_t ts_checkpoint_furthest(const struct ts_job *job) {
    uint64_t most = 0;
    for (uint32_t s = 0; s < job->store.count; s++) {
        const ts_slice_state *slice = &job->store.slices[s];
        uint64_t at = slice->alone ? furthest(slice, job->members.count) : slice->version;
        if (at > most) most = at;
    }
    return most;
}

/* Whether a slice has left the step, or is about to. */
static bool is_past(const ts_job *job, const ts_slice_state *slice, uint64_t version) {
    /* One that is written for a cut which was given up moves on from there, but after the last step nothing does. */
    bool leaves = slice->busy || slice->ready || (slice->saving && !ts_checkpoint_is_last(job, version));
    if (!slice->alone) return slice->version > version || (slice->version == version && leaves);
    for (uint32_t w = 0; w < job->members.count; w++) {
        const ts_slot *slot = &slice->slots[w];
        if (slot->next > version || (slice->busy && slot->frame && slot->step >= version)) return true;
    }
    return false;
}

/* Whether everything up to the cut is in the slice, and nothing else. */
static bool is_at_cut(const ts_job *job, const ts_slice_state *slice) {
    if (!slice->alone) return slice->version == job->checkpoint.version;
    bool leaves = slice->busy || slice->ready || slice->sending || slice->saving;
    return slice->cut_step > 0 && !leaves && last(job, slice) >= slice->cut_step;
}

ts_plan_verdict ts_checkpoint_plan(struct ts_job *job, uint64_t serial, uint64_t version) {
    ts_checkpoint *c = &job->checkpoint;
    if (c->state != TS_CUT_NONE && c->serial == serial) return TS_PLAN_TAKEN; /* repeated */
    if (c->serial >= serial) return TS_PLAN_PASSED;
    if (!c->queue) return TS_PLAN_BUSY; /* the contract is not known here; values may be missing, a cut lies ahead of the first */
    if (ts_checkpoint_resumes(c) && job->store.uninitialised > 0) return TS_PLAN_BUSY; /* but not of those that are loaded */
    for (uint32_t s = 0; s < job->store.count; s++) {
        if (is_past(job, &job->store.slices[s], version)) return TS_PLAN_PASSED;
    }
    if (ts_checkpoint_cutting(c)) return TS_PLAN_BUSY;
    /* A plan that was never reached gives way to a newer one. */
    if (c->state == TS_CUT_WRITTEN) c->state = TS_CUT_NONE; /* it may be complete by now: it stays */
    ts_checkpoint_drop(job);
    c->state = TS_CUT_AHEAD;
    c->serial = serial;
    c->version = version;
    c->began_us = ts_server_now(job->server);
    c->unwritten = job->store.count;
    c->settled = c->noted = false;
    c->reason.text[0] = '\0';
    c->part = (ts_ckpt_part){0};
    ts_ckpt_folder_name(serial, version, c->folder);
    for (uint32_t s = 0; s < job->store.count; s++)
        if (job->store.slices[s].alone) job->store.slices[s].cut_step = version;
    for (uint32_t s = 0; s < job->store.count; s++)
        if (is_at_cut(job, &job->store.slices[s])) hold(job, &job->store.slices[s]);
    ts_checkpoint_write(job);
    return TS_PLAN_TAKEN;
}

void ts_checkpoint_reached(struct ts_job *job, ts_slice_state *slice) {
    ts_checkpoint *c = &job->checkpoint;
    if (!c->on || c->state != TS_CUT_AHEAD || !is_at_cut(job, slice)) return;
    hold(job, slice);
    ts_checkpoint_write(job);
}

/* Tells server 0 what became of the part, until it says that it knows. */
static void report(ts_job *job) {
    ts_checkpoint *c = &job->checkpoint;
    uint64_t now_us = ts_server_now(job->server);
    bool over = c->state == TS_CUT_WRITTEN || c->state == TS_CUT_FAILED;
    if (!over || !c->settled || c->noted || now_us < c->report_us) return;
    Terse__Checkpoint message = TERSE__CHECKPOINT__INIT;
    message.kind = c->state == TS_CUT_WRITTEN ? TERSE__CHECKPOINT__KIND__WRITTEN : TERSE__CHECKPOINT__KIND__FAILED;
    message.bytes = c->part.bytes;
    message.seal = c->part.seal;
    message.reason = c->reason.text;
    c->report_us = now_us + REPORT_US;
    ts_checkpoint_send(job, false, 0, &message);
}

/* own: an own part, whose server does not lead. */
static void say_request(ts_job *own, const char *stop) {
    Terse__Checkpoint message = TERSE__CHECKPOINT__INIT;
    message.kind = TERSE__CHECKPOINT__KIND__REQUEST;
    message.stop = stop != NULL;
    message.reason = (char *)(uintptr_t)(stop ? stop : "");
    own->checkpoint.wish_us = ts_server_now(own->server) + REPORT_US;
    ts_checkpoint_send(own, false, 0, &message);
}

void ts_checkpoint_advance(struct ts_job *job) {
    ts_checkpoint *c = &job->checkpoint;
    if (!c->on || job->mute || !ts_job_runs(job)) return;
    if (!c->dir) {
        ts_error error = {""};
        terse_status status = open_folder(job, &error);
        if (status != TERSE_OK) {
            ts_job_fail(job, status, "server %u: checkpoints: %s", job->server->index,
                        error.text[0] ? error.text : terse_strerror(status));
            return;
        }
        if (!c->on) return;
    }
    /* Without rounds a slice may be at the cut because somebody has left. */
    for (uint32_t s = 0; s < job->store.count && c->state == TS_CUT_AHEAD && job->consistency->alone; s++)
        ts_checkpoint_reached(job, &job->store.slices[s]);
    /* It may be lost, or its hearer with it. */
    if (!job->own && c->stop_wish[0] && !ts_checkpoint_lead(job) && ts_server_now(job->server) >= c->wish_us) say_request(job, c->stop_wish);
    if (c->from == TS_FROM_UNKNOWN) ts_checkpoint_ask(job);
    else if (ts_job_leads(job)) ts_checkpoint_lead_advance(job);
    else report(job);
}

/* ---- what server 0 says --------------------------------------------------------------------------------------------------- */

static void answer_plan(ts_job *job, const Terse__Checkpoint *plan) {
    Terse__Checkpoint message = TERSE__CHECKPOINT__INIT;
    ts_plan_verdict verdict = ts_checkpoint_plan(job, plan->serial, plan->version);
    if (verdict == TS_PLAN_BUSY) return;
    message.kind = verdict == TS_PLAN_TAKEN ? TERSE__CHECKPOINT__KIND__PLANNED : TERSE__CHECKPOINT__KIND__PASSED;
    message.serial = plan->serial;
    message.version = plan->version;
    ts_checkpoint_send(job, false, 0, &message);
}

bool ts_checkpoint_is_last(const struct ts_job *job, uint64_t version) {
    return job->contract && job->contract->total_steps > 0 && version >= job->contract->total_steps;
}

bool ts_checkpoint_last_is_complete(const struct ts_job *job) {
    const ts_checkpoint *c = &job->checkpoint;
    return c->committed && ts_checkpoint_is_last(job, c->committed_version);
}

static terse_status from_lead(ts_job *job, const Terse__Checkpoint *message) {
    ts_checkpoint *c = &job->checkpoint;
    bool current = c->state != TS_CUT_NONE && message->serial == c->serial;
    switch (message->kind) {
    case TERSE__CHECKPOINT__KIND__FROM: return ts_checkpoint_answer(job, message);
    case TERSE__CHECKPOINT__KIND__PLAN: answer_plan(job, message); break;
    case TERSE__CHECKPOINT__KIND__NOTED:
        c->noted = c->noted || current;
        c->last_over = c->last_over || (current && ts_checkpoint_is_last(job, message->version));
        break;
    case TERSE__CHECKPOINT__KIND__COMMITTED:
        c->last_over = c->last_over || ts_checkpoint_is_last(job, message->version);
        if (message->serial <= c->committed_serial) break;
        c->committed_serial = message->serial;
        ts_checkpoint_remember(job, message->version);
        if (current && c->state == TS_CUT_WRITTEN) c->state = TS_CUT_NONE;
        ts_checkpoint_prune(job, message->keep_from);
        break;
    case TERSE__CHECKPOINT__KIND__ABANDONED:
        c->noted = c->noted || current;
        c->last_over = c->last_over || ts_checkpoint_is_last(job, message->version);
        if (current && !ts_checkpoint_cutting(c)) ts_checkpoint_drop(job);
        break;
    default: return TERSE_EPEER;
    }
    return TERSE_OK;
}

terse_status ts_checkpoint_message(struct ts_job *job, uint32_t peer, const Terse__Checkpoint *message) {
    const ts_server *server = job->server;
    const ts_peer *from = &server->transport->peers[peer];
    bool worker = from->role == TS_ROLE_WORKER;
    uint32_t index = !worker && message->part > 0 ? message->part - 1 : from->index;
    bool on = job->checkpoint.on;
    TS_REQUIRE(on || (ts_job_leads(job) && message->kind == TERSE__CHECKPOINT__KIND__REQUEST), TERSE_ESTATE);
    TS_REQUIRE(worker || index < server->transport->servers, TERSE_ECORRUPT);
    if (on && !job->checkpoint.dir) return TERSE_OK; /* before our first tick: it comes again */
    /* Of one that is dead, or not known here to be: if it matters it comes again. */
    if (!worker && ts_replica_host(server, index) != from->index) return TERSE_OK;
    if (!on && message->stop) ts_checkpoint_stop_without(job, message->reason);
    if (!on) return TERSE_OK;
    if (ts_job_leads(job)) return ts_checkpoint_lead_message(job, worker, index, message);
    TS_REQUIRE(!worker && index == 0, TERSE_EPEER);
    return from_lead(job, message);
}

/* ---- questions ------------------------------------------------------------------------------------------------------------- */

/* The one after the last step is under way, or to come: somebody has pushed that step, though it may not be applied yet. */
static bool last_is_due(const ts_job *own) {
    uint64_t total = own->contract->total_steps;
    bool pushed = false;
    for (uint32_t w = 0; w < own->members.count && total > 0; w++)
        pushed = pushed || ts_membership_expects(&own->members, w, total - 1);
    bool due = pushed && own->server->config->checkpoint.at_end && !ts_checkpoint_last_is_complete(own);
    return due || ts_checkpoint_pending(own);
}

bool ts_checkpoint_request(struct ts_job *job, const char *stop) {
    ts_job *own = ts_job_own(job), *leads = ts_checkpoint_lead(job);
    if (!own->checkpoint.on || !own->training || (leads && !leads->checkpoint.on)) return false;
    if (own->members.done == own->members.count) return last_is_due(own);
    if (leads) {
        ts_checkpoint_lead_state *lead = &leads->checkpoint.lead;
        lead->requested = true;
        lead->requested_us = ts_server_now(job->server);
        if (stop) {
            lead->stop = true;
            snprintf(lead->stop_reason, sizeof lead->stop_reason, "%s", stop);
        }
        return true;
    }
    if (stop) snprintf(own->checkpoint.stop_wish, sizeof own->checkpoint.stop_wish, "%s", stop);
    say_request(own, stop);
    return true;
}

static bool is_pending(const ts_job *job) {
    const ts_checkpoint *c = &job->checkpoint;
    if (!c->on) return false;
    if (c->running > 0 || c->lead.committing) return true;
    bool cut = c->state == TS_CUT_CLOSING || c->state == TS_CUT_WRITTEN || (c->state == TS_CUT_AHEAD && c->queued > 0);
    if (ts_job_leads(job)) return cut && c->lead.active;
    /* The workers may leave before server 0 has told us of the last one. */
    bool due = job->server->config->checkpoint.at_end && !c->last_over && ts_checkpoint_is_last(job, ts_checkpoint_position(job)) &&
               c->committed_version < job->contract->total_steps;
    if (due && ts_server_now(job->server) - job->last_progress_us < ts_server_deadline_us(job->server)) return true;
    /* Server 0 may have given it up and left. */
    bool late = c->settled && ts_server_now(job->server) - c->settled_us > ts_server_deadline_us(job->server);
    return cut && !c->noted && !late;
}

bool ts_checkpoint_pending(const struct ts_job *job) {
    return is_pending(job) || (job->standin && !job->standin->mute && is_pending(job->standin));
}

/* Which life of the job it is, by which workers tell what they have kept of this one from what is of another. */
static uint64_t number(ts_job *job) {
    ts_checkpoint *c = &job->checkpoint;
    char id[TS_CKPT_ID_CHARS + 1];
    if (c->number == 0 && c->epoch[0]) (void)ts_ckpt_get_hex(c->epoch, &c->number);
    /* As whoever leads knows it. Who leads and has never heard of one makes one, since nobody was told another (ts_replica_epoch_is_held). */
    if (c->number == 0 && job->server->watch.epoch > 0) c->number = job->server->watch.epoch + job->id;
    if (c->number == 0 && ts_ckpt_make_id(id) == TERSE_OK) (void)ts_ckpt_get_hex(id, &c->number);
    return c->number;
}

void ts_checkpoint_welcome(struct ts_job *job, uint32_t worker, Terse__Welcome *welcome, Terse__Resumed *resumed) {
    ts_checkpoint *c = &job->checkpoint;
    if (ts_job_leads(job) && welcome->verdict == TERSE__WELCOME__VERDICT__ACCEPTED) {
        welcome->job_epoch = number(job);
        welcome->mortal = !job->server->join_command && !job->server->stays && !c->on;
    }
    if (!c->on) return;
    welcome->epoch = (char *)(uintptr_t)c->epoch;
    welcome->checkpoint_at_end = job->server->config->checkpoint.at_end;
    welcome->checkpoint_folder = (char *)(uintptr_t)c->job_folder;
    if (c->from != TS_FROM_CHECKPOINT) return;
    resumed->run = (char *)(uintptr_t)c->parent.run;
    resumed->epoch = (char *)(uintptr_t)c->parent.epoch;
    resumed->serial = c->parent.serial;
    resumed->version = c->parent.version;
    resumed->without = c->without && worker < job->members.launched && c->without[worker];
    welcome->resumed = resumed;
    welcome->initialised = true;
}
