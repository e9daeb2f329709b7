/* SPDX-License-Identifier: Apache-2.0 */
/* The functions behind the sub-commands of `terse`. */
#ifndef TS_CLI_COMMANDS_H
#define TS_CLI_COMMANDS_H

#include "common/cli/command_list.h"

/*
 * A sub-command. argv[0] is its name, argv[argc] is NULL; argv may be reordered.
 * Returns: the exit code of the program, TS_EXIT_… of common/config/config.h.
 */
#define TS_DECLARE_COMMAND(name, function, summary) int function(int argc, char **argv);
TS_COMMANDS(TS_DECLARE_COMMAND)
#undef TS_DECLARE_COMMAND

#endif
