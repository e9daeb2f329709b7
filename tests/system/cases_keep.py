# SPDX-License-Identifier: Apache-2.0
"""What workers keep, over mpirun: of another epoch it is refused by name; a run that goes on from its checkpoint, and one
after an end in order, needs nobody; what a lost worker had kept is in the checkpoint after a fold, element by element."""
import glob
import json
import math
import os
import re
import shutil
import signal
import tempfile
import time

from cases_checkpoint import ckpt, first_checkpoint, finished, floats, manifests, start
from cases_train import MLP, SOFTMAX
from daemon import Daemon
from launch import Run, alive, job, kill, patient
from safetensors_reader import read_safetensors


class Kept:
    """A folder on tmpfs for a case."""

    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix="terse-test-keep-", dir="/dev/shm")
        return self.dir

    def __exit__(self, *_):
        shutil.rmtree(self.dir, ignore_errors=True)


def plain(folder, config, servers, workers, sets, seconds):
    """A run without checkpoints; its summary's path."""
    summary = os.path.join(folder, f"summary-{time.monotonic_ns():x}.json")
    return Run(job(servers, workers, config, list(sets), ["--summary", summary]), seconds), summary


def kill_all(run):
    pids = list(run.ranks().values())
    for pid in pids + [run.process.pid]:
        kill(pid, signal.SIGKILL)
    run.finish()
    until = patient(20)
    while time.monotonic() < until and any(alive(pid) for pid in pids):
        time.sleep(0.02)


def listed(folder):
    return json.loads(ckpt("keep", "ls", folder, "--json"))


def let_go(folder, seconds=20):
    """The same when nobody has one of them open any more: of a killed process the last thread holds on for a moment."""
    until = patient(seconds)
    rows = listed(folder)
    while any(row["owner"] for row in rows) and time.monotonic() < until:
        time.sleep(0.02)
        rows = listed(folder)
    return rows


def pushing(run, folder, workers, seconds=40):
    """Waits until all of them have pushed something; their files."""
    until = patient(seconds)
    while time.monotonic() < until:
        rows = listed(folder)
        if len(rows) == workers and all(row.get("step", 0) > 5 for row in rows):
            return rows
        assert run.process.poll() is None, run.text()
        time.sleep(0.05)
    raise AssertionError(f"{listed(folder)}\n{run.text()}")


def of_another_epoch(folder, seconds):
    """All is killed in a job with checkpoints, before the first: no other begins over what is left; dropped, one does."""
    with Kept() as kept:
        checkpoints = os.path.join(folder, "checkpoints")
        sets = [f"error_feedback.keep={kept}", "training.epochs=1000", f"checkpoint.dir={checkpoints}", "checkpoint.every_steps=1000000"]
        run, _ = plain(folder, MLP, 1, 2, sets, seconds)
        rows = pushing(run, kept, 2)
        assert all(row["owner"] for row in rows), rows
        assert "in use by process" in ckpt("keep", "drop", rows[0]["file"], code=1)
        kill_all(run)
        rows = let_go(kept)
        assert [row["worker"] for row in rows] == [0, 1] and all(row["owner"] is None for row in rows), rows
        assert all(row["l1"] > 0 and row["step"] > 0 and not row["ended"] for row in rows), rows
        assert len({row["epoch"] for row in rows}) == 1 and rows[0]["job"] == "default", rows
        for row in rows:
            assert math.isclose(sum(t["l1"] for t in row["tensors"]), row["l1"], rel_tol=1e-9), row
        assert ckpt("keep", "verify", kept).count("fine ") == 2
        no_text = shutil.copy(rows[0]["file"], os.path.join(folder, "worker-9.keep"))
        with open(no_text, "r+b") as file:
            file.seek(file.read(4096).index(b"default\0"))
            file.write(b"\xff")
        assert "is not UTF-8" in ckpt("keep", "ls", no_text)
        short = [f"error_feedback.keep={kept}", "training.max_steps=3"]
        run, summary = plain(folder, MLP, 1, 2, short, seconds)
        run.finish()
        text = run.text()
        assert not os.path.exists(summary) and rows[0]["epoch"] in text and re.search(r"worker-[01]\.keep holds", text), text
        assert "terse ckpt keep drop" in text, text
        after = let_go(kept)
        assert after == rows, f"a refused file has changed: {after} was {rows}"
        said = ckpt("keep", "drop", kept)
        assert said.count(": removed; lost of worker") == 2 and "norm" in said, said
        assert not listed(kept)
        other = os.path.join(kept, "worker-0.keep.txt")
        with open(other, "w", encoding="utf-8") as file:
            file.write("a file of somebody's own")
        assert "it stays" in ckpt("keep", "drop", other, code=1) and os.path.exists(other)
        finished(*plain(folder, MLP, 1, 2, short, seconds))
        assert not listed(kept), "an end in order leaves nothing"


def of_no_use(folder, seconds):
    """All is killed in a job that nobody could have come into, without checkpoints: the same command goes on, and says what is lost."""
    with Kept() as kept:
        run, _ = plain(folder, MLP, 1, 2, [f"error_feedback.keep={kept}", "training.epochs=1000"], seconds)
        pushing(run, kept, 2)
        kill_all(run)
        rows = let_go(kept)
        assert len(rows) == 2 and all(row["l1"] > 0 for row in rows), rows
        run, summary = plain(folder, MLP, 1, 2, [f"error_feedback.keep={kept}", "training.max_steps=3"], seconds)
        finished(run, summary)
        text = run.text()
        assert text.count("no process could come in its place") == 2 and rows[0]["epoch"] in text, text
        assert "sum of magnitudes" in text and not listed(kept), text


def killed_whole_with_checkpoints(folder, seconds):
    """Servers, ledger and residuals go back to the checkpoint together, by the same command, files or not."""
    with Kept() as kept:
        want = finished(*start(folder, MLP, 2, 3, [], seconds, "whole"))
        sets = [f"error_feedback.keep={kept}", "checkpoint.every_steps=5"]
        run, summary = start(folder, MLP, 2, 3, sets, seconds)
        first_checkpoint(run, os.path.join(folder, "ckpt"))
        kill_all(run)
        if os.path.exists(summary):
            raise AssertionError("the run had ended by itself before")
        assert len(let_go(kept)) == 3, listed(kept)
        run, summary = start(folder, MLP, 2, 3, sets, seconds)
        got = finished(run, summary)
        assert got["resumed_step"] > 0 and got["parameters_xxh3"] == want["parameters_xxh3"], (got, want)
        assert "is older than the checkpoint that the run goes on from" in run.text(), run.text()
        assert not listed(kept)


def interrupted(folder, seconds):
    """A job that was ended for everybody hinders none: the next says what it overwrites."""
    with Kept() as kept:
        sets = [f"error_feedback.keep={kept}", "training.epochs=1000"]
        run, _ = plain(folder, MLP, 1, 2, sets, seconds)
        pushing(run, kept, 2)
        kill(run.ranks()[1], signal.SIGINT)
        run.finish()
        assert all(row["ended"] and row["l1"] > 0 for row in listed(kept)) and len(listed(kept)) == 2, listed(kept)
        run, summary = plain(folder, MLP, 1, 2, [sets[0], "training.max_steps=3"], seconds)
        finished(run, summary)
        assert "what an earlier job had not sent is lost: that job has ended" in run.text(), run.text()
        assert not listed(kept)


def residual_of(path):
    return {name: floats(entry) for name, entry in read_safetensors(path).items() if name.endswith(("#residual", "#velocity"))}


def folded(folder, seconds):
    """A worker is killed and the job goes on: its part is missing in the checkpoints, and after a fold it is there."""
    with Kept() as kept:
        sets = [f"error_feedback.keep={kept}", "checkpoint.every_steps=10", "checkpoint.keep=3", "consistency.deadline_s=2",
                "training.epochs=1000", "training.max_steps=100000"]
        run, _ = start(folder, SOFTMAX, 2, 3, sets + ["push.default=topk:0.02 | int8"], seconds)
        pushing(run, kept, 3)
        kill(run.ranks()[4], signal.SIGKILL)
        assert run.wait_for("a worker is lost, the job goes on without it", 40), run.text()
        dir_ = os.path.join(folder, "ckpt")
        until = patient(60)
        while time.monotonic() < until:
            found = manifests(dir_)
            if found and found[max(found)][0]["workers"][2] is None:
                break
            time.sleep(0.1)
        kill(run.ranks()[0], signal.SIGTERM)
        run.finish()
        found = manifests(dir_)
        manifest, path = found[max(found)]
        step = max(found)
        assert manifest["workers"][2] is None, manifest["workers"]
        rows = {row["worker"]: row for row in listed(kept)}
        lost = rows[2]
        assert lost["epoch"] == manifest["epoch"] and lost["step"] <= step and lost["l1"] > 0, (lost, manifest["epoch"])
        # The others' files are no matter of this checkpoint: it has their parts.
        assert "own part" in ckpt("keep", "fold", rows[0]["file"], path, dir_, code=1)
        shutil.copy(lost["file"], os.path.join(folder, "worker-2.keep"))
        said = ckpt("keep", "fold", lost["file"], path, dir_)
        assert "now in the part of worker 2" in said and not os.path.exists(lost["file"]), said
        found = sorted(glob.glob(os.path.join(dir_, "ckpt-*")))
        made, = [f for f in found if f > path and os.path.exists(os.path.join(f, "manifest.json"))]
        assert json.loads(ckpt("verify", made, "--json"))["fine"] is True
        part = residual_of(os.path.join(made, "worker-2-of-3.safetensors"))
        l1 = sum(abs(v) for name, values in part.items() if name.endswith("#residual") for v in values)
        if lost["packets"] == 0:
            assert math.isclose(l1, lost["l1"], rel_tol=1e-6), (l1, lost["l1"])
        assert l1 > 0
        for other in (0, 1):  # nothing else has changed
            name = f"worker-{other}-of-3.safetensors"
            ours, theirs = read_safetensors(os.path.join(made, name)), read_safetensors(os.path.join(path, name))
            assert {n: e["bytes"] for n, e in ours.items()} == {n: e["bytes"] for n, e in theirs.items()}, name
        # A copy of the file meets neither the checkpoint that was made, nor any other of another epoch.
        copy = os.path.join(folder, "worker-2.keep")
        assert "must not meet" in ckpt("keep", "fold", copy, made, dir_, code=1).replace("\n", " ")
        run, summary = start(folder, SOFTMAX, 2, 3, sets[1:5] + [f"training.max_steps={step + 5}", "push.default=topk:0.02 | int8"], seconds)
        got = finished(run, summary)
        assert got["resumed_step"] == step, (got, step)
        assert "has no part of this worker" not in run.text(), run.text()


def one_leaves(folder, seconds):
    """SIGTERM to one worker, with error_feedback.flush: it says what it had not said, and the others go on."""
    sets = ["error_feedback.flush=true", "training.max_steps=8000", "training.epochs=30", "push.default=topk:0.02 | int8"]
    run, summary = plain(folder, SOFTMAX, 2, 3, sets, seconds)
    assert run.wait_for("epoch 1/", 40), run.text()
    kill(run.ranks()[3], signal.SIGTERM)
    run.finish()
    text = run.text()
    assert os.path.exists(summary), text
    got = finished(run, summary)
    left = re.search(r"was pushed before leaving.* rounds=(\d+) sum_of_magnitudes=(\S+) left=(\S+)", text)
    assert left and "terse-worker 1: leaves at step" in text, text
    assert 1 <= int(left[1]) <= 16 and float(left[3]) <= 1e-4 * float(left[2]) and float(left[2]) > 0, left[0]
    done = {int(w): float(l1) for w, l1 in re.findall(r'a worker is done" worker="worker (\d)[^"]*".* unsent_l1=(\S+)', text)}
    assert set(done) == {0, 1, 2} and math.isclose(done[1], float(left[3]), rel_tol=1e-3), (done, left[0])
    # The others ended together: what they had not sent is told, and nothing else.
    assert got["steps"] == 8000 and got["lost_workers"] == 0 and got["lost_mass"]["l1"] > 0, got
    assert math.isclose(got["lost_mass"]["l1"], sum(done.values()), rel_tol=1e-3), (got["lost_mass"], done)
    assert got["lost_mass"]["nonzero"] > 0 and got["test_accuracy"] > 0.6, got


def daemon_server_killed(folder, seconds):
    """One documented way on: `terse start`, the job's command; servers, ledger and residuals are at the checkpoint together."""
    with Kept() as kept:
        job_sets = [f"checkpoint.dir={os.path.join(folder, 'kept')}", "checkpoint.every_steps=5", "job.name=mine",
                    f"error_feedback.keep={kept}"]
        plan = ["training.epochs=1000", "optimizer.schedule.name=constant"]  # the same, however many steps there will be
        server_sets = ["consistency.deadline_s=8", "consistency.start_s=8", job_sets[0], job_sets[1]]
        with Daemon(folder, MLP, overrides=server_sets) as daemon:
            run = daemon.job(seconds, overrides=["training.max_steps=100000"] + plan + job_sets)
            first_checkpoint(run, os.path.join(folder, "kept", "mine"))
            pushing(run, kept, 2)
            kill(daemon.server(1), signal.SIGKILL)
            run.finish()
            daemon.wait_until(lambda: not daemon.lives(), 30, "all ends")
            assert "`terse start` and then the job's same mpirun command go on" in daemon.log(), daemon.log()
        rows = listed(kept)
        assert len(rows) == 2 and all(row["l1"] > 0 for row in rows), rows
        steps = max(manifests(os.path.join(folder, "kept", "mine"))) + 10
        same = [f"training.max_steps={steps}"] + plan
        with Daemon(folder, MLP, overrides=server_sets) as again:
            path = os.path.join(folder, "again.json")
            run = again.job(seconds, overrides=same + job_sets, more=["--summary", path])
            got = finished(run, path)
            assert got["resumed_step"] == steps - 10, (got, steps)
            assert "has no part of this worker" not in run.text() and "is older than the checkpoint" in run.text(), run.text()
        assert not listed(kept)
        want = finished(*plain(folder, MLP, 2, 2, same, seconds))
        assert got["parameters_xxh3"] == want["parameters_xxh3"], (got, want)


CASES = [
    ("keep-daemon-server-killed", 150, daemon_server_killed),
    ("keep-one-leaves", 90, one_leaves),
    ("keep-of-another-epoch", 120, of_another_epoch),
    ("keep-of-no-use", 90, of_no_use),
    ("keep-killed-whole-with-checkpoints", 120, killed_whole_with_checkpoints),
    ("keep-interrupted", 120, interrupted),
    ("keep-folded-into-a-checkpoint", 150, folded),
]
