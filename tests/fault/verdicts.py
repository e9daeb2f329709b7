# SPDX-License-Identifier: Apache-2.0
"""What the fault matrix judges by: who must be named, who must end, what must be sound."""
import os
import re
import subprocess
import sys
import time
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))

from launch import BUILD, PATIENCE, alive, patient  # noqa: E402

CONFIG = "tests/fault/fault.yaml"
SERVERS, WORKERS = 2, 3
DEADLINE_S = 1.5
SLACK_S = 12  # start, end, and a loaded machine
START_S = 6   # consistency.start_s of CONFIG
STATES = ["idle", "push", "pull", "barrier", "checkpoint", "attach", "shutdown"]
WELL = re.compile(r"worker (\d) ended well (\w{16})")
VICTIMS = {"server": 1, "server-0": 0, "worker": SERVERS + 1, "worker-0": SERVERS}  # ranks


def words_of(folder, state, striker, number, overrides=(), checkpoints=True):
    """What runs: (servers' words, workers' words), and the file that will tell the striker whom to strike."""
    victim = os.path.join(folder, "victim")
    delay = zlib.crc32(f"{state} {striker} {number}".encode()) % 3000  # a moment of the state, the same each time
    sets = ([f"checkpoint.dir={os.path.join(folder, 'ckpt')}"] if checkpoints else []) + list(overrides)
    sets = [w for s in sets for w in ("--set", s)]
    worker = [f"{BUILD}/fault_worker", CONFIG] + sets + [state, "3", str(striker), victim, str(int(number)), str(delay)]
    return ([f"{BUILD}/terse-server", CONFIG] + sets, worker), victim


def tell(victim, pid):
    with open(victim + ".new", "w", encoding="utf-8") as file:
        file.write(f"{pid}\n")
    os.rename(victim + ".new", victim)


def end(run, began, ranks, more_s=0):
    """Waits for the end; nobody may be left, and it may not take long."""
    code = run.finish()
    took = time.monotonic() - began
    assert code is not None and took < DEADLINE_S + more_s + PATIENCE * SLACK_S, f"still there {took:.1f} s after the strike:\n{run.text()}"
    until = patient(5)
    while left := [r for r, pid in ranks.items() if os.path.exists(f"/proc/{pid}/environ") and alive(pid)]:
        assert time.monotonic() < until, f"ranks {left} are left:\n{run.text()}"
        time.sleep(0.05)
    return run.text()


def whole_checkpoints(folder):
    """Each that is complete is sound."""
    place = os.path.join(folder, "ckpt")
    for name in os.listdir(place) if os.path.isdir(place) else []:
        if os.path.exists(os.path.join(place, name, "manifest.json")):
            done = subprocess.run([f"{BUILD}/terse", "ckpt", "verify", os.path.join(place, name)], capture_output=True,
                                  text=True, check=False)
            assert done.returncode == 0, done


def others_go_on(victim, text, state):
    """A worker is gone: the others end well, alike, and it is named; before the first parameters the job may end."""
    who = VICTIMS[victim] - SERVERS
    ended = WELL.findall(text)
    others = {str(w) for w in range(WORKERS)} - {str(who)}
    named = re.search(rf"worker {who}\b", text)
    if state == "attach" and not ended:
        assert named, f"nobody named worker {who}:\n{text}"
        return
    gone = {w for w, _ in ended} - {str(who)}  # it may have ended before it was struck
    assert named or state == "shutdown", f"nobody named worker {who}:\n{text}"
    assert gone == others and len({h for _, h in ended}) == 1, f"{ended}\n{text}"


def job_ends(victim, text, state):
    """A server is gone: all end, and its name is said; unless all was over."""
    number = VICTIMS[victim]
    over = state == "shutdown" and len(WELL.findall(text)) == WORKERS
    assert over or f"server {number}" in text, f"nobody named server {number}:\n{text}"
    assert over or "ended well" not in text or state == "shutdown", text
