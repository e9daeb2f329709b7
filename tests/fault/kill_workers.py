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
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "system")]

import ledger  # noqa: E402
from launch import BUILD, Run, job, kill  # noqa: E402

SERVERS, WORKERS = 2, 6
DEADLINE_S = 1
JOB_S = 90        # a job that takes longer hangs
POINTS = 0.005
# Long enough for four kills; few bytes, so that a machine under load trains the same.
TRAINING = ["consistency.deadline_s=1", "training.max_steps=700", "training.epochs=100", "training.batch=256",
            "optimizer.schedule.name=cosine", "push.default=topk:0.2 | int8 | rice", "pull.default=dense"]


def victims_of(seed, count):
    """Whom, and when: seconds after the one before (the first: after the training began)."""
    rolls = random.Random(seed)
    return [(w, rolls.random() * 1.5) for w in rolls.sample(range(WORKERS), count)]


def strike(run, plan):
    """Returns how many were killed while all that was left trained."""
    ranks, struck = run.all_ranks(SERVERS + WORKERS), 0
    for worker, wait in plan:
        time.sleep(wait)
        if run.process.poll() is not None or "a worker is done" in run.text():
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

class Ledger:
    killed = 5

    def run(self, folder, seed):
        plan = victims_of(seed, self.killed)
        words = job(SERVERS, 0, ledger.CONFIG)
        run = Run(words + [":", "-n", str(WORKERS), f"{BUILD}/ledger_worker", ledger.CONFIG, folder], JOB_S)
        try:
            ledger.wait_until_all_push(run, folder, WORKERS)
            struck = strike(run, plan)
            time.sleep(DEADLINE_S)
            ledger.stop(folder)
            ended(run, f"killed {plan}")
        finally:
            run.finish()
        assert struck == len(plan), f"it ended by itself:\n{run.text()}"
        try:
            steps = ledger.audit(folder, WORKERS, {w for w, _ in plan})
            assert len(steps) == 1, f"steps of those who live: {steps}"
        except AssertionError as wrong:
            raise AssertionError(f"{wrong}\nkilled {plan}:\n{run.text()}") from wrong
        return struck, f"{steps[0]} steps"

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
