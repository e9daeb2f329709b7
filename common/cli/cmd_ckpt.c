/* SPDX-License-Identifier: Apache-2.0 */
/* terse ckpt COMMAND: its commands, and what they share. */
#include "common/cli/cmd_ckpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/cli/cmd_codec.h"
#include "common/cli/commands.h"
#include "common/cli/subcommand.h"
#include "common/config/config.h"

static const ts_subcommand commands[] = {
    {"ls", ts_ckpt_ls_command, "list the checkpoints of a folder"},
    {"verify", ts_ckpt_verify_command, "read every byte of a checkpoint and check it"},
    {"diff", ts_ckpt_diff_command, "compare two checkpoints"},
    {"reshard", ts_ckpt_reshard_command, "make one for another number of servers or workers"},
    {"export", ts_ckpt_export_command, "write the parameters as plain safetensors"},
    {"keep", ts_ckpt_keep_command, "what workers of this host keep for their next life: list, move, fold, drop"},
};

static const ts_subcommands ckpt = {
    .program = "terse ckpt",
    .about = "Checkpoints, as checkpoint.dir of a config collects them (proto/CHECKPOINT.md).\n"
             "A CHECKPOINT is the folder ckpt-SERIAL-step-STEP, or a folder of such, which stands for its newest.\n\n",
    .notes = "Exit codes: 0 fine, 1 failed (diff: they differ), 2 the command line is wrong.\n",
    .commands = commands,
    .count = sizeof commands / sizeof commands[0],
};

int ts_cmd_ckpt(int argc, char **argv) { return ts_subcommand_run(&ckpt, argc, argv); }

int ts_ckpt_fail(const char *program, terse_status status, const ts_error *error) {
    fprintf(stderr, "%s: %s\n", program, error->text[0] ? error->text : terse_strerror(status));
    return TS_EXIT_FAILED;
}

/* ---- command lines ------------------------------------------------------------------------------------------------------ */

/* An option with a number at argv[*at]: --name N or --name=N. Returns -1 when taken, -2 when it is none, or an exit code. */
static int take_option(const char *program, int argc, char **argv, int *at, const ts_ckpt_option *options, size_t count) {
    const char *word = argv[*at] + 2;
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(options[i].name);
        char option[40], what[80];
        if (strncmp(word, options[i].name, len) != 0 || (word[len] != '\0' && word[len] != '=')) continue;
        snprintf(option, sizeof option, "--%s", options[i].name);
        snprintf(what, sizeof what, "%s: its value is missing", option);
        const char *text = word[len] == '=' ? word + len + 1 : *at + 1 < argc ? argv[++*at] : NULL;
        if (!text) return ts_cli_usage_error(program, what);
        return ts_cli_option_number(program, option, text, options[i].low, options[i].high, options[i].value) == TERSE_OK
                   ? -1 : TS_EXIT_CONFIG;
    }
    return -2;
}

int ts_ckpt_line(const char *program, const char *help, int argc, char **argv, const char **words, int count, bool *json,
                 const ts_ckpt_option *options, size_t option_count) {
    int found = 0;
    char what[200];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            puts(help);
            return TS_EXIT_OK;
        }
        if (json && strcmp(argv[i], "--json") == 0) {
            *json = true;
        } else if (argv[i][0] == '-' && argv[i][1] == '-') {
            int answer = take_option(program, argc, argv, &i, options, option_count);
            snprintf(what, sizeof what, "%.120s: no such option", argv[i]);
            if (answer == -2) return ts_cli_usage_error(program, what);
            if (answer >= 0) return answer;
        } else if (found == count) {
            snprintf(what, sizeof what, "%.120s: one word too many", argv[i]);
            return ts_cli_usage_error(program, what);
        } else {
            words[found++] = argv[i];
        }
    }
    return found == count ? -1 : ts_cli_usage_error(program, "which? a folder is missing");
}

/* ---- a checkpoint with its parts ------------------------------------------------------------------------------------------ */

/* "a/b/ckpt-…" into "a/b" and the rest; false for another folder. */
static bool split(const char *path, char **dir, char **folder) {
    uint64_t serial, version;
    char *copy = ts_mem_strdup(path);
    size_t len = copy ? strlen(copy) : 0;
    while (len > 1 && copy[len - 1] == '/') copy[--len] = '\0';
    char *slash = copy ? strrchr(copy, '/') : NULL;
    const char *last = slash ? slash + 1 : copy;
    bool is = last && ts_ckpt_folder_parse(last, &serial, &version);
    if (is) {
        *folder = ts_mem_strdup(last);
        if (slash) *slash = '\0';
        *dir = ts_mem_strdup(!slash ? "." : copy[0] ? copy : "/");
    }
    ts_mem_free(copy);
    return is;
}

static terse_status find_newest(const char *path, char **dir, char **folder, ts_error *error) {
    ts_ckpt_found *list = NULL;
    size_t count = 0;
    TS_TRY(ts_ckpt_scan(path, &list, &count, error));
    while (count > 0 && !list[count - 1].committed) count--;
    terse_status status = TERSE_OK;
    if (count == 0) {
        status = ts_error_set(error, TERSE_ENOTFOUND, "%s: no complete checkpoint there", path);
    } else {
        *dir = ts_mem_strdup(path);
        *folder = ts_mem_strdup(list[count - 1].name);
        if (!*dir || !*folder) status = TERSE_ENOMEM;
    }
    ts_mem_free(list);
    return status;
}

terse_status ts_ckpt_source_open(const char *path, ts_ckpt_source *out, ts_error *error) {
    ts_ckpt_source source = {.dir = NULL};
    char *manifest = NULL;
    terse_status status = TERSE_OK;
    if (!split(path, &source.dir, &source.folder)) status = find_newest(path, &source.dir, &source.folder, error);
    if (status == TERSE_OK && (!source.dir || !source.folder)) status = TERSE_ENOMEM;
    if (status == TERSE_OK) status = ts_ckpt_path(source.dir, source.folder, TS_CKPT_MANIFEST, &manifest);
    if (status == TERSE_OK) status = ts_ckpt_manifest_read(manifest, &source.manifest, error);
    if (status == TERSE_OK) status = ts_ckpt_manifest_contract(&source.manifest, source.manifest.servers, &source.contract, error);
    ts_mem_free(manifest);
    if (status == TERSE_OK) *out = source;
    else ts_ckpt_source_close(&source);
    return status;
}

terse_status ts_ckpt_source_open_parts(ts_ckpt_source *source, ts_error *error) {
    source->readers = ts_mem_calloc(ts_ckpt_source_parts(source), sizeof *source->readers);
    TS_REQUIRE(source->readers, TERSE_ENOMEM);
    for (uint32_t i = 0; i < ts_ckpt_source_parts(source); i++) {
        bool worker = i >= source->manifest.servers;
        if (source->manifest.parts[i].bytes == 0) continue;
        TS_TRY(ts_ckpt_manifest_open(&source->manifest, source->dir, source->folder, worker,
                                     worker ? i - source->manifest.servers : i, &source->readers[i], error));
    }
    return TERSE_OK;
}

void ts_ckpt_source_close(ts_ckpt_source *source) {
    for (uint32_t i = 0; source->readers && i < ts_ckpt_source_parts(source); i++) ts_ckpt_reader_close(source->readers[i]);
    ts_mem_free(source->readers);
    ts_contract_destroy(source->contract);
    ts_ckpt_manifest_free(&source->manifest);
    ts_mem_free(source->dir);
    ts_mem_free(source->folder);
    *source = (ts_ckpt_source){.dir = NULL};
}

void ts_ckpt_entry_parse(const char *name, size_t *tensor_len, size_t *begin, size_t *end, const char **what) {
    const char *hash = strrchr(name, '#');
    size_t len = hash ? (size_t)(hash - name) : strlen(name);
    *what = hash ? hash + 1 : "";
    *tensor_len = len;
    *begin = *end = 0;
    if (len == 0 || name[len - 1] != ']') return;
    size_t open = len - 1;
    while (open > 0 && name[open] != '[') open--;
    char *stop = NULL;
    unsigned long long first = strtoull(name + open + 1, &stop, 10);
    if (name[open] != '[' || *stop != ':') return;
    unsigned long long last = strtoull(stop + 1, &stop, 10);
    if (*stop != ']' || first >= last) return;
    *begin = (size_t)first;
    *end = (size_t)last;
    *tensor_len = open;
}
