# SPDX-License-Identifier: Apache-2.0
"""Servers with replicas over mpirun: a killed server costs nothing, neither a bit nor a restart."""
import glob
import json
import os
import signal
import subprocess
import time

from daemon import Daemon, command
from launch import BUILD, Run, job, kill, patient

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


def result(run, summary, daemon=None):
    code = run.finish()
    assert code is not None and os.path.exists(summary), f"mpirun ended with {code}:\n{run.text()}\n{daemon.log() if daemon else ''}"
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
    until = patient(seconds)
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
    """A daemon's server dies: its job ends with the same bits."""
    want = result(*start(folder, "calm", seconds))
    with Daemon(folder, SOFTMAX, servers=SERVERS, overrides=SETS) as daemon:
        summary = os.path.join(folder, "daemon.json")
        run = daemon.job(seconds, workers=WORKERS, overrides=SETS, more=["--summary", summary])
        assert run.wait_for("epoch 1/3  step 40/", 40), f"{run.text()}\n{daemon.log()}"
        kill(daemon.server(1), signal.SIGKILL)
        got = result(run, summary)
        assert "the slices of a server that is dead are this one's now" in daemon.log(), daemon.log()
        assert got["steps"] == STEPS and got["parameters_xxh3"] == want["parameters_xxh3"], (got, want, daemon.log())


def without(daemon, victim, number=signal.SIGKILL):
    """A server of the daemon is killed, and its report says so: it goes on, whoever leads."""
    leader = 1 if victim == 0 else 0
    kill(daemon.server(victim), number)
    daemon.wait_until(lambda: "a server is dead, the jobs go on without it" in daemon.log(), 20, "the others notice")
    daemon.wait_until(lambda: command(["status", daemon.dir]).returncode == 0 and daemon.status()["dead"] == [victim], 20, "the report says so")
    status = daemon.status()
    assert status["server"] == leader and status["pid"] == daemon.server(leader), (status, daemon.log())
    shown = command(["status", daemon.dir])
    words = f"server {victim} is dead; server {(victim + 1) % daemon.servers} is in its place"
    assert shown.returncode == 0 and words in shown.stdout, shown


def late_job(daemon, folder, name, victim, seconds, sets):
    """A job that begins without that server."""
    summary = os.path.join(folder, name + ".json")
    run = daemon.job(seconds, workers=WORKERS, overrides=sets, more=["--summary", summary])
    got = result(run, summary, daemon)
    assert f'a server was dead before this worker came; its stand-in is in its place" server={victim} ' in run.text(), run.text()
    return got


def stop(daemon):
    """In order, by whoever leads, who tells the others: nobody has to find out by silence."""
    alone = daemon.log().count("this server ends")
    done = command(["stop", daemon.dir, "--timeout", "30"], 60)
    assert done.returncode == 0 and not daemon.lives(), (done, daemon.log())
    assert daemon.log().count("nobody is let in any more") == 1 and "msg=\"the daemon has ended\" exit=0" in daemon.log(), daemon.log()
    assert daemon.log().count("this server ends") == alone, daemon.log()
    assert not os.path.exists(os.path.join(daemon.dir, "daemon")), "the card is still there"


def jobs_after_the_death_of(victim, servers):
    """Two jobs that begin when a server of the daemon is dead: the same bits as ever."""
    def case(folder, seconds):
        want = result(*start(folder, "calm", seconds))
        with Daemon(folder, SOFTMAX, servers=servers, overrides=SETS) as daemon:
            without(daemon, victim)
            for name in ("first", "second"):
                got = late_job(daemon, folder, name, victim, seconds, SETS)
                assert got["steps"] == STEPS and got["parameters_xxh3"] == want["parameters_xxh3"], (name, got, want, daemon.log())
            stop(daemon)
    return case


def checkpoints_after_the_death_of(victim):
    """
    A job that begins without a server makes checkpoints, and none for that server's death, which was none of its own; another daemon
    goes on from them, without that server, too.
    """
    def case(folder, seconds):
        want = result(*start(folder, "calm", seconds))
        for name, steps, resumed, every in (("first", STEPS // 2, 0, 1000000), ("second", STEPS, STEPS // 2, 10)):
            sets = SETS + checkpoints(folder, f"checkpoint.every_steps={every}", "checkpoint.keep=200", "job.name=late")
            with Daemon(folder, SOFTMAX, servers=SERVERS, overrides=sets) as daemon:
                without(daemon, victim)
                got = late_job(daemon, folder, name, victim, seconds, sets + [f"training.max_steps={steps}"])
                assert got["steps"] == steps and got["resumed_step"] == resumed, (name, got, daemon.log())
                stop(daemon)
                os.remove(os.path.join(daemon.dir, "log"))
            made = glob.glob(os.path.join(folder, "ckpt", "late", "ckpt-*", "manifest.json"))
            assert len(made) == 1 if resumed == 0 else len(made) > 2, sorted(made)
        assert got["parameters_xxh3"] == want["parameters_xxh3"], (got, want)
    return case


def woken_in_a_daemon(victim, servers):
    """A server that was given up while it slept wakes up: it ends, it alone, and takes nothing with it."""
    def case(folder, seconds):
        want = result(*start(folder, "calm", seconds))
        with Daemon(folder, SOFTMAX, servers=servers, overrides=SETS) as daemon:
            sleeper = daemon.server(victim)
            others = {daemon.server(n) for n in range(servers)} - {sleeper}
            without(daemon, victim, signal.SIGSTOP)
            kill(sleeper, signal.SIGCONT)
            daemon.wait_until(lambda: sleeper not in daemon.lives(), 20, "it ends")
            got = late_job(daemon, folder, "late", victim, seconds, SETS)
            assert got["parameters_xxh3"] == want["parameters_xxh3"], (got, want, daemon.log())
            assert daemon.lives() >= others, daemon.log()
            stop(daemon)
    return case


def nobody_leads(folder, seconds):
    """Server 0 and its stand-in are dead: no job can run, nobody could be asked for one, and all ends."""
    del seconds
    with Daemon(folder, SOFTMAX, servers=SERVERS, overrides=SETS) as daemon:
        for victim in (1, 0):
            kill(daemon.server(victim), signal.SIGKILL)
        daemon.wait_until(lambda: not daemon.lives(), 40, "all ends")
        assert "are both dead, so no job can run here" in daemon.log(), daemon.log()
        assert command(["status", daemon.dir]).returncode == 3


def pair_dead(folder, seconds):
    """Nobody has the slices of one server any more: who would begin a job there is told so, and what to do."""
    with Daemon(folder, SOFTMAX, servers=SERVERS, overrides=SETS) as daemon:
        for victim in (1, 2):
            kill(daemon.server(victim), signal.SIGKILL)
        daemon.wait_until(lambda: daemon.log().count("a server is dead") == 2, 30, "the last one notices")
        run = daemon.job(seconds, workers=WORKERS, overrides=SETS)
        assert run.finish() is not None, run.text()
        assert "server 1 (rank 1" in run.text() and "are both dead, so no job can run here; end the daemon" in run.text(), run.text()
        daemon.wait_until(lambda: "are both dead" in daemon.status()["message"], 10, "the report says so")
        assert "are both dead" in command(["status", daemon.dir]).stdout
        stop(daemon)


CASES = [
    ("replicas-server-0-of-2-woken-in-a-daemon", 120, woken_in_a_daemon(0, 2)),
    ("replicas-server-0-of-3-woken-in-a-daemon", 120, woken_in_a_daemon(0, 3)),
    ("replicas-server-1-of-3-woken-in-a-daemon", 120, woken_in_a_daemon(1, 3)),
    ("replicas-nobody-leads-a-daemon", 90, nobody_leads),
    ("replicas-pair-dead-in-a-daemon", 90, pair_dead),
    ("replicas-jobs-after-server-0-of-3-is-dead", 150, jobs_after_the_death_of(0, 3)),
    ("replicas-jobs-after-server-1-of-3-is-dead", 150, jobs_after_the_death_of(1, 3)),
    ("replicas-jobs-after-server-0-of-2-is-dead", 150, jobs_after_the_death_of(0, 2)),
    ("replicas-jobs-after-server-1-of-2-is-dead", 150, jobs_after_the_death_of(1, 2)),
    ("replicas-checkpoints-after-server-0-is-dead", 150, checkpoints_after_the_death_of(0)),
    ("replicas-checkpoints-after-server-1-is-dead", 150, checkpoints_after_the_death_of(1)),
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
