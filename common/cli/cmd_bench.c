/* SPDX-License-Identifier: Apache-2.0 */
/* terse bench WHAT: finds the benchmark and runs it. */
#include "common/cli/cmd_bench.h"

#include <stdio.h>
#include <string.h>

#include "common/cli/commands.h"
#include "common/config/config.h"

static void print_help(FILE *out) {
    fprintf(out, "usage: terse bench codec [ARGUMENTS]\n\n"
                 "  codec    speed and size of pipelines on this machine, beside the bare sweep e += g\n\n"
                 "terse bench codec --help says more.\n");
}

int ts_cmd_bench(int argc, char **argv) {
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
    if (strcmp(argv[1], "codec") == 0) return ts_bench_codec_command(argc - 1, argv + 1);
    fprintf(stderr, "terse bench: %s: no such benchmark; there is: codec\n", argv[1]);
    return TS_EXIT_CONFIG;
}
