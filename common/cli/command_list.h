/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sub-commands of `terse`, in the order of its help: X(name, function, one sentence).
 * A command is its file cmd_<name>.c and its line here.
 */
#ifndef TS_CLI_COMMAND_LIST_H
#define TS_CLI_COMMAND_LIST_H

#define TS_COMMANDS(X)                                                                                   \
    X("check", ts_cmd_check, "check a config and say what it means")                                     \
    X("codec", ts_cmd_codec, "encode, decode and inspect gradients in files; list the stages")           \
    X("bench", ts_cmd_bench, "measure speed and size of pipelines on this machine")                      \
    X("ckpt", ts_cmd_ckpt, "look at checkpoints: list, verify, compare, reshard, export")                 \
    X("doctor", ts_cmd_doctor, "find what will make trouble here, and what mends it")                    \
    X("start", ts_cmd_start, "start servers in the background; jobs join and leave")                     \
    X("status", ts_cmd_status, "what the servers in the background do, and whom they wait for")          \
    X("stop", ts_cmd_stop, "end the servers in the background")

#endif
