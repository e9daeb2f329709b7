# SPDX-License-Identifier: Apache-2.0
"""Failures over mpirun: whoever dies, stops or does not fit is named, and the job ends in time."""
import os
import signal
import subprocess
import time

from launch import BUILD, Run, environment, job, kill

MLP = "configs/fashion-mnist.yaml"
SOFTMAX = "configs/softmax.yaml"
DEADLINE = 3
SLACK = 5


def running(seconds, servers=2, workers=3, sets=()):
    run = Run(job(servers, workers, MLP, [f"consistency.deadline_s={DEADLINE}"] + list(sets)), seconds)
    # the test must strike in the middle of training, on slow machines too
    assert run.wait_for("training starts", 30), run.text()
    time.sleep(1.0)
    return run


def strike(victim, number, name, servers=2, workers=3):
    def case(folder, seconds):
        del folder
        run = running(seconds, servers, workers)
        pid = run.ranks()[victim]
        began = time.monotonic()
        kill(pid, number)
        code = run.finish()
        took = time.monotonic() - began
        if number == signal.SIGSTOP:
            kill(pid, signal.SIGKILL)
        text = run.text()
        assert code is not None, f"still running {took:.0f} s after the strike:\n{text}"
        assert took <= DEADLINE + SLACK + 2, f"took {took:.1f} s:\n{text}"
        assert name in text, f"nobody named {name}:\n{text}"
    return case


def other_model(folder, seconds):
    del folder
    words = ["-n", "1", f"{BUILD}/terse-server", SOFTMAX, ":", "-n", "1", f"{BUILD}/terse-worker", SOFTMAX, ":", "-n",
             "1", f"{BUILD}/terse-worker", SOFTMAX, "--set", "training.model=mlp"]
    run = Run(words, seconds)
    code = run.finish()
    text = run.text()
    assert code is not None and "worker 0" in text and "worker 1" in text and "tensor" in text, f"exit {code}:\n{text}"
    assert "test accuracy" not in text, text


def no_server(folder, seconds):
    del folder
    run = Run(job(0, 2, SOFTMAX), seconds)
    code = run.finish()
    assert code is not None and "no terse-server in this job" in run.text(), f"exit {code}:\n{run.text()}"


def no_worker(folder, seconds):
    del folder
    run = Run(job(2, 0, SOFTMAX, [f"consistency.deadline_s={DEADLINE}"]), seconds)
    code = run.finish()
    assert code is not None and "no worker in this job" in run.text(), f"exit {code}:\n{run.text()}"


def rank_that_is_no_terse_program(folder, seconds):
    """MPI_Init itself would wait for ever: the others must say so and leave, though mpirun waits for the sleeper."""
    del folder
    deadline = ["--set", f"consistency.deadline_s={DEADLINE}"]
    words = (["-n", "1", f"{BUILD}/terse-server", SOFTMAX] + deadline + [":", "-n", "1", f"{BUILD}/terse-worker", SOFTMAX] +
             deadline + [":", "-n", "1", "sleep", "12"])
    run = Run(words, seconds)
    # 4 s more than the deadline: MPI_Init alone takes over 3 s where the host's own name does not resolve
    assert run.wait_for(f"MPI_Init did not return within {DEADLINE + 4} s", DEADLINE + SLACK), run.text()
    assert "/etc/hosts" in run.text(), run.text()
    code = run.finish()
    assert code is not None, run.text()


def bad_config_before_mpi(folder, seconds):
    path = os.path.join(folder, "bad.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write("push:\n  default: sign | topk\n")
    for program in ("terse-server", "terse-worker"):
        done = subprocess.run([f"{BUILD}/{program}", path], capture_output=True, text=True, timeout=seconds,
                              env=environment(), check=False)
        assert done.returncode == 2 and f"{path}:2" in done.stderr, f"{program}: {done.returncode} {done.stderr}"


def terminated(folder, seconds):
    """SIGTERM to mpirun ends everything in order."""
    del folder
    run = running(seconds)
    kill(run.process.pid, signal.SIGTERM)
    code = run.finish()
    assert code is not None, run.text()


def full_disk(folder, seconds):
    """A summary or model that cannot be written is an error that names the file; the training's result still shows."""
    del folder
    run = Run(job(1, 1, SOFTMAX, ["training.max_steps=5"], ["--save", "/dev/full/model.safetensors"]), seconds)
    code = run.finish()
    assert code is not None and "/dev/full/model.safetensors cannot be written" in run.text(), f"exit {code}:\n{run.text()}"
    assert "test accuracy" in run.text(), run.text()


CASES = [
    ("worker-killed", 60, strike(3, signal.SIGKILL, "worker 1")),
    ("worker-0-killed", 60, strike(2, signal.SIGKILL, "worker 0")),
    ("server-killed", 60, strike(1, signal.SIGKILL, "server 1")),
    ("server-0-killed", 60, strike(0, signal.SIGKILL, "server 0")),
    ("worker-stopped", 60, strike(4, signal.SIGSTOP, "worker 2")),
    ("server-stopped", 60, strike(1, signal.SIGSTOP, "server 1")),
    ("worker-with-another-model", 60, other_model),
    ("no-server", 60, no_server),
    ("no-worker", 60, no_worker),
    ("rank-that-is-no-terse-program", 60, rank_that_is_no_terse_program),
    ("bad-config-before-mpi", 20, bad_config_before_mpi),
    ("terminated", 60, terminated),
    ("full-disk", 60, full_disk),
]
