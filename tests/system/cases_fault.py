# SPDX-License-Identifier: Apache-2.0
"""A part of the fault matrix (tests/fault/matrix.py; all of it is a part of `make test-long`), and its documentation."""
import fnmatch
import glob
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "fault"))

import kill_servers  # noqa: E402
import kill_workers  # noqa: E402
import matrix  # noqa: E402
from launch import Run, Skipped, job  # noqa: E402

CHOSEN = ["worker-kill-*", "server-kill-*", "worker-0-kill-barrier", "worker-stop-pull", "server-stop-push", "server-0-kill-pull",
          "job-kill-idle", "mpirun-kill-push", "mpirun-stop-pull", "worker-slow-push", "server-replaced-pull", "server-0-replaced-push",
          "server-0-replaced-checkpoint", "clock-jump",
          "worker-cut-pull", "server-cut-replaced-push", "worker-heals-1"]


def cell(function, state):
    return lambda folder, _seconds: function(folder, state)


def names_its_tests(_folder, _seconds):
    """Every test that the matrix names is there."""
    known = {name for name, _, _ in matrix.cells()}
    for path in glob.glob(os.path.join(HERE, "cases_*.py")):
        with open(path, encoding="utf-8") as file:
            known |= set(re.findall(r'\("([a-z0-9-]+)"', file.read()))
    for path in glob.glob(os.path.join(HERE, "..", "unit", "test_*.c")):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        known |= set(re.findall(r"START_TEST\((\w+)\)", text)) | {os.path.basename(path)[:-2]}
    with open(os.path.join(HERE, "..", "fault", "README.md"), encoding="utf-8") as file:
        rows = [line for line in file if line.startswith("|")]
    named = {name for row in rows for name in re.findall(r"`([a-z][\w*-]+)`", row)}
    unknown = {name for name in named if not fnmatch.filter(known, name)}
    assert len(named) > 20 and not unknown, f"no such tests: {sorted(unknown)}"


def no_room_for_what_is_kept(folder, seconds):
    """A disk too small for residuals: refused before the first step, with the folder's name."""
    small = os.path.join(folder, "small")
    os.mkdir(small)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs", small], capture_output=True, check=False).returncode:
        raise Skipped("no right to mount a small disk")
    try:
        run = Run(job(1, 2, "configs/fashion-mnist.yaml", [f"error_feedback.keep={small}"]), seconds)
        run.finish()
        text = run.text()
        assert small in text and "No space left on device" in text and "step " not in text.split("training starts")[-1], text
    finally:
        subprocess.run(["umount", small], check=False)


def workers_killed(kind):
    """One seed of kill_workers.py, whose 200 kills are a part of `make test-long`."""
    return lambda folder, _seconds: kind().run(folder, 1)


def servers_killed(folder, _seconds):
    want, other = os.path.join(folder, "calm"), os.path.join(folder, "killed")
    os.mkdir(want)
    os.mkdir(other)
    kill_servers.trial(other, 1, kill_servers.undisturbed(want))


CASES = [(f"fault-{name}", 60, cell(function, state)) for name, function, state in matrix.cells()
         if any(fnmatch.fnmatchcase(name, pattern) for pattern in CHOSEN)]
CASES.append(("four-workers-killed-at-random", 120, workers_killed(kill_workers.Accuracy)))
CASES.append(("five-workers-killed-and-the-ledger-is-exact", 120, workers_killed(kill_workers.Ledger)))
CASES.append(("two-servers-killed-at-random", 120, servers_killed))
CASES.append(("keep-without-room", 40, no_room_for_what_is_kept))
CASES.append(("fault-matrix-names-its-tests", 20, names_its_tests))
