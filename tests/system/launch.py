# SPDX-License-Identifier: Apache-2.0
"""Starts mpirun for a test: its own session, a hard time limit, output kept, ranks found by /proc."""
import os
import signal
import subprocess
import tempfile
import time

BUILD = os.environ.get("BUILD", "build")
TUNE = ["--tune", "configs/openmpi.conf"]
# How many times as long as usual everything may take: a sanitizer's build is slow (make system SAN=…).
PATIENCE = float(os.environ.get("TERSE_TEST_PATIENCE", "1"))
SANITIZED = "TERSE_SANITIZER_LOG" in os.environ


class Skipped(Exception):
    """Raised by a case that this machine cannot run; says why."""


def not_with_a_sanitizer():
    """For cases in which what the compiler's flags of the build did not reach is loaded beside what they did."""
    if SANITIZED:
        raise Skipped("a sanitizer's run-time would not come first")


def patient(seconds):
    """The moment until which something may take that usually takes so long at most."""
    return time.monotonic() + PATIENCE * seconds


def environment():
    env = dict(os.environ)
    if os.geteuid() == 0:
        env["OMPI_ALLOW_RUN_AS_ROOT"] = env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    env["OPENBLAS_NUM_THREADS"] = "1"
    return env


def state_of(pid):
    """Linux's letter of a process, as R, S, T for stopped; X when there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


def alive(pid):
    return state_of(pid) not in "ZX"


class Run:
    """One mpirun and all it started. program: how mpirun is called, when not as usual."""

    def __init__(self, words, seconds, program=("mpirun", *TUNE)):
        self.output = tempfile.TemporaryFile()
        self.seconds = PATIENCE * seconds
        self.began = time.monotonic()
        self.process = subprocess.Popen([*program, *words], stdin=subprocess.DEVNULL, stdout=self.output,
                                        stderr=subprocess.STDOUT, start_new_session=True, env=environment())

    def ranks(self):
        """pid of each rank, by its number in MPI_COMM_WORLD."""
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/stat") as file:
                    session = int(file.read().rsplit(")", 1)[1].split()[3])
                with open(f"/proc/{entry}/environ", "rb") as file:
                    pairs = dict(p.split(b"=", 1) for p in file.read().split(b"\0") if b"=" in p)
            except (OSError, ValueError, IndexError):
                continue
            # Ranks are in sessions or groups of their own in some launchers: go by the parent chain as well.
            if b"OMPI_COMM_WORLD_RANK" in pairs and (session == self.process.pid or self._descends(int(entry))):
                found[int(pairs[b"OMPI_COMM_WORLD_RANK"])] = int(entry)
        return found

    def _descends(self, pid):
        while pid > 1:
            if pid == self.process.pid:
                return True
            try:
                with open(f"/proc/{pid}/stat") as file:
                    pid = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                return False
        return False

    def all_ranks(self, count, seconds=45):
        """The same when there are `count` of them."""
        until = patient(seconds)
        while len(found := self.ranks()) < count:
            assert time.monotonic() < until and self.process.poll() is None, f"only ranks {sorted(found)} are there:\n{self.text()}"
            time.sleep(0.02)
        return found

    def text(self):
        self.output.seek(0)
        return self.output.read().decode("utf-8", "replace")

    def wait_for(self, words, seconds):
        """Waits until the output holds `words`; returns whether it did."""
        until = patient(seconds)
        while time.monotonic() < until:
            if words in self.text():
                return True
            if self.process.poll() is not None:
                return words in self.text()
            time.sleep(0.05)
        return False

    def finish(self):
        """Exit code, or None when the time limit had to end it; then everything it started is killed."""
        try:
            code = self.process.wait(max(0.1, self.seconds - (time.monotonic() - self.began)))
        except subprocess.TimeoutExpired:
            code = None
        self.took = time.monotonic() - self.began
        leftover = self.ranks()
        for pid in leftover.values():
            kill(pid, signal.SIGKILL)
        if code is None:
            kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
        return code


def kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def job(servers, workers, config, sets=(), worker_words=(), server_config=None):
    """The words of `mpirun -n S terse-server : -n W terse-worker`."""
    overrides = [w for s in sets for w in ("--set", s)]
    words = []
    if servers:
        words += ["-n", str(servers), f"{BUILD}/terse-server", server_config or config] + overrides
    if workers:
        words += ([":"] if words else []) + ["-n", str(workers), f"{BUILD}/terse-worker", config] + overrides
        words += list(worker_words)
    return words
