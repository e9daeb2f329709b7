/* SPDX-License-Identifier: Apache-2.0 */
/* terse codec list: every registered stage, as JSON. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/cli/cmd_codec.h"
#include "common/codec/registry.h"
#include "common/config/config.h"

static void print_help(void) {
    puts("NAME\n"
         "  terse codec list - list all stages of pipelines, as JSON\n\n"
         "SYNOPSIS\n"
         "  terse codec list [--help | --version]\n\n"
         "DESCRIPTION\n"
         "  Prints an array with one object a stage, in the order in which stages stand in a pipeline:\n"
         "    name, kind (transform, select, quantise, index pack, byte pack)\n"
         "    args       what stands behind the colons, as R:B\n"
         "    ranges     for each number: low, high, low_open (low itself is excluded), integral, optional\n"
         "    summary    one sentence; formula; source (author, year)\n"
         "  A pipeline is stages joined by |, at most one of each kind and two byte packs, in this order:\n"
         "    topk:0.001 | int8 | rice\n\n"
         "EXIT STATUS\n"
         "  0 done; 1 it could not be written; 2 the command line is wrong\n\n"
         "EXAMPLE\n"
         "  terse codec list | jq -r '.[] | select(.kind == \"select\") | .name + \": \" + .formula'");
}

static json_t *ranges_of(const ts_stage_info *info) {
    json_t *ranges = json_array();
    for (unsigned i = 0; ranges && i < info->max_args; i++) {
        json_array_append_new(ranges, json_pack("{s:f, s:f, s:b, s:b, s:b}", "low", info->low[i], "high", info->high[i],
                                                "low_open", (int)info->low_open[i], "integral", (int)info->integral[i],
                                                "optional", (int)(i >= info->min_args)));
    }
    return ranges;
}

int ts_codec_list_command(int argc, char **argv) {
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_help();
        return TS_EXIT_OK;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("terse %s\n", TS_VERSION);
        return TS_EXIT_OK;
    }
    if (argc > 1) return ts_cli_usage_error("terse codec list", "no arguments are taken");
    json_t *list = json_array();
    for (size_t i = 0; list && i < ts_registry_count(); i++) {
        const ts_stage_entry *entry = ts_registry_entry(i);
        const ts_stage_info *info = entry->info;
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:o, s:s, s:s, s:s}", "name", info->name, "kind",
                                        ts_stage_kind_name(entry->kind), "args", info->args, "ranges", ranges_of(info),
                                        "summary", info->summary, "formula", info->formula, "source", info->source));
    }
    bool complete = list && json_dumpf(list, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0;
    putchar('\n'); /* whether it went out is seen at the program's end */
    json_decref(list);
    if (complete || ferror(stdout)) return TS_EXIT_OK;
    fprintf(stderr, "terse codec list: out of memory\n");
    return TS_EXIT_FAILED;
}
