#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers that are killed at random instants of their training, over mpirun, with a deadline of a second.

kill_workers.py [--kills N] [--first SEED] [--kind accuracy|ledger]

Each seed is a job of 2 servers and 6 workers of which 4 (accuracy) or 5 (ledger) get SIGKILL, one after the other, at
random instants; so many seeds are run, from SEED on, that N workers are killed (200) of each kind. The others must go on
and end in time. accuracy: a softmax regression ends within half a point of the undisturbed. ledger: what the servers hold
says of each worker's steps which they took: those who live all of them, once; who was killed, all up to one, once.
BUILD names the build's folder. A failing seed is named, and replays the same plan; closes with "kills: …".
"""
import argparse
import glob
import json
import os
import random
import signal
import struct
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))

from launch import BUILD, Run, job, kill  # noqa: E402

SERVERS, WORKERS = 2, 6
DEADLINE_S = 1
JOB_S = 90        # a job that takes longer hangs
OWN = 1000        # as in ledger_worker.c
LAG = 3           # steps that an element may lie in the residual
POINTS = 0.005
# Long enough for four kills; few bytes, so that a machine under load trains the same.
TRAINING = ["consistency.deadline_s=1", "training.max_steps=700", "training.epochs=100", "training.batch=256",
            "push.default=topk:0.2 | int8 | rice", "pull.default=dense"]


def victims_of(seed, count):
    """Whom, and when: seconds after the one before (the first: after the training began)."""
    rolls = random.Random(seed)
    return [(w, rolls.random() * 1.5) for w in rolls.sample(range(WORKERS), count)]


def strike(run, plan):
    """Returns how many were there to be killed."""
    ranks, struck = run.ranks(), 0
    for worker, wait in plan:
        time.sleep(wait)
        if run.process.poll() is not None:
            break
        kill(ranks[SERVERS + worker], signal.SIGKILL)
        struck += 1
    return struck


def ended(run, what):
    code = run.finish()
    assert code is not None, f"{what}: it hangs, {run.took:.0f} s after its start:\n{run.text()}"


# ---- accuracy ----------------------------------------------------------------------------------------------------------

def train(folder, plan):
    summary = os.path.join(folder, "summary.json")
    run = Run(job(SERVERS, WORKERS, "configs/softmax.yaml", TRAINING, ["--summary", summary]), JOB_S)
    try:
        assert run.wait_for("step ", 40), f"it does not begin:\n{run.text()}"
        struck = strike(run, plan)
        ended(run, f"killed {plan[:struck]}")
        assert os.path.exists(summary), f"killed {plan[:struck]}, no summary:\n{run.text()}"
        with open(summary, encoding="utf-8") as file:
            told = json.load(file)
        return struck, told
    finally:
        run.finish()


class Accuracy:
    """The reference is made once."""
    killed = 4

    def __init__(self):
        with tempfile.TemporaryDirectory(prefix="terse-") as folder:
            self.want = train(folder, [])[1]["test_accuracy"]
        print(f"undisturbed: test accuracy {self.want:.4f}", flush=True)
        assert self.want > 0.8, self.want
        self.worst = 0.0

    def run(self, folder, seed):
        plan = victims_of(seed, self.killed)
        struck, told = train(folder, plan)
        # Who was done already when it was struck is not lost, and not counted here.
        assert struck - 1 <= told["lost_workers"] <= struck, f"killed {plan[:struck]}, the summary tells of {told['lost_workers']}"
        self.worst = max(self.worst, self.want - told["test_accuracy"])
        assert told["test_accuracy"] >= self.want - POINTS, f"{told['test_accuracy']}, undisturbed {self.want}"
        return told["lost_workers"], f"accuracy {told['test_accuracy']:.4f}, {told['lost_rounds']} rounds waited"

    def closing(self):
        return f"at most {100 * self.worst:+.2f} points below the undisturbed"


# ---- ledger ------------------------------------------------------------------------------------------------------------

def sum_after(steps):
    whole, rest = divmod(steps, 16)
    return whole * 136 + rest * (rest + 1) // 2


def counter(folder, name, worker):
    with open(os.path.join(folder, f"{name}.{worker}"), "rb") as file:
        return struct.unpack("<Q", file.read(8))[0]


def parameters(path):
    with open(path, "rb") as file:
        data = file.read()
    values = struct.unpack(f"<{len(data) // 4}f", data)
    assert len(values) == 2 * WORKERS * OWN, len(values)
    return values[:WORKERS * OWN], values[WORKERS * OWN:]


def audit(folder, dead):
    """Everybody's steps in the parameters. Returns the steps of those who live."""
    files = sorted(glob.glob(os.path.join(folder, "params.*")))
    assert len(files) == WORKERS - len(dead), f"{files}, dead {dead}"
    with open(files[0], "rb") as file:
        first = file.read()
    for path in files[1:]:
        with open(path, "rb") as file:
            assert file.read() == first, f"{path} differs from {files[0]}"
    sparse, dense = parameters(files[0])
    steps = set()
    for worker in range(WORKERS):
        begun, done = counter(folder, "begun", worker), counter(folder, "done", worker)
        taken = {-sum_after(n): n for n in range(begun + 1)}
        for name, values in (("sparse", sparse), ("dense", dense)):
            own = values[worker * OWN:(worker + 1) * OWN]
            assert all(v in taken for v in own), \
                f"{name}: of worker {worker} something was lost or taken twice: {[v for v in own if v not in taken][:5]}"
            counts = {taken[v] for v in own}
            if worker not in dead:
                assert counts == {begun} and begun == done, f"{name}: worker {worker} did {begun} steps, taken {counts}"
                steps.add(begun)
            lag = LAG if name == "sparse" else 0
            assert min(counts) >= done - lag and max(counts) - min(counts) <= 1 + lag, \
                f"{name}: worker {worker} knew of {done} steps, had begun {begun}, taken {counts}"
    assert len(steps) == 1, steps
    return steps.pop()


class Ledger:
    killed = 5

    def run(self, folder, seed):
        plan = victims_of(seed, self.killed)
        words = job(SERVERS, 0, "tests/fault/ledger.yaml")
        run = Run(words + [":", "-n", str(WORKERS), f"{BUILD}/ledger_worker", "tests/fault/ledger.yaml", folder], JOB_S)
        try:
            until = time.monotonic() + 40
            while not all(os.path.exists(p) and os.path.getsize(p) and counter(folder, "done", w)
                          for w, p in enumerate(os.path.join(folder, f"done.{w}") for w in range(WORKERS))):
                assert time.monotonic() < until and run.process.poll() is None, f"it does not begin:\n{run.text()}"
                time.sleep(0.02)
            struck = strike(run, plan)
            time.sleep(DEADLINE_S)
            with open(os.path.join(folder, "stop"), "w", encoding="utf-8"):
                pass
            ended(run, f"killed {plan}")
        finally:
            run.finish()
        assert struck == len(plan), f"it ended by itself:\n{run.text()}"
        try:
            steps = audit(folder, {w for w, _ in plan})
        except AssertionError as wrong:
            raise AssertionError(f"{wrong}\nkilled {plan}:\n{run.text()}") from wrong
        return struck, f"{steps} steps"

    @staticmethod
    def closing():
        return "every step of those who live taken once, of the killed up to one"


def run_kind(kind, kills, first):
    """Returns (killed, what failed)."""
    trial, killed, failed, seed = kind(), 0, [], first
    while killed < kills and len(failed) < 5:
        began = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="terse-") as folder:
                struck, told = trial.run(folder, seed)
            killed += struck
            print(f"seed {seed}: killed {struck}, {told} ({time.monotonic() - began:.1f} s; {killed} of {kills})", flush=True)
        except Exception as problem:  # the others shall be tried, too
            failed.append(seed)
            print(f"seed {seed} FAILED: " + "".join(traceback.format_exception_only(type(problem), problem)).rstrip(), flush=True)
        seed += 1
    print(f"{kind.__name__.lower()}: {killed} workers killed in {seed - first} jobs; {trial.closing()}", flush=True)
    return killed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--kind", choices=("accuracy", "ledger"))
    words = parser.parse_args()
    kinds = [k for k in (Accuracy, Ledger) if words.kind in (None, k.__name__.lower())]
    done = [run_kind(kind, words.kills, words.first) for kind in kinds]
    failed = [seed for _, seeds in done for seed in seeds]
    print(f"kills: {sum(k for k, _ in done)} workers killed, " + (f"seeds {failed} failed" if failed else "no seed failed"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
