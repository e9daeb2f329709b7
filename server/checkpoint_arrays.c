/* SPDX-License-Identifier: Apache-2.0 */
/* What of a slice belongs into a checkpoint. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "server/checkpoint.h"
#include "server/job.h"

enum { PARAMS, REFERENCE, OPTIMIZER, ESTIMATE = OPTIMIZER + TS_OPTIMIZER_STATES, PULL, STEPS, VERSION, CLOCK, CLOCK_PART, RECEIVED };

/* Behind RECEIVED: two for each worker of `delta`, one for each of what was used of its packets. */
static unsigned first_next(uint32_t workers) { return RECEIVED + 2 * workers; }

unsigned ts_slice_arrays(uint32_t workers) { return first_next(workers) + workers; }

/* What a slice without rounds counts; in rounds all but its step follows from the checkpoint's. */
static void count_of(ts_slice_state *slice, unsigned number, ts_slice_array *out) {
    static const char *const names[] = {"steps", "version", "clock", "clock.part"};
    uint64_t *const counts[] = {&slice->steps, &slice->version, &slice->clock, &slice->clock_part};
    if (slice->alone) out->count = counts[number - STEPS];
    out->is_mark = true;
    snprintf(out->what, sizeof out->what, "%s", names[number - STEPS]);
}

bool ts_slice_array_of(ts_slice_state *slice, uint32_t workers, unsigned number, ts_slice_array *out) {
    *out = (ts_slice_array){.n = slice->n};
    if (number == PARAMS) {
        out->values = slice->params;
    } else if (number == REFERENCE) {
        out->values = slice->reference;
        snprintf(out->what, sizeof out->what, "reference");
    } else if (number < ESTIMATE) {
        out->values = slice->state[number - OPTIMIZER];
        snprintf(out->what, sizeof out->what, "optimizer.%u", number - OPTIMIZER);
    } else if (number == ESTIMATE) {
        out->values = slice->estimate;
        snprintf(out->what, sizeof out->what, "estimate");
    } else if (number == PULL) {
        out->values = slice->encoder ? ts_encoder_memory(slice->encoder, &out->n) : NULL;
        snprintf(out->what, sizeof out->what, "pull");
    } else if (number < RECEIVED) {
        count_of(slice, number, out);
    } else if (number >= first_next(workers)) {
        uint32_t worker = number - first_next(workers);
        out->count = &(slice->saving ? slice->ledger : slice->slots)[worker].next;
        out->is_mark = out->is_ledger = true;
        snprintf(out->what, sizeof out->what, "next.%" PRIu32, worker);
    } else if (slice->push_states) {
        uint32_t worker = (number - RECEIVED) / 2;
        out->is_mark = (number - RECEIVED) % 2;
        out->state = slice->push_states[worker];
        out->values = ts_decode_state_values(out->state, &out->n);
        snprintf(out->what, sizeof out->what, "received.%" PRIu32 "%s", worker, out->is_mark ? ".mark" : "");
    }
    return out->values != NULL || out->count != NULL;
}

static terse_status name_of(const ts_job *job, const ts_slice_state *slice, const ts_slice_array *array, char **name) {
    size_t first = job->contract->slices[slice->global].first;
    return ts_ckpt_entry_name(job->contract->tensors[slice->tensor].name, first, first + slice->n,
                              array->what[0] ? array->what : NULL, name);
}

/* One entry; marks come first in the file, so that all of it is aligned. */
static terse_status add_entry(ts_job *job, ts_slice_state *slice, unsigned number, bool marks) {
    ts_checkpoint *c = &job->checkpoint;
    uint32_t workers = job->members.launched;
    ts_slice_array array;
    char *name = NULL;
    if (!ts_slice_array_of(slice, workers, number, &array) || array.is_mark != marks) return TERSE_OK;
    if (array.is_ledger && !c->lost[number - first_next(workers)]) return TERSE_OK;
    const int64_t shape[] = {array.is_mark ? 1 : (int64_t)array.n};
    TS_TRY(name_of(job, slice, &array, &name));
    terse_status status = ts_ckpt_writer_add(c->writer, name, array.is_mark ? TS_DTYPE_U64 : TS_DTYPE_F32, shape, 1,
                                             &c->entries[(size_t)slice->local * ts_slice_arrays(workers) + number]);
    ts_mem_free(name);
    return status;
}

static terse_status add_entries(ts_job *job) {
    unsigned arrays = ts_slice_arrays(job->members.launched);
    for (int marks = 1; marks >= 0; marks--)
        for (uint32_t s = 0; s < job->store.count; s++)
            for (unsigned a = 0; a < arrays; a++) TS_TRY(add_entry(job, &job->store.slices[s], a, marks));
    return TERSE_OK;
}

terse_status ts_checkpoint_open_part(struct ts_job *job, ts_error *error) {
    ts_checkpoint *c = &job->checkpoint;
    ts_ckpt_identity is = {.serial = c->serial, .version = c->version, .index = job->part,
                           .count = job->server->transport->servers};
    char file[TS_CKPT_NAME_CHARS], *path = NULL;
    snprintf(is.run, sizeof is.run, "%s", c->run);
    snprintf(is.epoch, sizeof is.epoch, "%s", c->epoch);
    memcpy(is.contract, c->digest, sizeof is.contract);
    /* Of a worker that was lost before, what it had pushed last may be used or not: whoever finds it must be able to tell. */
    for (uint32_t w = 0; w < job->members.launched; w++) c->lost[w] = job->members.members[w].lost;
    TS_TRY(ts_ckpt_writer_create(&is, &c->writer));
    TS_TRY(add_entries(job));
    TS_TRY(ts_ckpt_path(c->dir, c->folder, NULL, &path));
    terse_status status = ts_ckpt_make_folder(path, error);
    ts_mem_free(path);
    TS_TRY(status);
    ts_ckpt_part_file(false, is.index, is.count, file);
    TS_TRY(ts_ckpt_path(c->dir, c->folder, file, &path));
    status = ts_ckpt_writer_open(c->writer, path, error);
    ts_mem_free(path);
    return status;
}

terse_status ts_checkpoint_put_slice(struct ts_job *job, ts_slice_state *slice, ts_error *error) {
    ts_checkpoint *c = &job->checkpoint;
    unsigned arrays = ts_slice_arrays(job->members.launched);
    for (unsigned a = 0; a < arrays; a++) {
        ts_slice_array array;
        if (!ts_slice_array_of(slice, job->members.launched, a, &array)) continue;
        if (array.is_ledger && !c->lost[a - first_next(job->members.launched)]) continue;
        uint64_t mark = array.count ? *array.count : array.is_mark ? ts_decode_state_mark(array.state) : 0;
        const void *bytes = array.is_mark ? (const void *)&mark : array.values;
        TS_TRY(ts_ckpt_writer_put(c->writer, c->entries[(size_t)slice->local * arrays + a], bytes, error));
    }
    return TERSE_OK;
}

terse_status ts_checkpoint_get_slice(struct ts_job *job, ts_slice_state *slice, ts_error *error) {
    for (unsigned a = 0; a < ts_slice_arrays(job->members.launched); a++) {
        ts_slice_array array;
        char *name = NULL;
        uint64_t mark = 0;
        if (!ts_slice_array_of(slice, job->members.launched, a, &array) || array.is_ledger) continue;
        TS_TRY(name_of(job, slice, &array, &name));
        terse_status status =
            ts_ckpt_reader_get(job->checkpoint.reader, name, array.is_mark ? TS_DTYPE_U64 : TS_DTYPE_F32,
                               array.is_mark ? (void *)&mark : array.values,
                               array.is_mark ? sizeof mark : array.n * sizeof(float), error);
        ts_mem_free(name);
        TS_TRY(status);
        if (array.count) *array.count = mark;
        else if (array.is_mark) ts_decode_state_set_mark(array.state, mark);
    }
    return TERSE_OK;
}
