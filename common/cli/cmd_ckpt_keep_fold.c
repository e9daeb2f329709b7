/* SPDX-License-Identifier: Apache-2.0 */
/* terse ckpt keep fold: residuals of lost workers become parts of a checkpoint. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/cli/cmd_ckpt_keep.h"
#include "common/codec/kernels.h"
#include "common/config/config.h"

#define PROGRAM "terse ckpt keep fold"
#define NOBODY UINT64_MAX

static const char help[] =
    "NAME\n"
    "  terse ckpt keep fold - put residuals of lost workers into a checkpoint\n\n"
    "SYNOPSIS\n"
    "  terse ckpt keep fold FILE|FOLDER CHECKPOINT TARGET [--to WORKER]\n\n"
    "DESCRIPTION\n"
    "  A worker that was lost has no part in the checkpoints after it: a job that goes on from one begins there with an\n"
    "  empty residual. This makes another checkpoint of the same step in the folder TARGET (which may be the one that\n"
    "  CHECKPOINT lies in), as its newest, in which the worker's residual and momentum are its part again; with --to they\n"
    "  are added to that worker's part, in float32 (or bfloat16), and what rounding loses is printed. A packet without an\n"
    "  answer counts where the servers had used it, by what the checkpoint says of it, and returns to the residual where\n"
    "  they had not. Of a folder, all files that belong there are taken. They are removed then.\n"
    "  File and checkpoint must be of the same epoch, the file at no later step, and the worker without a part; the file\n"
    "  must be closed. A residual cannot be folded into the parameters themselves: what the optimizer would have made of\n"
    "  it depends on the rounds it would have been sent in.\n"
    "  Killed at any instant, the residual is in the file or in the new checkpoint, never in both or in none.\n\n"
    "EXIT STATUS\n"
    "  0 done; 1 they do not belong together, or cannot be read or written; 2 the command line is wrong";

typedef struct {
    ts_keep *file;
    uint32_t worker;     /* whose part it goes into */
    uint64_t *next;      /* [own] a slice: the step from which packets were not used */
} one;

typedef struct {
    const ts_ckpt_source *source;
    one *files;          /* [own] room for all that the path stands for */
    uint32_t count;
    ts_keep_rounding rounding;
} fold;

/* ---- what belongs there ------------------------------------------------------------------------------------------------------ */

/* What the checkpoint says of a lost worker's packets. missing: [out] whether it says nothing of one that is there. */
static terse_status read_ledger(const ts_ckpt_source *source, const ts_keep *file, uint32_t worker, uint64_t *next, ts_error *error) {
    char what[32];
    snprintf(what, sizeof what, "next.%" PRIu32, worker);
    for (uint32_t s = 0; s < source->contract->slice_count; s++) {
        const ts_slice *slice = &source->contract->slices[s];
        char *name = NULL;
        if (!ts_keep_live(file, s)) continue;
        TS_TRY(ts_ckpt_entry_name(source->contract->tensors[slice->tensor].name, slice->first, slice->first + slice->n, what, &name));
        terse_status status = ts_ckpt_reader_get(ts_ckpt_source_of_slice(source, s), name, TS_DTYPE_U64, &next[s], sizeof next[s], error);
        ts_mem_free(name);
        if (status == TERSE_ENOTFOUND)
            return ts_error_set(error, TERSE_EMISMATCH, "%s: %s/%s does not say whether the servers had used its last packets: the "
                                "worker was lost too shortly before; take a later checkpoint", ts_keep_path(file), source->dir,
                                source->folder);
        TS_TRY(status);
    }
    return TERSE_OK;
}

static terse_status check(const ts_ckpt_source *source, const ts_keep *file, ts_error *error) {
    const ts_ckpt_manifest *m = &source->manifest;
    ts_keep_identity is = ts_keep_identify(file);
    uint8_t digest[TS_DIGEST_BYTES];
    uint64_t epoch = 0;
    TS_TRY(ts_ckpt_contract_digest(ts_keep_contract(file), digest));
    if (!ts_ckpt_get_hex(m->epoch, &epoch) || epoch != is.epoch)
        return ts_error_set(error, TERSE_EMISMATCH, "%s is of epoch %016" PRIx64 ", the checkpoint %s of %s: an older residual must not "
                            "meet newer parameters", ts_keep_path(file), is.epoch, source->folder, m->epoch);
    if (memcmp(digest, m->digest, sizeof digest) != 0)
        return ts_error_set(error, TERSE_EMISMATCH, "%s is of another contract than %s", ts_keep_path(file), source->folder);
    if (is.worker >= m->workers || m->parts[m->servers + is.worker].bytes > 0)
        return ts_error_set(error, TERSE_EMISMATCH, "%s: the checkpoint %s has worker %" PRIu32 "'s own part, with what it had not sent "
                            "at step %" PRIu64, ts_keep_path(file), source->folder, is.worker, m->version);
    if (is.steps > m->version)
        return ts_error_set(error, TERSE_EMISMATCH, "%s is at step %" PRIu64 ", the checkpoint %s at %" PRIu64 ": what came after it "
                            "would be done again", ts_keep_path(file), is.steps, source->folder, m->version);
    return TERSE_OK;
}

static terse_status take(fold *f, const char *path, uint64_t to, ts_error *error) {
    one *next = &f->files[f->count];
    TS_TRY(ts_keep_open_settled(path, &next->file, error));
    f->count++; /* closed with the others from here on */
    TS_TRY(check(f->source, next->file, error));
    ts_keep_identity is = ts_keep_identify(next->file);
    next->worker = to == NOBODY ? is.worker : (uint32_t)to;
    if (next->worker >= f->source->manifest.workers ||
        (next->worker != is.worker && f->source->manifest.parts[f->source->manifest.servers + next->worker].bytes == 0))
        return ts_error_set(error, TERSE_EMISMATCH, "--to %" PRIu32 ": the checkpoint %s has no part of that worker", next->worker,
                            f->source->folder);
    next->next = ts_mem_calloc((size_t)f->source->contract->slice_count + 1, sizeof *next->next);
    TS_REQUIRE(next->next, TERSE_ENOMEM);
    return read_ledger(f->source, next->file, is.worker, next->next, error);
}

/* ---- the new checkpoint ---------------------------------------------------------------------------------------------------------- */

static bool wants(const ts_ckpt_addition *addition, uint32_t worker) {
    const fold *f = addition->context;
    for (uint32_t i = 0; i < f->count; i++)
        if (f->files[i].worker == worker) return true;
    return false;
}

/* n floats to what an entry holds. */
static void add_floats(ts_dtype dtype, void *bytes, const float *values, size_t n, float *wide, ts_keep_rounding *rounding) {
    const ts_kernels *kernels = ts_kernels_get(ts_cpu_simd());
    if (dtype == TS_DTYPE_F32) {
        ts_keep_add(bytes, values, n, rounding);
        return;
    }
    kernels->bf16_decode(bytes, n, wide);
    ts_keep_add(wide, values, n, rounding);
    for (size_t i = 0; i < n; i++) rounding->sum += (double)wide[i];
    kernels->bf16_encode(wide, n, bytes);
    kernels->bf16_decode(bytes, n, wide);
    for (size_t i = 0; i < n; i++) rounding->sum -= (double)wide[i];
}

static terse_status add_file(fold *f, const one *from, const char *tensor, size_t tensor_len, const char *what, ts_dtype dtype,
                             void *bytes, size_t n) {
    const ts_contract *contract = ts_keep_contract(from->file);
    ts_keep_rounding unused = {0};
    for (uint32_t t = 0; t < contract->tensor_count; t++) {
        if (strlen(contract->tensors[t].name) != tensor_len || memcmp(contract->tensors[t].name, tensor, tensor_len) != 0) continue;
        TS_REQUIRE(contract->tensors[t].n == n, TERSE_EMISMATCH);
        const float *velocity = ts_keep_velocity(from->file, t);
        float *values = ts_mem_aligned(n, sizeof *values), *wide = ts_mem_aligned(n, sizeof *wide);
        terse_status status = values && wide ? TERSE_OK : TERSE_ENOMEM;
        if (status == TERSE_OK && strcmp(what, "residual") == 0) {
            status = ts_keep_outstanding(from->file, t, from->next, values, &f->rounding);
            if (status == TERSE_OK) add_floats(dtype, bytes, values, n, wide, &f->rounding);
        } else if (status == TERSE_OK && strcmp(what, "velocity") == 0 && velocity) {
            add_floats(dtype, bytes, velocity, n, wide, &unused);
        }
        ts_mem_free(values);
        ts_mem_free(wide);
        return status;
    }
    return TERSE_EMISMATCH;
}

static terse_status add(const ts_ckpt_addition *addition, uint32_t worker, const char *entry, ts_dtype dtype, void *bytes,
                        size_t len, ts_error *error) {
    fold *f = addition->context;
    const char *what;
    size_t tensor_len, begin, end;
    ts_ckpt_entry_parse(entry, &tensor_len, &begin, &end, &what);
    if (strcmp(what, "estimate") == 0)
        return ts_error_set(error, TERSE_EUNSUPPORTED, "with EF21 a worker's residual is no sum that a checkpoint could go on with");
    for (uint32_t i = 0; i < f->count; i++)
        if (f->files[i].worker == worker)
            TS_TRY(add_file(f, &f->files[i], entry, tensor_len, what, dtype, bytes, len / ts_dtype_bytes(dtype)));
    return TERSE_OK;
}

static terse_status before(const ts_ckpt_addition *addition, const char *path, const char *epoch, ts_error *error) {
    fold *f = addition->context;
    uint64_t number = 0;
    TS_REQUIRE(ts_ckpt_get_hex(epoch, &number), TERSE_ECORRUPT);
    for (uint32_t i = 0; i < f->count; i++) {
        terse_status status = ts_keep_announce(f->files[i].file, path, number);
        if (status != TERSE_OK) return ts_error_set(error, status, "%s: its name is too long", path);
    }
    return TERSE_OK;
}

/* ---- the command -------------------------------------------------------------------------------------------------------------------- */

/* Whether a file of a folder is none to be folded, which is no failure. */
static bool leave_alone(terse_status *status, const ts_error *error) {
    if (*status == TERSE_OK || *status == TERSE_ENOMEM) return false;
    fprintf(stderr, "%s: left alone: %s\n", PROGRAM, error->text);
    *status = TERSE_OK;
    return true;
}

static terse_status collect(fold *f, const char *path, uint64_t to, ts_error *error) {
    ts_keep_files files;
    bool folder;
    TS_TRY(ts_keep_find_files(path, &files, error));
    folder = files.count != 1 || strcmp(files.paths[0], path) != 0;
    f->files = ts_mem_calloc((size_t)files.count + 1, sizeof *f->files);
    terse_status status = f->files ? TERSE_OK : TERSE_ENOMEM;
    for (uint32_t i = 0; i < files.count && status == TERSE_OK; i++) {
        status = ts_keep_settle(files.paths[i], error);
        if (!folder || !leave_alone(&status, error)) continue;
        ts_mem_free(files.paths[i]);
        files.paths[i] = NULL;
    }
    for (uint32_t i = 0; i < files.count && status == TERSE_OK; i++) {
        uint32_t before_it = f->count;
        if (!files.paths[i]) continue;
        status = take(f, files.paths[i], to, error);
        if (!folder || !leave_alone(&status, error)) continue;
        ts_keep_close(f->files[before_it].file, false);
        ts_mem_free(f->files[before_it].next);
        f->files[before_it] = (one){.file = NULL};
        f->count = before_it;
    }
    ts_keep_free_files(&files);
    if (status == TERSE_OK && f->count == 0) return ts_error_set(error, TERSE_ENOTFOUND, "%s: no file that belongs to %s", path, f->source->folder);
    return status;
}

int ts_ckpt_keep_fold_command(int argc, char **argv) {
    const char *words[3] = {NULL};
    uint64_t to = NOBODY;
    const ts_ckpt_option options[] = {{"to", 0, TS_CKPT_COUNT_MAX - 1, &to}};
    int code = ts_ckpt_line(PROGRAM, help, argc, argv, words, 3, NULL, options, 1);
    if (code >= 0) return code;
    fold *f = ts_mem_calloc(1, sizeof *f);
    ts_ckpt_source source = {.dir = NULL};
    ts_error error = {""};
    char name[TS_CKPT_NAME_CHARS], *target = NULL;
    terse_status status = f ? ts_ckpt_source_open(words[1], &source, &error) : TERSE_ENOMEM;
    if (status == TERSE_OK) status = ts_ckpt_source_open_parts(&source, &error);
    if (f) f->source = &source;
    if (status == TERSE_OK) status = ts_ckpt_make_folder(words[2], &error);
    if (status == TERSE_OK && !(target = realpath(words[2], NULL))) status = ts_error_set(&error, TERSE_EIO, "%s: cannot be found", words[2]);
    if (status == TERSE_OK) status = collect(f, words[0], to, &error);
    const ts_ckpt_addition addition = {.wants = wants, .add = add, .before = before, .context = f};
    if (status == TERSE_OK) status = ts_ckpt_remake(&source, target, 0, 0, &addition, name, &error);
    for (uint32_t i = 0; f && i < f->count; i++) {
        if (status == TERSE_OK) {
            ts_keep_mass mass = ts_keep_mass_all(f->files[i].file);
            char text[160];
            ts_keep_mass_text(&mass, text, sizeof text);
            printf("%s: now in the part of worker %" PRIu32 ": %s\n", ts_keep_path(f->files[i].file), f->files[i].worker, text);
            ts_keep_spend(f->files[i].file);
        }
        ts_keep_close(f->files[i].file, status == TERSE_OK);
        ts_mem_free(f->files[i].next);
    }
    if (status == TERSE_OK)
        printf("%s/%s: step %" PRIu64 "; lost to rounding: %.3g\n", words[2], name, source.manifest.version, f->rounding.sum);
    code = status == TERSE_OK ? TS_EXIT_OK : ts_ckpt_fail(PROGRAM, status, &error);
    free(target);
    ts_ckpt_source_close(&source);
    if (f) ts_mem_free(f->files);
    ts_mem_free(f);
    return code;
}
