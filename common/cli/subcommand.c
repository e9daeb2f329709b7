/* SPDX-License-Identifier: Apache-2.0 */
#include "common/cli/subcommand.h"

#include <string.h>

#include "common/config/config.h"

static void print_help(const ts_subcommands *set, FILE *out) {
    fprintf(out, "usage: %s COMMAND [ARGUMENTS]\n\n%scommands:\n", set->program, set->about);
    for (size_t i = 0; i < set->count; i++) fprintf(out, "  %-8s %s\n", set->commands[i].name, set->commands[i].summary);
    fprintf(out, "\n%s COMMAND --help says more.\n%s", set->program, set->notes);
}

int ts_subcommand_run(const ts_subcommands *set, int argc, char **argv) {
    if (argc < 2) {
        print_help(set, stderr);
        return TS_EXIT_CONFIG;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(set, stdout);
        return TS_EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("terse %s\n", TS_VERSION);
        return TS_EXIT_OK;
    }
    for (size_t i = 0; i < set->count; i++)
        if (strcmp(argv[1], set->commands[i].name) == 0) return set->commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "%s: %s: no such command; there are:", set->program, argv[1]);
    for (size_t i = 0; i < set->count; i++) fprintf(stderr, "%s %s", i ? "," : "", set->commands[i].name);
    fprintf(stderr, "\n");
    return TS_EXIT_CONFIG;
}
