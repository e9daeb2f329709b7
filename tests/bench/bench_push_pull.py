#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dense push and pull through one server: bench_push_pull.py [--runs N] [--repeat N] [--only WORD]

16 tensors of 4 MiB, more than caches hold, default slices, 1 and 2 workers, shared memory and TCP loopback. The
yardstick has the same pattern in bare MPI, with a receiver that does sum += buffer (bench_push_pull.c), once in
messages as large as slices and once as large as tensors, the better of both counts; it runs before and after Terse.
Both are told as multiples of ps-lite's figures, too: what bare MPI does not reach is no matter of the server's.
A worker's GB/s: bytes pushed and pulled over the time of a round.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))
from launch import BUILD, Run  # noqa: E402

TENSORS, TENSOR_BYTES = 16, 4 << 20
CHUNKS = {"slices": 1 << 20, "tensors": 4 << 20}
TARGET = 0.8
# ps-lite (zmq), 4 MB: a push and a pull one after the other at 1.55 and 1.66 GB/s; with 2 workers 0.9 each.
PS_LITE_GB_S = {1: 1.60, 2: 0.90}
PATHS = {"shared memory": [], "TCP loopback": ["--mca", "btl", "tcp,self"]}
LR = 0.5
SETTINGS = ["push.default=dense", "pull.default=dense", "error_feedback.enabled=false", f"optimizer.lr={LR}"]
CONFIG = "configs/bench-resnet50.yaml"


def lines_of(run, what):
    code = run.finish()
    found = []
    for line in run.text().splitlines():
        if line.startswith("{"):
            found.append(json.loads(line))
    if code != 0 or not any(f.get("verified") for f in found):
        print(run.text(), file=sys.stderr)
        sys.exit(f"{what} failed")
    return found


def raw(path, workers, chunk, runs):
    run = Run(PATHS[path] + ["-n", str(workers + 1), f"{BUILD}/bench_push_pull", f"tensors={TENSORS}", f"chunk={chunk}",
                             f"runs={runs}"], 120)
    return [f["round_s"] for f in lines_of(run, "bench_push_pull") if "round_s" in f]


def terse(path, workers, runs, shapes):
    settings = [word for s in SETTINGS for word in ("--set", s)]
    run = Run(PATHS[path] + ["-n", "1", f"{BUILD}/terse-server", CONFIG, *settings, ":", "-n", str(workers),
                             f"{BUILD}/bench_round", CONFIG, *settings, f"shapes={shapes}", "warm=2", f"runs={runs}",
                             f"check={LR}"], 120)
    seen = [f for f in lines_of(run, "bench_round") if "run" in f]
    return {part: [max(f[part]) for f in seen] for part in ("round", "encode", "wait", "decode")}


def gb_s(seconds):
    return 2 * TENSORS * TENSOR_BYTES / seconds * 1e-9


def report(what, how, workers, path, seconds, **more):
    speed = gb_s(statistics.median(seconds))
    print(json.dumps({"what": what, "how": how, "workers": workers, "path": path, "gb_s_a_worker": round(speed, 2),
                      "times_ps_lite": round(speed / PS_LITE_GB_S[workers], 2), "n": len(seconds),
                      "spread": round((max(seconds) - min(seconds)) / statistics.median(seconds), 2), **more}), flush=True)


def compare(path, workers, options, shapes):
    chunks = {name: [] for name in CHUNKS}
    ours = {}
    for repeat in range(options.repeat):
        for name in CHUNKS:
            chunks[name] += raw(path, workers, CHUNKS[name], options.runs)
        for part, values in terse(path, workers, options.runs, shapes).items():
            ours.setdefault(part, []).extend(values)
        for name in CHUNKS:
            chunks[name] += raw(path, workers, CHUNKS[name], options.runs)
    for name, seconds in chunks.items():
        report("push and pull", f"MPI, messages of {name}", workers, path, seconds)
    parts = {f"{p}_ms": round(1e3 * statistics.median(ours[p]), 2) for p in ("encode", "wait", "decode")}
    report("push and pull", "terse", workers, path, ours["round"], **parts)
    took = statistics.median(ours["round"])
    best = min(statistics.median(seconds) for seconds in chunks.values())
    print(json.dumps({"what": "push and pull, of the yardstick", "workers": workers, "path": path,
                      "ratio": round(best / took, 3), "target": f">= {TARGET}", "met": best / took >= TARGET,
                      "times_ps_lite": round(gb_s(took) / PS_LITE_GB_S[workers], 2), "ps_lite_target": ">= 2"}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--only", default="", help="shared or TCP")
    options = parser.parse_args()
    with tempfile.NamedTemporaryFile("w", suffix=".shapes") as shapes:
        for t in range(TENSORS):
            shapes.write(f"tensor{t} {TENSOR_BYTES // 4}\n")
        shapes.flush()
        for path in PATHS:
            for workers in (1, 2):
                if options.only in path:
                    compare(path, workers, options, shapes.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
