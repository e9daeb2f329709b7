/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/client/client_checkpoint.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "worker/client/client_internal.h"

#define REPORT_US 1000000u

/* ---- what belongs to a tensor ------------------------------------------------------------------------------------------- */

enum { RESIDUAL, VELOCITY, ESTIMATE, FACTORS, SENT };

typedef struct {
    void *bytes;
    size_t len;
    ts_dtype dtype;
    bool whole;             /* as large as the tensor: in its shape */
    size_t first, end;      /* of a slice's */
    ts_decode_state *state; /* of which the mark is; bytes: NULL */
    char what[16];
} part_array;

static unsigned arrays_of(const ts_client *client, uint32_t t) { return SENT + 2 * client->contract->tensors[t].slices; }

static void take(part_array *out, void *bytes, size_t n, ts_dtype dtype, bool whole, const char *what) {
    *out = (part_array){.bytes = bytes, .len = n * ts_dtype_bytes(dtype), .dtype = dtype, .whole = whole};
    snprintf(out->what, sizeof out->what, "%s", what);
}

/* An array by its number. Returns whether there is one. */
static bool array_of(ts_client *client, uint32_t t, unsigned number, part_array *out) {
    const ts_tensor *declared = &client->contract->tensors[t];
    ts_client_tensor *tensor = &client->tensors[t];
    ts_feedback *memory = &tensor->memory;
    size_t n = declared->n;
    *out = (part_array){.bytes = NULL};
    if (number == RESIDUAL && memory->brief) take(out, memory->brief, n, TS_DTYPE_BF16, true, "residual");
    else if (number == RESIDUAL) take(out, memory->residual, n, TS_DTYPE_F32, true, "residual");
    else if (number == VELOCITY) take(out, memory->velocity, n, TS_DTYPE_F32, true, "velocity");
    else if (number == ESTIMATE) take(out, memory->estimate, n, TS_DTYPE_F32, true, "estimate");
    if (number == FACTORS) {
        float *factors = ts_encoder_memory(tensor->encoder, &n);
        take(out, factors, n, TS_DTYPE_F32, false, "push");
    }
    if (number < SENT) return out->bytes != NULL;
    uint32_t i = (number - SENT) / 2;
    bool mark = (number - SENT) % 2;
    ts_decode_state *state = ts_encoder_sent(tensor->encoder, i);
    const ts_slice *slice = &client->contract->slices[declared->first_slice + i];
    if (!state) return false;
    float *values = ts_decode_state_values(state, &n);
    if (mark) take(out, NULL, 1, TS_DTYPE_U64, false, "sent.mark");
    else take(out, values, n, TS_DTYPE_F32, false, "sent");
    if (mark) out->state = state;
    out->first = slice->first;
    out->end = slice->first + slice->n;
    return true;
}

static terse_status name_of(const ts_client *client, uint32_t t, const part_array *array, char **name) {
    return ts_ckpt_entry_name(client->contract->tensors[t].name, array->first, array->end, array->what, name);
}

/* ---- writing -------------------------------------------------------------------------------------------------------------- */

/* Marks first, then whole floats, then half ones, so that all of the file is aligned. */
static terse_status add_entries(ts_client *client, ts_dtype dtype) {
    ts_client_checkpoint *c = &client->checkpoint;
    for (uint32_t t = 0; t < client->contract->tensor_count; t++) {
        const ts_tensor *declared = &client->contract->tensors[t];
        for (unsigned a = 0; a < arrays_of(client, t); a++) {
            part_array array;
            char *name = NULL;
            if (!array_of(client, t, a, &array) || array.dtype != dtype) continue;
            const int64_t flat[] = {(int64_t)(array.len / ts_dtype_bytes(dtype))};
            TS_TRY(name_of(client, t, &array, &name));
            terse_status status = ts_ckpt_writer_add(c->writer, name, dtype, array.whole ? declared->shape : flat,
                                                     array.whole ? declared->ndim : 1, &c->entries[c->first_entry[t] + a]);
            ts_mem_free(name);
            TS_TRY(status);
        }
    }
    return TERSE_OK;
}

static terse_status reserve(ts_client *client) {
    ts_client_checkpoint *c = &client->checkpoint;
    uint32_t tensors = client->contract->tensor_count;
    if (c->entries) return TERSE_OK;
    c->first_entry = ts_mem_calloc(tensors, sizeof *c->first_entry);
    c->cut = ts_mem_calloc(tensors, sizeof *c->cut);
    TS_REQUIRE(c->first_entry && c->cut, TERSE_ENOMEM);
    size_t count = 0;
    for (uint32_t t = 0; t < tensors; t++) {
        c->first_entry[t] = count;
        count += arrays_of(client, t);
    }
    c->entries = ts_mem_calloc(count, sizeof *c->entries);
    return c->entries ? TERSE_OK : TERSE_ENOMEM;
}

static ts_ckpt_identity own_identity(const ts_client *client) {
    const ts_client_checkpoint *c = &client->checkpoint;
    ts_ckpt_identity is = {.serial = c->serial, .version = c->version, .worker = true, .index = client->worker,
                           .count = client->transport->workers};
    memcpy(is.run, c->run, sizeof is.run);
    memcpy(is.epoch, c->epoch, sizeof is.epoch);
    memcpy(is.contract, c->digest, sizeof is.contract);
    return is;
}

static terse_status open_part(ts_client *client, ts_error *error) {
    ts_client_checkpoint *c = &client->checkpoint;
    char file[TS_CKPT_NAME_CHARS], *path = NULL;
    TS_TRY(ts_ckpt_writer_create(&c->is, &c->writer));
    static const ts_dtype order[] = {TS_DTYPE_U64, TS_DTYPE_F32, TS_DTYPE_BF16};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) TS_TRY(add_entries(client, order[i]));
    TS_TRY(ts_ckpt_path(c->dir, c->folder, NULL, &path));
    terse_status status = ts_ckpt_make_folder(path, error);
    ts_mem_free(path);
    TS_TRY(status);
    ts_ckpt_part_file(true, c->is.index, c->is.count, file);
    TS_TRY(ts_ckpt_path(c->dir, c->folder, file, &path));
    status = ts_ckpt_writer_open(c->writer, path, error);
    ts_mem_free(path);
    return status;
}

static terse_status put_tensor(ts_client *client, uint32_t t, ts_error *error) {
    ts_client_checkpoint *c = &client->checkpoint;
    for (unsigned a = 0; a < arrays_of(client, t); a++) {
        part_array array;
        if (!array_of(client, t, a, &array)) continue;
        uint64_t mark = array.state ? ts_decode_state_mark(array.state) : 0;
        TS_TRY(ts_ckpt_writer_put(c->writer, c->entries[c->first_entry[t] + a], array.bytes ? array.bytes : &mark, error));
    }
    return TERSE_OK;
}

/* What became of the part, under the lock. */
static void settle(ts_client *client, terse_status status, const ts_error *error) {
    ts_client_checkpoint *c = &client->checkpoint;
    c->state = status == TERSE_OK ? TS_PART_WRITTEN : TS_PART_FAILED;
    if (status != TERSE_OK)
        snprintf(c->reason.text, sizeof c->reason.text, "%s", error->text[0] ? error->text : terse_strerror(status));
    c->report_us = 0;
    c->settled_us = ts_client_now(client);
}

/* Old parts of this worker's own, where server 0 does not see its disk. */
static void prune(const ts_client_checkpoint *c) {
    ts_ckpt_found *list = NULL;
    size_t count = 0;
    char file[TS_CKPT_NAME_CHARS];
    ts_ckpt_part_file(true, c->is.index, c->is.count, file);
    if (ts_ckpt_scan(c->dir, &list, &count, NULL) != TERSE_OK) return;
    for (size_t i = 0; i < count && list[i].serial < c->prune_from; i++) ts_ckpt_remove_of_run(c->dir, list[i].name, file, c->is.run);
    ts_mem_free(list);
}

/* The last step, which waits for the disk: off the user's thread when there is a lock to come back through. */
static void *close_part(void *argument) {
    ts_client *client = argument;
    ts_client_checkpoint *c = &client->checkpoint;
    ts_error error = {""};
    ts_ckpt_part part = {0};
    terse_status status = ts_ckpt_writer_finish(c->writer, &part, &error);
    if (c->prune_from > 0) prune(c);
    ts_client_take_back(client);
    c->part = part;
    settle(client, status, &error);
    ts_client_let_go(client);
    return NULL;
}

/* Thread: the user's, without the lock. */
static void begin_close(ts_client *client) {
    ts_client_checkpoint *c = &client->checkpoint;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the user's threads */
    c->joinable = client->lock && pthread_create(&c->thread, NULL, close_part, client) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!c->joinable) close_part(client);
}

static void join(ts_client_checkpoint *c) {
    if (c->joinable) pthread_join(c->thread, NULL);
    c->joinable = false;
}

static terse_status begin_part(ts_client *client, ts_error *error) {
    ts_client_checkpoint *c = &client->checkpoint;
    join(c);
    ts_ckpt_writer_destroy(c->writer);
    c->writer = NULL;
    TS_TRY(reserve(client));
    memset(c->cut, 0, client->contract->tensor_count * sizeof *c->cut);
    c->uncut = client->contract->tensor_count;
    return open_part(client, error);
}

void ts_client_cut(struct ts_client *client, uint32_t t) {
    ts_client_checkpoint *c = &client->checkpoint;
    if ((c->state != TS_PART_AHEAD && c->state != TS_PART_OPEN) || client->tensors[t].step != c->version) return;
    if (client->tensors[t].phase != TS_TENSOR_IDLE) return;
    if (c->state == TS_PART_OPEN && c->cut[t]) return;
    bool first = c->state == TS_PART_AHEAD;
    ts_error error = {""};
    terse_status status = TERSE_OK;
    c->state = TS_PART_OPEN; /* from here on no other plan comes between */
    if (first) c->is = own_identity(client);
    ts_client_let_go(client);
    if (first) status = begin_part(client, &error);
    if (status == TERSE_OK) status = put_tensor(client, t, &error);
    if (status == TERSE_OK) c->cut[t] = true;
    bool last = status == TERSE_OK && --c->uncut == 0;
    ts_client_take_back(client);
    if (status != TERSE_OK) {
        ts_ckpt_writer_destroy(c->writer);
        c->writer = NULL;
        settle(client, status, &error);
    }
    if (!last) return;
    c->state = TS_PART_CLOSING;
    c->prune_from = c->keep_from;
    ts_client_let_go(client);
    begin_close(client);
    ts_client_take_back(client);
}

void ts_client_cut_due(struct ts_client *client) {
    const ts_client_checkpoint *c = &client->checkpoint;
    bool over = client->state == TS_CLIENT_LEAVING || client->state == TS_CLIENT_DONE;
    if (c->state != TS_PART_AHEAD && c->state != TS_PART_OPEN) return;
    for (uint32_t t = 0; t < client->contract->tensor_count; t++) {
        ts_client_tensor *tensor = &client->tensors[t];
        if (over && tensor->phase == TS_TENSOR_PUSHED && tensor->on_demand && !tensor->unanswered && !tensor->deferred) {
            tensor->step++; /* no further push settles it */
            tensor->phase = TS_TENSOR_IDLE;
            client->pushed_tensors--;
        }
        ts_client_cut(client, t);
    }
}

/* ---- what server 0 says ----------------------------------------------------------------------------------------------------- */

static void say(ts_client *client, Terse__Checkpoint__Kind kind, uint64_t serial, uint64_t version) {
    const ts_client_checkpoint *c = &client->checkpoint;
    Terse__Checkpoint message = TERSE__CHECKPOINT__INIT;
    message.kind = kind;
    message.run = (char *)(uintptr_t)c->run;
    message.epoch = (char *)(uintptr_t)c->epoch;
    message.serial = serial;
    message.version = version;
    if (kind == TERSE__CHECKPOINT__KIND__WRITTEN) {
        message.bytes = c->part.bytes;
        message.seal = c->part.seal;
    }
    if (kind == TERSE__CHECKPOINT__KIND__FAILED) message.reason = (char *)(uintptr_t)c->reason.text;
    ts_client_send_control(client, &client->servers[0], TERSE__HEADER__BODY_CHECKPOINT, &message);
}

/* Whether some tensor has left the step already. */
static bool is_past(const ts_client *client, uint64_t version) {
    if (client->state == TS_CLIENT_ATTACHING) return false; /* at a step that server 0 knows to be before */
    for (uint32_t t = 0; t < client->contract->tensor_count; t++) {
        const ts_client_tensor *tensor = &client->tensors[t];
        if (tensor->step > version || (tensor->step == version && tensor->phase != TS_TENSOR_IDLE)) return true;
    }
    return false;
}

static void on_plan(ts_client *client, const Terse__Checkpoint *plan) {
    ts_client_checkpoint *c = &client->checkpoint;
    if (c->state != TS_PART_NONE && plan->serial == c->serial) {
        say(client, TERSE__CHECKPOINT__KIND__PLANNED, plan->serial, plan->version);
        return;
    }
    if (c->state == TS_PART_OPEN || c->state == TS_PART_CLOSING) return; /* it comes again */
    if (plan->serial <= c->serial || is_past(client, plan->version)) {
        say(client, TERSE__CHECKPOINT__KIND__PASSED, plan->serial, plan->version);
        return;
    }
    c->serial = plan->serial;
    c->version = plan->version;
    c->noted = false;
    c->reason.text[0] = '\0';
    ts_ckpt_folder_name(c->serial, c->version, c->folder);
    c->state = TS_PART_AHEAD;
    if (!c->dir) settle(client, TERSE_ECONFIG, &(ts_error){"checkpoint.dir is not set at this worker"});
    say(client, TERSE__CHECKPOINT__KIND__PLANNED, plan->serial, plan->version);
}

/* Whether that is after the last step of all. */
static bool is_last(const ts_client *client, uint64_t version) {
    return client->contract->total_steps > 0 && version >= client->contract->total_steps;
}

void ts_client_on_checkpoint(struct ts_client *client, const Terse__Checkpoint *message) {
    ts_client_checkpoint *c = &client->checkpoint;
    bool current = c->state != TS_PART_NONE && message->serial == c->serial;
    if (!c->epoch[0] || strcmp(message->epoch, c->epoch) != 0) {
        client->counters.dropped_frames++;
        return;
    }
    memcpy(c->run, message->run, ts_ckpt_is_id(message->run) ? sizeof c->run : 0);
    switch (message->kind) {
    case TERSE__CHECKPOINT__KIND__PLAN: on_plan(client, message); break;
    case TERSE__CHECKPOINT__KIND__NOTED:
        c->noted = c->noted || current;
        c->last_over = c->last_over || (current && is_last(client, message->version));
        break;
    case TERSE__CHECKPOINT__KIND__COMMITTED:
        c->noted = c->noted || current;
        c->committed = true;
        c->last_over = c->last_over || is_last(client, message->version);
        if (message->version > c->committed_version) c->committed_version = message->version;
        if (message->keep_from > c->keep_from) c->keep_from = message->keep_from;
        break;
    case TERSE__CHECKPOINT__KIND__ABANDONED:
        c->noted = c->noted || current;
        c->last_over = c->last_over || is_last(client, message->version);
        if (current && c->state == TS_PART_AHEAD) c->state = TS_PART_NONE;
        break;
    default: client->counters.dropped_frames++; break;
    }
}

static void say_request(ts_client *client, bool stop, const char *reason) {
    Terse__Checkpoint message = TERSE__CHECKPOINT__INIT;
    message.kind = TERSE__CHECKPOINT__KIND__REQUEST;
    message.stop = stop;
    message.reason = (char *)(uintptr_t)reason;
    client->checkpoint.wish_us = ts_client_now(client) + REPORT_US;
    ts_client_send_control(client, &client->servers[0], TERSE__HEADER__BODY_CHECKPOINT, &message);
}

void ts_client_checkpoint_tick(struct ts_client *client) {
    ts_client_checkpoint *c = &client->checkpoint;
    uint64_t now_us = ts_client_now(client);
    /* It may be lost, or who has heard it. */
    if (c->wants_stop && client->state != TS_CLIENT_ATTACHING && now_us >= c->wish_us) say_request(client, true, c->stop_reason);
    if ((c->state != TS_PART_WRITTEN && c->state != TS_PART_FAILED) || c->noted || now_us < c->report_us) return;
    c->report_us = now_us + REPORT_US;
    say(client, c->state == TS_PART_WRITTEN ? TERSE__CHECKPOINT__KIND__WRITTEN : TERSE__CHECKPOINT__KIND__FAILED, c->serial,
        c->version);
}

/* How long it is since there was reason to wait for server 0's word: whoever leads in its place begins anew. */
static uint64_t waited_us(const ts_client *client, uint64_t since_us) {
    return ts_client_now(client) - (client->buried_us > since_us ? client->buried_us : since_us);
}

bool ts_client_checkpoint_pending(const ts_client *client) {
    const ts_client_checkpoint *c = &client->checkpoint;
    bool settled = c->state == TS_PART_WRITTEN || c->state == TS_PART_FAILED;
    uint64_t patience_us = client->server_count > 0 ? ts_client_patience_us(client, &client->servers[0]) : 0;
    if (c->state == TS_PART_OPEN || c->state == TS_PART_CLOSING) return true;
    bool unplanned = c->at_end && !c->last_over && c->dir && is_last(client, client->done_steps); /* its plan is still to come */
    if (unplanned && waited_us(client, client->done_us) < patience_us) return true;
    /* Server 0 may have given it up and left. */
    return settled && !c->noted && waited_us(client, c->settled_us) < patience_us;
}

terse_status ts_client_request_checkpoint(ts_client *client, bool stop, const char *reason) {
    if (client->state == TS_CLIENT_FAILED) return client->failure;
    if (!client->checkpoint.epoch[0])
        return ts_client_refuse(client, TERSE_EUNSUPPORTED, "no checkpoints: checkpoint.dir is not set at the servers, or "
                                "the training has not begun");
    if (stop) {
        client->checkpoint.wants_stop = true;
        snprintf(client->checkpoint.stop_reason, sizeof client->checkpoint.stop_reason, "%s", reason);
    }
    say_request(client, stop, reason);
    return TERSE_OK;
}

bool ts_client_last_checkpoint(const ts_client *client, uint64_t *version) {
    *version = client->checkpoint.committed_version;
    return client->checkpoint.committed;
}

/* ---- going on from one -------------------------------------------------------------------------------------------------------- */

/* The folder of the job's checkpoints, and of the one that it goes on from. name: of the job within, "" for none. */
static terse_status find_folders(ts_client *client, const char *name) {
    ts_client_checkpoint *c = &client->checkpoint;
    const ts_config *config = client->config;
    TS_TRY(ts_ckpt_path(config->checkpoint.dir, name[0] ? name : NULL, NULL, &c->dir));
    const char *path = config->checkpoint.resume;
    bool chosen = strcmp(path, "auto") != 0 && strcmp(path, "never") != 0;
    c->from_dir = ts_mem_strdup(chosen ? path : c->dir);
    TS_REQUIRE(c->from_dir, TERSE_ENOMEM);
    if (!chosen) return TERSE_OK;
    for (size_t len = strlen(c->from_dir); len > 1 && c->from_dir[len - 1] == '/'; len--) c->from_dir[len - 1] = '\0';
    char *slash = strrchr(c->from_dir, '/');
    if (slash) slash[slash == c->from_dir ? 1 : 0] = '\0';
    else strcpy(c->from_dir, "."); /* its own name is longer */
    return TERSE_OK;
}

static void take_resumed(ts_client *client, const Terse__Resumed *resumed) {
    ts_client_checkpoint *c = &client->checkpoint;
    ts_ckpt_identity is = {.serial = resumed->serial, .version = resumed->version, .worker = true, .index = client->worker,
                           .count = client->transport->workers};
    if (!ts_ckpt_is_id(resumed->run) || !ts_ckpt_is_id(resumed->epoch)) return;
    memcpy(is.run, resumed->run, sizeof is.run);
    memcpy(is.epoch, resumed->epoch, sizeof is.epoch);
    memcpy(is.contract, c->digest, sizeof is.contract);
    c->parent = is;
    c->resumes = true;
    c->without = c->without || resumed->without;
    memcpy(c->run, is.run, sizeof c->run);
    c->committed = true;
    c->committed_version = is.version;
    c->last_over = is_last(client, is.version);
}

void ts_client_checkpoint_welcome(struct ts_client *client, const Terse__Welcome *welcome) {
    ts_client_checkpoint *c = &client->checkpoint;
    ts_error error;
    if (!welcome->epoch[0] || welcome->verdict != TERSE__WELCOME__VERDICT__ACCEPTED) return;
    if (!ts_ckpt_is_id(welcome->epoch) || strchr(welcome->checkpoint_folder, '/') ||
        strcmp(welcome->checkpoint_folder, "..") == 0) {
        client->counters.dropped_frames++;
        return;
    }
    if (!c->epoch[0]) {
        memcpy(c->epoch, welcome->epoch, sizeof c->epoch);
        memcpy(c->run, welcome->epoch, sizeof c->run); /* unless it goes on with an older one */
        terse_status status = ts_ckpt_contract_digest(client->contract, c->digest);
        if (status == TERSE_OK && ts_config_checkpoints(client->config))
            status = find_folders(client, welcome->checkpoint_folder);
        if (status == TERSE_OK && c->dir) {
            status = ts_ckpt_probe_folder(c->dir, &error);
            if (status == TERSE_EIO) ts_client_fail(client, status, "checkpoint.dir: %s", error.text);
        }
        if (status != TERSE_OK) ts_client_fail(client, status, "checkpoints: %s", terse_strerror(status));
    }
    c->at_end = welcome->checkpoint_at_end;
    if (welcome->resumed) take_resumed(client, welcome->resumed);
    if (welcome->resumed && !c->dir)
        ts_client_fail(client, TERSE_ECONFIG, "the job goes on from a checkpoint, and checkpoint.dir is not set at worker %" PRIu32,
                       client->worker);
}

void ts_client_checkpoint_forget_cut(struct ts_client *client) {
    ts_client_checkpoint *c = &client->checkpoint;
    if (c->state == TS_PART_AHEAD) c->state = TS_PART_NONE;
    if (c->state != TS_PART_OPEN) return;
    ts_ckpt_writer_destroy(c->writer);
    c->writer = NULL;
    settle(client, TERSE_ESTALE, &(ts_error){"the worker was given up while it wrote its part"});
}

static terse_status load(ts_client *client, ts_error *error) {
    ts_client_checkpoint *c = &client->checkpoint;
    char folder[TS_CKPT_NAME_CHARS], file[TS_CKPT_NAME_CHARS], *path = NULL;
    ts_ckpt_reader *reader = NULL;
    ts_ckpt_folder_name(c->parent.serial, c->parent.version, folder);
    ts_ckpt_part_file(true, c->parent.index, c->parent.count, file);
    TS_TRY(ts_ckpt_path(c->from_dir, folder, file, &path));
    terse_status status = ts_ckpt_reader_open(path, &reader, error);
    if (status == TERSE_OK) status = ts_ckpt_identity_compare(path, ts_ckpt_reader_identity(reader), &c->parent, error);
    for (uint32_t t = 0; status == TERSE_OK && t < client->contract->tensor_count; t++) {
        for (unsigned a = 0; status == TERSE_OK && a < arrays_of(client, t); a++) {
            part_array array;
            char *name = NULL;
            uint64_t mark = 0;
            if (!array_of(client, t, a, &array)) continue;
            status = name_of(client, t, &array, &name);
            if (status == TERSE_OK)
                status = ts_ckpt_reader_get(reader, name, array.dtype, array.bytes ? array.bytes : &mark, array.len, error);
            if (status == TERSE_OK && array.state) ts_decode_state_set_mark(array.state, mark);
            ts_mem_free(name);
        }
    }
    ts_ckpt_reader_close(reader);
    ts_mem_free(path);
    return status;
}

terse_status ts_client_resume(ts_client *client) {
    ts_client_checkpoint *c = &client->checkpoint;
    ts_error error = {""};
    if (client->state == TS_CLIENT_FAILED) return client->failure;
    if (!c->resumes || c->loaded) return TERSE_OK;
    c->loaded = true;
    if (c->without) {
        ts_log(TS_LOG_WARN, "client", "the checkpoint has no part of this worker: it begins with an empty residual",
               "worker=%" PRIu32 " step=%" PRIu64, client->worker, c->parent.version);
        return TERSE_OK;
    }
    ts_client_let_go(client);
    terse_status status = load(client, &error);
    ts_client_take_back(client);
    if (client->state == TS_CLIENT_FAILED) return client->failure;
    if (status == TERSE_OK) return TERSE_OK;
    return ts_client_fail(client, status, "worker %" PRIu32 " cannot go on from the checkpoint: %s", client->worker,
                          error.text[0] ? error.text : terse_strerror(status));
}

uint64_t ts_client_resumed(const ts_client *client) {
    return client->checkpoint.resumes ? client->checkpoint.parent.version : 0;
}

void ts_client_checkpoint_free(struct ts_client *client) {
    ts_client_checkpoint *c = &client->checkpoint;
    join(c);
    ts_ckpt_writer_destroy(c->writer);
    ts_mem_free(c->dir);
    ts_mem_free(c->from_dir);
    ts_mem_free(c->entries);
    ts_mem_free(c->first_entry);
    ts_mem_free(c->cut);
    *c = (ts_client_checkpoint){.state = TS_PART_NONE};
}
