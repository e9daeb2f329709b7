/* SPDX-License-Identifier: Apache-2.0 */
/* terse COMMAND …: the commands of command_list.h. */
#include <signal.h>

#include "common/cli/commands.h"
#include "common/cli/subcommand.h"
#include "common/config/config.h"

static const ts_subcommand commands[] = {
#define COMMAND_ROW(name, function, summary) {name, function, summary},
    TS_COMMANDS(COMMAND_ROW)
#undef COMMAND_ROW
};

static const ts_subcommands terse = {
    .program = "terse",
    .about = "",
    .notes = "terse --version prints the version.\n"
             "Jobs are run by terse-server and terse-worker under mpirun.\n"
             "Exit codes: 0 fine; 1 failed; 2 the config or the command line is wrong; of start, status and\n"
             "stop also 3: no daemon is there, and 4: the time was up.\n",
    .commands = commands,
    .count = sizeof commands / sizeof commands[0],
};

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); /* `terse … | head` ends by a failed write, not by a signal */
    return ts_exit_flush("terse", ts_subcommand_run(&terse, argc, argv));
}
