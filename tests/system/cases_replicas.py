# SPDX-License-Identifier: Apache-2.0
"""Servers with replicas over mpirun: a killed server costs nothing, neither a bit nor a restart."""
import json
import os
import signal
import time

from daemon import Daemon
from launch import Run, job, kill

SOFTMAX = "configs/softmax.yaml"
DEADLINE = 2
SLACK = 5
SERVERS, WORKERS = 3, 2
STEPS = 120
# An epoch of some 40 steps, so that its end is reported in the middle of the run; several slices a server.
SETS = [f"consistency.deadline_s={DEADLINE}", "servers.replicas=1", "servers.slice_elems=500", "training.batch=750",
        "training.epochs=3", f"training.max_steps={STEPS}", "error_feedback.warmup.steps=20"]


def start(folder, name, seconds, sets=()):
    summary = os.path.join(folder, name + ".json")
    return Run(job(SERVERS, WORKERS, SOFTMAX, SETS + list(sets), ["--summary", summary]), seconds), summary


def result(run, summary):
    code = run.finish()
    assert code is not None and os.path.exists(summary), f"mpirun ended with {code}:\n{run.text()}"
    with open(summary, encoding="utf-8") as file:
        return json.load(file)


def strike(run, victims, number=signal.SIGKILL):
    """In the middle of the training, whatever the machine's speed."""
    assert run.wait_for("epoch 1/3  step 40/", 40), run.text()
    ranks = run.ranks()
    for victim in victims:
        kill(ranks[victim], number)
    return [ranks[victim] for victim in victims]


def killed(victim):
    def case(folder, seconds):
        want = result(*start(folder, "calm", seconds))
        run, summary = start(folder, "killed", seconds)
        strike(run, [victim])
        got = result(run, summary)
        text = run.text()
        assert "the slices of a server that is dead are this one's now" in text, text
        assert f"of={victim} " in text, text
        assert got["steps"] == STEPS and got["lost_rounds"] == 0, got
        assert got["parameters_xxh3"] == want["parameters_xxh3"], (got, want)
        assert got["test_accuracy"] == want["test_accuracy"], (got, want)
    return case


def stopped(folder, seconds):
    """A server that sleeps past its deadline and wakes up ends alone, and the job goes on undisturbed."""
    want = result(*start(folder, "calm", seconds))
    run, summary = start(folder, "stopped", seconds)
    sleeper = strike(run, [1], signal.SIGSTOP)[0]
    assert run.wait_for("the slices of a server that is dead are this one's now", 30), run.text()
    kill(sleeper, signal.SIGCONT)
    got = result(run, summary)
    assert got["parameters_xxh3"] == want["parameters_xxh3"], (got, want, run.text())


def both_killed(folder, seconds):
    run, summary = start(folder, "both", seconds)
    began = time.monotonic()
    strike(run, [1, 2])
    struck = time.monotonic()
    code = run.finish()
    text = run.text()
    assert code is not None, f"still running after {time.monotonic() - began:.0f} s:\n{text}"
    assert time.monotonic() - struck < DEADLINE + SLACK + 3, text  # mpirun itself takes a while to end
    assert "server 1 (rank 1" in text and "server 2 (rank 2" in text and "are both gone" in text, text
    assert not os.path.exists(summary), text


def one_server(folder, seconds):
    summary = os.path.join(folder, "one.json")
    run = Run(job(1, WORKERS, SOFTMAX, SETS, ["--summary", summary]), seconds)
    assert run.finish() is not None and "servers.replicas 1 needs a second server" in run.text(), run.text()
    assert not os.path.exists(summary), run.text()


def in_a_daemon(folder, seconds):
    """A daemon's server dies: its job ends with the same bits, and no other is let in where a door is gone, in words."""
    want = result(*start(folder, "calm", seconds))
    with Daemon(folder, SOFTMAX, servers=SERVERS, overrides=SETS) as daemon:
        summary = os.path.join(folder, "daemon.json")
        run = daemon.job(seconds, workers=WORKERS, overrides=SETS, more=["--summary", summary])
        assert run.wait_for("epoch 1/3  step 40/", 40), f"{run.text()}\n{daemon.log()}"
        kill(daemon.server(1), signal.SIGKILL)
        got = result(run, summary)
        assert "the slices of a server that is dead are this one's now" in daemon.log(), daemon.log()
        assert got["steps"] == STEPS and got["parameters_xxh3"] == want["parameters_xxh3"], (got, want, daemon.log())


CASES = [
    ("replicas-in-a-daemon", 120, in_a_daemon),
    ("replicas-server-0-killed", 90, killed(0)),
    ("replicas-server-1-killed", 90, killed(1)),
    ("replicas-server-2-killed", 90, killed(2)),
    ("replicas-server-stopped", 90, stopped),
    ("replicas-both-killed", 60, both_killed),
    ("replicas-one-server", 40, one_server),
]
