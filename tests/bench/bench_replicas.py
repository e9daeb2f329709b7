#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What servers.replicas costs a round: bench_replicas.py [--runs N] [--repeat N] [--only dense|sparse]

Whole rounds through two servers and two workers on one host, with servers.replicas 0 and 1 in turns. dense: 16 tensors
of 4 MiB; sparse: the tensors of ResNet-50 at 0.1 % both ways. Medians over all rounds, and bytes of a round by the
workers' counters. All processes share the machine's cores, so the stand-in's work, as much as the owner's, shows in full.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))
from launch import BUILD, Run  # noqa: E402

CONFIG = "configs/bench-resnet50.yaml"
DENSE = ["push.default=dense", "pull.default=dense", "error_feedback.enabled=false"]


def rounds(settings, shapes, replicas, runs):
    words = [word for s in settings + [f"servers.replicas={replicas}"] for word in ("--set", s)]
    run = Run(["-n", "2", f"{BUILD}/terse-server", CONFIG, *words, ":", "-n", "2", f"{BUILD}/bench_round", CONFIG, *words,
               f"shapes={shapes}", "warm=3", f"runs={runs}"], 120)
    code = run.finish()
    found = [json.loads(line) for line in run.text().splitlines() if line.startswith("{")]
    if code != 0 or not any(f.get("verified") for f in found):
        print(run.text(), file=sys.stderr)
        sys.exit("bench_round failed")
    return [max(f["round"]) for f in found if "run" in f]


def compare(what, settings, shapes, options):
    seen = {0: [], 1: []}
    for _ in range(options.repeat):
        for replicas in seen:
            seen[replicas] += rounds(settings, shapes, replicas, options.runs)
    took = {replicas: statistics.median(values) for replicas, values in seen.items()}
    for replicas, values in seen.items():
        print(json.dumps({"what": what, "replicas": replicas, "round_ms": round(1e3 * took[replicas], 2), "n": len(values),
                          "least_ms": round(1e3 * min(values), 2), "most_ms": round(1e3 * max(values), 2)}), flush=True)
    print(json.dumps({"what": what + ", with replicas over without", "ratio": round(took[1] / took[0], 2)}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--only", default="", help="dense or sparse")
    options = parser.parse_args()
    with tempfile.NamedTemporaryFile("w", suffix=".shapes") as shapes:
        for t in range(16):
            shapes.write(f"tensor{t} {(4 << 20) // 4}\n")
        shapes.flush()
        if options.only in "dense":
            compare("dense, 64 MiB", DENSE, shapes.name, options)
        if options.only in "sparse":
            compare("sparse, 25.6 M parameters at 0.1 %", [], "configs/resnet50.shapes", options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
