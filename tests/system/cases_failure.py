# SPDX-License-Identifier: Apache-2.0
"""Failures over mpirun: whoever dies, stops or does not fit is named, and the job ends in time."""
import json
import os
import random
import re
import signal
import subprocess
import time

from launch import BUILD, PATIENCE, SANITIZED, Run, alive, environment, job, kill, patient

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
        run = running(seconds, servers, workers, ["consistency.on_worker_loss=end"])
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


LOST = "a worker is lost, the job goes on without it"


def training_with(folder, seconds, workers, sets=()):
    """Four epochs with a deadline of 2 s, under way; and the summary's place. With a sanitizer 60 steps, and longer."""
    summary = os.path.join(folder, "summary.json")
    plan = [f"consistency.deadline_s={2 * PATIENCE}", "training.epochs=4"] + list(sets)
    if SANITIZED:
        plan.append("training.max_steps=60")
    run = Run(job(2, workers, MLP, plan, ["--summary", summary]), seconds)
    assert run.wait_for("step ", 40), run.text()
    return run, summary


def outcome(run, summary, lost):
    """The others finished, and say how many were lost."""
    code = run.finish()
    text = run.text()
    assert code is not None, f"still running after {run.took:.0f} s:\n{text}"
    assert os.path.exists(summary), f"exit {code}, no summary:\n{text}"
    with open(summary, encoding="utf-8") as file:
        told = json.load(file)
    assert told["lost_workers"] == lost and told["lost_rounds"] >= 1, f"{told}\n{text}"
    assert SANITIZED or told["test_accuracy"] >= 0.80, told
    assert text.count(LOST) == 2 * lost, text  # each server says it
    return text


def goes_on(victim, name):
    def case(folder, seconds):
        run, summary = training_with(folder, seconds, 4)
        kill(run.ranks()[victim], signal.SIGKILL)
        assert name in outcome(run, summary, 1), run.text()
    return case


def stopped_worker_comes_back(folder, seconds):
    """Who is stopped past the deadline hears on waking that the job has gone on, and takes part again; twice."""
    run, summary = training_with(folder, seconds, 3, ["training.epochs=3"])
    for turn, victim in enumerate((4, 2)):
        pid = run.ranks()[victim]
        kill(pid, signal.SIGSTOP)
        until = patient(20)
        while run.text().count(LOST) < 2 * (turn + 1):
            assert time.monotonic() < until, run.text()
            time.sleep(0.02)
        kill(pid, signal.SIGCONT)
        until = patient(20)
        while run.text().count("back in the job") < turn + 1:
            assert time.monotonic() < until, run.text()
            time.sleep(0.02)
    code = run.finish()
    assert code is not None and os.path.exists(summary), f"exit {code}\n{run.text()}"
    with open(summary, encoding="utf-8") as file:
        told = json.load(file)
    assert told["lost_workers"] == 0 and told["lost_rounds"] >= 2, f"{told}\n{run.text()}"
    assert SANITIZED or told["test_accuracy"] >= 0.80, f"{told}\n{run.text()}"
    assert run.text().count("a worker is back") == 2, run.text()


def one_after_the_other(workers):
    """All workers but one die, each a random while after the one before was given up; nobody hangs."""
    def case(folder, seconds):
        rolls = random.Random(workers)
        run, summary = training_with(folder, seconds, workers)
        ranks = run.ranks()
        victims = rolls.sample(range(2, 2 + workers), workers - 1)
        for number, victim in enumerate(victims):
            time.sleep(rolls.random() * 0.05)
            kill(ranks[victim], signal.SIGKILL)
            until = patient(20)
            while run.text().count(LOST) < 2 * (number + 1):
                assert time.monotonic() < until, f"killed {victims[:number + 1]} of {victims}:\n{run.text()}"
                time.sleep(0.02)
        outcome(run, summary, len(victims))
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
    # whoever came first is named first
    assert re.search(r"named \S+ at worker [01], \S+ at worker [01]|shape \S+ at worker [01], \S+ at worker [01]", text), text
    assert "(here)" not in text, text


def cannot_take_part(role, *words):
    """One program whose options are wrong: the others hear why, and leave long before their deadline of 30 s."""
    def case(folder, seconds):
        del folder
        good = [f"{BUILD}/terse-server", SOFTMAX], [f"{BUILD}/terse-worker", SOFTMAX]
        bad = [f"{BUILD}/terse-{role}", SOFTMAX] + list(words)
        # the one that is wrong leads the roll call, or follows in it
        for programs in ((bad, *good), (*good, bad)):
            run = Run(sum(([":", "-n", "1"] + program for program in programs), [])[1:], seconds)
            code = run.finish()
            text = run.text()
            assert code is not None and run.took < 15, f"{run.took:.0f} s:\n{text}"
            told = [line for line in text.splitlines() if f"({role} on " in line and "cannot take part: " in line]
            assert len(told) == 2 and all(words[-1] in line for line in told), text
            assert "MPI_ABORT" not in text, text
    return case


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
    start = ["--set", f"consistency.start_s={DEADLINE}", "--set", "consistency.deadline_s=1"]
    words = (["-n", "1", f"{BUILD}/terse-server", SOFTMAX] + start + [":", "-n", "1", f"{BUILD}/terse-worker", SOFTMAX] +
             start + [":", "-n", "1", "sleep", "12"])
    run = Run(words, seconds)
    # 4 s more: MPI_Init alone takes over 3 s where the host's own name does not resolve
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


def bad_path_before_training(folder, seconds):
    """What cannot be written is refused before the first step, with option and path; nothing is left behind."""
    plain = os.path.join(folder, "plain")
    with open(plain, "w", encoding="utf-8") as file:
        file.write("kept")
    for option, path in (("--save", "/nowhere/x.st"), ("--summary", "/proc/x.json"), ("--save", folder),
                         ("--summary", "/dev/full"), ("--save", plain + "/x.st")):
        run = Run(job(1, 2, SOFTMAX, ["training.max_steps=5"], ["--save", plain, option, path]), seconds)
        code = run.finish()
        assert code is not None and run.took < 10, f"{path}: exit {code} after {run.took:.0f} s:\n{run.text()}"
        assert f"worker 0: {option}: {path} cannot be written" in run.text(), f"{path}:\n{run.text()}"
        assert "training starts" not in run.text(), f"{path}:\n{run.text()}"
    assert os.listdir(folder) == ["plain"], os.listdir(folder)
    with open(plain, encoding="utf-8") as file:
        assert file.read() == "kept"


def folder_gone(folder, seconds):
    """A model that cannot be written at the end is an error that names it; the training's result still shows."""
    place, summary = os.path.join(folder, "place"), os.path.join(folder, "summary.json")
    os.mkdir(place)
    path = os.path.join(place, "model.safetensors")
    run = Run(job(1, 1, SOFTMAX, ["training.max_steps=400"], ["--save", path, "--summary", summary]), seconds)
    assert run.wait_for("training starts", 30), run.text()
    os.rmdir(place)
    code = run.finish()
    assert code is not None and f"--save: {path} cannot be written" in run.text(), f"exit {code}:\n{run.text()}"
    assert "test accuracy" in run.text() and not os.path.exists(summary), run.text()


def worker_told_to_stop(number):
    """Everybody ends at once, not at the deadline, and says why."""
    def case(folder, seconds):
        del folder
        run = Run(job(2, 3, MLP, [f"consistency.deadline_s={40 * PATIENCE}"]), seconds)
        assert run.wait_for("step ", 30), run.text()  # before the first one a signal does what it does to any process
        began = time.monotonic()
        kill(run.ranks()[3], number)
        code = run.finish()
        took = time.monotonic() - began
        text = run.text()
        assert code is not None and took < 10 * PATIENCE, f"exit {code} after {took:.0f} s:\n{text}"
        assert text.count(f"stopped by signal {number}") >= 3, text  # itself, the servers, other workers
    return case


def worker_told_twice(folder, seconds):
    """A loop that does not come to its next step (the other worker stands still) dies of the second signal."""
    del folder
    run = Run(job(1, 2, MLP, ["consistency.deadline_s=40"]), seconds)
    assert run.wait_for("step ", 30), run.text()
    ranks = run.ranks()
    kill(ranks[2], signal.SIGSTOP)
    time.sleep(0.5)
    kill(ranks[1], signal.SIGTERM)
    time.sleep(0.5)
    assert 1 in run.ranks(), run.text()
    kill(ranks[1], signal.SIGTERM)
    time.sleep(1)
    assert 1 not in run.ranks() or not alive(ranks[1]), run.text()
    kill(ranks[2], signal.SIGKILL)
    kill(run.process.pid, signal.SIGTERM)
    assert run.finish() is not None, run.text()


def all_workers_stopped(servers, workers):
    """The servers say whom they waited for, end, and end who cannot end: else mpirun would wait for them for ever."""
    def run_one(folder, seconds):
        del folder
        run = Run(job(servers, workers, MLP, ["consistency.deadline_s=1.5", "training.epochs=1000"]), seconds)
        assert run.wait_for("step ", 40), run.text()
        ranks = run.ranks()
        for worker in range(servers, servers + workers):
            kill(ranks[worker], signal.SIGSTOP)
        code, text = run.finish(), run.text()
        assert code is not None, f"mpirun waits:\n{text}"
        assert "worker 0" in text and "worker 1" in text and "the job ends" in text and "silent for" in text, text
        assert not any(alive(pid) for pid in ranks.values()), text
    return run_one


def program_missing(folder, seconds):
    """With recovery on, mpirun waits for ever, and silently, for a program that cannot be started, unless told not to."""
    tune = os.path.join(folder, "openmpi.conf")
    with open("configs/openmpi.conf", encoding="utf-8") as file:
        text = file.read()
    assert "orte_startup_timeout 30" in text, text
    with open(tune, "w", encoding="utf-8") as file:
        file.write(text.replace("orte_startup_timeout 30", "orte_startup_timeout 3"))
    words = job(1, 1, "configs/softmax.yaml", ["training.epochs=1"])
    words[words.index(f"{BUILD}/terse-server")] = f"{BUILD}/terse-sever"
    done = subprocess.run(["timeout", "-k", "5", str(seconds - 6), "mpirun", "--tune", tune] + words, env=environment(),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True, check=False)
    assert done.returncode not in (0, 124, 137), done


CASES = [
    ("options-wrong-at-one-worker", 60, cannot_take_part("worker", "--no-such-option")),
    ("plugin-missing-at-one-worker", 60, cannot_take_part("worker", "--plugin", "/nowhere/model.so")),
    ("config-wrong-at-one-server", 60, cannot_take_part("server", "--set", "no.such_key=1")),
    ("program-missing", 30, program_missing),
    ("worker-killed", 60, strike(3, signal.SIGKILL, "worker 1")),
    ("worker-0-killed", 60, strike(2, signal.SIGKILL, "worker 0")),
    ("server-killed", 60, strike(1, signal.SIGKILL, "server 1")),
    ("server-0-killed", 60, strike(0, signal.SIGKILL, "server 0")),
    ("worker-killed-others-go-on", 90, goes_on(3, "worker 1")),
    ("worker-0-killed-others-go-on", 90, goes_on(2, "worker 0")),
    ("stopped-worker-comes-back", 120, stopped_worker_comes_back),
    ("five-of-six-workers-die", 120, one_after_the_other(6)),
    ("all-workers-stopped", 60, all_workers_stopped(2, 2)),
    ("more-workers-stopped-than-servers-end", 60, all_workers_stopped(1, 3)),
    ("worker-stopped", 60, strike(4, signal.SIGSTOP, "worker 2")),
    ("server-stopped", 60, strike(1, signal.SIGSTOP, "server 1")),
    ("worker-with-another-model", 60, other_model),
    ("no-server", 60, no_server),
    ("no-worker", 60, no_worker),
    ("rank-that-is-no-terse-program", 60, rank_that_is_no_terse_program),
    ("bad-config-before-mpi", 20, bad_config_before_mpi),
    ("terminated", 60, terminated),
    ("bad-path-before-training", 60, bad_path_before_training),
    ("folder-gone-at-the-end", 60, folder_gone),
    ("worker-gets-SIGINT", 60, worker_told_to_stop(signal.SIGINT)),
    ("worker-gets-SIGTERM", 60, worker_told_to_stop(signal.SIGTERM)),
    ("worker-gets-SIGTERM-twice", 60, worker_told_twice),
]
