/* SPDX-License-Identifier: Apache-2.0 */
/* What a job goes on from: server 0 chooses, the others ask it; each checks its own part and loads it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "server/checkpoint.h"
#include "server/job.h"
#include "server/session.h"

#define ASK_US 200000u
#define SHARED_US 3000000u /* so long the name of a file may take to be seen on another host */

/* ---- who leads chooses, so server 0 -------------------------------------------------------------------------------- */

/* checkpoint.resume as a path: the folder above, and the checkpoint's own name. */
static terse_status split(const char *path, char **dir, char name[TS_CKPT_NAME_CHARS], ts_error *error) {
    uint64_t serial, version;
    size_t len = strlen(path);
    char *copy = ts_mem_strdup(path);
    TS_REQUIRE(copy, TERSE_ENOMEM);
    while (len > 1 && copy[len - 1] == '/') copy[--len] = '\0';
    char *slash = strrchr(copy, '/');
    const char *last = slash ? slash + 1 : copy;
    if (!ts_ckpt_folder_parse(last, &serial, &version)) {
        ts_mem_free(copy);
        return ts_error_set(error, TERSE_EIO, "checkpoint.resume: %s: not the folder of a checkpoint (ckpt-SERIAL-step-STEP)",
                            path);
    }
    snprintf(name, TS_CKPT_NAME_CHARS, "%s", last);
    if (slash) *slash = '\0';
    *dir = ts_mem_strdup(!slash ? "." : copy[0] ? copy : "/");
    ts_mem_free(copy);
    return *dir ? TERSE_OK : TERSE_ENOMEM;
}

static bool is_auto(const ts_config *config) { return strcmp(config->checkpoint.resume, "auto") == 0; }
static bool is_never(const ts_config *config) { return strcmp(config->checkpoint.resume, "never") == 0; }

static terse_status read_manifest(const char *dir, const char *folder, ts_ckpt_manifest *manifest, ts_error *error) {
    char *path = NULL;
    TS_TRY(ts_ckpt_path(dir, folder, TS_CKPT_MANIFEST, &path));
    terse_status status = ts_ckpt_manifest_read(path, manifest, error);
    ts_mem_free(path);
    return status;
}

/* The newest whose manifest is whole; a damaged one is told and passed over. Returns ENOTFOUND when there is none. */
static terse_status find_newest(const char *dir, ts_checkpoint *c, ts_ckpt_manifest *manifest, ts_error *error) {
    ts_ckpt_found *list = NULL;
    size_t count = 0;
    terse_status found = TERSE_ENOTFOUND;
    TS_TRY(ts_ckpt_scan(dir, &list, &count, error));
    c->lead.next_serial = count > 0 ? list[count - 1].serial + 1 : 1;
    for (size_t i = count; i-- > 0 && found != TERSE_OK;) {
        if (!list[i].committed) continue;
        ts_error why = {""};
        terse_status status = read_manifest(dir, list[i].name, manifest, &why);
        if (status == TERSE_OK) found = TERSE_OK;
        else ts_log(TS_LOG_WARN, "checkpoint", "a checkpoint is passed over", "reason=\"%s\"", why.text);
    }
    ts_mem_free(list);
    return found;
}

/* Takes the chosen one over. */
static terse_status adopt(ts_job *job, const ts_ckpt_manifest *manifest, ts_error *error) {
    ts_checkpoint *c = &job->checkpoint;
    const ts_transport *transport = job->server->transport;
    static const char *const advice = "`terse ckpt reshard` makes one for another number; checkpoint.resume=never begins anew";
    if (manifest->servers != transport->servers)
        return ts_error_set(error, TERSE_EMISMATCH, "the checkpoint at step %" PRIu64 " is of %u servers, this job has %u; %s",
                            manifest->version, manifest->servers, transport->servers, advice);
    if (manifest->workers != job->members.launched)
        return ts_error_set(error, TERSE_EMISMATCH, "the checkpoint at step %" PRIu64 " is of %u workers, this job has %u; %s",
                            manifest->version, manifest->workers, job->members.launched, advice);
    c->without = ts_mem_calloc(manifest->workers, sizeof *c->without);
    TS_REQUIRE(c->without, TERSE_ENOMEM);
    for (uint32_t w = 0; w < manifest->workers; w++) c->without[w] = ts_ckpt_manifest_part(manifest, true, w)->bytes == 0;
    c->parent = ts_ckpt_manifest_identity(manifest, false, job->part);
    memcpy(c->run, manifest->run, sizeof c->run);
    c->from = TS_FROM_CHECKPOINT;
    ts_checkpoint_remember(job, manifest->version);
    return TERSE_OK;
}

/* Where the checkpoint lies that the job goes on from, if it does. */
static terse_status find_dir(ts_job *job, char name[TS_CKPT_NAME_CHARS], ts_error *error) {
    ts_checkpoint *c = &job->checkpoint;
    const ts_config *config = job->server->config;
    if (!is_auto(config) && !is_never(config)) return split(config->checkpoint.resume, &c->from_dir, name, error);
    c->from_dir = ts_mem_strdup(c->dir);
    return c->from_dir ? TERSE_OK : TERSE_ENOMEM;
}

terse_status ts_checkpoint_choose(struct ts_job *job, ts_error *error) {
    ts_checkpoint *c = &job->checkpoint;
    const ts_config *config = job->server->config;
    ts_ckpt_manifest newest = {0}, chosen = {0};
    char name[TS_CKPT_NAME_CHARS] = "";
    TS_TRY(find_dir(job, name, error));
    terse_status status = find_newest(c->dir, c, &newest, error); /* in any case: serials go on */
    if (status == TERSE_OK && is_auto(config)) {
        chosen = newest;
        newest = (ts_ckpt_manifest){0};
    } else if (status == TERSE_OK || status == TERSE_ENOTFOUND) {
        c->from = TS_FROM_START;
        status = name[0] ? read_manifest(c->from_dir, name, &chosen, error) : TERSE_OK;
    }
    if (status == TERSE_OK && chosen.parts) status = adopt(job, &chosen, error);
    ts_ckpt_manifest_free(&newest);
    ts_ckpt_manifest_free(&chosen);
    return status;
}

/* ---- the others ask ------------------------------------------------------------------------------------------------------ */

void ts_checkpoint_ask(struct ts_job *job) {
    ts_checkpoint *c = &job->checkpoint;
    uint64_t now_us = ts_server_now(job->server);
    if (c->asked_us > 0 && now_us - c->asked_us < ASK_US) return;
    c->asked_us = now_us > 0 ? now_us : 1;
    if (c->first_asked_us == 0) c->first_asked_us = c->asked_us;
    if (job->server->index != 0 && ts_replica_leads(job->server)) {
        ts_job_fail(job, TERSE_EPEER, "server 0 is dead, and had not said yet what the job goes on from; the same command starts it again");
        return;
    }
    Terse__Checkpoint message = TERSE__CHECKPOINT__INIT;
    message.kind = TERSE__CHECKPOINT__KIND__WHICH;
    ts_checkpoint_send(job, false, 0, &message);
}

/* The workers that have no part there. Returns how many, in `list` with room for all. */
static size_t list_without(const ts_job *job, uint32_t *list) {
    size_t count = 0;
    for (uint32_t w = 0; job->checkpoint.without && w < job->members.launched; w++)
        if (job->checkpoint.without[w]) list[count++] = w;
    return count;
}

void ts_checkpoint_say_from(struct ts_job *job, uint32_t part) {
    const ts_checkpoint *c = &job->checkpoint;
    uint32_t *list = ts_mem_calloc(job->members.launched, sizeof *list);
    if (!list) return; /* it asks again */
    Terse__Checkpoint message = TERSE__CHECKPOINT__INIT;
    Terse__Resumed resumed = TERSE__RESUMED__INIT;
    message.kind = TERSE__CHECKPOINT__KIND__FROM;
    if (c->from == TS_FROM_CHECKPOINT) {
        resumed.run = (char *)(uintptr_t)c->parent.run;
        resumed.epoch = (char *)(uintptr_t)c->parent.epoch;
        resumed.serial = c->parent.serial;
        resumed.version = c->parent.version;
        message.resumed = &resumed;
        message.without = list;
        message.n_without = list_without(job, list);
    }
    ts_checkpoint_send(job, false, part, &message);
    ts_mem_free(list);
}

/* With replicas a stand-in reads what its owner wrote. Returns TERSE_OK, EAGAIN (not yet), EIO. */
static terse_status check_shared(const ts_job *job, const char *epoch, ts_error *error) {
    const ts_checkpoint *c = &job->checkpoint;
    if (!job->server->watch.on || ts_ckpt_lock_is_of(c->dir, epoch)) return TERSE_OK;
    TS_REQUIRE(ts_server_now(job->server) - c->first_asked_us >= SHARED_US, TERSE_EAGAIN);
    return ts_error_set(error, TERSE_EIO, "checkpoint.dir: %s of server %u is not that of server 0; with servers.replicas 1 it must be "
                        "one folder, on a file system that all servers share", c->dir, job->server->index);
}

static terse_status take_without(ts_job *job, const Terse__Checkpoint *message) {
    ts_checkpoint *c = &job->checkpoint;
    c->without = ts_mem_calloc(job->members.launched, sizeof *c->without);
    TS_REQUIRE(c->without, TERSE_ENOMEM);
    for (size_t i = 0; i < message->n_without; i++)
        if (message->without[i] < job->members.launched) c->without[message->without[i]] = true;
    return TERSE_OK;
}

terse_status ts_checkpoint_answer(struct ts_job *job, const Terse__Checkpoint *message) {
    ts_checkpoint *c = &job->checkpoint;
    const Terse__Resumed *resumed = message->resumed;
    char name[TS_CKPT_NAME_CHARS] = "";
    ts_error error = {""};
    TS_REQUIRE(ts_ckpt_is_id(message->run) && ts_ckpt_is_id(message->epoch), TERSE_ECORRUPT);
    TS_REQUIRE(!resumed || (ts_ckpt_is_id(resumed->run) && ts_ckpt_is_id(resumed->epoch)), TERSE_ECORRUPT);
    if (c->from != TS_FROM_UNKNOWN) return TERSE_OK;
    terse_status status = check_shared(job, message->epoch, &error);
    if (status == TERSE_EAGAIN) return TERSE_OK; /* it is asked for again */
    if (status == TERSE_OK) status = find_dir(job, name, &error);
    if (status == TERSE_OK && resumed) status = take_without(job, message);
    if (status != TERSE_OK) {
        ts_job_fail(job, status, "%s", error.text[0] ? error.text : terse_strerror(status));
        return TERSE_OK;
    }
    memcpy(c->run, message->run, sizeof c->run);
    memcpy(c->epoch, message->epoch, sizeof c->epoch);
    c->from = resumed ? TS_FROM_CHECKPOINT : TS_FROM_START;
    if (resumed) {
        c->parent = (ts_ckpt_identity){.serial = resumed->serial, .version = resumed->version, .index = job->part,
                                       .count = job->server->transport->servers};
        memcpy(c->parent.run, resumed->run, sizeof c->parent.run);
        memcpy(c->parent.epoch, resumed->epoch, sizeof c->parent.epoch);
    }
    ts_session_decided(job);
    return TERSE_OK;
}

/* ---- loading ---------------------------------------------------------------------------------------------------------------- */

/* What differs between the checkpoint's contract and the job's, in words; the number of steps may. */
static terse_status compare(const ts_job *job, const char *folder, ts_error *error) {
    const ts_checkpoint *c = &job->checkpoint;
    ts_ckpt_manifest manifest = {0};
    ts_contract *saved = NULL;
    ts_error difference = {""};
    /* Without a shared file system only server 0 has it; the others have the digest in their part. */
    if (read_manifest(c->from_dir, folder, &manifest, NULL) != TERSE_OK) return TERSE_OK;
    terse_status status = ts_ckpt_manifest_contract(&manifest, job->server->transport->servers, &saved, error);
    ts_ckpt_manifest_free(&manifest);
    TS_TRY(status);
    if (saved->total_steps != job->contract->total_steps && job->part == 0 && !job->own)
        ts_log(TS_LOG_WARN, "checkpoint", "the number of steps has changed; schedules that end with it change, too",
               "before=%" PRIu64 " now=%" PRIu64, saved->total_steps, job->contract->total_steps);
    saved->total_steps = job->contract->total_steps;
    if (ts_contract_difference(saved, "the checkpoint", job->contract, "this job", &difference))
        status = ts_error_set(error, TERSE_EMISMATCH, "%s/%s cannot be gone on from: %.700s (checkpoint.resume=never begins anew)",
                              c->from_dir, folder, difference.text);
    ts_contract_destroy(saved);
    return status;
}

/* All servers know both numbers, so all refuse. Of a job that ends nowhere the total is 0. */
static terse_status check_end(const ts_job *job, const char *folder, ts_error *error) {
    const ts_checkpoint *c = &job->checkpoint;
    uint64_t end = job->contract->total_steps;
    if (end == 0 || c->parent.version <= end) return TERSE_OK;
    return ts_error_set(error, TERSE_EMISMATCH, "%.500s/%s is of step %" PRIu64 ", which is past the last step of this job, %" PRIu64
                        " (training.max_steps, or training.epochs): nothing is left to be trained. With more steps the job goes "
                        "on; checkpoint.resume=never begins anew", c->from_dir, folder, c->parent.version, end);
}

terse_status ts_checkpoint_begin(struct ts_job *job, ts_error *error) {
    ts_checkpoint *c = &job->checkpoint;
    char folder[TS_CKPT_NAME_CHARS], file[TS_CKPT_NAME_CHARS], *path = NULL;
    if (!c->on) return TERSE_OK;
    if (job->config->consistency.stragglers != TS_STRAGGLERS_WAIT) {
        /* A job of its own settings, on servers whose checkpoint.dir was meant for others. */
        if (c->from == TS_FROM_CHECKPOINT)
            return ts_error_set(error, TERSE_EMISMATCH, "only jobs that wait for stragglers go on from checkpoints");
        ts_log(TS_LOG_WARN, "checkpoint", "no checkpoints of this job: it does not wait for stragglers", "job=%s",
               job->name);
        c->on = false;
        return TERSE_OK;
    }
    TS_TRY(ts_ckpt_contract_digest(job->contract, c->digest));
    c->entries = ts_mem_calloc((size_t)job->store.count * ts_slice_arrays(job->members.launched), sizeof *c->entries);
    c->queue = ts_mem_calloc(job->store.count, sizeof *c->queue);
    c->lost = ts_mem_calloc(job->members.launched, sizeof *c->lost);
    TS_REQUIRE(c->entries && c->queue && c->lost, TERSE_ENOMEM);
    if (c->from != TS_FROM_CHECKPOINT) return TERSE_OK;
    memcpy(c->parent.contract, c->digest, sizeof c->digest);
    ts_ckpt_folder_name(c->parent.serial, c->parent.version, folder);
    TS_TRY(compare(job, folder, error));
    TS_TRY(check_end(job, folder, error));
    ts_ckpt_part_file(false, c->parent.index, c->parent.count, file);
    TS_TRY(ts_ckpt_path(c->from_dir, folder, file, &path));
    terse_status status = ts_ckpt_reader_open(path, &c->reader, error);
    if (status == TERSE_OK) status = ts_ckpt_identity_compare(path, ts_ckpt_reader_identity(c->reader), &c->parent, error);
    ts_mem_free(path);
    if (status != TERSE_OK) return status;
    c->unread = job->store.count;
    ts_checkpoint_load(job);
    return TERSE_OK;
}
