/* SPDX-License-Identifier: Apache-2.0 */
/* `terse` and those of its commands that have commands of their own: help, version, and the one that is meant. */
#ifndef TS_CLI_SUBCOMMAND_H
#define TS_CLI_SUBCOMMAND_H

#include <stddef.h>
#include <stdio.h>

typedef struct {
    const char *name;
    int (*run)(int argc, char **argv); /* as in commands.h */
    const char *summary;               /* one sentence for the help */
} ts_subcommand;

typedef struct {
    const char *program; /* as typed: "terse codec" */
    const char *about;   /* a paragraph with its line ends, or "" */
    const char *notes;   /* below the list of commands, with its line ends */
    const ts_subcommand *commands;
    size_t count;
} ts_subcommands;

/*
 * Runs the command that argv[1] names, or prints help or version. set: [borrow].
 * Returns: the command's exit code; TS_EXIT_OK after --help and --version; TS_EXIT_CONFIG when there is no such command.
 */
int ts_subcommand_run(const ts_subcommands *set, int argc, char **argv);

#endif
