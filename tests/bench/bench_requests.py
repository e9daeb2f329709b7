#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What small requests and sparse rounds cost one server: bench_requests.py [--runs N] [--only WORD]

Requests: pushes of 4 KiB, each answered by its pull, a second, in shared memory; 1 and 2 workers. Bundled, as the
library sends them, and each in a frame of its own.
Sparse: CPU seconds of one server a round of ResNet-50's 25.5 million parameters at 0.1 %, for 4, 8 and 16 workers.
Processor time, not wall time: the workers share this machine with it. It should grow with the nonzeros, that is: with
the workers on the way in, and from a floor (the optimizer, what is encoded for all) that does not depend on them.
"""
import argparse
import json
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))
from launch import BUILD, Run  # noqa: E402

TARGET = 200000
PS_LITE_PER_S = 43000
SMALL = ["push.default=dense", "pull.default=dense", "error_feedback.enabled=false", "optimizer.lr=0.125"]
CONFIG = "configs/bench-resnet50.yaml"
SHAPES = "configs/resnet50.shapes"
WARM = 3


def sets(settings):
    return [word for s in settings for word in ("--set", s)]


def lines_of(run, what):
    code = run.finish()
    found = [json.loads(line) for line in run.text().splitlines() if line.startswith("{")]
    if code != 0 or not any(f.get("verified") for f in found):
        print(run.text(), file=sys.stderr)
        sys.exit(f"{what} failed")
    return found


def requests(workers, runs):
    run = Run(["-n", "1", f"{BUILD}/terse-server", CONFIG, *sets(SMALL), ":", "-n", str(workers), f"{BUILD}/bench_requests",
               CONFIG, *sets(SMALL), f"runs={runs}"], 120)
    found = lines_of(run, "bench_requests")
    for how in ("bundled", "single"):
        per_s = [f["per_s"] for f in found if f.get("requests") == how]
        median = statistics.median(per_s)
        print(json.dumps({"what": "requests of 4 KiB", "how": how, "workers": workers, "per_s": round(median),
                          "spread": round((max(per_s) - min(per_s)) / median, 2), "n": len(per_s),
                          "target": f">= {TARGET}", "met": median >= TARGET,
                          "times_ps_lite": round(median / PS_LITE_PER_S, 1)}), flush=True)


def thread_cpu(pid):
    """Seconds of the loop and of the pool's threads."""
    loop = pool = 0.0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            used = int(file.read().split()[0]) * 1e-9
        if int(thread) == pid:
            loop += used
        else:
            pool += used
    return loop, pool


def sparse(workers, runs):
    run = Run(["-n", "1", f"{BUILD}/terse-server", CONFIG, ":", "-n", str(workers), f"{BUILD}/bench_round", CONFIG,
               f"shapes={SHAPES}", f"warm={WARM}", f"runs={runs}"], 300)
    before = after = None
    if run.wait_for('"begins"', 120):
        before = thread_cpu(run.ranks()[0])
    if before and run.wait_for('"ends"', 120):
        after = thread_cpu(run.ranks()[0])
    lines_of(run, "bench_round")
    loop, pool = ((a - b) / runs for a, b in zip(after, before))
    print(json.dumps({"what": "sparse round, one server's CPU", "workers": workers, "n": runs,
                      "cpu_ms": round(1e3 * (loop + pool), 2), "loop_ms": round(1e3 * loop, 2),
                      "pool_ms": round(1e3 * pool, 2)}), flush=True)
    return loop + pool


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--only", default="", help="requests or sparse")
    options = parser.parse_args()
    if options.only in "requests":
        for workers in (1, 2):
            requests(workers, options.runs)
    if options.only in "sparse":
        cpu = {workers: sparse(workers, options.runs) for workers in (4, 8, 16)}
        slopes = [(cpu[8] - cpu[4]) / 4, (cpu[16] - cpu[8]) / 8]
        print(json.dumps({"what": "sparse round, growth", "ms_a_worker": [round(1e3 * s, 3) for s in slopes],
                          "floor_ms": round(1e3 * (cpu[4] - 4 * slopes[0]), 2),
                          "twice_the_workers_cost": [round(cpu[8] / cpu[4], 2), round(cpu[16] / cpu[8], 2)],
                          "target": "<= 2", "met": cpu[8] <= 2.1 * cpu[4] and cpu[16] <= 2.1 * cpu[8]}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
