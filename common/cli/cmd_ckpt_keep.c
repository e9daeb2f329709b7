/* SPDX-License-Identifier: Apache-2.0 */
/* terse ckpt keep: what workers of this host keep for their next life; its list. */
#include "common/cli/cmd_ckpt_keep.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/cli/commands.h"
#include "common/cli/subcommand.h"
#include "common/config/config.h"

static const ts_subcommand commands[] = {
    {"ls", ts_ckpt_keep_ls_command, "list the files: whose, of which epoch, what they hold"},
    {"verify", ts_ckpt_keep_verify_command, "read all of a file and check it"},
    {"move", ts_ckpt_keep_move_command, "hand a residual over to another worker of the same epoch"},
    {"fold", ts_ckpt_keep_fold_command, "put residuals into a checkpoint that has none of their workers"},
    {"drop", ts_ckpt_keep_drop_command, "give residuals up, and say what is lost"},
};

static const ts_subcommands keep = {
    .program = "terse ckpt keep",
    .about = "What workers of this host keep for their next life (error_feedback.keep): residual, momentum and packets under way,\n"
             "in DIR/worker-N.keep. A file belongs to one epoch of a job (a start of its servers): parameters of another must not\n"
             "meet it, since part of what it holds may have been sent meanwhile.\n\n",
    .notes = "Files that a process has open are listed, and never changed.\n"
             "Exit codes: 0 fine, 1 failed, 2 the command line is wrong.\n",
    .commands = commands,
    .count = sizeof commands / sizeof commands[0],
};

int ts_ckpt_keep_command(int argc, char **argv) { return ts_subcommand_run(&keep, argc, argv); }

/* ---- finding ------------------------------------------------------------------------------------------------------------ */

static bool is_name(const char *name) {
    uint32_t worker;
    bool aside;
    return ts_keep_name(name, &worker, &aside);
}

static terse_status add_file(ts_keep_files *out, const char *path, ts_error *error) {
    if (out->count == TS_KEEP_COMMAND_FILES)
        return ts_error_set(error, TERSE_ELIMIT, "more than %u files: name a folder", TS_KEEP_COMMAND_FILES);
    out->paths[out->count] = ts_mem_strdup(path);
    TS_REQUIRE(out->paths[out->count], TERSE_ENOMEM);
    out->count++;
    return TERSE_OK;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static terse_status scan(const char *dir, ts_keep_files *out, ts_error *error) {
    DIR *folder = opendir(dir);
    terse_status status = TERSE_OK;
    if (!folder) return ts_error_set(error, TERSE_EIO, "%s: %s", dir, strerror(errno));
    for (const struct dirent *entry; status == TERSE_OK && (entry = readdir(folder));) {
        char *path = NULL;
        if (!is_name(entry->d_name)) continue;
        status = ts_ckpt_path(dir, entry->d_name, NULL, &path);
        if (status == TERSE_OK) status = add_file(out, path, error);
        ts_mem_free(path);
    }
    closedir(folder);
    return status;
}

/* Of all folders there that are ours. */
static terse_status scan_shared(const char *root, ts_keep_files *out, ts_error *error) {
    DIR *folder = opendir(root);
    terse_status status = TERSE_OK;
    if (!folder) return ts_error_set(error, TERSE_EIO, "%s: %s", root, strerror(errno));
    for (const struct dirent *entry; status == TERSE_OK && (entry = readdir(folder));) {
        struct stat info;
        char *path = NULL;
        if (entry->d_name[0] == '.') continue;
        status = ts_ckpt_path(root, entry->d_name, NULL, &path);
        bool ours = status == TERSE_OK && lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
        if (ours && scan(path, out, error) == TERSE_ELIMIT) status = TERSE_ELIMIT;
        ts_mem_free(path);
    }
    closedir(folder);
    return status;
}

terse_status ts_keep_find_files(const char *path, ts_keep_files *out, ts_error *error) {
    struct stat info;
    terse_status status;
    *out = (ts_keep_files){.count = 0};
    if (!path) status = scan_shared("/dev/shm", out, error);
    else if (stat(path, &info) != 0) status = ts_error_set(error, TERSE_EIO, "%s: %s", path, strerror(errno));
    else if (S_ISDIR(info.st_mode)) status = scan(path, out, error);
    else status = add_file(out, path, error);
    if (status != TERSE_OK) ts_keep_free_files(out);
    else if (out->count > 1) qsort(out->paths, out->count, sizeof out->paths[0], by_text);
    return status;
}

void ts_keep_free_files(ts_keep_files *files) {
    for (uint32_t i = 0; i < files->count; i++) ts_mem_free(files->paths[i]);
    files->count = 0;
}

void ts_keep_print_tensors(const ts_keep *file) {
    for (uint32_t t = 0; t < ts_keep_contract(file)->tensor_count; t++) {
        ts_keep_mass mass = ts_keep_mass_of(file, t);
        char text[160];
        if (!ts_keep_holds(&mass)) continue;
        ts_keep_mass_text(&mass, text, sizeof text);
        printf("  %s: %s\n", ts_keep_contract(file)->tensors[t].name, text);
    }
}

/* ---- ls ------------------------------------------------------------------------------------------------------------------ */

static const char ls_help[] =
    "NAME\n"
    "  terse ckpt keep ls - list what workers of this host have kept\n\n"
    "SYNOPSIS\n"
    "  terse ckpt keep ls [FILE|FOLDER] [--json]\n\n"
    "DESCRIPTION\n"
    "  One line a file: its job, worker, epoch, the step that it stands at, who has it open, and what it holds: the\n"
    "  residual's sum of magnitudes and norm, and packets that nobody has answered for. Without a folder, those of all\n"
    "  folders of /dev/shm. What a living worker holds changes while it is read; a dead one's is read as the next one finds\n"
    "  it, a push that was cut short undone.\n\n"
    "  --json   a list of objects: file, problem, job, worker, workers, epoch, run, life, step, ended (the job is known\n"
    "           to have), owner (a process, or null), l1, l2, nonzero, packets, tensors (a list of name, l1, l2,\n"
    "           nonzero, packets); l1 and l2 are null where a damaged file holds NaN or infinity\n\n"
    "EXIT STATUS\n"
    "  0 done; 1 the folder cannot be read; 2 the command line is wrong";

/* JSON has no NaN and no infinity, which only a damaged file holds: null. */
static json_t *real(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static json_t *numbers(const ts_keep_mass *mass) {
    return json_pack("{s:o, s:o, s:I, s:I}", "l1", real(mass->l1), "l2", real(sqrt(mass->squares)), "nonzero",
                     (json_int_t)mass->nonzero, "packets", (json_int_t)mass->packets);
}

static json_t *tensors_of(const ts_keep *file) {
    json_t *list = json_array();
    for (uint32_t t = 0; t < ts_keep_contract(file)->tensor_count; t++) {
        ts_keep_mass mass = ts_keep_mass_of(file, t);
        json_t *row = numbers(&mass);
        json_object_set_new(row, "name", json_string(ts_keep_contract(file)->tensors[t].name));
        json_array_append_new(list, row);
    }
    return list;
}

static void put_hex(json_t *row, const char *key, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    json_object_set_new(row, key, json_string(text));
}

/* NULL when its name, or its job's, is no text. */
static json_t *describe(const char *path) {
    ts_keep *file = NULL;
    ts_error error = {""};
    long owner = ts_keep_owner(path);
    terse_status status = owner ? TERSE_ESTATE : ts_keep_open_still(path, &file, &error);
    if (status == TERSE_ESTATE) status = ts_keep_open_file(path, false, &file, &error);
    if (status != TERSE_OK)
        return json_pack("{s:s, s:s}", "file", path, "problem", error.text[0] ? error.text : terse_strerror(status));
    ts_keep_identity is = ts_keep_identify(file);
    ts_keep_mass mass = ts_keep_mass_all(file);
    json_t *row = json_pack("{s:s, s:n, s:s, s:I, s:I, s:I, s:I, s:b}", "file", path, "problem", "job", is.job, "worker",
                            (json_int_t)is.worker, "workers", (json_int_t)is.workers, "life", (json_int_t)is.incarnation, "step",
                            (json_int_t)is.steps, "ended", is.ended);
    put_hex(row, "epoch", is.epoch);
    put_hex(row, "run", is.run);
    json_object_set_new(row, "owner", owner ? json_integer(owner) : json_null());
    json_t *sums = numbers(&mass);
    json_object_update(row, sums);
    json_decref(sums);
    json_object_set_new(row, "tensors", tensors_of(file));
    ts_keep_close(file, false);
    return row;
}

static const char *word(const json_t *row, const char *key) { return json_string_value(json_object_get(row, key)); }
static long long whole(const json_t *row, const char *key) { return (long long)json_integer_value(json_object_get(row, key)); }
static double number(const json_t *row, const char *key) {
    const json_t *value = json_object_get(row, key);
    return json_is_real(value) ? json_real_value(value) : (double)NAN;
}

static void print_row(const json_t *row) {
    if (!json_is_null(json_object_get(row, "problem"))) {
        printf("%s\n", word(row, "problem"));
        return;
    }
    char owner[48] = "its worker is dead";
    if (!json_is_null(json_object_get(row, "owner"))) snprintf(owner, sizeof owner, "process %lld has it", whole(row, "owner"));
    printf("%s  job %s  worker %lld of %lld  epoch %s%s  step %lld  %s  sum of magnitudes %.6g  norm %.6g  packets %lld\n",
           word(row, "file"), word(row, "job"), whole(row, "worker"), whole(row, "workers"), word(row, "epoch"),
           json_is_true(json_object_get(row, "ended")) ? " (ended)" : "", whole(row, "step"), owner,
           number(row, "l1"), number(row, "l2"), whole(row, "packets"));
}

int ts_ckpt_keep_ls_command(int argc, char **argv) {
    const char *path = NULL;
    bool json = false, named = false;
    for (int i = 1; i < argc; i++) named = named || strncmp(argv[i], "-", 1) != 0;
    int code = ts_ckpt_line("terse ckpt keep ls", ls_help, argc, argv, &path, named ? 1 : 0, &json, NULL, 0);
    if (code >= 0) return code;
    ts_keep_files files;
    ts_error error = {""};
    terse_status status = ts_keep_find_files(path, &files, &error);
    if (status != TERSE_OK) return ts_ckpt_fail("terse ckpt keep ls", status, &error);
    json_t *rows = json_array();
    for (uint32_t i = 0; i < files.count; i++) {
        json_t *row = describe(files.paths[i]);
        if (!row) fprintf(stderr, "terse ckpt keep ls: %s: its name, or its job's, is not UTF-8\n", files.paths[i]);
        else if (!json) print_row(row);
        json_array_append_new(rows, row);
    }
    char *text = json ? json_dumps(rows, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    if (text) puts(text);
    else if (files.count == 0) printf("no files of workers in %s\n", path ? path : "the folders of /dev/shm");
    free(text);
    json_decref(rows);
    ts_keep_free_files(&files);
    return TS_EXIT_OK;
}
