/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands of `terse ckpt keep` share. */
#ifndef TS_CLI_CMD_CKPT_KEEP_H
#define TS_CLI_CMD_CKPT_KEEP_H

#include "common/cli/cmd_ckpt.h"
#include "common/keep/keep_move.h"

#define TS_KEEP_COMMAND_FILES 1024u /* that one command looks at, at most */

/* argv[0] is the command's name. Returns: the program's exit code. */
int ts_ckpt_keep_ls_command(int argc, char **argv);
int ts_ckpt_keep_verify_command(int argc, char **argv);
int ts_ckpt_keep_drop_command(int argc, char **argv);
int ts_ckpt_keep_move_command(int argc, char **argv);
int ts_ckpt_keep_fold_command(int argc, char **argv);

/* Paths of files, in order. Zeroed: empty. */
typedef struct {
    char *paths[TS_KEEP_COMMAND_FILES]; /* [own] */
    uint32_t count;
} ts_keep_files;
/*
 * The files of workers that a path stands for: itself, or those of a folder. path: NULL: of all folders of /dev/shm.
 * Returns TERSE_OK; TERSE_EIO, TERSE_ELIMIT: error says; TERSE_ENOMEM.
 */
terse_status ts_keep_find_files(const char *path, ts_keep_files *out, ts_error *error) TERSE_NODISCARD;
void ts_keep_free_files(ts_keep_files *files);

/* A line about each tensor that holds something. */
void ts_keep_print_tensors(const ts_keep *keep);

#endif
