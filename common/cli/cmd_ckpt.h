/* SPDX-License-Identifier: Apache-2.0 */
/* What the sub-commands of `terse ckpt` share: a checkpoint with all its parts open. */
#ifndef TS_CLI_CMD_CKPT_H
#define TS_CLI_CMD_CKPT_H

#include "common/ckpt/ckpt_manifest.h"

/* argv[0] is the sub-command's name. Returns: the program's exit code. */
int ts_ckpt_ls_command(int argc, char **argv);
int ts_ckpt_verify_command(int argc, char **argv);
int ts_ckpt_diff_command(int argc, char **argv);
int ts_ckpt_reshard_command(int argc, char **argv);
int ts_ckpt_export_command(int argc, char **argv);
int ts_ckpt_keep_command(int argc, char **argv);

typedef struct {
    char *dir, *folder;         /* [own] */
    ts_ckpt_manifest manifest;
    ts_contract *contract;      /* [own] for the checkpoint's number of servers */
    ts_ckpt_reader **readers;   /* [own] as manifest.parts; NULL for a worker without one, and before open_parts */
} ts_ckpt_source;

/*
 * Finds a checkpoint: its own folder, or the newest complete one of a folder of checkpoints; reads its manifest.
 * out: [out] ts_ckpt_source_close. Returns TERSE_OK; EIO, ENOTFOUND, ECORRUPT, …: error says; ENOMEM.
 */
terse_status ts_ckpt_source_open(const char *path, ts_ckpt_source *out, ts_error *error) TERSE_NODISCARD;
/* Opens all parts and compares them with the manifest. Returns TERSE_OK, or the first that is wrong: error says. */
terse_status ts_ckpt_source_open_parts(ts_ckpt_source *source, ts_error *error) TERSE_NODISCARD;
void ts_ckpt_source_close(ts_ckpt_source *source); /* a zeroed one is fine */
/* How many parts: servers, then workers. */
static inline uint32_t ts_ckpt_source_parts(const ts_ckpt_source *source) {
    return source->manifest.servers + source->manifest.workers;
}
/* The reader of the server that holds a slice (the contract's number). */
static inline ts_ckpt_reader *ts_ckpt_source_of_slice(const ts_ckpt_source *source, uint32_t slice) {
    return source->readers[source->contract->slices[slice].server];
}

/* What else goes into workers' parts of a checkpoint that is made of another. */
typedef struct ts_ckpt_addition {
    /* Whether the worker gets something, and so a part, though the source has none of it. */
    bool (*wants)(const struct ts_ckpt_addition *addition, uint32_t worker);
    /* Adds to an entry `TENSOR#what`, which holds `len` bytes. Returns TERSE_OK, or why it cannot: error says. */
    terse_status (*add)(const struct ts_ckpt_addition *addition, uint32_t worker, const char *entry, ts_dtype dtype, void *bytes,
                        size_t len, ts_error *error);
    /* All is written but the manifest, which will be `path`, of that epoch. */
    terse_status (*before)(const struct ts_ckpt_addition *addition, const char *path, const char *epoch, ts_error *error);
    void *context;
} ts_ckpt_addition;
/*
 * Makes a checkpoint of the same step in `folder`, as its newest, for other numbers of servers and workers (0: the same).
 * source: its parts are open. addition: NULL, or with the same numbers: workers without a part then stay without.
 * name: [out] TS_CKPT_NAME_CHARS. Returns TERSE_OK; EIO, ECORRUPT, …: error says; nothing is left of it.
 */
terse_status ts_ckpt_remake(ts_ckpt_source *source, const char *folder, uint64_t servers, uint64_t workers,
                            const ts_ckpt_addition *addition, char *name, ts_error *error) TERSE_NODISCARD;

/*
 * Takes a name apart: `TENSOR[begin:end]#what`. tensor_len: of the tensor's name; what: [borrow] of name, "" for none;
 * begin, end: 0 without a range.
 */
void ts_ckpt_entry_parse(const char *name, size_t *tensor_len, size_t *begin, size_t *end, const char **what);

/* A command line of operands, --json and options with numbers. */
typedef struct {
    const char *name;  /* without the dashes */
    uint64_t low, high;
    uint64_t *value;
} ts_ckpt_option;
/*
 * Reads it. program: "terse ckpt ls"; help: printed for --help; words: [out] exactly `count` operands; json: NULL: no such
 * option. Returns -1 to go on, or the exit code.
 */
int ts_ckpt_line(const char *program, const char *help, int argc, char **argv, const char **words, int count, bool *json,
                 const ts_ckpt_option *options, size_t option_count);
/* One line on standard error. Returns TS_EXIT_FAILED. */
int ts_ckpt_fail(const char *program, terse_status status, const ts_error *error);

#endif
