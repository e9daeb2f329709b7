/* SPDX-License-Identifier: Apache-2.0 */
/* terse ckpt ls, terse ckpt verify. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/mem.h"
#include "common/cli/cmd_ckpt.h"
#include "common/config/config.h"

static const char ls_help[] =
    "NAME\n"
    "  terse ckpt ls - list the checkpoints of a folder\n\n"
    "SYNOPSIS\n"
    "  terse ckpt ls FOLDER [--json]\n\n"
    "DESCRIPTION\n"
    "  One line a checkpoint, oldest first: its name, whether it is complete, for how many servers and workers,\n"
    "  its size, the run it is of, and where that run's epoch had gone on from. What was interrupted, and what\n"
    "  has a damaged manifest, is listed as such: a job never goes on from it.\n\n"
    "  --json   a list of objects: name, serial, step, complete, problem, servers, workers, bytes, run, epoch,\n"
    "           parent (null, or epoch and step), total_steps\n\n"
    "EXIT STATUS\n"
    "  0 done; 1 the folder cannot be read; 2 the command line is wrong";

/* What is known of one. */
static json_t *describe(const char *dir, const ts_ckpt_found *found) {
    ts_ckpt_source source = {.dir = NULL};
    ts_error error = {"interrupted before it was complete"};
    char *path = NULL;
    terse_status status = TERSE_ENOTFOUND;
    json_t *row = json_pack("{s:s, s:I, s:I}", "name", found->name, "serial", (json_int_t)found->serial, "step",
                            (json_int_t)found->version);
    if (found->committed && ts_ckpt_path(dir, found->name, NULL, &path) == TERSE_OK)
        status = ts_ckpt_source_open(path, &source, &error);
    ts_mem_free(path);
    json_object_set_new(row, "complete", json_boolean(status == TERSE_OK));
    json_object_set_new(row, "problem", status == TERSE_OK ? json_null() : json_string(error.text));
    if (status != TERSE_OK) return row;
    const ts_ckpt_manifest *m = &source.manifest;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < m->servers + m->workers; i++) bytes += m->parts[i].bytes;
    json_object_set_new(row, "servers", json_integer(m->servers));
    json_object_set_new(row, "workers", json_integer(m->workers));
    json_object_set_new(row, "bytes", json_integer((json_int_t)bytes));
    json_object_set_new(row, "run", json_string(m->run));
    json_object_set_new(row, "epoch", json_string(m->epoch));
    json_object_set_new(row, "parent", m->parent_epoch[0] ? json_pack("{s:s, s:I}", "epoch", m->parent_epoch, "step",
                                                                      (json_int_t)m->parent_version)
                                                          : json_null());
    json_object_set_new(row, "total_steps", json_integer((json_int_t)source.contract->total_steps));
    ts_ckpt_source_close(&source);
    return row;
}

static void print_row(const json_t *row) {
    const char *name = json_string_value(json_object_get(row, "name"));
    if (!json_is_true(json_object_get(row, "complete"))) {
        printf("%-28s not complete: %s\n", name, json_string_value(json_object_get(row, "problem")));
        return;
    }
    const json_t *parent = json_object_get(row, "parent");
    printf("%-28s complete  %lld server(s), %lld worker(s)  %.1f MB  run %s", name,
           (long long)json_integer_value(json_object_get(row, "servers")),
           (long long)json_integer_value(json_object_get(row, "workers")),
           (double)json_integer_value(json_object_get(row, "bytes")) / 1e6, json_string_value(json_object_get(row, "run")));
    if (json_is_object(parent)) printf("  from step %lld", (long long)json_integer_value(json_object_get(parent, "step")));
    printf("\n");
}

static void print_json(json_t *value) {
    char *text = value ? json_dumps(value, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    if (text) puts(text);
    free(text);
}

int ts_ckpt_ls_command(int argc, char **argv) {
    const char *dir = NULL;
    bool json = false;
    int code = ts_ckpt_line("terse ckpt ls", ls_help, argc, argv, &dir, 1, &json, NULL, 0);
    if (code >= 0) return code;
    ts_ckpt_found *list = NULL;
    size_t count = 0;
    ts_error error = {""};
    struct stat info;
    terse_status status = stat(dir, &info) == 0 ? ts_ckpt_scan(dir, &list, &count, &error)
                                                : ts_error_set(&error, TERSE_ENOTFOUND, "%s: %s", dir, strerror(errno));
    if (status != TERSE_OK) return ts_ckpt_fail("terse ckpt ls", status, &error);
    json_t *rows = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *row = describe(dir, &list[i]);
        if (!json) print_row(row);
        json_array_append_new(rows, row);
    }
    if (json) print_json(rows);
    else if (count == 0) printf("no checkpoints in %s\n", dir);
    json_decref(rows);
    ts_mem_free(list);
    return TS_EXIT_OK;
}

/* ---- verify ---------------------------------------------------------------------------------------------------------------- */

static const char verify_help[] =
    "NAME\n"
    "  terse ckpt verify - read every byte of a checkpoint and check it\n\n"
    "SYNOPSIS\n"
    "  terse ckpt verify CHECKPOINT [--json]\n\n"
    "DESCRIPTION\n"
    "  Checks the manifest's seal and contract, then each part: that it is there, that it is the one the manifest\n"
    "  speaks of (run, epoch, step, length, seal), and every entry's checksum. All parts are looked at, whatever\n"
    "  is wrong with one.\n\n"
    "  --json   one object: folder, step, fine, parts (a list of file, bytes, entries, problem)\n\n"
    "EXIT STATUS\n"
    "  0 all of it is as it was written; 1 something is missing or damaged; 2 the command line is wrong";

/* Reads one part to the end. entries: [out] */
static terse_status verify_part(const ts_ckpt_source *source, uint32_t number, uint32_t *entries, ts_error *error) {
    bool worker = number >= source->manifest.servers;
    ts_ckpt_reader *reader = NULL;
    terse_status status = ts_ckpt_manifest_open(&source->manifest, source->dir, source->folder, worker,
                                                worker ? number - source->manifest.servers : number, &reader, error);
    if (status != TERSE_OK) return status;
    *entries = ts_ckpt_reader_header(reader)->count;
    for (uint32_t e = 0; e < *entries && status == TERSE_OK; e++) status = ts_ckpt_reader_verify(reader, e, error);
    ts_ckpt_reader_close(reader);
    return status;
}

static bool verify_all(const ts_ckpt_source *source, json_t *parts, bool json) {
    bool fine = true;
    for (uint32_t i = 0; i < ts_ckpt_source_parts(source); i++) {
        bool worker = i >= source->manifest.servers;
        char file[TS_CKPT_NAME_CHARS];
        uint32_t entries = 0;
        ts_error error = {""};
        ts_ckpt_part_file(worker, worker ? i - source->manifest.servers : i,
                          worker ? source->manifest.workers : source->manifest.servers, file);
        uint64_t bytes = source->manifest.parts[i].bytes;
        terse_status status = bytes > 0 ? verify_part(source, i, &entries, &error) : TERSE_OK;
        if (status != TERSE_OK && !error.text[0]) (void)snprintf(error.text, sizeof error.text, "%s", terse_strerror(status));
        fine = fine && status == TERSE_OK;
        if (!json && bytes == 0) printf("none     %s: the worker had left\n", file);
        else if (!json && status == TERSE_OK) printf("fine     %s: %" PRIu64 " bytes, %u entries\n", file, bytes, entries);
        else if (!json) printf("DAMAGED  %s\n", error.text);
        json_array_append_new(parts, json_pack("{s:s, s:I, s:I, s:s?}", "file", file, "bytes", (json_int_t)bytes, "entries",
                                               (json_int_t)entries, "problem", status == TERSE_OK ? NULL : error.text));
    }
    return fine;
}

int ts_ckpt_verify_command(int argc, char **argv) {
    const char *path = NULL;
    bool json = false;
    int code = ts_ckpt_line("terse ckpt verify", verify_help, argc, argv, &path, 1, &json, NULL, 0);
    if (code >= 0) return code;
    ts_ckpt_source source = {.dir = NULL};
    ts_error error = {""};
    terse_status status = ts_ckpt_source_open(path, &source, &error);
    if (status != TERSE_OK) return ts_ckpt_fail("terse ckpt verify", status, &error);
    json_t *parts = json_array();
    bool fine = verify_all(&source, parts, json);
    json_t *root = json_pack("{s:s, s:I, s:b, s:o}", "folder", source.folder, "step", (json_int_t)source.manifest.version,
                             "fine", fine, "parts", parts);
    if (json) print_json(root);
    else printf("%s: %s\n", source.folder, fine ? "fine" : "DAMAGED");
    json_decref(root);
    ts_ckpt_source_close(&source);
    return fine ? TS_EXIT_OK : TS_EXIT_FAILED;
}
