#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers with replicas that are killed at random instants of the training, over mpirun, with a deadline of a second.

kill_servers.py [--kills N] [--first SEED]

Each seed is a job of 4 servers and 2 workers, of which two servers that do not stand in for each other get SIGKILL at random
instants; so many seeds are run, from SEED on, that N servers are killed (200). Nothing acknowledged may be lost: every job
ends by itself, in time, with the very bits of the undisturbed. BUILD names the build's folder. A failing seed is named, and
replays the same plan; closes with "kills: …".
"""
import argparse
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))

from launch import Run, job, kill  # noqa: E402

SERVERS, WORKERS = 4, 2
JOB_S = 90  # a job that takes longer hangs
TAKEN = "the slices of a server that is dead are this one's now"
TRAINING = ["consistency.deadline_s=1", "servers.replicas=1", "servers.slice_elems=500", "training.max_steps=1500",
            "training.epochs=100", "training.batch=128"]


def plan_of(seed):
    """(server, seconds after the one before, or after the training began)"""
    rolls = random.Random(seed)
    first = rolls.randrange(SERVERS)
    return [(first, rolls.random()), ((first + 2) % SERVERS, rolls.random())]


def given_up(text):
    """Servers that live and were given up: idle ones get no processor for a second where many others run."""
    return {int(s) for s in re.findall(r'msg="a server is dead, the jobs go on without it" server="server (\d+)', text)}


def train(folder, plan):
    """Returns who were killed while the training went on, who had been given up before, the summary, and what was said."""
    summary = os.path.join(folder, "summary.json")
    run = Run(job(SERVERS, WORKERS, "configs/softmax.yaml", TRAINING, ["--summary", summary]), JOB_S)
    struck = []
    try:
        assert run.wait_for("step ", 40), f"it does not begin:\n{run.text()}"
        gone = given_up(run.text())
        ranks = run.all_ranks(SERVERS + WORKERS - len(gone))
        for server, wait in plan:
            if gone & {(server + s) % SERVERS for s in (-1, 0, 1)}:
                continue  # it stands in for the other, or is it
            time.sleep(wait)
            if os.path.exists(summary) and os.path.getsize(summary) or run.process.poll() is not None:
                break
            kill(ranks[server], signal.SIGKILL)
            struck.append(server)
        code = run.finish()
        assert code is not None, f"killed {struck}: it hangs, {run.took:.0f} s after its start:\n{run.text()}"
        assert os.path.exists(summary) and os.path.getsize(summary), f"killed {struck}, exit {code}, no summary:\n{run.text()}"
        with open(summary, encoding="utf-8") as file:
            return struck, gone, json.load(file), run.text()
    finally:
        run.finish()


def undisturbed(folder):
    """The summary of the training in which nobody dies."""
    return train(folder, [])[2]


def trial(folder, seed, want):
    struck, gone, got, text = train(folder, plan_of(seed))
    same = got["parameters_xxh3"] == want["parameters_xxh3"] and got["test_accuracy"] == want["test_accuracy"]
    assert same and got["steps"] == want["steps"] and got["lost_rounds"] == 0, f"killed {struck}: {got}, undisturbed {want}\n{text}"
    taken = text.count(TAKEN) - len(gone)  # who was killed when all was done needs no stand-in
    assert len(struck) - 1 <= taken <= len(struck), f"killed {struck}, {taken} were replaced:\n{text}"
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="terse-") as folder:
        want = undisturbed(folder)
    print(f"undisturbed: parameters {want['parameters_xxh3']}, test accuracy {want['test_accuracy']:.4f}", flush=True)
    killed, failed, seed = 0, [], words.first
    while killed < words.kills and len(failed) < 5:
        began = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="terse-") as folder:
                taken = trial(folder, seed, want)
            killed += taken
            print(f"seed {seed}: killed {taken}, the same bits ({time.monotonic() - began:.1f} s; {killed} of {words.kills})", flush=True)
        except Exception as problem:  # the others shall be tried, too
            failed.append(seed)
            print(f"seed {seed} FAILED: " + "".join(traceback.format_exception_only(type(problem), problem)).rstrip(), flush=True)
        seed += 1
    print(f"kills: {killed} servers killed in {seed - words.first} jobs, " + (f"seeds {failed} failed" if failed else "no seed failed"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
