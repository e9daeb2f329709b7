/* SPDX-License-Identifier: Apache-2.0 */
/* terse ckpt export: whole tensors for everybody else. One slice is in memory at a time. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file_aside.h"
#include "common/base/mem.h"
#include "common/cli/cmd_ckpt.h"
#include "common/config/config.h"

static const char help[] =
    "NAME\n"
    "  terse ckpt export - write the parameters as plain safetensors\n\n"
    "SYNOPSIS\n"
    "  terse ckpt export CHECKPOINT FOLDER [--max-shard-bytes N]\n\n"
    "DESCRIPTION\n"
    "  Writes FOLDER/model.safetensors with every tensor whole, float32, in its declared shape and order. When the\n"
    "  tensors come to more than N bytes (5000000000 when not given), they are dealt out, in order, to files\n"
    "  model-00001-of-0000M.safetensors of at most N bytes each (a larger tensor has a file to itself), and\n"
    "  model.safetensors.index.json says which tensor is in which file, as large models use it.\n"
    "  Files appear whole or not at all, the index last. FOLDER is made when it is not there.\n"
    "  Only what is written is read, and its checksums with it: damage in other entries (the optimizer's state,\n"
    "  #reference) and in workers' parts is not seen. terse ckpt verify reads everything.\n\n"
    "EXIT STATUS\n"
    "  0 done; 1 the checkpoint cannot be read, or its manifest or parameters are damaged, or FOLDER cannot be\n"
    "  written; 2 the command line is wrong";

typedef struct {
    const ts_ckpt_source *source;
    const char *folder;
    uint64_t most;
    uint32_t *file_of;  /* [own] a tensor: its file, from 0 */
    uint32_t files;
    float *slice;       /* [own] room for the largest */
} export;

static uint64_t tensor_bytes(const ts_contract *contract, uint32_t t) { return (uint64_t)contract->tensors[t].n * sizeof(float); }

/* Deals the tensors out. */
static terse_status plan(export *x) {
    const ts_contract *contract = x->source->contract;
    uint64_t bytes = 0;
    size_t largest = 1;
    x->file_of = ts_mem_calloc(contract->tensor_count, sizeof *x->file_of);
    TS_REQUIRE(x->file_of, TERSE_ENOMEM);
    for (uint32_t t = 0; t < contract->tensor_count; t++) {
        if (bytes > 0 && tensor_bytes(contract, t) > x->most - (bytes < x->most ? bytes : x->most)) {
            x->files++;
            bytes = 0;
        }
        bytes += tensor_bytes(contract, t);
        x->file_of[t] = x->files;
    }
    x->files++;
    for (uint32_t s = 0; s < contract->slice_count; s++)
        if (contract->slices[s].n > largest) largest = contract->slices[s].n;
    x->slice = ts_mem_aligned(largest, sizeof(float));
    return x->slice ? TERSE_OK : TERSE_ENOMEM;
}

static void file_name(const export *x, uint32_t file, char name[TS_CKPT_NAME_CHARS]) {
    if (x->files == 1) snprintf(name, TS_CKPT_NAME_CHARS, "model.safetensors");
    else snprintf(name, TS_CKPT_NAME_CHARS, "model-%05u-of-%05u.safetensors", file + 1, x->files);
}

/* The slices of a tensor, one after the other. */
static terse_status write_tensor(export *x, uint32_t t, ts_file_aside *file, ts_error *error) {
    const ts_tensor *tensor = &x->source->contract->tensors[t];
    for (uint32_t i = 0; i < tensor->slices; i++) {
        uint32_t number = tensor->first_slice + i;
        const ts_slice *slice = &x->source->contract->slices[number];
        char *name = NULL;
        TS_TRY(ts_ckpt_entry_name(tensor->name, slice->first, slice->first + slice->n, NULL, &name));
        terse_status status = ts_ckpt_reader_get(ts_ckpt_source_of_slice(x->source, number), name, TS_DTYPE_F32, x->slice,
                                                 slice->n * sizeof(float), error);
        ts_mem_free(name);
        if (status == TERSE_OK) status = ts_file_aside_write(file, x->slice, slice->n * sizeof(float), error);
        TS_TRY(status);
    }
    return TERSE_OK;
}

static terse_status describe(const export *x, uint32_t number, ts_safetensors *header) {
    const ts_contract *contract = x->source->contract;
    char step[24];
    snprintf(step, sizeof step, "%" PRIu64, x->source->manifest.version);
    TS_TRY(ts_safetensors_note(header, "format", "pt")); /* what readers of large models ask for */
    TS_TRY(ts_safetensors_note(header, "producer", "terse " TS_VERSION));
    TS_TRY(ts_safetensors_note(header, "steps", step));
    for (uint32_t t = 0; t < contract->tensor_count; t++)
        if (x->file_of[t] == number)
            TS_TRY(ts_safetensors_add(header, contract->tensors[t].name, TS_DTYPE_F32, contract->tensors[t].shape,
                                      contract->tensors[t].ndim, NULL));
    return TERSE_OK;
}

static terse_status write_file(export *x, uint32_t number, ts_error *error) {
    char name[TS_CKPT_NAME_CHARS], *path = NULL;
    ts_safetensors header = {0};
    uint8_t *front = NULL;
    size_t len = 0;
    ts_file_aside file;
    file_name(x, number, name);
    terse_status status = describe(x, number, &header);
    if (status == TERSE_OK) status = ts_safetensors_front(&header, &front, &len, error);
    if (status == TERSE_OK) status = ts_ckpt_path(x->folder, NULL, name, &path);
    if (status == TERSE_OK) status = ts_file_aside_open(path, &file, error);
    if (status == TERSE_OK) {
        status = ts_file_aside_write(&file, front, len, error);
        for (uint32_t t = 0; t < x->source->contract->tensor_count && status == TERSE_OK; t++)
            if (x->file_of[t] == number) status = write_tensor(x, t, &file, error);
        status = ts_file_aside_finish(&file, status, error);
    }
    if (status == TERSE_OK) printf("%s: %" PRIu64 " bytes\n", path, len + header.data_bytes);
    ts_mem_free(front);
    ts_mem_free(path);
    ts_safetensors_free(&header);
    return status;
}

static terse_status write_index(const export *x, ts_error *error) {
    const ts_contract *contract = x->source->contract;
    json_t *map = json_object();
    uint64_t total = 0;
    for (uint32_t t = 0; t < contract->tensor_count; t++) {
        char name[TS_CKPT_NAME_CHARS];
        file_name(x, x->file_of[t], name);
        json_object_set_new(map, contract->tensors[t].name, json_string(name));
        total += tensor_bytes(contract, t);
    }
    json_t *root = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL, *path = NULL;
    json_decref(root);
    TS_REQUIRE(text, TERSE_ENOMEM);
    ts_file_aside file;
    terse_status status = ts_ckpt_path(x->folder, NULL, "model.safetensors.index.json", &path);
    if (status == TERSE_OK) status = ts_file_aside_open(path, &file, error);
    if (status == TERSE_OK) {
        status = ts_file_aside_write(&file, text, strlen(text), error);
        status = ts_file_aside_finish(&file, status, error);
    }
    if (status == TERSE_OK) printf("%s\n", path);
    free(text);
    ts_mem_free(path);
    return status;
}

int ts_ckpt_export_command(int argc, char **argv) {
    const char *words[2] = {NULL};
    export x = {.most = 5000000000u};
    const ts_ckpt_option options[] = {{"max-shard-bytes", 1, INT64_MAX, &x.most}};
    int code = ts_ckpt_line("terse ckpt export", help, argc, argv, words, 2, NULL, options, 1);
    if (code >= 0) return code;
    ts_ckpt_source source = {.dir = NULL};
    ts_error error = {""};
    x.source = &source;
    x.folder = words[1];
    terse_status status = ts_ckpt_source_open(words[0], &source, &error);
    if (status == TERSE_OK) status = ts_ckpt_source_open_parts(&source, &error);
    if (status == TERSE_OK) status = ts_ckpt_make_folder(x.folder, &error);
    if (status == TERSE_OK) status = plan(&x);
    for (uint32_t f = 0; status == TERSE_OK && f < x.files; f++) status = write_file(&x, f, &error);
    if (status == TERSE_OK && x.files > 1) status = write_index(&x, &error);
    code = status == TERSE_OK ? TS_EXIT_OK : ts_ckpt_fail("terse ckpt export", status, &error);
    ts_mem_free(x.file_of);
    ts_mem_free(x.slice);
    ts_ckpt_source_close(&source);
    return code;
}
