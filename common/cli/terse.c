/* SPDX-License-Identifier: Apache-2.0 */
/* terse COMMAND …: finds the command and runs it. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/cli/commands.h"
#include "common/config/config.h"

typedef struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} command;

static const command commands[] = {
#define COMMAND_ROW(name, function, summary) {name, function, summary},
    TS_COMMANDS(COMMAND_ROW)
#undef COMMAND_ROW
};
#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static void print_help(FILE *out) {
    fprintf(out, "usage: terse COMMAND [ARGUMENTS]\n\ncommands:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\nterse COMMAND --help says more. terse --version prints the version.\n"
                 "Jobs are run by terse-server and terse-worker under mpirun.\n"
                 "Exit codes: 0 fine, 1 failed, 2 the config or the command line is wrong.\n");
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); /* `terse … | head` ends by a failed write, not by a signal */
    if (argc < 2) {
        print_help(stderr);
        return TS_EXIT_CONFIG;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return TS_EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("terse %s\n", TS_VERSION);
        return TS_EXIT_OK;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
    }
    fprintf(stderr, "terse: %s: no such command; there are:", argv[1]);
    for (size_t i = 0; i < COMMAND_COUNT; i++) fprintf(stderr, "%s %s", i ? "," : "", commands[i].name);
    fprintf(stderr, "\n");
    return TS_EXIT_CONFIG;
}
