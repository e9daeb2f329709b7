#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a checkpoint keeps a server's loop from its work: bench_checkpoint.py [ROUNDS] [FOLDER]

One server, one worker, 100 M parameters with momentum at the worker, trained without a pause. By turns some seconds without a
checkpoint and one checkpoint (SIGUSR1); the loop itself counts by how much its tick was late at most (the last line of the state
dump), and by how much without the time that its thread could have run and others had the processors ("own"): on few cores the
worker, the pool and the disk want them as well. A JSON line with both, and the size and duration of the checkpoints. FOLDER: on
which disk; build/ by default. Exits 1 when a tick came more than 50 ms late during a checkpoint.
"""
import argparse
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))
from bench_memory import count, shapes  # noqa: E402
from launch import BUILD, Run, kill  # noqa: E402

MOST_LATE_MS = 50.0
QUIET_S = 4.0
LATE = re.compile(r"a tick came ([0-9.]+) ms late at most; ([0-9.]+) ms without")
COMPLETE = re.compile(r'msg="a checkpoint is complete".* bytes=(\d+) took_s=([0-9.]+)')


def await_more(run, pattern, before, seconds):
    """The last match of the pattern once there are more than `before`."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and run.process.poll() is None:
        found = pattern.findall(run.text())
        if len(found) > before:
            return found[-1]
        time.sleep(0.02)
    raise SystemExit(f"{pattern.pattern}: nothing came\n{run.text()[-4000:]}")


def latest(run, server):
    """How late a tick was since this was asked for last, and how late without the time in which others had the processors."""
    before = len(LATE.findall(run.text()))
    kill(server, signal.SIGUSR2)
    return tuple(map(float, await_more(run, LATE, before, 30)))


def write_config(folder, lines):
    with open(os.path.join(folder, "checkpoint.shapes"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    config = os.path.join(folder, "checkpoint.yaml")
    with open(config, "w", encoding="utf-8") as file:
        file.write("training: {model: synthetic, data: none, shapes: checkpoint.shapes, epochs: 1, max_steps: 1000000}\n"
                   "optimizer: {name: sgd, lr: 0.01, momentum: 0.9}\nerror_feedback: {momentum_correction: 0.9}\n"
                   "push: {default: topk:0.001 | int8 | rice}\npull: {default: topk:0.001 | int8 | rice}\n"
                   f"checkpoint: {{dir: {folder}/checkpoints, every_steps: 1000000, keep: 1}}\n")
    return config


def measure(run, rounds):
    until = time.monotonic() + 120
    while "training starts" not in run.text() and time.monotonic() < until:
        time.sleep(0.05)
    server = run.ranks()[0]
    time.sleep(QUIET_S)
    outside, inside, written = [], [], []
    latest(run, server)
    for _ in range(rounds):
        time.sleep(QUIET_S)
        outside.append(latest(run, server))
        before = len(COMPLETE.findall(run.text()))
        kill(server, signal.SIGUSR1)
        written.append(await_more(run, COMPLETE, before, 120))
        inside.append(latest(run, server))
    kill(server, signal.SIGINT)
    return outside, inside, written


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rounds", nargs="?", type=int, default=5)
    parser.add_argument("folder", nargs="?", default=BUILD, help="where the checkpoints go; default: %(default)s")
    given = parser.parse_args()
    rounds, folder = given.rounds, tempfile.mkdtemp(prefix="bench-checkpoint-", dir=os.path.abspath(given.folder))
    try:
        lines = shapes()
        config = write_config(folder, lines)
        run = Run(["-n", "1", f"{BUILD}/terse-server", config, ":", "-n", "1", f"{BUILD}/terse-worker", config], 400)
        try:
            outside, inside, written = measure(run, rounds)
        finally:
            run.finish()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    (outside, own_outside), (inside, own_inside) = zip(*outside), zip(*inside)
    print(json.dumps({"what": "late ticks of a server's loop", "parameters": count(lines), "rounds": rounds,
                      "late_ms_outside": outside, "late_ms_during_a_checkpoint": inside,
                      "own_ms_outside": own_outside, "own_ms_during_a_checkpoint": own_inside,
                      "most_outside_ms": max(outside), "most_during_ms": max(inside),
                      "most_own_outside_ms": max(own_outside), "most_own_during_ms": max(own_inside),
                      "checkpoint_bytes": int(written[-1][0]), "checkpoint_s": [float(s) for _, s in written]}), flush=True)
    return 0 if max(inside) <= MOST_LATE_MS else 1


if __name__ == "__main__":
    sys.exit(main())
