#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A daemon under jobs that come, go and die, for a long time: its memory is flat, and no descriptor stays.

soak.py [SECONDS]   (1800). BUILD names the build's folder. One job trains all the time; beside it one after another joins,
every third is killed whole, every fourth loses a worker. Prints a line a minute and a verdict.
"""
import argparse
import os
import signal
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))

from daemon import Daemon, kill_job  # noqa: E402
from launch import kill  # noqa: E402

CONFIG = "configs/softmax.yaml"
SETS = ["consistency.deadline_s=4", "daemon.orphan_s=0"]
GROWTH_BYTES = 4 << 20     # of a server, between the second quarter of the time and the last
GROWTH_PER_JOB = 160 << 10  # of each job that was ever there PMIx keeps three tables, the TCP layer one, MPI a communicator


def memory(pid):
    """Resident bytes that are its own."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line and line[0].isupper())
    return sum(int(fields[name].split()[0]) for name in ("Private_Clean", "Private_Dirty")) << 10


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def join(daemon, number):
    """One short job and what becomes of it."""
    fate = "killed" if number % 3 == 2 else "loses a worker" if number % 4 == 3 else "ends well"
    steps = 30 if fate == "ends well" else 1000000
    run = daemon.job(120, overrides=SETS + [f"training.max_steps={steps}", f"training.epochs={1000 if steps > 30 else 1}"])
    if fate == "ends well":
        code = run.finish()
        assert code == 0 and "test accuracy" in run.text(), f"job {number}: {code}\n{run.text()}\n{daemon.log()[-4000:]}"
        return
    assert run.wait_for("step ", 60), f"job {number}:\n{run.text()}"
    if fate == "killed":
        kill_job(run)
        return
    kill(run.ranks()[1], signal.SIGKILL)
    time.sleep(6)
    assert run.process.poll() is None, f"job {number} did not go on without its worker:\n{run.text()}"
    kill_job(run)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", nargs="?", type=float, default=1800)
    seconds = parser.parse_args().seconds
    samples, jobs, told = [], 0, 0
    with tempfile.TemporaryDirectory(prefix="terse-") as folder:
        with Daemon(folder, CONFIG, overrides=SETS) as daemon:
            servers = [daemon.server(0), daemon.server(1)]
            steady = daemon.job(seconds + 600, overrides=SETS + ["training.epochs=100000", "training.batch=512"])
            assert steady.wait_for("step ", 60), steady.text()
            began = time.monotonic()
            while (passed := time.monotonic() - began) < seconds:
                join(daemon, jobs)
                jobs += 1
                daemon.wait_until(lambda: [j["number"] for j in daemon.running()] == [0], 60, "the steady job is left alone")
                assert steady.process.poll() is None, steady.text()[-2000:]
                time.sleep(1)
                samples.append((passed, jobs, [memory(p) for p in servers], [descriptors(p) for p in servers]))
                if passed - told >= 60:
                    told = passed
                    print(f"soak: {passed:.0f} s, {jobs} jobs, own memory {[m >> 10 for m in samples[-1][2]]} KiB, "
                          f"descriptors {samples[-1][3]}", flush=True)
            kill_job(steady)
    second = [s for s in samples if seconds / 4 <= s[0] < seconds / 2]
    last = [s for s in samples if s[0] >= seconds * 3 / 4]
    assert len(second) >= 2 and len(last) >= 2, "too short a time to judge"
    for server in range(2):
        grown = statistics.median(s[2][server] for s in last) - statistics.median(s[2][server] for s in second)
        since = last[len(last) // 2][1] - second[len(second) // 2][1]
        opened = statistics.median(s[3][server] for s in last) - statistics.median(s[3][server] for s in second)
        print(f"soak: server {server}: {grown / 1024:+.0f} KiB in {since} jobs, {opened:+.0f} descriptors")
        assert grown <= GROWTH_BYTES + since * GROWTH_PER_JOB, "its memory grows"
        assert opened <= 0, "descriptors stay open"
    print(f"soak: flat over {seconds:.0f} s and {jobs} jobs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
