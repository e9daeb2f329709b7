#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `make test-long` runs: its parts by name, two at a time, with a sign of life every half minute.

run_long.py BUILD SEEDS [PART ...]; without a PART all of them. What the parts say is in BUILD/long/PART.log.
A part whose tools are missing is skipped, and said to be. The last line is the verdict; exits 1 when a part failed.
"""
import collections
import os
import shutil
import signal
import subprocess
import sys
import time

AT_ONCE = min(2, os.cpu_count() or 1)
SIGN_OF_LIFE_S = 30
POLL_S = 0.2
TOLD_LINES = 40

# needs: programs without which the part is skipped; get: where they come from.
Part = collections.namedtuple("Part", "name what seconds command environment needs get", defaults=((), ""))


def has_avx512():
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            flags = next((line.split() for line in lines if line.startswith("flags")), [])
    except OSError:
        return False
    return "avx512vl" in flags and "avx512dq" in flags


def parts(build, seeds):
    unit, make = os.path.join(build, "unit-tests"), ["make", "--no-print-directory", "-s", f"BUILD={build}"]
    every, many = {"TERSE_TEST_LONG": "1"}, {"TERSE_SIM_SEEDS": seeds}
    return [
        Part("contract", "every combination of the codec's contract, hostile packets, NaN and infinity", 5400,
             [unit, "test_codec_"], every),
        Part("simulation", f"{seeds} simulated clusters against the sequential reference", 5400,
             [unit, "test_simulation"], many),
        Part("replicas", f"{seeds} simulated clusters whose servers die, with checkpoints and without", 5400,
             [unit, "test_replica"], many),
        Part("jobs", "simulated jobs beside each other", 3600, [unit, "test_jobs"], many),
        Part("keep", "torn and stale files of kept states", 1800, [unit, "test_keep"], every),
        Part("faults", "the fault matrix: processes struck in every state, over mpirun (tests/fault)", 3600,
             ["python3", "tests/fault/matrix.py"], {"BUILD": build}),
        Part("kill-workers", "400 workers killed at random instants, over mpirun (tests/fault/kill_workers.py)", 2700,
             ["python3", "tests/fault/kill_workers.py"], {"BUILD": build}),
        Part("kill-servers", "200 servers with replicas killed at random instants, over mpirun (tests/fault/kill_servers.py)",
             2700, ["python3", "tests/fault/kill_servers.py"], {"BUILD": build}),
        Part("soak", "half an hour of a daemon under jobs that come, go and die (tests/fault/soak.py)", 2700,
             ["python3", "tests/fault/soak.py", "1800"], {"BUILD": build}),
        Part("fuzz", "the fuzz corpus", 600, make + ["fuzz-replay"], {}),
        Part("kernels", "vector kernels of this CPU against the reference", 600, make + ["test-kernels"], {}),
        Part("neon", "NEON kernels against the reference, under qemu-user", 900, make + ["test-neon"], {},
             ("aarch64-linux-gnu-gcc", "qemu-aarch64-static"),
             "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static"),
        Part("avx512", "AVX-512 kernels against the reference; emulated by bochs where the CPU has none", 3600,
             make + ["test-avx512"], {}, *(((), "") if has_avx512() else (("bochs",), "bochs bochs-term bochsbios vgabios"))),
    ]


class Run:
    """A part under way, in a process group of its own."""

    def __init__(self, part, folder):
        self.part = part
        self.path = os.path.join(folder, part.name + ".log")
        self.began = time.monotonic()
        with open(self.path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(part.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env={**os.environ, **part.environment}, start_new_session=True)

    def seconds(self):
        return time.monotonic() - self.began

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def ended(self):
        """None while it runs, then what went wrong, "" when nothing did."""
        code = self.process.poll()
        if code is None:
            if self.seconds() < self.part.seconds:
                return None
            self.kill()
            return f"not done after {self.part.seconds} s"
        return "" if code == 0 else f"exit code {code}"

    def tail(self, lines):
        with open(self.path, encoding="utf-8", errors="replace") as log:
            return log.read().rstrip("\n").split("\n")[-lines:]


def say(text):
    print(f"test-long: {text}", flush=True)


def close(run, wrong):
    if wrong:
        say(f"{run.part.name} FAILED, {wrong}, {run.seconds():.0f} s; {run.path} ends with")
        print("\n".join("  " + line for line in run.tail(TOLD_LINES)), flush=True)
    else:
        say(f"{run.part.name} passed, {run.seconds():.0f} s: {run.tail(1)[0]}")


def run_all(chosen, folder):
    """Returns the names of those that failed."""
    waiting, running, failed, told = list(chosen), [], [], time.monotonic()
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                part = waiting.pop(0)
                say(f"{part.name}: {part.what}")
                running.append(Run(part, folder))
            time.sleep(POLL_S)
            for run in list(running):
                wrong = run.ended()
                if wrong is None:
                    continue
                running.remove(run)
                close(run, wrong)
                failed += [run.part.name] if wrong else []
            if running and time.monotonic() - told >= SIGN_OF_LIFE_S:
                told = time.monotonic()
                under_way = ", ".join(f"{run.part.name} for {run.seconds():.0f} s" for run in running)
                say(f"running {under_way}; {len(waiting)} to come")
    finally:
        for run in running:
            run.kill()
    return failed


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    build, seeds, wanted = sys.argv[1], sys.argv[2], sys.argv[3:]
    known = parts(build, seeds)
    unknown = [name for name in wanted if name not in [part.name for part in known]]
    if unknown:
        print(f"test-long: no part {', '.join(unknown)}; there are {', '.join(p.name for p in known)}", file=sys.stderr)
        return 2
    chosen = [part for part in known if not wanted or part.name in wanted]
    folder = os.path.join(build, "long")
    os.makedirs(folder, exist_ok=True)
    began, skipped = time.monotonic(), []
    for part in list(chosen):
        missing = [program for program in part.needs if not shutil.which(program)]
        if missing:
            say(f"{part.name} skipped: {', '.join(missing)} is not installed; apt-get install {part.get}")
            skipped.append(part.name)
            chosen.remove(part)
    failed = run_all(chosen, folder)
    verdict = f"FAILED: {', '.join(failed)}" if failed else "passed"
    left_out = f", skipped: {', '.join(skipped)}" if skipped else ""
    say(f"{verdict}; {len(chosen)} parts{left_out}, {time.monotonic() - began:.0f} s")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
