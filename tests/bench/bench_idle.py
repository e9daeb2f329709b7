#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU of idle servers and workers: bench_idle.py [SECONDS]. One JSON line a process; the servers' yardstick is one core."""
import argparse
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))
from launch import BUILD, Run  # noqa: E402

TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", nargs="?", type=int, default=60)
    seconds = parser.parse_args().seconds
    run = Run(["-n", "2", f"{BUILD}/terse-server", "configs/linear.yaml", ":", "-n", "2", f"{BUILD}/bench_idle",
               "configs/linear.yaml", str(seconds + 3)], seconds + 60)
    if not run.wait_for("idle begins", 30):
        print(run.text())
        return 1
    time.sleep(1)
    ranks = run.ranks()
    before = {rank: cpu_seconds(pid) for rank, pid in ranks.items()}
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    for rank, pid in sorted(ranks.items()):
        print(json.dumps({"what": "idle CPU", "process": "server" if rank < 2 else "worker", "rank": rank,
                          "seconds": round(took, 1),
                          "cpu_percent": round(100 * (cpu_seconds(pid) - before[rank]) / took, 2)}))
    code = run.finish()
    if code != 0 or "idle ends" not in run.text():
        print(run.text())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
