# SPDX-License-Identifier: Apache-2.0
"""Cells of the fault matrix in which a host is cut off from the network, and put back (matrix.py).

Every rank has a host of its own, a network namespace (tests/bench/namespaces.py), mpirun another. Needs root; elsewhere a
cell says why it is skipped.
"""
import contextlib
import os
import random
import re
import signal
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "system"), os.path.join(HERE, "..", "bench")]

import ledger  # noqa: E402
import namespaces  # noqa: E402
from launch import BUILD, Run, Skipped, alive, kill  # noqa: E402
from verdicts import (DEADLINE_S, SERVERS, SLACK_S, STATES, VICTIMS, WELL, WORKERS, job_ends,  # noqa: E402
                      others_go_on, tell, whole_checkpoints, words_of)

HOST_OF_MPIRUN = 0
SERVER_HOSTS = list(range(1, SERVERS + 1))
WORKER_HOSTS = list(range(SERVERS + 1, SERVERS + WORKERS + 1))  # a rank's host is its number and 1
MEGABIT = 300
START_S = 30  # mpirun has daemons to start


class Cluster:
    """The hosts, one job on them, and the signal by which a rank asks for the cut."""

    def __init__(self, network, parts, seconds):
        self.network = network
        self.asked = threading.Event()
        self.before = signal.signal(signal.SIGUSR1, lambda *_: self.asked.set())
        self.run = Run([], seconds, network.words(parts, {}))
        self.ranks = {}

    def meet(self):
        """Waits until every rank runs."""
        until = time.monotonic() + START_S
        while len(self.ranks) < SERVERS + WORKERS:
            assert time.monotonic() < until and self.run.process.poll() is None, f"only ranks {sorted(self.ranks)} came:\n{self.run.text()}"
            time.sleep(0.05)
            for host in SERVER_HOSTS + WORKER_HOSTS:
                self.ranks.update({r: pid for pid in self.network.pids(host) if (r := rank_of(pid)) is not None})

    def wait_for_the_moment(self):
        assert self.asked.wait(START_S), f"nobody came into the state:\n{self.run.text()}"

    def set_links(self, hosts, up):
        for host in hosts:
            self.network.set_link(host, up)

    def close(self):
        signal.signal(signal.SIGUSR1, self.before)
        kill(self.run.process.pid, signal.SIGTERM)
        for pid in self.ranks.values():
            if alive(pid):
                kill(pid, signal.SIGKILL)
        self.run.seconds = 0.1
        self.run.finish()


def rank_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = dict(p.split(b"=", 1) for p in file.read().split(b"\0") if b"=" in p)
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            name = file.read().strip()
    except OSError:
        return None
    number = pairs.get(b"OMPI_COMM_WORLD_RANK")
    return int(number) if number is not None and ("terse" in name or "worker" in name) else None


@contextlib.contextmanager
def cluster(parts, seconds):
    if reason := namespaces.can_run():
        raise Skipped(reason)
    network = namespaces.Network(SERVERS + WORKERS, MEGABIT)
    try:
        job = Cluster(network, parts, seconds)
        try:
            yield job
        finally:
            job.close()
    finally:
        network.close()


def wait_until(true, seconds):
    """Whether it came true."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def cut_in(folder, state, hosts, until=lambda job, rest: not any(map(alive, rest)), overrides=(), checkpoints=True):
    """Runs a job, cuts hosts off in a state, and puts them back when `until` is true, or long after the deadline.

    Everybody must then end in time. Returns what was said.
    """
    striker = 1 if len(hosts) == 1 and hosts[0] == WORKER_HOSTS[1] else 2
    (server, worker), victim = words_of(folder, state, striker, signal.SIGUSR1, overrides, checkpoints)
    parts = [(SERVER_HOSTS, server), (WORKER_HOSTS, worker)]
    with cluster(parts, START_S + DEADLINE_S + 2 * SLACK_S + 15) as job:
        job.meet()
        rest = [pid for rank, pid in job.ranks.items() if rank + 1 not in hosts]
        tell(victim, os.getpid())
        job.wait_for_the_moment()
        job.set_links(hosts, False)
        began = time.monotonic()
        wait_until(lambda: until(job, rest), DEADLINE_S + SLACK_S)
        took = time.monotonic() - began
        job.set_links(hosts, True)
        assert took < DEADLINE_S + SLACK_S, f"the others still wait {took:.1f} s after the cut:\n{job.run.text()}"
        everybody = job.ranks.values()
        assert wait_until(lambda: not any(map(alive, everybody)), DEADLINE_S + SLACK_S), \
            f"ranks {[r for r, p in job.ranks.items() if alive(p)]} are left after the heal:\n{job.run.text()}"
        job.run.seconds = time.monotonic() - job.run.began + SLACK_S
        assert job.run.finish() is not None, f"mpirun does not end:\n{job.run.text()}"
        text = job.run.text()
    whole_checkpoints(folder)
    return text


def worker_cut(folder, state):
    """The others go on after the deadline; it finds that it hears nobody, and says so."""
    text = cut_in(folder, state, [WORKER_HOSTS[1]])
    others_go_on("worker", text, state)
    assert re.search(r"server \d \S*.*has been silent", text) or state == "shutdown", f"worker 1 said nothing:\n{text}"


def server_cut(folder, state):
    """Without replicas the job ends at both sides, and names it."""
    job_ends("server", cut_in(folder, state, [SERVER_HOSTS[1]]), state)


def server_cut_and_replaced(folder, state):
    """With replicas the workers go on with its stand-in, with the same bits, and on coming back it ends."""
    calm = os.path.join(folder, "calm")
    os.mkdir(calm)
    wanted = WELL.findall(cut_in(calm, "push", [], overrides=["servers.replicas=1"], checkpoints=False))
    text = cut_in(folder, state, [SERVER_HOSTS[1]], overrides=["servers.replicas=1", "checkpoint.every_steps=2"])
    ended = WELL.findall(text)
    assert len(wanted) == WORKERS and sorted(ended) == sorted(wanted), f"{ended}, not {wanted}\n{text}"
    assert f"server {VICTIMS['server']}" in text or state == "shutdown", text


def workers_cut(folder, state):
    """All workers at once: both sides end, and the servers name who is missing."""
    text = cut_in(folder, state, WORKER_HOSTS)
    assert re.search(r"worker \d", text), text
    assert re.search(r"server \d .*has been silent", text) or state == "shutdown", text


def mpirun_cut(folder, state):
    """Ranks need no mpirun while they train: all end well, and mpirun when it is back."""
    since = []
    def until(_job, rest):
        since.append(time.monotonic())
        return since[-1] > since[0] + DEADLINE_S + 1 or not any(map(alive, rest))
    text = cut_in(folder, state, [HOST_OF_MPIRUN], until)
    assert len(WELL.findall(text)) == WORKERS, text


LOST = "a worker is lost, the job goes on without it"
PATIENT = ["--set", "consistency.deadline_s=3"], ["--set", "consistency.deadline_s=40"]  # servers', workers'


def worker_heals(seed):
    """Cut off at a random moment, for longer than the servers' deadline: on coming back it is told, and takes part again,
    with all that it had; in the parameters every step of everybody is there once."""
    def cell(folder, _state):
        rolls = random.Random(seed)
        number = rolls.randrange(WORKERS)
        words = ([f"{BUILD}/terse-server", ledger.CONFIG, *PATIENT[0]], [f"{BUILD}/ledger_worker", ledger.CONFIG, *PATIENT[1], folder])
        with cluster(list(zip((SERVER_HOSTS, WORKER_HOSTS), words)), 120) as job:
            job.meet()
            ledger.wait_until_all_push(job.run, folder, WORKERS)
            for turn in (1, 2):
                time.sleep(rolls.random())
                job.set_links([WORKER_HOSTS[number]], False)
                gone = wait_until(lambda: job.run.text().count(LOST) >= SERVERS * turn, 20)
                time.sleep(rolls.random())
                job.set_links([WORKER_HOSTS[number]], True)
                assert gone, f"nobody gave worker {number} up:\n{job.run.text()}"
                assert wait_until(lambda: job.run.text().count("back in the job") >= turn, 30), f"worker {number} stays away:\n{job.run.text()}"
            ledger.stop(folder)
            assert job.run.finish() is not None, f"it hangs:\n{job.run.text()}"
            try:
                ledger.audit(folder, WORKERS, set())
            except AssertionError as wrong:
                raise AssertionError(f"{wrong}\nworker {number} was cut off twice:\n{job.run.text()}") from wrong
    return cell


def cells():
    """(name, function, state)"""
    for name, function in (("worker-cut", worker_cut), ("server-cut", server_cut), ("job-cut", workers_cut), ("mpirun-cut", mpirun_cut)):
        yield from ((f"{name}-{state}", function, state) for state in STATES)
    yield from ((f"worker-heals-{seed}", worker_heals(seed), "random") for seed in range(1, 7))
    yield from ((f"server-cut-replaced-{state}", server_cut_and_replaced, state) for state in STATES)
