# SPDX-License-Identifier: Apache-2.0
"""make run and make help as users call them: mpirun's own exit code proves nothing, make's must."""
import glob
import json
import os
import re
import subprocess

from launch import BUILD, environment

SMALL = ["CONFIG=configs/softmax.yaml", "SERVERS=1", "WORKERS=2"]


def make(*words, seconds=60):
    return subprocess.run(["make", "-s", *words, f"BUILD={BUILD}"], capture_output=True, text=True, timeout=seconds,
                          env=environment(), check=False)


def run_succeeds(folder, seconds):
    """A value with blanks and one behind it arrive; the summary is where it was asked for."""
    path = os.path.join(folder, "s.json")
    done = make("run", *SMALL, "SET=push.default=topk:0.05 | int8 training.max_steps=7", f"ARGS=--summary {path}",
                seconds=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    with open(path, encoding="utf-8") as file:
        got = json.load(file)
    assert got["steps"] == 7 and got["push_bytes"] < got["pull_bytes"], got


def run_fails(folder, seconds):
    old = os.path.join(folder, "old.json")
    with open(old, "w", encoding="utf-8") as file:
        file.write("{}")
    for words, told in ((["SET=training.epochs=0"], "training.epochs"), (["CONFIG=configs/nope.yaml"], "nope.yaml"),
                        (["SET=training.max_steps=3", f"ARGS=--summary {old} --save {folder}/no/x.st"], "no new"),
                        (["SET=consistency.deadline_s=1", "ARGS=--save"], "no new")):
        done = make("run", *SMALL, *words, seconds=seconds)
        assert done.returncode != 0 and told in done.stderr, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"


def help_lists_every_target(_folder, seconds):
    told = make("help", seconds=seconds).stdout
    targets = []
    for path in ["Makefile"] + glob.glob("tests/*/*.mk"):
        with open(path, encoding="utf-8") as file:
            targets += re.findall(r"^([a-z0-9-]+):.*## ", file.read(), re.M)
    assert len(targets) > 15 and all(f"make {target} " in told for target in targets), told


def suite_takes_words(_folder, seconds):
    """The suite's own command line: nothing runs by mistake."""
    def suite(*words):
        return subprocess.run(["python3", "tests/system/run.py", *words], capture_output=True, text=True,
                              timeout=seconds, check=False)
    done = suite("--help")
    assert done.returncode == 0 and "--list" in done.stdout and "passed" not in done.stdout.split("options")[1], done
    done = suite("--list", "codec-*")
    assert done.returncode == 0 and len(done.stdout.splitlines()) > 5, done
    assert all(line.startswith("codec-") for line in done.stdout.splitlines()), done
    for words in (["nonsense"], ["--nonsense"]):
        done = suite(*words)
        assert done.returncode not in (0, None) and "nonsense" in done.stderr and not done.stdout, done


CASES = [
    ("make-run", 60, run_succeeds),
    ("make-run-fails", 120, run_fails),
    ("make-help", 10, help_lists_every_target),
    ("suite-takes-words", 20, suite_takes_words),
]
