# SPDX-License-Identifier: Apache-2.0
"""
Dense rounds over TCP, 16 MiB each way, in which somebody dies with large messages under way to it: Open MPI's own
connection breaks, and nobody else may notice more than that.
"""
import json
import os
import signal
import statistics
import time

from launch import BUILD, PATIENCE, Run, kill, patient

TCP = ["--mca", "btl", "tcp,self"]
CONFIG = "configs/bench-resnet50.yaml"
DENSE = ["push.default=dense", "pull.default=dense", "error_feedback.enabled=false", f"consistency.deadline_s={PATIENCE}"]
TENSORS = 16
ROUNDS = 60
BEFORE = 12 # rounds: time for the windows to grow
SLOWER_AT_MOST = 3 # a server that looks at its sockets now and then only takes 5 times as long and more


def rounds(run):
    return run.text().count('"round":')


def dies(servers, workers, victim, number, sets=()):
    def case(folder, seconds):
        shapes = os.path.join(folder, "shapes")
        with open(shapes, "w", encoding="utf-8") as file:
            file.writelines(f"tensor{t} {1 << 18}\n" for t in range(TENSORS))
        words = [w for s in DENSE + list(sets) for w in ("--set", s)]
        run = Run(TCP + ["-n", str(servers), f"{BUILD}/terse-server", CONFIG, *words, ":", "-n", str(workers),
                         f"{BUILD}/bench_round", CONFIG, *words, f"shapes={shapes}", "warm=0", f"runs={ROUNDS}"], seconds)
        try:
            ranks = run.all_ranks(servers + workers)
            until = patient(45)
            while rounds(run) < BEFORE:
                assert time.monotonic() < until and run.process.poll() is None, run.text()
                time.sleep(0.02)
            kill(ranks[victim], number)
            struck = rounds(run)
            assert run.wait_for('{"verified": true}', seconds - 10), f"{rounds(run)} of {ROUNDS}, {struck} before:\n{run.text()}"
            assert struck < ROUNDS and rounds(run) == ROUNDS, f"{struck} {rounds(run)}"
            took = [max(json.loads(line)["round"]) for line in run.text().splitlines() if line.startswith('{"run')]
            before, after = statistics.median(took[2:struck]), statistics.median(took[struck + 2:])
            assert after < SLOWER_AT_MOST * before, f"{before} s a round before, {after} s after"
        finally:
            for pid in run.ranks().values() if number == signal.SIGSTOP else []:
                kill(pid, signal.SIGKILL)
            run.finish()
    return case


REPLICAS = ["servers.replicas=1"]
CASES = [
    ("stream-worker-killed", 120, dies(1, 3, 2, signal.SIGKILL), "alone"),
    ("stream-worker-stopped", 120, dies(2, 3, 4, signal.SIGSTOP), "alone"),
    ("stream-server-0-killed", 120, dies(2, 2, 0, signal.SIGKILL, REPLICAS), "alone"),
    ("stream-server-1-killed", 120, dies(2, 2, 1, signal.SIGKILL, REPLICAS), "alone"),
]
