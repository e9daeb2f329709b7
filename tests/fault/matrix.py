#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The fault matrix: who is struck, by what, in which state; each cell a job of 2 servers and 3 workers over mpirun.

matrix.py [CELL ...]; without a CELL (a shell pattern, as 'worker-kill-*') all of them. --list shows them. BUILD names
the build's folder. What must come of each is in README.md beside this file. Closes with "faults: N passed, N failed".
"""
import argparse
import fnmatch
import glob
import os
import re
import signal
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))

import cut  # noqa: E402
from launch import BUILD, Run, Skipped, alive, kill, not_with_a_sanitizer, patient, state_of  # noqa: E402
from verdicts import (DEADLINE_S, SERVERS, SLACK_S, START_S, STATES, VICTIMS, WELL, WORKERS, end, job_ends,  # noqa: E402
                      others_go_on, tell, whole_checkpoints, words_of)


def launch(folder, state, striker, number, overrides=(), environ=(), checkpoints=True):
    """The job, and the file that will tell its striker whom to strike."""
    (server, worker), victim = words_of(folder, state, striker, number, overrides, checkpoints)
    words = [w for e in environ for w in ("-x", e)] + ["-n", str(SERVERS)] + server + [":", "-n", str(WORKERS)] + worker
    return Run(words, DEADLINE_S + SLACK_S + 15), victim


def undisturbed(folder):
    run, _ = launch(folder, "none", 0, 0, ["checkpoint.at_end=false"])
    ended = WELL.findall(end(run, time.monotonic(), {}))
    assert len(ended) == WORKERS and len({h for _, h in ended}) == 1, run.text()
    return ended[0][1]


def struck(victim, number):
    """SIGKILL or SIGSTOP; the one that is stopped is killed when all is over."""
    def cell(folder, state):
        worker = victim.startswith("worker")
        run, place = launch(folder, state, VICTIMS[victim] - SERVERS if worker else 2, number)
        try:
            ranks = run.all_ranks(SERVERS + WORKERS)
            pid = ranks[VICTIMS[victim]]
            rest = {r: p for r, p in ranks.items() if p != pid}
            tell(place, pid)
            began = time.monotonic()
            if number == signal.SIGSTOP:
                awake_after(run, rest, pid)
            # One that wakes up when the others have left waits for them as long again before it ends.
            text = end(run, began, rest, START_S if number == signal.SIGSTOP and state == "attach" else 0)
        finally:
            run.finish()
        (others_go_on if worker else job_ends)(victim, text, state)
        whole_checkpoints(folder)
    return cell


def gone_on_from(folder, want):
    """From each checkpoint that is there, the oldest too: the bits of the undisturbed. Returns how many there were."""
    found = sorted(glob.glob(os.path.join(folder, "ckpt", "ckpt-*", "manifest.json")))
    for manifest in found:
        run, _ = launch(folder, "none", 0, 0, ["servers.replicas=1", "checkpoint.at_end=false", "checkpoint.every_steps=0",
                                              f"checkpoint.resume={os.path.dirname(manifest)}"])
        ended = WELL.findall(end(run, time.monotonic(), {}))
        assert len(ended) == WORKERS and {h for _, h in ended} == {want}, f"{manifest}: {ended}, not {want}\n{run.text()}"
    return len(found)


def replaced(victim):
    """A server with a replica dies: nothing is lost, nobody notices, not a bit is different, nor in any checkpoint."""
    def cell(folder, state):
        want = undisturbed(folder)
        # With checkpoints nobody else knows what the job goes on from when server 0 dies in its first moments.
        checkpoints = (victim, state) != ("server-0", "attach")
        run, place = launch(folder, state, 2, signal.SIGKILL, ["servers.replicas=1"] +
                            (["checkpoint.every_steps=2", "checkpoint.keep=9"] if checkpoints else []), checkpoints=checkpoints)
        try:
            ranks = run.all_ranks(SERVERS + WORKERS)
            pid = ranks[VICTIMS[victim]]
            tell(place, pid)
            began = time.monotonic()
            text = end(run, began, {r: p for r, p in ranks.items() if p != pid})
        finally:
            run.finish()
        ended = WELL.findall(text)
        assert len(ended) == WORKERS and {h for _, h in ended} == {want}, f"{ended}, not {want}\n{text}"
        assert f"server {VICTIMS[victim]}" in text or state == "shutdown", text
        whole_checkpoints(folder)
        assert not checkpoints or gone_on_from(folder, want) > 0, text
    return cell


def awake_after(run, rest, pid):
    """The stopped one wakes up when the others have left, or long after the deadline."""
    def watch():
        until = time.monotonic() + DEADLINE_S + 7.5  # and longer than the start's
        while time.monotonic() < until and any(alive(p) for p in rest.values()) and run.process.poll() is None:
            time.sleep(0.05)
        kill(pid, signal.SIGCONT)
    threading.Thread(target=watch, daemon=True).start()


def slow(victim):
    """Stopped and woken again and again, never for as long as the deadline: late, and not a bit different."""
    def cell(folder, state):
        want = undisturbed(folder)
        run, place = launch(folder, state, 2, signal.SIGSTOP, ["checkpoint.resume=never"])
        try:
            ranks = run.all_ranks(SERVERS + WORKERS)
            pid = ranks[VICTIMS[victim]]
            tell(place, pid)
            began = time.monotonic()
            over = threading.Event()
            pulses = threading.Thread(target=pulse, args=(pid, over), daemon=True)
            pulses.start()
            text = end(run, began, ranks)
            over.set()
            pulses.join()
        finally:
            run.finish()
        ended = WELL.findall(text)
        assert len(ended) == WORKERS and {h for _, h in ended} == {want}, f"{ended}, not {want}\n{text}"
        whole_checkpoints(folder)
    return cell


def pulse(pid, over):
    while not over.is_set():
        time.sleep(0.15)
        kill(pid, signal.SIGCONT)
        time.sleep(0.05)
        if alive(pid) and not over.is_set():
            kill(pid, signal.SIGSTOP)
    kill(pid, signal.SIGCONT)


def all_workers_killed(folder, state):
    """Servers without workers do not stay for ever."""
    run, place = launch(folder, state, 2, signal.SIGKILL)
    try:
        ranks = run.all_ranks(SERVERS + WORKERS)
        tell(place, ranks[SERVERS + 2])
        began = time.monotonic()
        while alive(ranks[SERVERS + 2]) and time.monotonic() - began < 10:
            time.sleep(0.005)
        for rank in (SERVERS, SERVERS + 1):
            kill(ranks[rank], signal.SIGKILL)
        text = end(run, began, ranks)
    finally:
        run.finish()
    assert re.search(r"worker \d", text), text
    whole_checkpoints(folder)


def mpirun_struck(number):
    """Killed: all ranks end with it. Stopped for a while: they need no mpirun while they train."""
    def cell(folder, state):
        run, place = launch(folder, state, 2, number)
        ranks = {}
        try:
            ranks = run.all_ranks(SERVERS + WORKERS)
            tell(place, run.process.pid)
            began = time.monotonic()
            if number == signal.SIGSTOP:
                until = patient(SLACK_S)
                while state_of(run.process.pid) != "T":
                    assert time.monotonic() < until, f"mpirun was not stopped:\n{run.text()}"
                    time.sleep(0.01)
                time.sleep(DEADLINE_S + 1)
                kill(run.process.pid, signal.SIGCONT)
            text = end(run, began, ranks)
        finally:
            for pid in filter(alive, ranks.values()):
                kill(pid, signal.SIGKILL)
            kill(run.process.pid, signal.SIGCONT)
            run.finish()
        assert number == signal.SIGKILL or len(WELL.findall(text)) == WORKERS, text
        whole_checkpoints(folder)
    return cell


def clock_jumps(folder, state):
    """The wall clock of every process jumps forth and back all the time: no deadline, file or bit depends on it."""
    del state
    not_with_a_sanitizer()
    want = undisturbed(folder)
    shim = os.path.abspath(f"{BUILD}/clock_jump.so")
    run, _ = launch(folder, "none", 0, 0, ["checkpoint.every_steps=4"], [f"LD_PRELOAD={shim}"])
    text = end(run, time.monotonic(), {})
    ended = WELL.findall(text)
    assert len(ended) == WORKERS and {h for _, h in ended} == {want}, f"{ended}, not {want}\n{text}"
    whole_checkpoints(folder)


def cells():
    """(name, function, state)"""
    for victim in VICTIMS:
        for name, number in (("kill", signal.SIGKILL), ("stop", signal.SIGSTOP)):
            yield from ((f"{victim}-{name}-{state}", struck(victim, number), state) for state in STATES)
        yield from ((f"{victim}-slow-{state}", slow(victim), state) for state in STATES)
        if victim.startswith("server"):
            yield from ((f"{victim}-replaced-{state}", replaced(victim), state) for state in STATES)
    for name, function in (("job-kill", all_workers_killed), ("mpirun-kill", mpirun_struck(signal.SIGKILL)),
                           ("mpirun-stop", mpirun_struck(signal.SIGSTOP))):
        yield from ((f"{name}-{state}", function, state) for state in STATES)
    yield "clock-jump", clock_jumps, "none"
    yield from cut.cells()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    parser.add_argument("cell", nargs="*")
    parser.add_argument("--list", action="store_true")
    words = parser.parse_args()
    chosen = [c for c in cells() if not words.cell or any(fnmatch.fnmatchcase(c[0], p) for p in words.cell)]
    if words.list:
        print("\n".join(c[0] for c in chosen))
        return 0
    if not chosen:
        parser.error("no cell has such a name; --list shows them all")
    failed = skipped = 0
    for name, function, state in chosen:
        began = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="terse-") as folder:
                function(folder, state)
            verdict = "ok"
        except Skipped as reason:
            skipped += 1
            verdict = "skip"
            print(f"{name}: {reason}")
        except Exception as problem:  # a failing cell must not hide the others
            failed += 1
            verdict = "FAILED"
            print("".join(traceback.format_exception_only(type(problem), problem)).rstrip())
        print(f"{verdict:6} {name} ({time.monotonic() - began:.1f} s)", flush=True)
    print(f"faults: {len(chosen) - failed - skipped} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
