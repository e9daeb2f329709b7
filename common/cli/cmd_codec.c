/* SPDX-License-Identifier: Apache-2.0 */
/* terse codec COMMAND: its commands, and what they share. */
#include "common/cli/cmd_codec.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

int ts_cli_usage_error(const char *program, const char *what) {
    fprintf(stderr, "%s: %s; see %s --help\n", program, what, program);
    return TS_EXIT_CONFIG;
}

int ts_cli_option_error(const char *program, int answer, char **argv) {
    char what[200], letter[3] = {'-', (char)optopt, '\0'};
    const char *word = argv[optind - 1]; /* the whole word when it is a long option */
    if (strncmp(word, "--", 2) != 0) word = letter;
    snprintf(what, sizeof what, "%.120s: %s", word,
             answer == ':' ? "its value is missing" : strchr(word, '=') ? "no such option, or it takes no value"
                                                                        : "no such option");
    return ts_cli_usage_error(program, what);
}

int ts_cli_value_error(const char *program, const char *option, const char *value, const char *allowed) {
    fprintf(stderr, "%s: %s: \"%s\"; allowed: %s\n", program, option, value, allowed);
    return TS_EXIT_CONFIG;
}

terse_status ts_cli_option_number(const char *program, const char *option, const char *text, uint64_t low,
                                  uint64_t high, uint64_t *out) {
    char allowed[80];
    if (ts_cli_number(text, low, high, out) == TERSE_OK) return TERSE_OK;
    snprintf(allowed, sizeof allowed, "a whole number from %" PRIu64 " to %" PRIu64, low, high);
    (void)ts_cli_value_error(program, option, text, allowed);
    return TERSE_EINVAL;
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
