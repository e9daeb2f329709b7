#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Encoding and decode-add over the bare sweep, at each vector level: medians of several runs of `terse bench codec`.

The bounds are the project's own for one core and 25.5 M floats; a row above one is marked.
Usage: BUILD=build bench_codec_levels.py [--times 5] [--runs 20] [--level avx2]... [--pipeline int8]...
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

BOUNDS = {
    "topk:0.001 | int8 | rice": (1.15, 0.1),
    "topk:0.01 | int4 | rice": (1.5, 0.5),
    "fp16": (1.5, 1.0),
    "int8": (1.5, 1.0),
    "sign": (1.5, 1.0),
    "linear:4": (2.5, 1.5),
    "qsgd:4": (2.5, 1.5),
    "ternary": (2.5, 1.5),
    "natural": (2.5, 1.5),
    "log:8": (6.0, 4.0),
    "powersgd:1": (4.0, 3.0),
}


def measure(level, runs, pipelines):
    command = [os.path.join(os.environ.get("BUILD", "build"), "terse"), "bench", "codec", "--json", "--runs", str(runs)]
    for pipeline in pipelines:
        command += ["--pipeline", pipeline]
    done = subprocess.run(command, env={**os.environ, "TERSE_SIMD": level}, stdout=subprocess.PIPE, check=True)
    rows = json.loads(done.stdout)
    rows = rows if isinstance(rows, list) else [rows]  # of one pipeline alone
    if rows[0]["simd"] != level:
        sys.exit(f"this machine does not run {level}")
    return [(row["encode_over_sweep"], row["decode_add_over_sweep"]) for row in rows]


def shown(values, bound):
    middle = statistics.median(values)
    text = f"{middle:.2f} ({min(values):.2f} … {max(values):.2f})"
    return f"**{text}**" if middle > bound else text


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--times", type=int, default=5)
    options.add_argument("--runs", type=int, default=20)
    options.add_argument("--level", action="append", choices=["scalar", "neon", "avx2", "avx512"])
    options.add_argument("--pipeline", action="append", choices=list(BOUNDS))
    given = options.parse_args()
    levels = given.level or ["avx2", "avx512"]
    if given.times < 1:
        options.error("--times: at least 1")
    if not 10 <= given.runs <= 1000:  # else terse itself refuses, once a level
        options.error("--runs: 10 to 1000")
    pipelines = given.pipeline or list(BOUNDS)
    taken = {level: [] for level in levels}
    for _ in range(given.times):  # levels in turn, so that a slow while of the machine meets both
        for level in levels:
            taken[level].append(measure(level, given.runs, pipelines))
            print(level, *(f"{e:.2f}/{d:.2f}" for e, d in taken[level][-1]), file=sys.stderr, flush=True)
    print("| pipeline | bound |" + "".join(f" {level}: encode | decode-add |" for level in levels))
    print("|---|---:|" + "---:|---:|" * len(levels))
    for row, pipeline in enumerate(pipelines):
        encode, decode = BOUNDS[pipeline]
        cells = [f"`{pipeline}`".replace("|", "\\|"), f"{encode} / {decode}"]
        for level in levels:
            cells.append(shown([run[row][0] for run in taken[level]], encode))
            cells.append(shown([run[row][1] for run in taken[level]], decode))
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
