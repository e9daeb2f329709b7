# SPDX-License-Identifier: Apache-2.0
"""A daemon for a test: `terse start` in a folder of the test, everything it started ended by pid whatever happens."""
import json
import os
import re
import signal
import subprocess
import time

from launch import BUILD, PATIENCE, Run, environment, kill, patient

TERSE = f"{BUILD}/terse"


def command(words, seconds=40):
    return subprocess.run([TERSE] + words, capture_output=True, text=True, timeout=PATIENCE * seconds, env=environment(), check=False,
                          stdin=subprocess.DEVNULL)


def sets(pairs):
    return [w for p in pairs for w in ("--set", p)]


def session_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[3])


def descendants(root):
    """Living processes below `root`, itself included."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if fields[0] not in "ZX":
            parents[int(entry)] = int(fields[1])
    found = {root} if root in parents else set()
    while True:
        more = {p for p, above in parents.items() if above in found} - found
        if not more:
            return found
        found |= more


class Daemon:
    """Use as `with Daemon(folder, …) as daemon`."""

    def __init__(self, folder, config, servers=2, overrides=(), mpirun=()):
        self.dir = os.path.join(folder, "run")
        self.config, self.servers, self.overrides, self.mpirun = config, servers, list(overrides), list(mpirun)
        self.processes = set()

    def __enter__(self):
        words = ["start", self.config, "--servers", str(self.servers), "--run-dir", self.dir] + sets(self.overrides)
        try:
            done = command(words + (["--"] + self.mpirun if self.mpirun else []), 70)
            assert done.returncode == 0, f"exit {done.returncode}: {done.stdout}{done.stderr}"
            self.said = done.stdout
            self.processes = descendants(self.keeper())
            assert len(self.processes) >= self.servers + 3, self.processes
        except BaseException:
            self.__exit__()
            raise
        return self

    def keeper(self):
        with open(os.path.join(self.dir, "keeper.pid"), encoding="utf-8") as file:
            return int(file.read().split()[1])

    def server(self, number):
        """The pid of a server."""
        for pid in self.processes:
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    environ = file.read().split(b"\0")
                with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                    name = file.read().strip()
            except OSError:
                continue
            if name == "terse-server" and b"OMPI_COMM_WORLD_RANK=%d" % number in environ:
                return pid
        raise AssertionError(f"server {number} is gone:\n{self.log()}")

    def log(self):
        try:
            with open(os.path.join(self.dir, "log"), encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def status(self):
        done = command(["status", self.dir, "--json"])
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    def running(self):
        return [j for j in self.status()["jobs"] if j["state"] == "running"]

    def words(self, workers, overrides=(), more=(), uri=None):
        return (self.mpirun + ["--ompi-server", f"file:{uri or os.path.join(self.dir, 'ompi-server.uri')}", "-n", str(workers),
                               f"{BUILD}/terse-worker", self.config] + sets([f"daemon.dir={self.dir}"] + list(overrides)) + list(more))

    def job(self, seconds, workers=2, overrides=(), more=(), uri=None):
        return Run(self.words(workers, overrides, more, uri), seconds)

    def wait_until(self, true, seconds, what):
        until = patient(seconds)
        while not true():
            assert time.monotonic() < until, f"not within {seconds} s: {what}\n{self.log()}"
            time.sleep(0.05)

    def lives(self):
        return {pid for pid in self.processes if session_of(pid) is not None}

    def __exit__(self, *_):
        left = self.lives()
        for pid in left:
            kill(pid, signal.SIGKILL)
        until = patient(10)
        while self.lives() and time.monotonic() < until:
            time.sleep(0.05)


def kill_job(run):
    """SIGKILL for a whole job, its mpirun first, so that that cannot say goodbye for it."""
    for pid in [run.process.pid] + sorted(descendants(run.process.pid) - {run.process.pid}):
        kill(pid, signal.SIGKILL)
    run.process.wait()


def hash_of(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)["parameters_xxh3"]


def numbers(text):
    return [float(n) for n in re.findall(r"[0-9.]+", text)]
