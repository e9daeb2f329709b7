# SPDX-License-Identifier: Apache-2.0
"""Two levels of servers: relays of racks between workers and the servers above."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from launch import BUILD, Run, Skipped, kill

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import bench_sites  # noqa: E402
from namespaces import Sites, can_run  # noqa: E402

WORLD, RACKS = bench_sites.WORLD, bench_sites.RACKS
DEADLINE = 3


def launch(folder, steps, servers=1, world=(), racks=()):
    """The words for a world of two racks, and where each leaves its summary."""
    words, summaries = ["-n", str(servers), f"{BUILD}/terse-server", WORLD, *world], []
    for rack in RACKS:
        summaries.append(os.path.join(folder, os.path.basename(rack) + ".json"))
        words += [":", "-n", "1", f"{BUILD}/terse-relay", rack, *racks]
        words += [":", "-n", "2", f"{BUILD}/terse-worker", rack, *racks, "--set", f"training.max_steps={steps}", "--summary",
                  summaries[-1]]
    return words, summaries


def hashes(run, summaries):
    found = set()
    for path in summaries:
        assert os.path.exists(path), run.text()
        with open(path) as file:
            found.add(json.load(file)["parameters_xxh3"])
    return found


def train(folder, seconds, steps, servers=1):
    words, summaries = launch(folder, steps, servers)
    run = Run(words, seconds)
    code = run.finish()
    assert code == 0, f"exit {code}:\n{run.text()}"
    return hashes(run, summaries)


def same_bits(folder, seconds):
    """Both racks hold the same parameters, however often it runs and however many servers are above."""
    first = train(folder, seconds, 40)
    assert len(first) == 1, first
    assert train(folder, seconds, 40) == first
    assert train(folder, seconds, 40, servers=2) == first


def refused(words, *texts):
    done = subprocess.run([f"{BUILD}/terse-relay", *words], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2, done
    for text in texts:
        assert text in done.stderr, done.stderr


def bad_configs(folder, seconds):
    del folder, seconds
    refused([WORLD], WORLD, "upstream.config is missing")
    refused([RACKS[0], "--set", "servers.group=world"], "world", "each level needs a name of its own")
    refused([RACKS[0], "--set", "consistency.mode=asp"], "consistency.mode", "allowed: bsp")
    refused([RACKS[0], "--set", "upstream.config=nowhere.yaml"], "upstream.config", "nowhere.yaml")
    refused([RACKS[0], "--set", "training.first_worker=4"], "training.first_worker", "below training.all_workers, which is 4")
    told = subprocess.run([f"{BUILD}/terse", "check", RACKS[0]], capture_output=True, text=True, timeout=20, check=True).stdout
    assert "is a worker of group world" in told and "its push of other tensors: topk:0.001" in told, told
    told = subprocess.run([f"{BUILD}/terse", "check", RACKS[0], "--set", "upstream.config=configs/openmpi.conf"],
                          capture_output=True, text=True, timeout=20)
    assert told.returncode == 2 and "configs/openmpi.conf:1: " in told.stderr and not told.stdout, told


def bad_launches(folder, seconds):
    """Refused in the roll call, or before, by everybody at once: none waits until its deadline."""
    rack = RACKS[0]
    world = ["-n", "1", f"{BUILD}/terse-server", WORLD]
    relay, workers = ["-n", "1", f"{BUILD}/terse-relay", rack], ["-n", "2", f"{BUILD}/terse-worker", rack]
    link = os.path.join(folder, "link.yaml")
    with open(WORLD) as source, open(link, "w") as file:
        file.write(source.read() + "checkpoint: {dir: ckpt}\n")
    lines = open(link).read().count("\n")
    for words, text in (
            (["-n", "1", f"{BUILD}/terse-server", rack, ":", *workers], "this is the file of a relay; allowed: terse-relay"),
            ([*world, ":", *relay, "--set", f"upstream.config={link}", ":", *workers], f"{link}:{lines}: checkpoint.dir: "),
            ([*world, ":", *relay, "--set", "upstream.config=nowhere.yaml", ":", *workers], "nowhere.yaml"),
            ([*world, "--set", f"checkpoint.dir={folder}/ckpt", ":", *relay, ":", *workers],
             "the relay of rack-a) stands for workers whose residuals"),
            ([*world, ":", *relay, ":", *workers, ":", "-n", "1", f"{BUILD}/terse-worker", rack, "--set", "job.name=two"],
             'serves one job, and in its group "rack-a" rank 2 is a worker of job.name default, rank 4 of two')):
        run = Run(words, seconds)
        code = run.finish()
        assert code is not None and text in run.text(), f"exit {code}, without {text}:\n{run.text()}"
        assert "deadline passed" not in run.text() and "parameters_xxh3" not in run.text(), run.text()


def nobody_above(folder, seconds):
    del folder
    run = Run(["-n", "1", f"{BUILD}/terse-relay", RACKS[0], ":", "-n", "2", f"{BUILD}/terse-worker", RACKS[0]], seconds)
    code = run.finish()
    assert code is not None and 'nobody serves the group "world"' in run.text(), f"exit {code}:\n{run.text()}"


def killed(victim, *names):
    """A dead relay, worker or server above ends both levels in time; who it was is said."""
    def case(folder, seconds):
        deadline = ["--set", f"consistency.deadline_s={DEADLINE}", "--set", "consistency.on_worker_loss=end"]
        with tempfile.TemporaryDirectory() as place:
            world = os.path.join(place, "world.yaml")  # the relays' side of the link has its deadline from the file
            with open(WORLD) as source, open(world, "w") as file:
                file.write(source.read() + f"consistency: {{deadline_s: {DEADLINE}}}\n")
            words, _ = launch(folder, 100000, world=deadline, racks=[*deadline, "--set", f"upstream.config={world}"])
            run = Run(words, seconds)
            assert run.wait_for("epoch 1/", 30), run.text()
            pid = run.ranks()[victim]
            began = time.monotonic()
            kill(pid, signal.SIGKILL)
            code = run.finish()
            took = time.monotonic() - began
        assert code is not None, f"still running {took:.0f} s later:\n{run.text()}"
        assert took <= DEADLINE + 7, f"took {took:.1f} s:\n{run.text()}"
        assert all(name in run.text() for name in names), f"nobody named {names}:\n{run.text()}"
    return case


def slow_links_between_sites(folder, seconds):
    """On hosts with fast links inside and slow ones between: the same result as on one host, and half the bytes between."""
    reason = can_run()
    if reason:
        raise Skipped(reason)
    network = Sites(7, bench_sites.SITES, 50)
    try:
        flat, tiers = bench_sites.compare(network, 30, [], seconds, folder)
    finally:
        network.close()
    assert flat["link_bytes"] > 1.6 * tiers["link_bytes"], (flat, tiers)
    assert set(tiers["hashes"]) == train(folder, seconds, 30), tiers


CASES = [
    ("relay-same-bits", 90, same_bits),
    ("relay-bad-configs", 60, bad_configs),
    ("relay-bad-launches", 60, bad_launches),
    ("relay-nobody-above", 40, nobody_above),
    ("relay-killed", 60, killed(1, "worker 0")),
    ("relay-worker-killed", 60, killed(2, "worker 0")),
    ("relay-server-above-killed", 60, killed(0, "the servers above")),
    ("relay-slow-links-between-sites", 90, slow_links_between_sites, "alone"),
]
