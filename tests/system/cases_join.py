# SPDX-License-Identifier: Apache-2.0
"""Workers come into a running job of a daemon: killed ones as new processes, and new ones. What each has pushed is counted."""
import glob
import itertools
import os
import re
import shutil
import signal
import struct
import tempfile
import time

from cases_attach import door, knocks
from cases_checkpoint import manifests, whole
from daemon import Daemon, command, kill_job, sets
from launch import BUILD, SANITIZED, Run, kill, patient

CONFIG = "tests/fault/join.yaml"
SERVER = ["consistency.deadline_s=8"]
OWN, ROOM = 1000, 16  # as in join_worker.c
MLP = "configs/fashion-mnist.yaml"


class Job:
    """A job of join_worker processes in a daemon, and what they note of themselves."""

    def __init__(self, folder, daemon, seconds, overrides=(), keeps=True):
        self.daemon, self.seconds, self.overrides = daemon, seconds, list(overrides)
        self.notes = os.path.join(folder, "notes")
        os.mkdir(self.notes)
        self.keep = tempfile.mkdtemp(prefix="terse-test-", dir="/dev/shm") if keeps else None
        self.runs = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for run in self.runs:
            if run.process.poll() is None:
                kill_job(run)
        if self.keep:
            shutil.rmtree(self.keep, ignore_errors=True)

    def words(self, workers, overrides):
        own = [f"daemon.dir={self.daemon.dir}", f"error_feedback.keep={self.keep or 'off'}"] + self.overrides + list(overrides)
        return ["--ompi-server", f"file:{os.path.join(self.daemon.dir, 'ompi-server.uri')}", "-n", str(workers),
                f"{BUILD}/join_worker", CONFIG] + sets(own) + [self.notes]

    def launch(self, workers, overrides=()):
        run = Run(self.words(workers, overrides), self.seconds)
        self.runs.append(run)
        return run

    def begin(self, workers):
        run = self.launch(workers)
        for worker in range(workers):
            self.trains(run, worker)
        return run

    def come(self, which, workers=1):
        return self.launch(workers, [f"worker.id={which}"])

    def counter(self, name, worker):
        try:
            with open(os.path.join(self.notes, f"{name}.{worker}"), "rb") as file:
                return struct.unpack("<Q", file.read(8))[0]
        except (OSError, struct.error):
            return 0

    def trains(self, run, worker, more=3):
        """Waits until the worker, in whatever process, has pushed some more."""
        before = self.counter("done", worker)
        self.daemon.wait_until(lambda: self.counter("done", worker) >= before + more or run.process.poll() is not None, 40,
                               f"worker {worker} trains:\n{run.text()}")
        assert self.counter("done", worker) >= before + more, f"worker {worker}:\n{run.text()}\n{self.daemon.log()}"

    def is_in(self, run, worker):
        assert run.wait_for(f"worker {worker} is in the job", 30), f"worker {worker}:\n{run.text()}\n{self.daemon.log()}"
        self.trains(run, worker)

    def stop(self, *runs):
        """All end in order."""
        with open(os.path.join(self.notes, "stop"), "w", encoding="utf-8"):
            pass
        for run in runs:
            code = run.finish()
            assert code == 0, f"exit {code}:\n{run.text()}\n{self.daemon.log()}"
            assert "ledger" not in run.text() and "join_worker:" not in run.text(), run.text()

    def audit(self, workers, lossless=True):
        """Each worker's numbers are in the parameters, once; but for the one that a kill came upon, wholly or not at all."""
        files = sorted(glob.glob(os.path.join(self.notes, "params.*")))
        assert len(files) >= 1, os.listdir(self.notes)
        contents = set()
        for path in files:
            with open(path, "rb") as file:
                contents.add(file.read())
        assert len(contents) == 1, f"{files} differ"
        data = contents.pop()
        values = struct.unpack(f"<{len(data) // 4}f", data)
        assert len(values) == 2 * ROOM * OWN, len(values)
        for worker, tensor in itertools.product(range(ROOM), range(2)):
            at = tensor * ROOM * OWN + worker * OWN
            taken = {-v for v in values[at:at + OWN]}
            allowed = self.allowed(worker) if worker in workers else {0}
            if lossless or worker not in workers:
                assert taken <= allowed, f"worker {worker}, tensor {tensor}: {sorted(taken - allowed)[:5]} of {sorted(allowed)[:5]}"
            else:
                assert 0 < min(taken) and max(taken) <= max(allowed), f"worker {worker}, tensor {tensor}: {taken}, {allowed}"
        for worker in workers:
            assert self.counter("begun", worker) == self.counter("done", worker) > 3, worker

    def killed(self, worker):
        try:
            with open(os.path.join(self.notes, f"killed.{worker}"), encoding="utf-8") as file:
                return [int(line) for line in file]
        except OSError:
            return []

    def allowed(self, worker):
        numbers = self.counter("begun", worker)
        whole, rest = divmod(numbers, 16)
        total = whole * 136 + rest * (rest + 1) // 2
        sums = {0}
        for number in self.killed(worker):
            sums |= {s + number % 16 + 1 for s in sums}
        return {total - s for s in sums}


def lost(daemon, count):
    daemon.wait_until(lambda: sum("a worker is lost" in line and "process=server0" in line for line in daemon.log().splitlines()) >= count,
                      15, f"{count} workers are given up")


def killed_and_back(which, more=()):
    def case(folder, seconds):
        with Daemon(folder, CONFIG, overrides=SERVER) as daemon, Job(folder, daemon, seconds, more) as job:
            run = job.begin(3)
            kill(run.ranks()[1], signal.SIGKILL)
            lost(daemon, 1)
            if not more:
                job.trains(run, 0)
            daemon.wait_until(lambda: daemon.status()["jobs"][0]["lost"], 10, "the status says who is lost")
            status = daemon.status()["jobs"][0]
            command_line = status["lost"][0]["bring_back"]
            assert status["done"] == 0 and status["lost"][0]["worker"] == 1 and command_line.endswith("--worker-id 1"), status
            assert command_line in daemon.log(), daemon.log()
            assert f"bring it back: {command_line}" in command(["status", daemon.dir]).stdout
            back = job.come(which)
            job.is_in(back, 1)
            assert "msg=\"a worker is back\"" in daemon.log(), daemon.log()
            daemon.wait_until(lambda: not daemon.status()["jobs"][0]["lost"], 10, "the status says that it is back")
            # And again: the next life of the same worker.
            kill(back.ranks()[0], signal.SIGKILL)
            lost(daemon, 2)
            again = job.come(which)
            job.is_in(again, 1)
            assert "life=3" in again.text(), again.text()
            job.stop(run, again)
            assert len(job.killed(1)) <= 2
            job.audit({0, 1, 2})
    return case


def before_it_is_given_up(folder, seconds):
    """A new process comes at once: its predecessor's death need not be waited for."""
    with Daemon(folder, CONFIG, overrides=SERVER) as daemon, Job(folder, daemon, seconds) as job:
        run = job.begin(2)
        kill(run.ranks()[0], signal.SIGKILL)
        daemon.wait_until(lambda: "a process has ended" in daemon.log(), 10, "the servers notice")
        back = job.come(0)
        job.is_in(back, 0)
        job.stop(run, back)
        job.audit({0, 1})


def several_orphans(folder, seconds):
    """One launch of two ranks takes both places, by what was kept on this host."""
    with Daemon(folder, CONFIG, overrides=SERVER) as daemon, Job(folder, daemon, seconds) as job:
        run = job.begin(4)
        ranks = run.ranks()
        for worker in (1, 3):
            kill(ranks[worker], signal.SIGKILL)
        lost(daemon, 2)
        back = job.come("any", 2)
        for worker in (1, 3):
            job.is_in(back, worker)
        job.stop(run, back)
        job.audit({0, 1, 2, 3})


def without_what_it_had(folder, seconds):
    """From another host, so to say: it goes on with an empty residual, and nothing is taken twice."""
    with Daemon(folder, CONFIG, overrides=SERVER) as daemon, Job(folder, daemon, seconds, keeps=False) as job:
        run = job.begin(2)
        kill(run.ranks()[1], signal.SIGKILL)
        lost(daemon, 1)
        back = job.come(1)
        job.is_in(back, 1)
        job.stop(run, back)
        job.audit({0, 1}, lossless=False)


def new_workers(more=()):
    def case(folder, seconds):
        with Daemon(folder, CONFIG, overrides=SERVER + ["limits.workers=5"]) as daemon, Job(folder, daemon, seconds, more) as job:
            run = job.begin(2)
            first = job.come("any")
            job.is_in(first, 2)
            assert "msg=\"a new worker has come in\"" in daemon.log(), daemon.log()
            more_of_them = job.come("4,3", 2)  # in whatever order: together they leave no gap
            for worker in (3, 4):
                job.is_in(more_of_them, worker)
            refused(job.come("any"), "limits.workers of the servers is 5")
            daemon.wait_until(lambda: daemon.running()[0]["workers"] == 5, 10, "the status counts them")
            # One of them dies, and comes back.
            kill(first.ranks()[0], signal.SIGKILL)
            lost(daemon, 1)
            back = job.come(2)
            job.is_in(back, 2)
            job.stop(run, more_of_them, back)
            job.audit({0, 1, 2, 3, 4})
    return case


def refused(run, words, limit=30):
    began = time.monotonic()
    code = run.finish()
    assert code is not None and time.monotonic() - began < limit, run.text()
    assert words in run.text(), f"nobody said '{words}':\n{run.text()}"
    assert "is in the job" not in run.text(), run.text()


def refusals(folder, seconds):
    """Each is a sentence, to that launch alone."""
    with Daemon(folder, CONFIG, overrides=SERVER) as daemon, Job(folder, daemon, seconds) as job:
        run = job.begin(3)
        refused(job.come(0), "it lives (worker 0")
        refused(job.come(7), "a new one would be worker 3")
        refused(job.come("2,2", 2), "worker 2")
        refused(job.launch(1, ["worker.id=any", "job.name=other"]), "job other runs here")
        kill(run.ranks()[2], signal.SIGKILL)
        lost(daemon, 1)
        refused(job.launch(1, ["worker.id=2", "optimizer.lr=0.5", "error_feedback.keep=off"]), "lr=0.5")
        refused(job.launch(1, ["worker.id=two"]), "allowed: new, any, or numbers")
        refused(job.launch(2, ["worker.id=2,2"]), "worker 2 is there twice; allowed: each number once")
        job.trains(run, 0)
        back = job.come(2)
        job.is_in(back, 2)
        job.stop(run, back)
        job.audit({0, 1, 2})
        refused(job.come("any"), "running: none")
    done = Run(["-n", "1", f"{BUILD}/terse-server", CONFIG, ":", "-n", "1", f"{BUILD}/join_worker", CONFIG, "--set", "worker.id=0", folder], 30)
    refused(done, "servers of its own")


def two_at_once(folder, seconds):
    """Two launches want in at the same moment: each gets a place of its own."""
    with Daemon(folder, CONFIG, overrides=SERVER) as daemon, Job(folder, daemon, seconds) as job:
        run = job.begin(3)
        ranks = run.ranks()
        for worker in (0, 2):
            kill(ranks[worker], signal.SIGKILL)
        lost(daemon, 2)
        both = [job.come("any"), job.come("any")]
        for back in both:
            assert back.wait_for("is in the job", 30), f"{back.text()}\n{daemon.log()}"
        numbers = sorted(re.search(r"worker (\d+) is in the job", back.text()).group(1) for back in both)
        assert numbers == ["0", "2"], numbers
        for worker in (0, 2):
            job.trains(run, worker)
        job.stop(run, *both)
        job.audit({0, 1, 2})


def killed_while_coming(folder, seconds):
    """At whatever moment: the others go on, and the next is let in."""
    with Daemon(folder, CONFIG, overrides=SERVER) as daemon, Job(folder, daemon, seconds) as job:
        run = job.begin(2)
        servers = {daemon.server(0), daemon.server(1)}
        kill(run.ranks()[1], signal.SIGKILL)
        lost(daemon, 1)
        for strike in range(12):
            port = door(daemon, strike % 2)
            at_rest = knocks(port)
            victim = job.come(1)
            until = patient(20)
            while knocks(port) == at_rest and time.monotonic() < until:
                time.sleep(0.001)
            time.sleep((strike * 7 % 12) * 0.004)  # coming in takes some 10 ms a server
            kill_job(victim)
            job.trains(run, 0)
            assert daemon.lives() >= servers, daemon.log()
        said = daemon.log()
        assert "it was joining" in said or "have come into a job" in said, said  # which of both, is a matter of speed
        back = job.come(1)
        job.is_in(back, 1)
        job.stop(run, back)
        job.audit({0, 1})


def revived(workers):
    def case(folder, seconds):
        """All of a job's workers are killed, its mpirun too: it waits, and is gone on with."""
        with Daemon(folder, CONFIG, overrides=SERVER) as daemon, Job(folder, daemon, seconds) as job:
            run = job.begin(workers)
            kill_job(run)
            daemon.wait_until(lambda: daemon.running() and daemon.running()[0]["orphaned"], 15, "it is kept")
            shown = command(["status", daemon.dir]).stdout
            assert "all workers are lost" in shown and shown.count("bring it back: ") == workers, shown
            assert "waits for one to come back" in daemon.log() and "--worker-id any" in daemon.log(), daemon.log()
            back = job.come("any", workers)
            for worker in range(workers):
                job.is_in(back, worker)
            assert not daemon.running()[0]["orphaned"] or daemon.wait_until(lambda: not daemon.running()[0]["orphaned"], 5, "told") is None
            job.stop(back)
            job.audit(set(range(workers)))
    return case


def nobody_comes(folder, seconds):
    """After daemon.orphan_s the job ends; and at once when a new one needs its place."""
    with Daemon(folder, CONFIG, overrides=SERVER + ["daemon.orphan_s=4", "limits.jobs=1"]) as daemon, Job(folder, daemon, seconds) as job:
        kill_job(job.begin(1))
        daemon.wait_until(lambda: "waits for one to come back" in daemon.log(), 15, "it is kept")
        daemon.wait_until(lambda: "none has come back within daemon.orphan_s" in daemon.log(), 20, "and ends")
        refused(job.come("any"), "running: none")
    with Daemon(folder + "/again", CONFIG, overrides=SERVER + ["limits.jobs=1"]) as daemon:
        os.mkdir(os.path.join(folder, "b"))
        with Job(os.path.join(folder, "b"), daemon, seconds) as job:
            kill_job(job.begin(1))
            daemon.wait_until(lambda: "waits for one to come back" in daemon.log(), 15, "it is kept")
            shutil.rmtree(job.keep)
            shutil.rmtree(job.notes)
            os.mkdir(job.notes)
            run = job.begin(2)
            assert "a new job needs its place" in daemon.log(), daemon.log()
            job.stop(run)
            job.audit({0, 1})


def wrong_secret(folder, seconds):
    paths = [os.path.join(folder, name) for name in ("secret", "other")]
    for number, path in enumerate(paths):
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            file.write(f"a secret of thirty-two letters, {number}\n")
    with Daemon(folder, CONFIG, overrides=SERVER + [f"auth.secret_file={paths[0]}"]) as daemon, \
            Job(folder, daemon, seconds, [f"auth.secret_file={paths[0]}"]) as job:
        run = job.begin(2)
        kill(run.ranks()[1], signal.SIGKILL)
        lost(daemon, 1)
        refused(job.launch(1, ["worker.id=1", f"auth.secret_file={paths[1]}", "error_feedback.keep=off"]), "secret")
        back = job.come(1)
        job.is_in(back, 1)
        job.stop(run, back)
        job.audit({0, 1})


def trainer(folder, seconds):
    """terse-worker: the same data's share, the same number of steps; a new one is counted nowhere twice."""
    path = os.path.join(folder, "summary.json")
    keep = tempfile.mkdtemp(prefix="terse-test-", dir="/dev/shm")
    steps = 60 if SANITIZED else 450
    overrides = [f"training.max_steps={steps}", "training.batch=512", "consistency.deadline_s=8", f"error_feedback.keep={keep}"]
    try:
        with Daemon(folder, MLP, overrides=SERVER) as daemon:
            run = daemon.job(seconds, workers=2, overrides=overrides, more=["--summary", path])
            assert run.wait_for("step ", 40), run.text()
            kill(run.ranks()[1], signal.SIGKILL)
            lost(daemon, 1)
            back = daemon.job(seconds, workers=1, overrides=overrides, more=["--worker-id", "1"])
            assert back.wait_for("back in the job", 30), f"{back.text()}\n{daemon.log()}"
            further = daemon.job(seconds, workers=1, overrides=overrides, more=["--worker-id", "any"])
            assert further.wait_for("back in the job", 30), f"{further.text()}\n{daemon.log()}"
            for one in (run, back, further):
                assert one.finish() == 0, f"{one.text()}\n{daemon.log()}"
            with open(path, encoding="utf-8") as file:
                text = file.read()
            assert '"lost_workers": 0' in text and f'"steps": {steps}' in text, text
            assert SANITIZED or float(re.search(r'"test_accuracy": ([0-9.]+)', text).group(1)) > 0.8, text
    finally:
        shutil.rmtree(keep, ignore_errors=True)


def new_worker_and_checkpoint(folder, seconds):
    """A job that a worker has come into is cut whole: the checkpoint is sound, and whoever goes on from it gets the same bits."""
    place = os.path.join(folder, "checkpoints")
    plan = ["consistency.deadline_s=8", f"checkpoint.dir={place}", "checkpoint.every_steps=1000000", "job.name=cut"]
    with Daemon(folder, MLP, overrides=plan) as daemon:
        run = daemon.job(seconds, workers=2, overrides=plan + ["training.epochs=1000"])
        assert run.wait_for("step ", 40), run.text()
        further = daemon.job(seconds, workers=1, overrides=plan + ["training.epochs=1000"], more=["--worker-id", "any"])
        assert further.wait_for("back in the job", 30), f"{further.text()}\n{daemon.log()}"
        kill(daemon.server(0), signal.SIGUSR1)
        daemon.wait_until(lambda: "a checkpoint is complete" in daemon.log(), 40, "a checkpoint with a worker that has come in")
        for one in (run, further):
            kill_job(one)
    place = os.path.join(place, "cut")
    assert command(["ckpt", "verify", place]).returncode == 0
    step, (manifest, _) = sorted(manifests(place).items())[-1]
    assert len(manifest["workers"]) == 2 and all(part["bytes"] > 0 for part in manifest["workers"]), manifest["workers"]
    got = []
    for copy in ("one", "two"):
        shutil.copytree(place, os.path.join(folder, copy))
        got.append(whole(folder, MLP, 2, 2, ["training.epochs=1000", f"training.max_steps={step + 20}"], seconds, copy))
        assert got[-1]["resumed_step"] == step and got[-1]["steps"] == step + 20, got
    assert got[0]["parameters_xxh3"] == got[1]["parameters_xxh3"], got


def with_replicas(victim, servers=3, more=()):
    """Back, and further ones, in a job whose servers have replicas; then a server dies, and a worker is missed and comes back by itself.

    more: of the job. Then parameters are no sums of steps any more, and the servers' own comparison is the verdict.
    """
    def case(folder, seconds):
        sets_of_servers = SERVER + ["servers.replicas=1", "limits.workers=5"]
        with Daemon(folder, CONFIG, servers=servers, overrides=sets_of_servers) as daemon, Job(folder, daemon, seconds, more) as job:
            run = job.begin(3)
            ranks = run.ranks()
            kill(ranks[1], signal.SIGKILL)
            lost(daemon, 1)
            back = job.come(1)
            job.is_in(back, 1)
            further = job.come("any")
            job.is_in(further, 3)
            for words in ("a worker is back", "a new worker has come in"):
                assert f'msg="{words}"' in daemon.log(), daemon.log()
            kill(daemon.server(victim), signal.SIGKILL)
            dead = "the slices of a server that is dead are this one's now"
            daemon.wait_until(lambda: dead in daemon.log(), 30, "the stand-in takes its place")
            for worker, its_run in enumerate((run, back, run, further)):
                job.trains(its_run, worker)
            given_up = daemon.log().count("a worker is lost")
            kill(ranks[2], signal.SIGSTOP)
            daemon.wait_until(lambda: daemon.log().count("a worker is lost") >= given_up + servers - 1, 40, "all that live give it up")
            kill(ranks[2], signal.SIGCONT)
            job.trains(run, 2)
            assert daemon.log().count('msg="a worker is back"') == 2, daemon.log()
            # Past the door of the dead: a killed one is back as a new process, with what it kept, and a further one comes in.
            given_up = daemon.log().count("a worker is lost")
            kill(back.ranks()[0], signal.SIGKILL)
            daemon.wait_until(lambda: daemon.log().count("a worker is lost") >= given_up + servers - 1, 40, "all that live give it up")
            again = job.come(1)
            job.is_in(again, 1)
            last = job.come("any")
            job.is_in(last, 4)
            job.stop(run, again, further, last)
            if not more:
                job.audit({0, 1, 2, 3, 4})
            assert "do not agree on version" not in daemon.log(), daemon.log()
    return case


CASES = [
    ("join-replicas-and-server-0-dies", 150, with_replicas(0)),
    ("join-replicas-and-server-0-of-2-dies", 150, with_replicas(0, 2)),
    ("join-replicas-and-server-1-of-2-dies", 150, with_replicas(1, 2)),
    ("join-replicas-and-server-1-dies", 150, with_replicas(1)),
    ("join-replicas-and-server-2-dies", 150, with_replicas(2)),
    ("join-replicas-ef21", 150, with_replicas(1, 3, ["error_feedback.variant=ef21", "aggregation.mode=mean"])),
    ("join-new-worker-and-checkpoint", 150, new_worker_and_checkpoint),
    ("join-killed-worker-by-number", 120, killed_and_back(1)),
    ("join-killed-worker-by-what-it-kept", 120, killed_and_back("any")),
    ("join-killed-worker-ssp", 120, killed_and_back(1, ["consistency.mode=ssp", "consistency.staleness=3"])),
    ("join-killed-worker-asp", 120, killed_and_back(1, ["consistency.mode=asp"])),
    ("join-before-it-is-given-up", 90, before_it_is_given_up),
    ("join-several-orphans", 90, several_orphans),
    ("join-without-what-it-had", 90, without_what_it_had),
    ("join-new-workers", 120, new_workers()),
    ("join-new-workers-asp", 120, new_workers(["consistency.mode=asp"])),
    ("join-refusals", 140, refusals),
    ("join-two-at-once", 90, two_at_once),
    ("join-killed-while-coming", 120, killed_while_coming),
    ("join-whole-job-revived", 90, revived(3)),
    ("join-only-worker-revived", 90, revived(1)),
    ("join-nobody-comes", 120, nobody_comes),
    ("join-wrong-secret", 90, wrong_secret),
    ("join-trainer", 120, trainer),
]
