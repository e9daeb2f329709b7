# SPDX-License-Identifier: Apache-2.0
"""Checkpoints over mpirun: going on from one gives the bits of never having stopped, whatever ended the run before; and
every file is read by a reader that knows the formats only from their description."""
import glob
import json
import os
import random
import re
import signal
import struct
import subprocess
import time

from cases_train import MLP, SOFTMAX
from launch import BUILD, Run, job, kill, patient
from safetensors_reader import read_metadata, read_safetensors

STEPS = 60


def manifests(folder):
    """Complete checkpoints: step -> manifest, folder."""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "ckpt-*", "manifest.json"))):
        try:
            with open(path, encoding="utf-8") as file:
                manifest = json.load(file)
        except (OSError, ValueError):
            continue  # removed meanwhile, or torn by the test
        found[manifest["version"]] = (manifest, os.path.dirname(path))
    return found


def start(folder, config, servers, workers, sets, seconds, name="ckpt"):
    """A run whose checkpoints go to folder/name; its summary's path."""
    summary = os.path.join(folder, f"summary-{random.getrandbits(48):x}.json")
    sets = [f"checkpoint.dir={os.path.join(folder, name)}", f"training.max_steps={STEPS}"] + list(sets)
    return Run(job(servers, workers, config, sets, ["--summary", summary]), seconds), summary


def finished(run, summary):
    code = run.finish()
    assert code == 0, f"mpirun ended with {code}:\n{run.text()}"
    with open(summary, encoding="utf-8") as file:
        return json.load(file)


def whole(folder, config, servers, workers, sets, seconds, name="whole"):
    return finished(*start(folder, config, servers, workers, sets, seconds, name))


def check_files(manifest, folder):
    """All of a checkpoint's files, by the description in proto/CHECKPOINT.md: ranges cover every tensor once."""
    covered = {}
    for index, part in enumerate(manifest["servers"]):
        path = os.path.join(folder, part["file"])
        assert os.path.getsize(path) == part["bytes"], path
        notes = read_metadata(path)
        assert notes["terse.seal"] == part["seal"] and notes["terse.epoch"] == manifest["epoch"], notes
        assert notes["terse.role"] == "server" and notes["terse.index"] == str(index), notes
        tensors = read_safetensors(path)
        assert len(notes["terse.xxh3"]) == 16 * len(tensors), path
        for name, entry in tensors.items():
            match = re.fullmatch(r"(.*)\[(\d+):(\d+)\]", name)
            if match:
                begin, end = int(match[2]), int(match[3])
                assert entry["elements"] == end - begin and entry["dtype"] == "F32", name
                covered.setdefault(match[1], []).append((begin, end))
    for tensor in manifest["contract"]["tensors"]:
        elements = 1
        for extent in tensor["shape"]:
            elements *= extent
        at = 0
        for begin, end in sorted(covered.pop(tensor["name"])):
            assert begin == at, tensor["name"]
            at = end
        assert at == elements, tensor["name"]
    assert not covered, covered.keys()
    for part in manifest["workers"]:
        tensors = read_safetensors(os.path.join(folder, part["file"]))
        for tensor in manifest["contract"]["tensors"]:
            assert tensors[tensor["name"] + "#residual"]["shape"] == tensor["shape"], tensor


def resume_is_bit_for_bit(config, servers, workers, *chosen):
    """The checkpoint in the middle of a run, gone on from in another folder, ends as the run did."""
    def case(folder, seconds):
        # One that falls due while another is being written is left out; with so many some are written, on fast machines too.
        every = ["checkpoint.every_steps=5", "checkpoint.keep=99"]
        sets = [*chosen, "training.batch=512"]
        for attempt in range(5):  # a disk that takes longer than the whole run leaves the last one alone
            want = whole(folder, config, servers, workers, list(sets) + every, seconds, f"whole{attempt}")
            found = manifests(os.path.join(folder, f"whole{attempt}"))
            middle = [step for step in found if 0 < step < STEPS]
            if middle:
                break
        assert middle and STEPS in found, found.keys()
        for manifest, path in found.values():
            check_files(manifest, path)
        resume = [f"checkpoint.resume={found[middle[0]][1]}"]
        got = finished(*start(folder, config, servers, workers, list(sets) + resume, seconds, "rest"))
        assert got["resumed_step"] == middle[0] and got["steps"] == STEPS, got
        assert got["parameters_xxh3"] == want["parameters_xxh3"], (got, want)
        last = manifests(os.path.join(folder, "rest"))
        assert list(last) == [STEPS] and last[STEPS][0]["parent"]["version"] == middle[0], last
        # Not only the parameters: everything that both runs keep.
        for part in os.listdir(last[STEPS][1]):
            if part.endswith(".safetensors"):
                ours = read_safetensors(os.path.join(last[STEPS][1], part))
                theirs = read_safetensors(os.path.join(found[STEPS][1], part))
                assert ours.keys() == theirs.keys(), part
                for name in ours:
                    assert ours[name]["bytes"] == theirs[name]["bytes"], f"{part}: {name} differs"
    return case


SLOW = ["checkpoint.every_steps=1", "checkpoint.keep=2"]


def first_checkpoint(run, folder, seconds=40):
    """Waits until one is complete."""
    until = patient(seconds)
    while time.monotonic() < until and run.process.poll() is None:
        if manifests(folder):
            return
        time.sleep(0.02)
    assert manifests(folder), f"no checkpoint came:\n{run.text()}"


def sigterm_drains(folder, seconds):
    want = whole(folder, MLP, 2, 3, [], seconds)
    run, summary = start(folder, MLP, 2, 3, ["checkpoint.every_steps=5"], seconds)
    first_checkpoint(run, os.path.join(folder, "ckpt"))
    kill(run.ranks()[0], signal.SIGTERM)
    run.finish()
    text = run.text()
    assert "stopped by SIGTERM: checkpoint " in text and "the same command goes on from step" in text, text
    assert not os.path.exists(summary), "the run had ended by itself before"
    stopped = max(manifests(os.path.join(folder, "ckpt")))
    got = finished(*start(folder, MLP, 2, 3, [], seconds))
    assert got["resumed_step"] == stopped > 0, (got, stopped)
    assert got["parameters_xxh3"] == want["parameters_xxh3"], (got, want)


def sigterm_at_a_worker_drains(folder, seconds):
    run, summary = start(folder, MLP, 2, 3, ["checkpoint.every_steps=5"], seconds)
    first_checkpoint(run, os.path.join(folder, "ckpt"))
    kill(run.ranks()[3], signal.SIGTERM)
    run.finish()
    assert "stopped by SIGTERM at worker 1: checkpoint " in run.text(), run.text()
    assert not os.path.exists(summary)


def sigusr1_is_a_checkpoint(folder, seconds):
    run, summary = start(folder, MLP, 2, 2, ["checkpoint.at_end=false"], seconds)
    assert run.wait_for('process=server1 from=job msg="training starts"', 40), run.text()  # and not only at a worker
    kill(run.ranks()[1], signal.SIGUSR1)  # a server that is not the first asks it
    finished(run, summary)
    found = manifests(os.path.join(folder, "ckpt"))
    assert len(found) == 1, (found.keys(), run.text())


def server_death_names_the_way_on(folder, seconds):
    want = whole(folder, MLP, 2, 3, [], seconds)
    sets = ["checkpoint.every_steps=5", "consistency.deadline_s=3"]
    run, _ = start(folder, MLP, 2, 3, sets, seconds)
    first_checkpoint(run, os.path.join(folder, "ckpt"))
    kill(run.ranks()[1], signal.SIGKILL)
    run.finish()
    text = run.text()
    assert re.search(r"the last checkpoint is at step \d+: the same mpirun command goes on from it", text), text
    got = finished(*start(folder, MLP, 2, 3, [], seconds))
    assert got["resumed_step"] > 0 and got["parameters_xxh3"] == want["parameters_xxh3"], (got, want)


def killed_at_any_instant(folder, seconds):
    """Checkpoints at nearly every step; everything is killed in the middle; what is left is whole."""
    want = whole(folder, MLP, 2, 2, [], seconds)
    chance = random.Random(7)
    ended = None
    for attempt in range(8):
        run, summary = start(folder, MLP, 2, 2, SLOW, seconds)
        run.wait_for("training starts", 30)
        until = patient(0.2 + 0.6 * chance.random())  # the whole run takes over a second on a fast machine
        if attempt == 0:
            first_checkpoint(run, os.path.join(folder, "ckpt"))
            until = time.monotonic()  # so that the last run goes on from one on a slow machine, too
        while time.monotonic() < until and run.process.poll() is None:
            time.sleep(0.01)
        if run.process.poll() is not None:
            ended = finished(run, summary)
            break
        for pid in list(run.ranks().values()) + [run.process.pid]:
            kill(pid, signal.SIGKILL)
        run.finish()
    if ended is None:
        ended = finished(*start(folder, MLP, 2, 2, [], seconds))
    assert ended["resumed_step"] > 0, ended
    assert ended["parameters_xxh3"] == want["parameters_xxh3"], (ended, want)
    left = [n for n in os.listdir(os.path.join(folder, "ckpt")) if n.startswith("ckpt-")]
    # What was begun and never completed is gone.
    assert all(os.path.exists(os.path.join(folder, "ckpt", name, "manifest.json")) for name in left), left
    assert len(left) <= 3, left


def without_rounds(mode):
    """Workers at different steps: what is cut is whole, a kill loses nothing before it, another number of workers goes on."""
    def case(folder, seconds):
        sets = [f"consistency.mode={mode}", "checkpoint.every_steps=10", "checkpoint.keep=99"]
        run, _ = start(folder, SOFTMAX, 2, 3, sets + ["training.max_steps=100000"], seconds)
        first_checkpoint(run, os.path.join(folder, "ckpt"))
        for pid in list(run.ranks().values()) + [run.process.pid]:
            kill(pid, signal.SIGKILL)
        run.finish()
        found = manifests(os.path.join(folder, "ckpt"))
        newest = max(found)
        check_files(*found[newest])
        resumed = finished(*start(folder, SOFTMAX, 2, 3, sets + [f"training.max_steps={newest + 20}"], seconds))
        assert resumed["resumed_step"] == newest and resumed["steps"] == newest + 20, resumed
        ckpt("reshard", found[newest][1], os.path.join(folder, "two"), "--workers", "2")
        for part in glob.glob(os.path.join(folder, "two", "ckpt-*", "server-*")):
            was = read_safetensors(os.path.join(found[newest][1], os.path.basename(part)))
            for name, entry in read_safetensors(part).items():
                if name.endswith("#steps"):
                    assert struct.unpack("<Q", entry["bytes"])[0] == 2 * newest, name
                    assert struct.unpack("<Q", was[name]["bytes"])[0] == 3 * newest, name
        resumed = finished(*start(folder, SOFTMAX, 2, 2, sets + [f"training.max_steps={newest + 20}"], seconds, "two"))
        assert resumed["resumed_step"] == newest and resumed["test_accuracy"] > 0.6, resumed
    return case


def past_the_end(folder, seconds):
    """A job that would end before the step it goes on from is refused by all servers, with both numbers, and spoils nothing."""
    whole(folder, SOFTMAX, 2, 1, [], seconds / 3, "ckpt")
    run, summary = start(folder, SOFTMAX, 2, 1, [f"training.max_steps={STEPS - 10}"], seconds / 3)
    code, text = run.finish(), run.text()
    assert code is not None and not os.path.exists(summary), f"exit {code}:\n{text}"  # mpirun's 0 means nothing
    for server in (0, 1):
        assert re.search(rf'process=server{server} .*msg="the job ends" .*is of step {STEPS}, which is past the last step of this '
                         rf'job, {STEPS - 10} ', text), text
    assert "goes on from the last checkpoint" not in text, text
    longer = finished(*start(folder, SOFTMAX, 2, 1, [f"training.max_steps={STEPS + 10}"], seconds / 3))
    assert longer["resumed_step"] == STEPS and longer["steps"] == STEPS + 10, longer


def full_disk(folder, seconds):
    """A disk of 3 MB has room for no checkpoint: each is given up by name, and the training goes on."""
    small = os.path.join(folder, "small")
    os.mkdir(small)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", small], capture_output=True, check=False).returncode:
        print("skipped: no right to mount a small disk")
        return
    try:
        run, summary = start(small, MLP, 2, 2, ["checkpoint.every_steps=20", "checkpoint.keep=1"], seconds)
        code = run.finish()
        text = run.text()
        assert code == 0, text
        assert "a checkpoint was given up; the training goes on" in text and "No space left on device" in text, text
        assert not manifests(os.path.join(small, "ckpt"))
    finally:
        subprocess.run(["umount", small], check=False)


def read_only_folder(folder, seconds):
    readonly = os.path.join(folder, "ro")
    os.mkdir(readonly)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", readonly], capture_output=True,
                      check=False).returncode:
        print("skipped: no right to mount a read-only disk")
        return
    try:
        run, _ = start(readonly, SOFTMAX, 1, 1, [], seconds)
        run.finish()
        assert "Read-only file system" in run.text() and readonly in run.text(), run.text()
        assert "training starts:" not in run.text(), "it trained before it found out"
    finally:
        subprocess.run(["umount", readonly], check=False)


def torn_files(folder, seconds):
    """A torn manifest is passed over for the checkpoint before it; a torn part is named, and the one before with it."""
    sets = ["optimizer.schedule.name=constant", "checkpoint.keep=9"]
    whole(folder, SOFTMAX, 2, 2, sets + [f"training.max_steps={STEPS // 2}"], seconds, "ckpt")
    want = whole(folder, SOFTMAX, 2, 2, sets, seconds, "ckpt")
    newest = os.path.join(manifests(os.path.join(folder, "ckpt"))[STEPS][1], "manifest.json")
    os.truncate(newest, os.path.getsize(newest) // 2)
    got = finished(*start(folder, SOFTMAX, 2, 2, sets, seconds))
    assert got["resumed_step"] == STEPS // 2 and got["parameters_xxh3"] == want["parameters_xxh3"], got
    newest = manifests(os.path.join(folder, "ckpt"))[STEPS][1]
    older = manifests(os.path.join(folder, "ckpt"))[STEPS // 2][1]
    for part in ("server-0-of-2.safetensors", "worker-1-of-2.safetensors"):
        path = os.path.join(newest, part)
        with open(path, "rb") as file:
            raw = file.read()
        with open(path, "wb") as file:
            file.write(raw[:-100])
        run, _ = start(folder, SOFTMAX, 2, 2, sets, seconds)
        run.finish()
        assert part in run.text() and "truncated" in run.text(), run.text()
        assert f'add="--set checkpoint.resume={older}"' in run.text(), run.text()
        assert "goes on from the last checkpoint" not in run.text(), run.text()
        with open(path, "wb") as file:
            file.write(raw)


def on_own_disks(folder, steps, config_of=SOFTMAX):
    """The words of a launch of 2 servers and 2 workers, each with its config, and so its checkpoints, in diskN."""
    out = []
    for rank in range(4):
        config = os.path.join(folder, f"disk{rank}", "c.yaml")
        os.makedirs(os.path.dirname(config), exist_ok=True)
        with open(config_of, encoding="utf-8") as file, open(config, "w", encoding="utf-8") as to:
            to.write(file.read() + "checkpoint: {dir: ckpt, every_steps: 10, keep: 2}\n")
        program = "terse-server" if rank < 2 else "terse-worker"
        summary = ["--summary", os.path.join(folder, "summary.json")] if rank == 2 else []
        out += ([":"] if out else []) + ["-n", "1", f"{BUILD}/{program}", config, "--set", f"training.max_steps={steps}",
                                         "--set", "optimizer.schedule.name=constant"] + summary
    return out


def one_disk_full(folder, seconds):
    """The disk of one server alone has no room: no checkpoint is complete without its part, and it is named."""
    for server in range(2):
        own = os.path.join(folder, str(server))
        small = os.path.join(own, f"disk{server}", "ckpt")
        os.makedirs(small)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], capture_output=True, check=False).returncode:
            print("skipped: no right to mount a small disk")
            return
        try:
            run = Run(on_own_disks(own, 30, MLP), seconds / 2)
            code, text = run.finish(), run.text()
            assert code == 0, text
            given_up = [line for line in text.splitlines() if "a checkpoint was given up; the training goes on" in line]
            assert given_up and all("No space left on device" in line and small in line for line in given_up), text
            assert not any(manifests(os.path.join(own, f"disk{rank}", "ckpt")) for rank in range(4)), text
        finally:
            subprocess.run(["umount", small], check=False)


def each_on_its_own_disk(folder, seconds):
    """Without a shared file system: every rank has a folder of its own, and finds its own file when it goes on."""
    def result(steps):
        run = Run(on_own_disks(folder, steps), seconds)
        code = run.finish()
        assert code == 0, run.text()
        with open(os.path.join(folder, "summary.json"), encoding="utf-8") as file:
            return json.load(file)

    result(30)
    kept = sorted(n for n in os.listdir(os.path.join(folder, "disk0", "ckpt")) if n.startswith("ckpt-"))
    for rank, part in ((0, "server-0-of-2"), (1, "server-1-of-2"), (2, "worker-0-of-2"), (3, "worker-1-of-2")):
        for name in kept:
            assert f"{part}.safetensors" in os.listdir(os.path.join(folder, f"disk{rank}", "ckpt", name)), (rank, name)
        there = [n for n in os.listdir(os.path.join(folder, f"disk{rank}", "ckpt")) if n.startswith("ckpt-")]
        assert len(there) <= len(kept) + 1, there  # one more may be unpruned at the end
    got = result(50)
    assert got["resumed_step"] == 30 and got["steps"] == 50, got
    os.remove(os.path.join(folder, "disk3", "ckpt", sorted(os.listdir(os.path.join(folder, "disk0", "ckpt")))[-2],
                           "worker-1-of-2.safetensors"))
    run = Run(on_own_disks(folder, 60), seconds)
    run.finish()
    assert "worker-1-of-2.safetensors: No such file or directory" in run.text(), run.text()


def floats(entry):
    if entry["dtype"] == "BF16":
        return [struct.unpack("<f", b"\0\0" + entry["bytes"][i:i + 2])[0] for i in range(0, len(entry["bytes"]), 2)]
    return list(struct.unpack(f"<{entry['elements']}f", entry["bytes"]))


def parameters(manifest, folder):
    """tensor -> all of its bytes, from the servers' parts."""
    ranges = {}
    for part in manifest["servers"]:
        for name, entry in read_safetensors(os.path.join(folder, part["file"])).items():
            match = re.fullmatch(r"(.*)\[(\d+):(\d+)\](#.*)?", name)
            if match:
                ranges.setdefault((match[1], match[4]), []).append((int(match[2]), entry["bytes"]))
    return {key: b"".join(raw for _, raw in sorted(found)) for key, found in ranges.items()}


def mass(manifest, folder, what):
    """Sum over the workers of what they have not sent yet, tensor by tensor."""
    sums = {}
    for part in manifest["workers"]:
        for name, entry in read_safetensors(os.path.join(folder, part["file"])).items():
            if name.endswith(what):
                values = floats(entry)
                sums[name] = [a + b for a, b in zip(sums[name], values)] if name in sums else values
    return sums


def ckpt(*words, code=0):
    """terse ckpt, with the exit code it must have; what it printed."""
    got = subprocess.run([f"{BUILD}/terse", "ckpt", *words], capture_output=True, text=True, check=False)
    assert got.returncode == code, f"terse ckpt {' '.join(words)}: {got.returncode}\n{got.stdout}{got.stderr}"
    return got.stdout + got.stderr


def tools(folder, seconds):
    """ls, verify, diff and export, on a real one."""
    sets = ["checkpoint.every_steps=20", "checkpoint.keep=9"]
    saved = os.path.join(folder, "saved.safetensors")
    run = Run(job(2, 3, MLP, [f"checkpoint.dir={folder}/ckpt", f"training.max_steps={STEPS}"] + sets, ["--save", saved]),
              seconds)
    assert run.finish() == 0, run.text()
    dir_ = os.path.join(folder, "ckpt")
    found = manifests(dir_)
    first, last = found[min(found)][1], found[STEPS][1]
    listed = json.loads(ckpt("ls", dir_, "--json"))
    assert [row["step"] for row in listed] == sorted(found) and all(row["complete"] for row in listed), listed
    assert json.loads(ckpt("verify", last, "--json"))["fine"] is True
    assert ckpt("verify", dir_).count("fine     ") == 5
    assert json.loads(ckpt("diff", last, dir_, "--json"))["same"] is True
    differ = json.loads(ckpt("diff", first, last, "--json", code=1))
    assert not differ["same"] and differ["differing"] and not differ["only_first"] and not differ["only_second"], differ
    ckpt("export", last, os.path.join(folder, "whole"))
    want = read_safetensors(saved)
    got = read_safetensors(os.path.join(folder, "whole", "model.safetensors"))
    assert {n: (t["shape"], t["bytes"]) for n, t in got.items()} == {n: (t["shape"], t["bytes"]) for n, t in want.items()}
    ckpt("export", last, os.path.join(folder, "parts"), "--max-shard-bytes", "600000")
    with open(os.path.join(folder, "parts", "model.safetensors.index.json"), encoding="utf-8") as file:
        index = json.load(file)
    assert index["metadata"]["total_size"] == sum(len(t["bytes"]) for t in want.values()), index["metadata"]
    assert len(set(index["weight_map"].values())) > 1, index
    for name, file in index["weight_map"].items():
        assert read_safetensors(os.path.join(folder, "parts", file))[name]["bytes"] == want[name]["bytes"], name
    path = os.path.join(last, "worker-1-of-3.safetensors")
    with open(path, "r+b") as file:
        file.seek(-5, 2)
        file.write(b"\x55")
    assert "worker-1-of-3.safetensors" in ckpt("verify", last, code=1)
    ckpt("export", last, os.path.join(folder, "again"))  # reads the parameters alone, as its help says
    assert "damage in other entries" in ckpt("export", "--help")
    for words in ([], ["ls"], ["ls", "a", "b"], ["export", last, "x", "--max-shard-bytes", "0"], ["reshard", last, "x", "--servers"],
                  ["nothing"], ["ls", "--what"]):
        assert ckpt(*words, code=2)
    assert "no complete checkpoint" in ckpt("verify", folder, code=1)


def resharding(folder, seconds):
    """2 -> 3 -> 1 servers and 4 -> 3 -> 6 workers: the same parameters, nothing of the residuals is lost, and jobs go on."""
    sets = ["checkpoint.every_steps=20", "push={default: 'delta:16 | linear:4', rules: [{match: '*1.*', pipeline: 'topk:0.05 | int8'}]}",
            "error_feedback={momentum_correction: 0.9}", "optimizer={name: sgd, momentum: 0.9}"]
    whole(folder, MLP, 2, 4, sets, seconds, "ckpt")
    source = manifests(os.path.join(folder, "ckpt"))
    middle = min(source)
    manifest, path = source[middle]
    held = {"#residual": mass(manifest, path, "#residual"), "#velocity": mass(manifest, path, "#velocity")}
    at_servers = parameters(manifest, path)
    received = {key for key in at_servers if key[1] and key[1].startswith("#received")}
    assert received and any(any(v) for v in held["#residual"].values()) and held["#velocity"], "a case that shows nothing"
    for servers, workers in ((3, 3), (1, 6)):
        target = os.path.join(folder, f"to-{servers}-{workers}")
        ckpt("reshard", path, target, "--servers", str(servers), "--workers", str(workers))
        (manifest, path), = manifests(target).values()
        check_files(manifest, path)
        assert len(manifest["servers"]) == servers and len(manifest["workers"]) == workers
        assert json.loads(ckpt("verify", path, "--json"))["fine"] is True
        now = parameters(manifest, path)
        for key, raw in at_servers.items():
            if key not in received:
                assert now[key] == raw, key
        for what, before in held.items():
            after = mass(manifest, path, what)
            assert after.keys() == before.keys()
            for name in before:
                scale = max(1e-6, max(abs(v) for v in before[name]))
                worst = max(abs(a - b) for a, b in zip(after[name], before[name]))
                assert worst <= 1e-5 * scale, (name, worst, scale)
        got = finished(*start(folder, MLP, servers, workers, sets + [f"checkpoint.resume={path}"], seconds, f"run-{servers}"))
        assert got["resumed_step"] == middle and got["steps"] == STEPS, got


CASES = [
    ("checkpoint-tools", 120, tools),
    ("checkpoint-reshard", 120, resharding),
    ("checkpoint-resume-bits-mlp", 120, resume_is_bit_for_bit(MLP, 2, 3)),
    ("checkpoint-resume-bits-asp-alone", 120, resume_is_bit_for_bit(MLP, 2, 1, "consistency.mode=asp")),
    ("checkpoint-ssp-killed-and-gone-on", 120, without_rounds("ssp")),
    ("checkpoint-asp-killed-and-gone-on", 120, without_rounds("asp")),
    ("checkpoint-resume-bits-adam-qsgd", 120, resume_is_bit_for_bit(
        SOFTMAX, 2, 3, "optimizer={name: adam}", "error_feedback={}", "push={default: 'topk:0.1 | qsgd:4'}",
        "pull={default: 'randomk:0.3 | fp32'}")),
    ("checkpoint-resume-bits-delta", 120, resume_is_bit_for_bit(
        SOFTMAX, 1, 2, "error_feedback={}", "push={default: 'delta:16 | linear:4'}", "servers.slice_elems=1000")),
    ("checkpoint-resume-bits-bf16", 120, resume_is_bit_for_bit(
        SOFTMAX, 2, 2, "error_feedback={residual: bf16, momentum_correction: 0.9}", "push={default: 'topk:0.05 | int8'}")),
    ("checkpoint-sigterm-drains", 120, sigterm_drains),
    ("checkpoint-sigterm-at-a-worker-drains", 60, sigterm_at_a_worker_drains),
    ("checkpoint-sigusr1", 60, sigusr1_is_a_checkpoint),
    ("checkpoint-server-death-names-the-way-on", 120, server_death_names_the_way_on),
    ("checkpoint-killed-at-any-instant", 120, killed_at_any_instant),
    ("checkpoint-past-the-end", 90, past_the_end),
    ("checkpoint-full-disk", 60, full_disk),
    ("checkpoint-one-disk-full", 90, one_disk_full),
    ("checkpoint-read-only-folder", 60, read_only_folder),
    ("checkpoint-torn-files", 120, torn_files),
    ("checkpoint-each-on-its-own-disk", 120, each_on_its_own_disk),
]
