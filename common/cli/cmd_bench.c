/* SPDX-License-Identifier: Apache-2.0 */
/* terse bench WHAT: the benchmarks. */
#include "common/cli/cmd_bench.h"

#include "common/cli/commands.h"
#include "common/cli/subcommand.h"

static const ts_subcommand benchmarks[] = {
    {"codec", ts_bench_codec_command, "speed and size of pipelines on this machine, beside the bare sweep e += g"},
};

static const ts_subcommands bench = {
    .program = "terse bench",
    .about = "",
    .notes = "",
    .commands = benchmarks,
    .count = sizeof benchmarks / sizeof benchmarks[0],
};

int ts_cmd_bench(int argc, char **argv) { return ts_subcommand_run(&bench, argc, argv); }
