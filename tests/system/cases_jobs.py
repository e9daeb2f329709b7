# SPDX-License-Identifier: Apache-2.0
"""Several jobs on one set of servers: each gives what it gives alone, and ends alone."""
import json
import os
import re
import signal
import time

from launch import BUILD, Run, job, kill

MLP = "configs/fashion-mnist.yaml"
SOFTMAX = "configs/softmax.yaml"
DEADLINE = 3


def workers(count, config, name, steps, summary, more=()):
    sets = [f"job.name={name}", f"training.max_steps={steps}", f"consistency.deadline_s={DEADLINE}"] + list(more)
    words = [":", "-n", str(count), f"{BUILD}/terse-worker", config] + [w for s in sets for w in ("--set", s)]
    return words + ["--summary", summary]


def servers(folder, count, sets=()):
    """Their own file says nothing of any job."""
    path = os.path.join(folder, "servers.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write("{}\n")
    sets = [f"consistency.deadline_s={DEADLINE}"] + list(sets)
    return ["-n", str(count), f"{BUILD}/terse-server", path] + [w for s in sets for w in ("--set", s)]


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def alone(folder, count, config, steps, seconds, more=()):
    path = os.path.join(folder, "alone.json")
    run = Run(job(1, count, config, [f"training.max_steps={steps}"] + list(more), ["--summary", path]), seconds)
    assert run.finish() == 0, run.text()
    return read(path)["parameters_xxh3"]


def two_jobs_equal_themselves_alone(folder, seconds):
    one, two = os.path.join(folder, "one.json"), os.path.join(folder, "two.json")
    adam = ["optimizer.name=adam", "optimizer.momentum=0"]
    run = Run(servers(folder, 2) + workers(2, SOFTMAX, "one", 40, one, adam) + workers(3, MLP, "two", 25, two), seconds)
    assert run.finish() == 0, run.text()
    got = read(one), read(two)
    assert [g["workers"] for g in got] == [2, 3] and [g["steps"] for g in got] == [40, 25], got
    assert got[0]["parameters"] == 7850 and got[1]["parameters"] == 535818, got
    assert got[0]["parameters_xxh3"] == alone(folder, 2, SOFTMAX, 40, seconds, adam), got
    assert got[1]["parameters_xxh3"] == alone(folder, 3, MLP, 25, seconds), got
    for name in "one", "two":
        assert re.search(rf'msg="all workers are done" job={name}\b', run.text()), run.text()


def a_killed_worker_ends_its_job_alone(folder, seconds):
    one, two = os.path.join(folder, "one.json"), os.path.join(folder, "two.json")
    run = Run(servers(folder, 2, ["consistency.on_worker_loss=end"]) + workers(2, SOFTMAX, "one", 500, one) +
              workers(2, MLP, "two", 100000, two), seconds)
    assert run.wait_for('msg="training starts" job=two', 30), run.text()
    time.sleep(0.5)
    began = time.monotonic()
    kill(run.ranks()[5], signal.SIGKILL)
    code = run.finish()
    took, text = time.monotonic() - began, run.text()
    assert code is not None and took < 40, f"exit {code} after {took:.1f} s:\n{text}"
    assert re.search(r'msg="the job ends" job=two status=TIMEDOUT reason="worker 1 of job two \(rank 5 on \S+\) has been silent',
                     text) or re.search(r'msg="the job ends" job=two .*worker 1 of job two \(rank 5', text), text
    assert 'msg="the job ends" job=one' not in text, text
    assert not os.path.exists(two), text
    assert read(one)["steps"] == 500, text
    assert read(one)["parameters_xxh3"] == alone(folder, 2, SOFTMAX, 500, seconds), text


def refused(sets, words):
    def case(folder, seconds):
        one, two = os.path.join(folder, "one.json"), os.path.join(folder, "two.json")
        run = Run(servers(folder, 1, sets) + workers(1, SOFTMAX, "one", 30, one) + workers(2, MLP, "two", 30, two), seconds)
        code, text = run.finish(), run.text()
        assert code is not None, text
        for word in words:
            assert word in text, f"{word}:\n{text}"
        assert not os.path.exists(two), text
        assert read(one)["parameters_xxh3"] == alone(folder, 1, SOFTMAX, 30, seconds), text
    return case


CASES = [
    ("jobs-two-equal-themselves-alone", 90, two_jobs_equal_themselves_alone),
    ("jobs-a-killed-worker-ends-its-job-alone", 90, a_killed_worker_ends_its_job_alone),
    ("jobs-too-large-is-refused", 60, refused(["limits.job_bytes=1000000"],
                                              ["of job two", "optimizer", "limits.job_bytes of the server allows 1000000"])),
    ("jobs-one-too-many-is-refused", 60, refused(["limits.jobs=1"], ["job two is one too many: limits.jobs of server 0 is 1"])),
]
