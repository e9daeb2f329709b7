# SPDX-License-Identifier: Apache-2.0
"""Servers with replicas over mpirun: a killed server costs nothing, neither a bit nor a restart."""
import glob
import json
import os
import signal
import subprocess
import time

from daemon import Daemon
from launch import BUILD, Run, job, kill

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


def manifests(folder):
    return sorted(glob.glob(os.path.join(folder, "ckpt", "ckpt-*", "manifest.json")))


def wait_for_manifests(run, folder, count, seconds=40):
    until = time.monotonic() + seconds
    while len(manifests(folder)) < count:
        assert time.monotonic() < until and run.process.poll() is None, f"{manifests(folder)}\n{run.text()}"
        time.sleep(0.01)


def checkpoints(folder, *more):
    return [f"checkpoint.dir={os.path.join(folder, 'ckpt')}", *more]


def all_the_time(folder):
    return checkpoints(folder, "checkpoint.every_steps=1", "checkpoint.keep=200")


def killed_in_a_checkpoint(victim):
    """Checkpoints go on before and after; going on from any gives the bits of the undisturbed."""
    def case(folder, seconds):
        want = result(*start(folder, "calm", seconds))
        run, summary = start(folder, "killed", seconds, all_the_time(folder))
        wait_for_manifests(run, folder, 3)  # and the next one is planned, cut or written
        ranks = run.ranks()
        kill(ranks[victim], signal.SIGKILL)
        before = manifests(folder)
        got = result(run, summary)
        text = run.text()
        assert f"of={victim} " in text, text
        assert got["steps"] == STEPS and got["lost_rounds"] == 0, got
        assert got["parameters_xxh3"] == want["parameters_xxh3"], (got, want)
        complete = manifests(folder)
        begun = glob.glob(os.path.join(folder, "ckpt", "ckpt-*"))
        assert len(complete) > len(before), f"none was made after the death:\n{text}"
        assert len(begun) == len(complete), f"some were begun, and are there still: {sorted(begun)}"
        after = [m for m in complete if m not in before]
        for manifest in (before[1], after[0], after[len(after) // 2]):
            verified = subprocess.run([f"{BUILD}/terse", "ckpt", "verify", os.path.dirname(manifest)], capture_output=True, text=True,
                                      check=False)
            assert verified.returncode == 0, verified
            resume = f"checkpoint.resume={os.path.dirname(manifest)}"
            rest = result(*start(folder, "rest", seconds, [f"checkpoint.dir={os.path.join(folder, 'rest')}", resume]))
            assert rest["parameters_xxh3"] == want["parameters_xxh3"], (manifest, rest, want)
    return case


def both_killed_and_resumed(folder, seconds):
    """A second death ends the job with the way on in words, and the same command goes on from what was written after the first."""
    want = result(*start(folder, "calm", seconds))
    sets = checkpoints(folder, "checkpoint.every_steps=10", "checkpoint.keep=2")
    run, summary = start(folder, "both", seconds, sets)
    wait_for_manifests(run, folder, 1)
    ranks = run.ranks()
    kill(ranks[0], signal.SIGKILL)
    assert run.wait_for("the slices of a server that is dead are this one's now", 30), run.text()
    kill(ranks[1], signal.SIGKILL)
    assert run.finish() is not None and "are both gone" in run.text(), run.text()
    assert "the same mpirun command goes on from" in run.text() and not os.path.exists(summary), run.text()
    got = result(*start(folder, "both", seconds, sets))
    assert got["resumed_step"] > 0 and got["parameters_xxh3"] == want["parameters_xxh3"], (got, want)


def folders_of_their_own(folder, seconds):
    """A stand-in could not read what the owner wrote: refused at the start, with both named."""
    words = []
    for name in ("a", "b"):
        server = [f"{BUILD}/terse-server", SOFTMAX] + [w for s in SETS + [f"checkpoint.dir={os.path.join(folder, name)}"] for w in ("--set", s)]
        words += ["-n", "1"] + server + [":"]
    sets = [w for s in SETS + [f"checkpoint.dir={os.path.join(folder, 'a')}"] for w in ("--set", s)]
    run = Run(words + ["-n", "1", f"{BUILD}/terse-worker", SOFTMAX] + sets, seconds)
    assert run.finish() is not None, run.text()
    assert "of server 1 is not that of server 0; with servers.replicas 1 it must be one folder" in run.text(), run.text()


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
    ("replicas-server-0-killed-in-a-checkpoint", 120, killed_in_a_checkpoint(0)),
    ("replicas-server-1-killed-in-a-checkpoint", 120, killed_in_a_checkpoint(1)),
    ("replicas-both-killed-and-resumed", 120, both_killed_and_resumed),
    ("replicas-folders-of-their-own", 40, folders_of_their_own),
    ("replicas-both-killed", 60, both_killed),
    ("replicas-one-server", 40, one_server),
]
