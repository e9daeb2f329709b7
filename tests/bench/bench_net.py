#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rounds over slow links: bench_net.py [--megabit N] [--delay MS] [--quick] … (--help). 4½ minutes at 100 Mbit.

2 servers and 4 workers, each on a host of its own (a network namespace), every link shaped both ways. Beside them, on
the workers' hosts and in the same run, the best of Open MPI's all-reduces. A JSON line a measurement, then the ratios.

Parts of a round, medians over rounds of the slowest worker: encode, wait (for the servers: wire, aggregation and the
other workers), decode. wire: how long the busiest link was in use, from its byte counter. server_pool: CPU of a
server's pool (decode-add, optimizer, encode) a round, server_loop: of its loop (transport, frames). They overlap.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from namespaces import Network, can_run  # noqa: E402

BUILD = os.environ.get("BUILD", "build")
CONFIG = "configs/bench-resnet50.yaml"
SERVERS, WORKERS = (1, 2), (3, 4, 5, 6)
LR = 0.1
TOPK_TARGET, TOPK_AIM, DENSE_TARGET = 60, 100, 1.6
# Open MPI's "tuned" algorithms for all-reduce, by number; None: its own decision.
ALGORITHMS = {"default": None, "recursive doubling": 3, "ring": 4, "segmented ring": 5, "rabenseifner": 6}
DENSE = ["--set", "push.default=dense", "--set", "pull.default=dense", "--set", "error_feedback.enabled=false"]


def thread_cpu(pids):
    """Seconds of processor time of terse-server's loop and of its other threads."""
    loop = pool = 0.0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/comm") as file:
                if file.read().strip() != "terse-server":
                    continue
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                    used = int(file.read().split()[0]) * 1e-9
                if int(thread) == pid:
                    loop += used
                else:
                    pool += used
        except OSError:
            continue
    return loop, pool


def readings(network):
    return network.counters(), [thread_cpu(network.pids(h)) for h in SERVERS]


def spread(values):
    return round((max(values) - min(values)) / statistics.median(values), 3)


def failed(what, run):
    print("\n".join(run.said[-40:]), file=sys.stderr)
    raise RuntimeError(f"{what} failed")


def rounds(network, what, words, warm, runs, seconds, shapes):
    """Terse's rounds; prints and returns the median."""
    options = [f"shapes={shapes}", f"warm={warm}", f"runs={runs}", *(["check=%g" % LR] if what == "dense" else [])]
    settings = ["--set", f"optimizer.lr={LR}", *words]
    run = network.mpirun([(SERVERS, [f"{BUILD}/terse-server", CONFIG, *settings]),
                          (WORKERS, [f"{BUILD}/bench_round", CONFIG, *settings, *options])], {}, seconds)
    seen, verified, before, after = [], False, None, None
    for line in run.lines():
        if line.get("measured") == "begins":
            before = readings(network)
        elif line.get("measured") == "ends":
            after = readings(network)
        elif "run" in line:
            seen.append(line)
        verified = verified or line.get("verified", False)
    if not verified or len(seen) != runs or not before or not after:
        failed(what, run)
    took = [max(s["round"]) for s in seen]
    result = {"what": f"round, {what}", "median_s": round(statistics.median(took), 4), "spread": spread(took), "runs": runs}
    for part in ("encode", "wait", "decode"):
        result[f"{part}_s"] = round(statistics.median(max(s[part]) for s in seen), 4)
    wire = max(after[0][h][side] - before[0][h][side] for h in after[0] for side in (0, 1)) / runs
    result["wire_s"] = round(wire * 8e-6 / network.megabit, 4)
    result["server_loop_s"], result["server_pool_s"] = (
        round(max(a[i] - b[i] for a, b in zip(after[1], before[1])) / runs, 4) for i in (0, 1))
    result["push_bytes"] = round(statistics.median(sum(s["push_bytes"]) for s in seen))
    result["pull_bytes"] = round(statistics.median(sum(s["pull_bytes"]) for s in seen))
    print(json.dumps(result), flush=True)
    return result["median_s"]


def allreduce(network, name, elements, warm, runs, seconds):
    """Seconds of each run of one algorithm."""
    mca = {}
    if ALGORITHMS[name] is not None:
        mca = {"coll_tuned_use_dynamic_rules": "1", "coll_tuned_allreduce_algorithm": str(ALGORITHMS[name])}
        if name == "segmented ring":
            mca["coll_tuned_allreduce_algorithm_segmentsize"] = str(1 << 20)
    run = network.mpirun([(WORKERS, [f"{BUILD}/bench_allreduce", f"n={elements}", f"warm={warm}", f"runs={runs}"])],
                         mca, seconds)
    took, verified = [], False
    for line in run.lines():
        if "allreduce_s" in line:
            took.append(line["allreduce_s"])
        verified = verified or line.get("verified", False)
    if not verified or len(took) != runs:
        failed(f"all-reduce, {name}", run)
    return took


def best_allreduce(network, elements, runs, patience):
    """Each algorithm at an eighth of the size, then the two best at full size. Returns the best median."""
    trials = {}
    for name in ALGORITHMS:
        trials[name] = statistics.median(allreduce(network, name, elements // 8, 1, 2, patience))
        print(json.dumps({"what": "all-reduce, trial", "algorithm": name, "elements": elements // 8,
                          "median_s": round(trials[name], 4)}), flush=True)
    best = None
    for name in sorted(trials, key=trials.get)[:2]:
        took = allreduce(network, name, elements, 0, runs, patience)
        median = statistics.median(took)
        print(json.dumps({"what": "all-reduce", "algorithm": name, "elements": elements, "median_s": round(median, 4),
                          "spread": spread(took), "runs": runs}), flush=True)
        best = median if best is None else min(best, median)
    return best


def count_elements(path):
    total = 0
    with open(path) as file:
        for line in file:
            words = line.split("#")[0].split()
            if words:
                size = 1
                for extent in words[1:]:
                    size *= int(extent)
                total += size
    return total


def small_shapes():
    with tempfile.NamedTemporaryFile("w", prefix="terse-", suffix=".shapes", delete=False) as file:
        for i in range(20):
            file.write(f"layer{i}.weight 256 500\nlayer{i}.bias 256\n")
    return file.name


def verdict(what, value, target, good):
    print(json.dumps({"what": what, "ratio": round(value, 2), "target": target, "met": bool(good)}), flush=True)


def measure(network, options, shapes):
    elements = count_elements(shapes)
    ideal = elements * 4 * 2 * 8e-6 / options.megabit  # a server's share of a dense round, or more than a ring takes
    patience = 60 + 12 * ideal
    baseline = sparse = dense = None
    if "topk" in options.only:
        sparse = rounds(network, "topk:0.001 | int8 | rice", [], 5, options.runs or 21, patience, shapes)
    if "dense" in options.only:
        dense = rounds(network, "dense", DENSE, 1, options.dense_runs, patience, shapes)
    if "allreduce" in options.only:
        baseline = best_allreduce(network, elements, 3, patience)
    if baseline and sparse:
        verdict("all-reduce over round, topk", baseline / sparse, f">= {TOPK_TARGET}, aim {TOPK_AIM}",
                baseline / sparse >= TOPK_TARGET)
    if baseline and dense:
        verdict("round over all-reduce, dense", dense / baseline, f"<= {DENSE_TARGET}", dense / baseline <= DENSE_TARGET)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabit", type=int, default=100)
    parser.add_argument("--delay", type=float, default=0, help="one way, ms")
    parser.add_argument("--congestion", help="of TCP; the machine's own when it is not named")
    parser.add_argument("--shapes", default="configs/resnet50.shapes")
    parser.add_argument("--quick", action="store_true", help="a tenth of the parameters: to try it out")
    parser.add_argument("--runs", type=int, default=0, help="rounds of topk")
    parser.add_argument("--dense-runs", type=int, default=3)
    parser.add_argument("--only", default="topk dense allreduce")
    options = parser.parse_args()
    reason = can_run()
    if reason:
        print(f"bench-net: skipped: {reason}")
        return 0
    shapes = small_shapes() if options.quick else options.shapes
    began = time.monotonic()
    network = None
    try:
        network = Network(len(SERVERS) + len(WORKERS), options.megabit, options.delay, options.congestion)
        print(json.dumps({"what": "links", "megabit": options.megabit, "delay_ms": options.delay, "hosts": network.hosts,
                          "congestion": network.congestion, "parameters": count_elements(shapes)}), flush=True)
        measure(network, options, shapes)
        print(json.dumps({"what": "bench-net", "seconds": round(time.monotonic() - began)}))
    except (RuntimeError, KeyboardInterrupt) as problem:
        print(f"bench-net: {str(problem) or 'interrupted'}", file=sys.stderr)
        return 1
    finally:
        if options.quick:
            os.unlink(shapes)  # first: a second Ctrl-C is ignored only while the network closes
        if network:
            network.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
