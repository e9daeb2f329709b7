/* SPDX-License-Identifier: Apache-2.0 */
/* The works of checkpoints in the executor: one struct a work, freed when it is done. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "server/checkpoint.h"
#include "server/job.h"

/* So many slices are written or read at once, and the other threads stay free for rounds. */
static unsigned slices_at_once(const ts_job *job) {
    unsigned threads = job->server->executor->threads;
    return threads > 3 ? threads / 2 : 1;
}

typedef struct {
    ts_job *job;
    ts_slice_state *slice;
    ts_ckpt_manifest manifest; /* [own] */
    uint64_t keep_from;
    terse_status status;
    ts_error error;
} work;

static terse_status submit(ts_job *job, ts_executor_fn run, ts_executor_fn done, work *w) {
    w->job = job;
    w->status = TERSE_OK;
    job->checkpoint.running++;
    terse_status status = job->server->executor->submit(job->server->executor, run, done, w);
    if (status == TERSE_OK) return TERSE_OK;
    job->checkpoint.running--;
    ts_ckpt_manifest_free(&w->manifest);
    ts_mem_free(w);
    return status;
}

/* The end of a work: it is freed. */
static void over(work *w) {
    w->job->checkpoint.running--;
    ts_ckpt_manifest_free(&w->manifest);
    ts_mem_free(w);
}

/* ---- writing ---------------------------------------------------------------------------------------------------------- */

static void fail(ts_job *job, terse_status status, const ts_error *error) {
    ts_checkpoint *c = &job->checkpoint;
    if (c->state == TS_CUT_FAILED) return;
    c->state = TS_CUT_FAILED;
    snprintf(c->reason.text, sizeof c->reason.text, "%s", error->text[0] ? error->text : terse_strerror(status));
    ts_checkpoint_let_pass(job);
}

static void release(ts_job *job, ts_slice_state *slice) {
    slice->saving = false;
    slice->cut_step = 0;
    ts_rounds_consider(job, slice);
}

static void run_save(void *argument) {
    work *w = argument;
    w->status = ts_checkpoint_put_slice(w->job, w->slice, &w->error);
}

static void done_save(void *argument) {
    work *w = argument;
    ts_job *job = w->job;
    ts_checkpoint *c = &job->checkpoint;
    c->saving--;
    c->unwritten--;
    if (w->status != TERSE_OK) fail(job, w->status, &w->error);
    release(job, w->slice);
    over(w);
    ts_checkpoint_write(job);
    ts_server_flush(job->server);
}

static void run_close(void *argument) {
    work *w = argument;
    ts_checkpoint *c = &w->job->checkpoint;
    w->status = ts_ckpt_writer_finish(c->writer, &c->part, &w->error);
}

/* The part is there, or is not to be. */
static void settle(ts_job *job) {
    ts_checkpoint *c = &job->checkpoint;
    c->settled = true;
    c->settled_us = ts_server_now(job->server);
    c->report_us = 0; /* at once */
    ts_ckpt_writer_destroy(c->writer);
    c->writer = NULL;
    if (ts_job_leads(job)) ts_checkpoint_lead_own(job);
    ts_checkpoint_advance(job);
}

static void done_close(void *argument) {
    work *w = argument;
    ts_job *job = w->job;
    if (w->status == TERSE_OK) job->checkpoint.state = TS_CUT_WRITTEN;
    else fail(job, w->status, &w->error);
    over(w);
    settle(job);
}

/* The file, when the first slice is to go into it. */
static bool open_part(ts_job *job) {
    ts_checkpoint *c = &job->checkpoint;
    ts_error error = {""};
    if (c->writer) return true;
    terse_status status = ts_checkpoint_open_part(job, &error);
    if (status != TERSE_OK) fail(job, status, &error);
    return status == TERSE_OK;
}

static void save(ts_job *job, ts_slice_state *slice) {
    ts_checkpoint *c = &job->checkpoint;
    work *w = ts_mem_calloc(1, sizeof *w);
    terse_status status = w ? TERSE_OK : TERSE_ENOMEM;
    if (w) {
        w->slice = slice;
        c->saving++;
        status = submit(job, run_save, done_save, w);
        if (status != TERSE_OK) c->saving--;
    }
    if (status == TERSE_OK) return;
    c->unwritten--;
    fail(job, status, &(ts_error){""});
    release(job, slice);
}

void ts_checkpoint_write(struct ts_job *job) {
    ts_checkpoint *c = &job->checkpoint;
    while (c->taken < c->queued && c->saving < slices_at_once(job)) {
        ts_slice_state *slice = c->queue[c->taken++];
        if (c->state == TS_CUT_AHEAD && open_part(job)) {
            save(job, slice);
        } else { /* it failed */
            c->unwritten--;
            release(job, slice);
        }
    }
    if (c->state == TS_CUT_FAILED && c->saving == 0 && !c->settled) settle(job);
    if (c->state != TS_CUT_AHEAD || c->unwritten > 0 || c->saving > 0 || !open_part(job)) return;
    work *w = ts_mem_calloc(1, sizeof *w);
    c->state = TS_CUT_CLOSING;
    terse_status status = w ? submit(job, run_close, done_close, w) : TERSE_ENOMEM;
    if (status == TERSE_OK) return;
    fail(job, status, &(ts_error){""});
    settle(job);
}

/* ---- loading ---------------------------------------------------------------------------------------------------------- */

static void run_load(void *argument) {
    work *w = argument;
    w->status = ts_checkpoint_get_slice(w->job, w->slice, &w->error);
}

static void finish_loading(ts_job *job) {
    ts_checkpoint *c = &job->checkpoint;
    ts_ckpt_reader_close(c->reader);
    c->reader = NULL;
    ts_log(job->own ? TS_LOG_DEBUG : TS_LOG_INFO, "checkpoint", job->own ? "a stand-in goes on" : "the job goes on", "step=%" PRIu64 " slices_here=%u run=%s epoch=%s", c->parent.version,
           job->store.count, c->run, c->epoch);
    for (uint32_t w = 0; w < job->members.count; w++) job->members.members[w].reply_due = true; /* those who wait */
}

static void done_load(void *argument) {
    work *w = argument;
    ts_job *job = w->job;
    ts_slice_state *slice = w->slice;
    terse_status status = w->status;
    ts_error error = w->error;
    if (status == TERSE_OK) ts_store_loaded(&job->store, w->slice->local, job->checkpoint.parent.version);
    over(w);
    job->last_progress_us = ts_server_now(job->server);
    if (status != TERSE_OK) {
        ts_job_fail(job, status, "server %u cannot go on from the checkpoint: %s", job->server->index,
                       error.text[0] ? error.text : terse_strerror(status));
        return;
    }
    if (job->own) ts_replica_loaded(job, slice);
    if (job->store.uninitialised == 0) finish_loading(job);
    else ts_checkpoint_load(job);
    if (job->own) ts_server_flush(job->server);
}

void ts_checkpoint_load(struct ts_job *job) {
    ts_checkpoint *c = &job->checkpoint;
    if (job->store.count == 0) finish_loading(job);
    while (c->unread > 0 && c->running < slices_at_once(job) && ts_job_runs(job)) {
        work *w = ts_mem_calloc(1, sizeof *w);
        if (w) w->slice = &job->store.slices[--c->unread];
        if (w && submit(job, run_load, done_load, w) == TERSE_OK) continue;
        ts_job_fail(job, TERSE_ENOMEM, "server %u has no memory to load its checkpoint", job->server->index);
    }
}

/* ---- committing ------------------------------------------------------------------------------------------------------- */

/* Whether a complete checkpoint is of this run; those whose manifest cannot be read are left alone. */
static bool is_ours(const ts_checkpoint *c, const char *folder) {
    ts_ckpt_manifest manifest = {0};
    char *path = NULL;
    if (ts_ckpt_path(c->dir, folder, TS_CKPT_MANIFEST, &path) != TERSE_OK) return false;
    bool ours = ts_ckpt_manifest_read(path, &manifest, NULL) == TERSE_OK && strcmp(manifest.run, c->run) == 0;
    ts_ckpt_manifest_free(&manifest);
    ts_mem_free(path);
    return ours;
}

/* Keeps the newest of the run, and removes what was begun before them and never completed. */
static uint64_t remove_old(const ts_job *job, uint64_t serial) {
    const ts_checkpoint *c = &job->checkpoint;
    ts_ckpt_found *list = NULL;
    size_t count = 0;
    uint32_t kept = 0;
    uint64_t keep_from = serial, spared = c->lead.shadowed ? c->lead.inherited : 0;
    if (ts_ckpt_scan(c->dir, &list, &count, NULL) != TERSE_OK) return 0;
    for (size_t i = count; i-- > 0;) {
        if (list[i].serial > serial) continue;
        if (!list[i].committed) {
            if (list[i].serial < serial && list[i].serial != spared) ts_ckpt_remove(c->dir, list[i].name, NULL);
        } else if (is_ours(c, list[i].name)) {
            if (kept++ < job->server->config->checkpoint.keep) keep_from = list[i].serial;
            else ts_ckpt_remove(c->dir, list[i].name, NULL);
        }
    }
    ts_mem_free(list);
    return spared > 0 && spared < keep_from ? spared : keep_from;
}

/* With replicas a server that was given up may have woken and removed something: all servers' files are in one folder. */
static terse_status look_for_parts(const work *w, const char *folder, ts_error *error) {
    const ts_ckpt_manifest *m = &w->manifest;
    for (uint32_t s = 0; s < m->servers && w->job->server->watch.on; s++) {
        char file[TS_CKPT_NAME_CHARS], *path = NULL;
        struct stat info;
        ts_ckpt_part_file(false, s, m->servers, file);
        TS_TRY(ts_ckpt_path(w->job->checkpoint.dir, folder, file, &path));
        bool there = stat(path, &info) == 0 && (uint64_t)info.st_size == m->parts[s].bytes;
        if (!there) ts_error_set(error, TERSE_EIO, "%s is not there as it was reported: %" PRIu64 " bytes", path, m->parts[s].bytes);
        ts_mem_free(path);
        TS_REQUIRE(there, TERSE_EIO);
    }
    return TERSE_OK;
}

static void run_commit(void *argument) {
    work *w = argument;
    const ts_checkpoint *c = &w->job->checkpoint;
    char folder[TS_CKPT_NAME_CHARS], *path = NULL;
    ts_ckpt_folder_name(w->manifest.serial, w->manifest.version, folder);
    w->status = ts_ckpt_path(c->dir, folder, TS_CKPT_MANIFEST, &path);
    if (w->status == TERSE_OK) w->status = look_for_parts(w, folder, &w->error);
    if (w->status == TERSE_OK) w->status = ts_ckpt_manifest_write(&w->manifest, path, &w->error);
    ts_mem_free(path);
    if (w->status == TERSE_OK) w->keep_from = remove_old(w->job, w->manifest.serial);
}

static void done_commit(void *argument) {
    work *w = argument;
    ts_job *job = w->job;
    work result = *w;
    w->manifest = (ts_ckpt_manifest){0};
    over(w);
    ts_checkpoint_lead_committed(job, result.status, &result.error, &result.manifest, result.keep_from);
    ts_ckpt_manifest_free(&result.manifest);
}

static terse_status fill_manifest(const ts_job *job, ts_ckpt_manifest *m) {
    const ts_checkpoint *c = &job->checkpoint;
    *m = (ts_ckpt_manifest){.serial = c->serial, .version = c->version, .servers = job->server->transport->servers,
                            .workers = job->members.launched};
    memcpy(m->run, c->run, sizeof m->run);
    memcpy(m->epoch, c->epoch, sizeof m->epoch);
    memcpy(m->digest, c->digest, sizeof m->digest);
    if (c->from == TS_FROM_CHECKPOINT) {
        memcpy(m->parent_epoch, c->parent.epoch, sizeof m->parent_epoch);
        m->parent_version = c->parent.version;
    }
    size_t parts = (size_t)m->servers + m->workers;
    m->parts = ts_mem_calloc(parts, sizeof *m->parts);
    TS_REQUIRE(m->parts, TERSE_ENOMEM);
    memcpy(m->parts, c->lead.parts, parts * sizeof *m->parts);
    return ts_contract_pack(job->contract, &m->contract, &m->contract_bytes);
}

void ts_checkpoint_commit(struct ts_job *job) {
    work *w = ts_mem_calloc(1, sizeof *w);
    terse_status status = w ? fill_manifest(job, &w->manifest) : TERSE_ENOMEM;
    if (status == TERSE_OK) status = submit(job, run_commit, done_commit, w);
    else if (w) ts_ckpt_manifest_free(&w->manifest);
    if (status != TERSE_OK) ts_checkpoint_lead_committed(job, status, &(ts_error){""}, &(ts_ckpt_manifest){0}, 0);
}

/* ---- this server's own old parts, where the others' disks are not seen ------------------------------------------------ */

static void run_prune(void *argument) {
    work *w = argument;
    const ts_checkpoint *c = &w->job->checkpoint;
    ts_ckpt_found *list = NULL;
    size_t count = 0;
    char file[TS_CKPT_NAME_CHARS];
    ts_ckpt_part_file(false, w->job->part, w->job->server->transport->servers, file);
    if (ts_ckpt_scan(c->dir, &list, &count, NULL) != TERSE_OK) return;
    for (size_t i = 0; i < count && list[i].serial < w->keep_from; i++) ts_ckpt_remove_of_run(c->dir, list[i].name, file, c->run);
    ts_mem_free(list);
}

static void done_prune(void *argument) { over(argument); }

void ts_checkpoint_prune(struct ts_job *job, uint64_t keep_from) {
    work *w = ts_mem_calloc(1, sizeof *w);
    if (!w) return; /* the next one does it */
    w->keep_from = keep_from;
    terse_status status = submit(job, run_prune, done_prune, w);
    (void)status;
}
