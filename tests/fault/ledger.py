# SPDX-License-Identifier: Apache-2.0
"""Reads what the workers of ledger_worker.c have left: which of whose steps are in the parameters, and how often."""
import glob
import os
import struct
import time

CONFIG = "tests/fault/ledger.yaml"
OWN = 1000  # as in ledger_worker.c
LAG = 3     # steps that an element of a worker that was killed may have lain in the residual, with six workers


def wait_until_all_push(run, folder, workers):
    until = time.monotonic() + 40
    while not all(os.path.exists(p) and os.path.getsize(p) and counter(folder, "done", w)
                  for w, p in enumerate(os.path.join(folder, f"done.{w}") for w in range(workers))):
        assert time.monotonic() < until and run.process.poll() is None, f"it does not begin:\n{run.text()}"
        time.sleep(0.02)


def stop(folder):
    """All workers are to agree on their end."""
    with open(os.path.join(folder, "stop"), "w", encoding="utf-8"):
        pass


def sum_after(steps):
    whole, rest = divmod(steps, 16)
    return whole * 136 + rest * (rest + 1) // 2


def counter(folder, name, worker):
    with open(os.path.join(folder, f"{name}.{worker}"), "rb") as file:
        return struct.unpack("<Q", file.read(8))[0]


def parameters(path, workers):
    with open(path, "rb") as file:
        data = file.read()
    values = struct.unpack(f"<{len(data) // 4}f", data)
    assert len(values) == 2 * workers * OWN, len(values)
    return values[:workers * OWN], values[workers * OWN:]


def audit(folder, workers, dead):
    """Everybody's steps in the parameters; those who live have them all. Returns how many of theirs, in ascending order."""
    files = sorted(glob.glob(os.path.join(folder, "params.*")))
    assert len(files) == workers - len(dead), f"{files}, dead {dead}"
    with open(files[0], "rb") as file:
        first = file.read()
    for path in files[1:]:
        with open(path, "rb") as file:
            assert file.read() == first, f"{path} differs from {files[0]}"
    sparse, dense = parameters(files[0], workers)
    steps = set()
    for worker in range(workers):
        begun, done = counter(folder, "begun", worker), counter(folder, "done", worker)
        taken = {-sum_after(n): n for n in range(begun + 1)}
        for name, values in (("sparse", sparse), ("dense", dense)):
            own = values[worker * OWN:(worker + 1) * OWN]
            assert all(v in taken for v in own), \
                f"{name}: of worker {worker} something was lost or taken twice: {[v for v in own if v not in taken][:5]}"
            counts = {taken[v] for v in own}
            if worker not in dead:
                assert counts == {begun} and begun == done, f"{name}: worker {worker} did {begun} steps, taken {counts}"
                steps.add(begun)
            lag = LAG if name == "sparse" else 0
            assert min(counts) >= done - lag and max(counts) - min(counts) <= 1 + lag, \
                f"{name}: worker {worker} knew of {done} steps, had begun {begun}, taken {counts}"
    return sorted(steps)
