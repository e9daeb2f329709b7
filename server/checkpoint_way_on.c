/* SPDX-License-Identifier: Apache-2.0 */
/* The job could not go on from its checkpoint: what it can go on from instead. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "server/checkpoint.h"
#include "server/job.h"

static bool part_is_there(const char *dir, const char *folder, bool worker, uint32_t index, uint32_t count) {
    char file[TS_CKPT_NAME_CHARS], *path = NULL;
    ts_ckpt_part_file(worker, index, count, file);
    if (ts_ckpt_path(dir, folder, file, &path) != TERSE_OK) return false;
    bool there = access(path, F_OK) == 0;
    ts_mem_free(path);
    return there;
}

/* Whether others than server 0 have their parts in the same folder, so that they can be looked at. */
static bool is_shared(const ts_checkpoint *c, const char *folder, const ts_transport *transport, uint32_t workers) {
    for (uint32_t s = 1; s < transport->servers; s++)
        if (part_is_there(c->from_dir, folder, false, s, transport->servers)) return true;
    for (uint32_t w = 0; w < workers; w++)
        if (part_is_there(c->from_dir, folder, true, w, workers)) return true;
    return false;
}

static bool opens(const ts_ckpt_manifest *manifest, const char *dir, const char *folder, bool worker, uint32_t index) {
    ts_ckpt_reader *reader = NULL;
    if (ts_ckpt_manifest_part(manifest, worker, index)->bytes == 0) return worker; /* it had left */
    terse_status status = ts_ckpt_manifest_open(manifest, dir, folder, worker, index, &reader, NULL);
    ts_ckpt_reader_close(reader);
    return status == TERSE_OK;
}

/* Manifest and headers of all parts that can be seen; the values are checked by who loads them. */
static bool looks_whole(const ts_job *job, const char *folder, bool shared) {
    const char *dir = job->checkpoint.from_dir;
    ts_ckpt_manifest manifest = {0};
    char *path = NULL;
    if (ts_ckpt_path(dir, folder, TS_CKPT_MANIFEST, &path) != TERSE_OK) return false;
    bool whole = ts_ckpt_manifest_read(path, &manifest, NULL) == TERSE_OK;
    ts_mem_free(path);
    if (!whole) return false;
    whole = manifest.servers == job->server->transport->servers && manifest.workers == job->members.launched;
    for (uint32_t s = 0; whole && s < (shared ? manifest.servers : 1); s++) whole = opens(&manifest, dir, folder, false, s);
    for (uint32_t w = 0; whole && shared && w < manifest.workers; w++) whole = opens(&manifest, dir, folder, true, w);
    ts_ckpt_manifest_free(&manifest);
    return whole;
}

/* The newest before the one that failed. older: [out] "" when there is none. */
static void find_older(const ts_job *job, const char *failed, char older[TS_CKPT_NAME_CHARS]) {
    const ts_checkpoint *c = &job->checkpoint;
    ts_ckpt_found *list = NULL;
    size_t count = 0;
    bool shared = is_shared(c, failed, job->server->transport, job->members.launched);
    older[0] = '\0';
    if (ts_ckpt_scan(c->from_dir, &list, &count, NULL) != TERSE_OK) return;
    for (size_t i = count; i-- > 0 && !older[0];)
        if (list[i].committed && list[i].serial < c->parent.serial && looks_whole(job, list[i].name, shared))
            memcpy(older, list[i].name, TS_CKPT_NAME_CHARS);
    ts_mem_free(list);
}

/* Nothing newer is complete, and nobody has got further; without rounds somebody may have, while another could not load. */
static bool still_there(const ts_job *job) {
    const ts_checkpoint *c = &job->checkpoint;
    if (!ts_checkpoint_resumes(c) || job->part != 0 || c->committed_version != c->parent.version) return false;
    return !job->contract || job->contract->mode != TS_MODE_BSP || ts_store_version(&job->store) <= c->parent.version;
}

void ts_checkpoint_way_on(struct ts_job *job, terse_status status) {
    const ts_checkpoint *c = &job->checkpoint;
    char failed[TS_CKPT_NAME_CHARS], older[TS_CKPT_NAME_CHARS];
    bool damaged = status == TERSE_ECORRUPT || status == TERSE_EIO || status == TERSE_ENOTFOUND;
    if (!(damaged || status == TERSE_EMISMATCH) || !still_there(job)) return;
    job->server->last_checkpoint[0] = '\0'; /* the same command would end alike */
    if (!damaged) return;                   /* the reason says what differs, and what can be done */
    ts_ckpt_folder_name(c->parent.serial, c->parent.version, failed);
    find_older(job, failed, older);
    if (older[0])
        ts_log(TS_LOG_WARN, "checkpoint", "the job cannot go on from its checkpoint; it goes on from the one before with what `add` says",
               "checkpoint=\"%s/%s\" add=\"--set checkpoint.resume=%s/%s\"", c->from_dir, failed, c->from_dir, older);
    else
        ts_log(TS_LOG_WARN, "checkpoint", "the job cannot go on from its checkpoint, and there is no whole one before it; "
               "checkpoint.resume=never begins anew", "checkpoint=\"%s/%s\"", c->from_dir, failed);
}
