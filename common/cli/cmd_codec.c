/* SPDX-License-Identifier: Apache-2.0 */
/* terse codec COMMAND: its commands, and what they share. */
#include "common/cli/cmd_codec.h"

#include <stdio.h>

#include "common/cli/commands.h"
#include "common/cli/subcommand.h"
#include "common/config/config.h"

static const ts_subcommand commands[] = {
    {"encode", ts_codec_encode_command, "encode a file of floats into a .tp file, with error feedback if wanted"},
    {"decode", ts_codec_decode_command, "decode a .tp file into a file of floats"},
    {"inspect", ts_codec_inspect_command, "say what a .tp file holds, as JSON"},
    {"list", ts_codec_list_command, "list all stages of pipelines, as JSON"},
};

static const ts_subcommands codec = {
    .program = "terse codec",
    .about = "Gradient compression on files: flat little-endian float32 in, .tp files out, and back.\n\n",
    .notes = "Exit codes: 0 fine, 1 failed, 2 the command line or the pipeline is wrong.\n",
    .commands = commands,
    .count = sizeof commands / sizeof commands[0],
};

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

int ts_cmd_codec(int argc, char **argv) { return ts_subcommand_run(&codec, argc, argv); }
