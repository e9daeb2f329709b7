/* SPDX-License-Identifier: Apache-2.0 */
/*
 * terse ckpt reshard: slices go to the servers that will own them, and the residuals of workers that will not be there to
 * those that will. One entry is in memory at a time.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/cli/cmd_ckpt.h"
#include "common/codec/kernels.h"
#include "common/config/config.h"

#define PROGRAM "terse ckpt reshard"

static const char help[] =
    "NAME\n"
    "  terse ckpt reshard - make a checkpoint for another number of servers or workers\n\n"
    "SYNOPSIS\n"
    "  terse ckpt reshard CHECKPOINT FOLDER [--servers S] [--workers W]\n\n"
    "DESCRIPTION\n"
    "  Reads a checkpoint and writes another one of the same step into FOLDER, as its newest: a job of S servers\n"
    "  and W workers goes on from it. FOLDER may be the one that the checkpoint lies in; the old one stays.\n\n"
    "  Servers: every slice goes, bit for bit, to the server that will own it.\n"
    "  Workers: those that stay keep what they have. What those that leave had not sent yet (residual), and what\n"
    "  their momentum would still bring (velocity), is added to the others', worker w's to worker w modulo W, so\n"
    "  that no gradient is lost; a sum that bfloat16 residuals cannot hold is rounded. New workers begin with\n"
    "  nothing. With EF21 the servers' estimate is made anew from those of the workers that stay. Data is dealt out\n"
    "  anew from this step on, and each worker's gradient counts as one of W; with ssp and asp the servers' count\n"
    "  of pushes is brought to as many rounds of W.\n"
    "  A new epoch begins: the files of the two never meet.\n\n"
    "  --servers S, --workers W   as in the checkpoint when not given\n\n"
    "EXIT STATUS\n"
    "  0 done; 1 the checkpoint cannot be read or is damaged, or FOLDER cannot be written; 2 the command line is\n"
    "  wrong";

typedef struct {
    ts_ckpt_source *source; /* [borrow] */
    const ts_ckpt_addition *addition; /* [borrow] or NULL */
    ts_contract *contract; /* [own] for the new number of servers */
    ts_ckpt_manifest made;
    const char *folder;
    char name[TS_CKPT_NAME_CHARS];
    bool ef21;
} reshard;

/* An entry that goes into a new part. */
typedef struct {
    const ts_safetensors_entry *entry;
    const ts_ckpt_reader *from; /* NULL: zeros */
} piece;

typedef struct {
    piece *pieces; /* [own] */
    uint32_t count, room;
} pieces;

static terse_status add_piece(pieces *list, const ts_safetensors_entry *entry, const ts_ckpt_reader *from) {
    if (list->count == list->room) {
        uint32_t room = list->room ? list->room * 2 : 64;
        piece *grown = ts_mem_realloc(list->pieces, room, sizeof *grown);
        TS_REQUIRE(grown, TERSE_ENOMEM);
        list->pieces = grown;
        list->room = room;
    }
    list->pieces[list->count++] = (piece){entry, from};
    return TERSE_OK;
}

/* Widest elements first, so that all of a file is aligned. */
static int by_width(const void *left, const void *right) {
    const piece *a = left, *b = right;
    size_t wa = ts_dtype_bytes(a->entry->dtype), wb = ts_dtype_bytes(b->entry->dtype);
    if (wa != wb) return wa > wb ? -1 : 1;
    return strcmp(a->entry->name, b->entry->name);
}

/* ---- what is added to an entry ------------------------------------------------------------------------------------------ */

static void add_values(ts_dtype dtype, void *to, const void *from, size_t len, float *wide) {
    const ts_kernels *kernels = ts_kernels_get(ts_cpu_simd());
    size_t n = len / ts_dtype_bytes(dtype);
    if (dtype == TS_DTYPE_F32) {
        kernels->add(to, from, n);
        return;
    }
    kernels->bf16_decode(from, n, wide);
    kernels->bf16_decode(to, n, wide + n);
    kernels->add(wide + n, wide, n);
    kernels->bf16_encode(wide + n, n, to);
}

/* Adds the same entry of another worker's part, when it has one. */
static terse_status add_from(const reshard *r, uint32_t worker, const ts_safetensors_entry *entry, const char *name, void *to,
                             void *scratch, float *wide, ts_error *error) {
    const ts_ckpt_reader *reader = r->source->readers[r->source->manifest.servers + worker];
    size_t len = (size_t)entry->bytes;
    if (!reader) return TERSE_OK;
    TS_TRY(ts_ckpt_reader_get(reader, name, entry->dtype, scratch, len, error));
    add_values(entry->dtype, to, scratch, len, wide);
    return TERSE_OK;
}

/* A worker's entry takes over those of the workers that leave and fall to it. */
static terse_status fold(const reshard *r, uint32_t worker, const ts_safetensors_entry *entry, void *bytes, void *scratch,
                         float *wide, ts_error *error) {
    const char *what;
    size_t len, begin, end;
    ts_ckpt_entry_parse(entry->name, &len, &begin, &end, &what);
    bool folds = !r->ef21 && (strcmp(what, "residual") == 0 || strcmp(what, "velocity") == 0);
    for (uint32_t w = r->made.workers; folds && w < r->source->manifest.workers; w++)
        if (w % r->made.workers == worker) TS_TRY(add_from(r, w, entry, entry->name, bytes, scratch, wide, error));
    if (!r->addition || !r->addition->wants(r->addition, worker)) return TERSE_OK;
    return r->addition->add(r->addition, worker, entry->name, entry->dtype, bytes, (size_t)entry->bytes, error);
}

/* EF21: the servers' estimate is the sum of the workers' that stay. A slice of whole tensors. */
static terse_status sum_estimates(const reshard *r, const ts_safetensors_entry *entry, float *sum, ts_error *error) {
    const char *what;
    size_t len, begin, end;
    ts_ckpt_entry_parse(entry->name, &len, &begin, &end, &what);
    if (strcmp(what, "estimate") != 0 || r->made.workers >= r->source->manifest.workers) return TERSE_OK;
    char *name = ts_mem_calloc(len + sizeof "#estimate", 1);
    TS_REQUIRE(name, TERSE_ENOMEM);
    memcpy(name, entry->name, len);
    memcpy(name + len, "#estimate", sizeof "#estimate");
    memset(sum, 0, (size_t)entry->bytes);
    terse_status status = TERSE_OK;
    for (uint32_t w = 0; w < r->made.workers && status == TERSE_OK; w++) {
        const ts_ckpt_reader *reader = r->source->readers[r->source->manifest.servers + w];
        if (!reader) continue;
        const ts_safetensors *header = ts_ckpt_reader_header(reader);
        uint32_t number = ts_safetensors_find(header, name);
        size_t bytes = number < header->count ? (size_t)header->entries[number].bytes : 0;
        float *whole = ts_mem_aligned(bytes / sizeof(float) + 1, sizeof(float));
        status = whole ? ts_ckpt_reader_get(reader, name, TS_DTYPE_F32, whole, bytes, error) : TERSE_ENOMEM;
        if (status == TERSE_OK && end * sizeof(float) > bytes) status = TERSE_ECORRUPT;
        for (size_t i = begin; status == TERSE_OK && i < end; i++) sum[i - begin] += whole[i];
        ts_mem_free(whole);
    }
    ts_mem_free(name);
    return status;
}

/* Without rounds a slice counts a step for each worker's push: schedules, which go by rounds of them, stay where they are. */
static void rescale_clock(const reshard *r, const ts_safetensors_entry *entry, void *bytes) {
    const char *what;
    size_t len, begin, end;
    uint64_t count;
    ts_ckpt_entry_parse(entry->name, &len, &begin, &end, &what);
    if (strcmp(what, "steps") != 0 && strcmp(what, "version") != 0 && strcmp(what, "clock.part") != 0) return;
    memcpy(&count, bytes, sizeof count);
    uint64_t rounds = count / r->source->manifest.workers, rest = count % r->source->manifest.workers;
    count = rounds * r->made.workers + rest * r->made.workers / r->source->manifest.workers;
    memcpy(bytes, &count, sizeof count);
}

/* ---- parts ---------------------------------------------------------------------------------------------------------------- */

static terse_status put_pieces(const reshard *r, ts_ckpt_writer *writer, const pieces *list, bool worker, uint32_t index,
                               ts_error *error) {
    size_t most = 16;
    for (uint32_t i = 0; i < list->count; i++)
        if (list->pieces[i].entry->bytes > most) most = (size_t)list->pieces[i].entry->bytes;
    uint8_t *bytes = ts_mem_aligned(most, 2);
    float *wide = ts_mem_aligned(most, sizeof(float)); /* twice as many floats as bfloat16 in the largest entry */
    terse_status status = bytes && wide ? TERSE_OK : TERSE_ENOMEM;
    for (uint32_t i = 0; i < list->count && status == TERSE_OK; i++) {
        const piece *p = &list->pieces[i];
        size_t len = (size_t)p->entry->bytes;
        if (p->from) status = ts_ckpt_reader_get(p->from, p->entry->name, p->entry->dtype, bytes, len, error);
        else memset(bytes, 0, len);
        if (status == TERSE_OK && worker && p->entry->dtype != TS_DTYPE_U64)
            status = fold(r, index, p->entry, bytes, bytes + most, wide, error);
        if (status == TERSE_OK && !worker) rescale_clock(r, p->entry, bytes);
        if (status == TERSE_OK && !worker && r->ef21) status = sum_estimates(r, p->entry, (float *)(void *)bytes, error);
        if (status == TERSE_OK) status = ts_ckpt_writer_put(writer, i, bytes, error);
    }
    ts_mem_free(bytes);
    ts_mem_free(wide);
    return status;
}

static terse_status write_part(reshard *r, pieces *list, bool worker, uint32_t index, ts_error *error) {
    ts_ckpt_identity is = ts_ckpt_manifest_identity(&r->made, worker, index);
    ts_ckpt_writer *writer = NULL;
    char file[TS_CKPT_NAME_CHARS], *path = NULL;
    if (list->count > 0) qsort(list->pieces, list->count, sizeof *list->pieces, by_width);
    terse_status status = ts_ckpt_writer_create(&is, &writer);
    for (uint32_t i = 0; i < list->count && status == TERSE_OK; i++) {
        const ts_safetensors_entry *entry = list->pieces[i].entry;
        status = ts_ckpt_writer_add(writer, entry->name, entry->dtype, entry->shape, entry->ndim, NULL);
    }
    ts_ckpt_part_file(worker, index, is.count, file);
    if (status == TERSE_OK) status = ts_ckpt_path(r->folder, r->name, file, &path);
    if (status == TERSE_OK) status = ts_ckpt_writer_open(writer, path, error);
    if (status == TERSE_OK) status = put_pieces(r, writer, list, worker, index, error);
    if (status == TERSE_OK)
        status = ts_ckpt_writer_finish(writer, ts_ckpt_manifest_part(&r->made, worker, index), error);
    ts_ckpt_writer_destroy(writer);
    ts_mem_free(path);
    return status;
}

/* Whether an entry of a server goes to the new server `index`; entries of workers that leave go nowhere. */
static bool belongs(const reshard *r, const ts_safetensors_entry *entry, uint32_t index) {
    const char *what;
    size_t len, begin, end;
    ts_ckpt_entry_parse(entry->name, &len, &begin, &end, &what);
    if (strncmp(what, "next.", 5) == 0 && !(r->addition && !r->addition->wants(r->addition, (uint32_t)strtoul(what + 5, NULL, 10))))
        return false; /* of a worker that has its part again */
    if (strncmp(what, "received.", 9) == 0 && strtoul(what + 9, NULL, 10) >= r->made.workers) return false;
    for (uint32_t s = 0; s < r->contract->slice_count; s++) {
        const ts_slice *slice = &r->contract->slices[s];
        const char *tensor = r->contract->tensors[slice->tensor].name;
        if (slice->server == index && slice->first == begin && slice->first + slice->n == end && strlen(tensor) == len &&
            strncmp(tensor, entry->name, len) == 0)
            return true;
    }
    return false;
}

/* `delta`: the servers' state of workers that are new, which have said nothing yet: like worker 0's, but zeros. */
static terse_status add_received(const reshard *r, const ts_safetensors_entry *entry, ts_safetensors *made) {
    const char *what;
    size_t len, begin, end;
    ts_ckpt_entry_parse(entry->name, &len, &begin, &end, &what);
    if (strncmp(what, "received.0", 10) != 0 || (what[10] != '\0' && what[10] != '.')) return TERSE_OK;
    for (uint32_t w = r->source->manifest.workers; w < r->made.workers; w++) {
        size_t room = strlen(entry->name) + 16;
        char *name = ts_mem_calloc(room, 1);
        TS_REQUIRE(name, TERSE_ENOMEM);
        snprintf(name, room, "%.*s#received.%" PRIu32 "%s", (int)(what - 1 - entry->name), entry->name, w, what + 10);
        uint32_t number;
        terse_status status = ts_safetensors_add(made, name, entry->dtype, entry->shape, entry->ndim, &number);
        ts_mem_free(name);
        TS_TRY(status);
    }
    return TERSE_OK;
}

static terse_status make_server(reshard *r, uint32_t index, ts_error *error) {
    pieces list = {.pieces = NULL};
    ts_safetensors made = {0};
    terse_status status = TERSE_OK;
    for (uint32_t p = 0; p < r->source->manifest.servers && status == TERSE_OK; p++) {
        const ts_safetensors *header = ts_ckpt_reader_header(r->source->readers[p]);
        for (uint32_t e = 0; e < header->count && status == TERSE_OK; e++) {
            if (!belongs(r, &header->entries[e], index)) continue;
            status = add_piece(&list, &header->entries[e], r->source->readers[p]);
            if (status == TERSE_OK) status = add_received(r, &header->entries[e], &made);
        }
    }
    for (uint32_t e = 0; e < made.count && status == TERSE_OK; e++) status = add_piece(&list, &made.entries[e], NULL);
    if (status == TERSE_OK) status = write_part(r, &list, false, index, error);
    ts_mem_free(list.pieces);
    ts_safetensors_free(&made);
    return status;
}

/* Any worker's part: all have the same entries. */
static const ts_ckpt_reader *some_worker(const reshard *r) {
    for (uint32_t w = 0; w < r->source->manifest.workers; w++)
        if (r->source->readers[r->source->manifest.servers + w]) return r->source->readers[r->source->manifest.servers + w];
    return NULL;
}

static terse_status make_worker(reshard *r, uint32_t index, ts_error *error) {
    const ts_ckpt_reader *own =
        index < r->source->manifest.workers ? r->source->readers[r->source->manifest.servers + index] : NULL;
    const ts_ckpt_reader *like = own ? own : some_worker(r);
    pieces list = {.pieces = NULL};
    if (!like) return TERSE_OK; /* none had one: nor has this */
    if (!own && r->addition && !r->addition->wants(r->addition, index)) return TERSE_OK; /* it stays without */
    const ts_safetensors *header = ts_ckpt_reader_header(like);
    terse_status status = TERSE_OK;
    for (uint32_t e = 0; e < header->count && status == TERSE_OK; e++) status = add_piece(&list, &header->entries[e], own);
    if (status == TERSE_OK) status = write_part(r, &list, true, index, error);
    ts_mem_free(list.pieces);
    return status;
}

/* ---- all of it -------------------------------------------------------------------------------------------------------------- */

static terse_status prepare(reshard *r, uint64_t servers, uint64_t workers, ts_error *error) {
    const ts_ckpt_manifest *m = &r->source->manifest;
    ts_ckpt_found *list = NULL;
    size_t count = 0;
    char *path = NULL;
    TS_TRY(ts_ckpt_scan(r->folder, &list, &count, error));
    r->made = (ts_ckpt_manifest){.parent_version = m->version, .version = m->version,
                                 .serial = count > 0 ? list[count - 1].serial + 1 : 1,
                                 .servers = servers ? (uint32_t)servers : m->servers,
                                 .workers = workers ? (uint32_t)workers : m->workers};
    ts_mem_free(list);
    memcpy(r->made.run, m->run, sizeof r->made.run);
    memcpy(r->made.parent_epoch, m->epoch, sizeof r->made.parent_epoch);
    memcpy(r->made.digest, m->digest, sizeof r->made.digest);
    TS_TRY(ts_ckpt_make_id(r->made.epoch));
    ts_ckpt_folder_name(r->made.serial, r->made.version, r->name);
    r->made.parts = ts_mem_calloc((size_t)r->made.servers + r->made.workers, sizeof *r->made.parts);
    r->made.contract = ts_mem_calloc(m->contract_bytes + 1, 1);
    TS_REQUIRE(r->made.parts && r->made.contract, TERSE_ENOMEM);
    memcpy(r->made.contract, m->contract, m->contract_bytes);
    r->made.contract_bytes = m->contract_bytes;
    TS_TRY(ts_ckpt_manifest_contract(m, r->made.servers, &r->contract, error));
    const ts_ckpt_reader *worker = some_worker(r);
    const ts_safetensors *header = worker ? ts_ckpt_reader_header(worker) : NULL;
    for (uint32_t e = 0; header && e < header->count; e++)
        r->ef21 = r->ef21 || strstr(header->entries[e].name, "#estimate") != NULL;
    TS_TRY(ts_ckpt_path(r->folder, r->name, NULL, &path));
    terse_status status = ts_ckpt_make_folder(path, error);
    ts_mem_free(path);
    return status;
}

static terse_status run(reshard *r, ts_error *error) {
    char *path = NULL;
    for (uint32_t s = 0; s < r->made.servers; s++) TS_TRY(make_server(r, s, error));
    for (uint32_t w = 0; w < r->made.workers; w++) TS_TRY(make_worker(r, w, error));
    TS_TRY(ts_ckpt_path(r->folder, r->name, TS_CKPT_MANIFEST, &path));
    terse_status status = TERSE_OK;
    if (r->addition) status = r->addition->before(r->addition, path, r->made.epoch, error);
    if (status == TERSE_OK) status = ts_ckpt_manifest_write(&r->made, path, error);
    ts_mem_free(path);
    return status;
}

terse_status ts_ckpt_remake(ts_ckpt_source *source, const char *folder, uint64_t servers, uint64_t workers,
                            const ts_ckpt_addition *addition, char *name, ts_error *error) {
    reshard r = {.source = source, .addition = addition, .folder = folder};
    terse_status status = prepare(&r, servers, workers, error);
    if (status == TERSE_OK) {
        status = run(&r, error);
        if (status != TERSE_OK) ts_ckpt_remove(r.folder, r.name, NULL);
    }
    memcpy(name, r.name, TS_CKPT_NAME_CHARS);
    ts_contract_destroy(r.contract);
    ts_ckpt_manifest_free(&r.made);
    return status;
}

int ts_ckpt_reshard_command(int argc, char **argv) {
    const char *words[2] = {NULL};
    uint64_t servers = 0, workers = 0;
    const ts_ckpt_option options[] = {{"servers", 1, 4096, &servers}, {"workers", 1, 4096, &workers}};
    int code = ts_ckpt_line(PROGRAM, help, argc, argv, words, 2, NULL, options, 2);
    if (code >= 0) return code;
    ts_ckpt_source source = {.dir = NULL};
    ts_error error = {""};
    char name[TS_CKPT_NAME_CHARS];
    terse_status status = ts_ckpt_source_open(words[0], &source, &error);
    if (status == TERSE_OK) status = ts_ckpt_source_open_parts(&source, &error);
    if (status == TERSE_OK) status = ts_ckpt_remake(&source, words[1], servers, workers, NULL, name, &error);
    if (status == TERSE_OK)
        printf("%s/%s: step %" PRIu64 ", %u servers and %u workers, from %u and %u\n", words[1], name, source.manifest.version,
               servers ? (unsigned)servers : source.manifest.servers, workers ? (unsigned)workers : source.manifest.workers,
               source.manifest.servers, source.manifest.workers);
    code = status == TERSE_OK ? TS_EXIT_OK : ts_ckpt_fail(PROGRAM, status, &error);
    ts_ckpt_source_close(&source);
    return code;
}
