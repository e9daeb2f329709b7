/* SPDX-License-Identifier: Apache-2.0 */
/* terse codec COMMAND: finds the command and runs it. */
#include "common/cli/cmd_codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli/commands.h"
#include "common/config/config.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"encode", ts_codec_encode_command, "encode a file of floats into a .tp file, with error feedback if wanted"},
    {"decode", ts_codec_decode_command, "decode a .tp file into a file of floats"},
    {"inspect", ts_codec_inspect_command, "say what a .tp file holds, as JSON"},
    {"list", ts_codec_list_command, "list all stages of pipelines, as JSON"},
};
#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static void print_help(FILE *out) {
    fprintf(out,
            "usage: terse codec COMMAND [ARGUMENTS]\n\n"
            "Gradient compression on files: flat little-endian float32 in, .tp files out, and back.\n\ncommands:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\nterse codec COMMAND --help says more.\n"
                 "Exit codes: 0 fine, 1 failed, 2 the command line or the pipeline is wrong.\n");
}

int ts_codec_usage_error(const char *command, const char *what) {
    fprintf(stderr, "terse codec %s: %s; see terse codec %s --help\n", command, what, command);
    return TS_EXIT_CONFIG;
}

terse_status ts_cli_number(const char *text, uint64_t low, uint64_t high, uint64_t *out) {
    uint64_t value = 0;
    TS_REQUIRE(text[0] != '\0', TERSE_EINVAL);
    for (const char *at = text; *at; at++) {
        TS_REQUIRE(*at >= '0' && *at <= '9', TERSE_EINVAL);
        unsigned digit = (unsigned)(*at - '0');
        TS_REQUIRE(value <= (UINT64_MAX - digit) / 10, TERSE_EINVAL);
        value = value * 10 + digit;
    }
    TS_REQUIRE(value >= low && value <= high, TERSE_EINVAL);
    *out = value;
    return TERSE_OK;
}

int ts_cmd_codec(int argc, char **argv) {
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
    fprintf(stderr, "terse codec: %s: no such command; there are: encode, decode, inspect, list\n", argv[1]);
    return TS_EXIT_CONFIG;
}
