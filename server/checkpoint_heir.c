/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints with replicas. Files are by part, not by server, so a checkpoint looks the same whoever wrote it: who takes a
 * part over writes its file from then on, beside that of its own. A stand-in that has nothing to write yet only loads.
 *
 * One that is under way when a server dies is completed when that server's part was on the disk, and else given up, and
 * another one made at once. Who takes the lead over cannot know what the workers had reported: it looks whether the
 * manifest is there, and else gives the checkpoint up. Should the former leader be stopped only, it may wake up in the
 * middle of writing that manifest; its parts therefore stay as long as it holds the folder's lock.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "server/checkpoint.h"
#include "server/job.h"

/* What the own part was told at the start. */
static terse_status follow(ts_job *part) {
    const ts_checkpoint *from = &part->own->checkpoint;
    ts_checkpoint *c = &part->checkpoint;
    memcpy(c->job_folder, from->job_folder, sizeof c->job_folder);
    memcpy(c->run, from->run, sizeof c->run);
    memcpy(c->epoch, from->epoch, sizeof c->epoch);
    c->from = from->from;
    c->parent = from->parent;
    c->parent.index = part->part;
    c->dir = ts_mem_strdup(from->dir);
    c->from_dir = ts_mem_strdup(from->from_dir);
    TS_REQUIRE(c->dir && c->from_dir, TERSE_ENOMEM);
    if (!from->without) return TERSE_OK;
    c->without = ts_mem_calloc(part->members.launched, sizeof *c->without);
    TS_REQUIRE(c->without, TERSE_ENOMEM);
    memcpy(c->without, from->without, part->members.launched * sizeof *c->without);
    return TERSE_OK;
}

/* The server was dead when the job began, and this one, which leads in its place, has chosen for it. */
static void begin_to_lead(ts_job *part) {
    ts_checkpoint *from = &part->own->checkpoint, *c = &part->checkpoint;
    c->lead.lock = from->lead.lock;
    c->lead.next_serial = from->lead.next_serial;
    from->lead.lock = -1;
    c->committed = from->committed;
    c->committed_version = from->committed_version;
}

terse_status ts_checkpoint_stand_in(struct ts_job *part, ts_error *error) {
    part->checkpoint.on = part->own->checkpoint.on;
    if (!part->checkpoint.on) return TERSE_OK;
    TS_TRY(follow(part));
    if (part->part == 0) TS_TRY(ts_checkpoint_lead_reserve(part));
    TS_TRY(ts_checkpoint_begin(part, error));
    if (part->part == 0 && part->own->checkpoint.chooses) begin_to_lead(part);
    else if (!part->mute) ts_checkpoint_take_over(part);
    return TERSE_OK;
}

/* Takes the folder's lock, or learns that the former leader has it still. */
static terse_status lock(ts_job *part, ts_error *error) {
    ts_checkpoint *c = &part->checkpoint;
    terse_status status = ts_ckpt_lock(c->dir, c->epoch, false, &c->lead.lock, error);
    c->lead.shadowed = status == TERSE_ESTATE && ts_ckpt_lock_is_of(c->dir, c->epoch);
    return c->lead.shadowed ? TERSE_OK : status;
}

void ts_checkpoint_look_behind(struct ts_job *part) {
    if (!part->checkpoint.lead.shadowed) return;
    terse_status status = lock(part, &(ts_error){""});
    (void)status; /* if somebody else has taken it, his serials are higher, and the parts stay */
}

/* Looks through the folder: the next serial, and whether the checkpoint of `serial` was completed. */
static terse_status look(ts_job *part, uint64_t serial, bool *complete, ts_error *error) {
    ts_checkpoint *c = &part->checkpoint;
    ts_ckpt_found *list = NULL;
    size_t count = 0;
    TS_TRY(ts_ckpt_scan(c->dir, &list, &count, error));
    c->lead.next_serial = serial + 1;
    for (size_t i = 0; i < count; i++) {
        if (list[i].serial >= c->lead.next_serial) c->lead.next_serial = list[i].serial + 1;
        if (list[i].serial == serial && list[i].committed) *complete = true;
    }
    ts_mem_free(list);
    return TERSE_OK;
}

/* What became of the one that was under way. */
static void settle_inherited(ts_job *part, const ts_checkpoint *seen, bool complete) {
    ts_checkpoint *c = &part->checkpoint;
    c->serial = seen->serial;
    c->version = seen->version;
    c->committed = seen->committed;
    c->committed_serial = seen->committed_serial;
    c->committed_version = seen->committed_version;
    if (seen->state == TS_CUT_NONE || seen->serial <= seen->committed_serial) return;
    if (complete) {
        c->committed_serial = seen->serial;
        ts_checkpoint_remember(part, seen->version);
        ts_checkpoint_say_all(part, TERSE__CHECKPOINT__KIND__COMMITTED, 0, false);
        return;
    }
    c->lead.inherited = seen->serial;
    ts_log(TS_LOG_WARN, "checkpoint", "a checkpoint was given up, since the server that led it died", "step=%" PRIu64 " another_follows=%s",
           seen->version, ts_checkpoint_may_plan(part) ? "yes" : "no");
    if (!c->lead.shadowed && !ts_checkpoint_is_last(part, seen->version))
        ts_checkpoint_say_all(part, TERSE__CHECKPOINT__KIND__ABANDONED, 0, false);
}

void ts_checkpoint_take_over(struct ts_job *part) {
    ts_checkpoint *c = &part->checkpoint;
    bool complete = false;
    ts_error error = {""};
    if (!c->on || part->part != 0) return;
    terse_status status = lock(part, &error);
    if (status == TERSE_OK) status = look(part, part->own->checkpoint.serial, &complete, &error);
    if (status != TERSE_OK) {
        snprintf(c->reason.text, sizeof c->reason.text, "%s", error.text[0] ? error.text : terse_strerror(status));
        ts_log(TS_LOG_WARN, "checkpoint", "no further checkpoints of this job", "job=%s reason=\"%s\"", part->name, c->reason.text);
        c->on = false;
        return;
    }
    settle_inherited(part, &part->own->checkpoint, complete);
    c->lead.requested = !ts_checkpoint_last_is_complete(part);
    if (!c->lead.requested) c->lead.planned_version = c->committed_version;
}

void ts_checkpoint_stop_without(struct ts_job *job, const char *stop) {
    char reason[TS_ERROR_CHARS]; /* the job's own end may take it */
    snprintf(reason, sizeof reason, "%s", job->checkpoint.reason.text);
    ts_job_fail(job, TERSE_ESHUTDOWN, "stopped by %.64s: there are no checkpoints any more%s%.800s", stop[0] ? stop : "a request",
                reason[0] ? ": " : "", reason);
}

void ts_checkpoint_server_died(struct ts_job *own, uint32_t number) {
    ts_job *lead = ts_checkpoint_lead(own);
    if (!own->checkpoint.on || own->state != TS_JOB_RUNNING) return;
    if (number != 0 && lead && lead->checkpoint.on && lead->checkpoint.lead.answers) ts_checkpoint_lead_lost(lead, number);
    if (number != 0 || !own->checkpoint.stop_wish[0] || own->members.done == own->members.count) return; /* it ends by itself */
    char why[sizeof own->checkpoint.stop_wish];
    memcpy(why, own->checkpoint.stop_wish, sizeof why);
    if (!ts_checkpoint_request(own, why)) ts_checkpoint_stop_without(lead ? lead : own, why);
}
