# SPDX-License-Identifier: Apache-2.0
"""A daemon, and jobs in mpiruns of their own that join it, leave it, and are killed."""
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import time

from daemon import Daemon, command, descendants, hash_of, kill_job, sets
from launch import BUILD, Run, job, kill, patient

MLP = "configs/fashion-mnist.yaml"
SERVER = ["consistency.deadline_s=8", "consistency.start_s=8"]
LONG = SERVER + ["training.epochs=1000"]  # outlasts its test on any machine
SHORT = LONG + ["training.max_steps=40"]


def reference(folder, seconds, workers=2, sets=()):
    """The hash of the same job in one mpirun. sets: besides those of SHORT."""
    path = os.path.join(folder, "reference.json")
    run = Run(job(2, workers, MLP, SHORT + list(sets), ["--summary", path]), seconds)
    assert run.finish() == 0, run.text()
    return hash_of(path)


def good_job(daemon, folder, seconds, name="good"):
    path = os.path.join(folder, f"{name}.json")
    run = daemon.job(seconds, overrides=SHORT, more=["--summary", path])
    assert run.finish() == 0 and os.path.exists(path), f"{run.text()}\n{daemon.log()}"
    return hash_of(path)


def has_settings_of(tune, pid):
    """The environment that a server's mpirun gave it has all that the file says (two of it are words of their own there)."""
    with open(tune, encoding="utf-8") as file:
        words = file.read().split()
    with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as file:
        given = dict(pair.split("=", 1) for pair in file.read().split("\0") if "=" in pair)
    wanted = {f"OMPI_MCA_{name}": value for name, value in zip(words[1::3], words[2::3])}
    assert len(wanted) == len(words) // 3 > 3, words
    differ = {name: (value, given.get(name)) for name, value in wanted.items() if given.get(name) != value}
    assert not {name for name in differ if not name.endswith(("oversubscribe", "binding_policy"))}, differ


def one_after_another(folder, seconds):
    expected = reference(folder, seconds / 3)
    with Daemon(folder, MLP, overrides=SERVER) as daemon:
        tune = os.path.realpath("configs/openmpi.conf")
        assert f"mpirun --tune {tune} --ompi-server file:" in daemon.said and "terse-worker" in daemon.said, daemon.said
        servers = {daemon.server(0), daemon.server(1)}
        has_settings_of(tune, min(servers))
        for number in range(2):
            assert good_job(daemon, folder, seconds / 3, f"job{number}") == expected, "another result than in one mpirun"
            daemon.wait_until(lambda: not daemon.running(), 10, "the job is gone from the status")
        listed = daemon.status()["jobs"]
        assert [(j["state"], j["workers"], j["step"]) for j in listed] == [("finished", 2, 40)] * 2, listed
        assert daemon.lives() >= servers
        done = command(["start", MLP, "--run-dir", daemon.dir])
        assert done.returncode == 1 and "runs in" in done.stderr, done
        done = command(["stop", daemon.dir])
        assert done.returncode == 0 and not daemon.lives(), f"{done}\n{daemon.lives()}"
        for verb in ("status", "stop"):
            done = command([verb, daemon.dir])
            assert done.returncode == 3 and "no daemon" in done.stderr, done


def second_refused(folder, seconds):
    """Started beside a daemon, by whatever way, servers end with a sentence, and leave its files as they are."""
    def card(daemon):
        with open(os.path.join(daemon.dir, "daemon"), encoding="utf-8") as file:
            return file.read()
    place = os.path.join(folder, "run")
    os.mkdir(place, 0o700)
    other = os.open(place, os.O_RDONLY)  # as a `terse start` that looks around there just now
    fcntl.flock(other, fcntl.LOCK_EX)
    done = command(["start", MLP, "--run-dir", place])
    assert done.returncode == 1 and f"{place}: another terse start is at work there" in done.stderr, done
    assert os.listdir(place) == []
    os.close(other)
    with Daemon(folder, MLP, servers=1, overrides=SERVER) as daemon:
        before, first = card(daemon), daemon.server(0)
        server = [f"{BUILD}/terse-server", MLP] + sets([f"daemon.dir={daemon.dir}"] + SERVER)
        uri = f"file:{os.path.join(daemon.dir, 'ompi-server.uri')}"
        for run in (Run(["--ompi-server", uri, "-n", "2"] + server, seconds / 4), Run(server, seconds / 4, program=())):
            fails(run, f"a daemon runs in {daemon.dir} already (process {first})")
            assert card(daemon) == before and daemon.status()["pid"] == first, f"{run.text()}\n{daemon.log()}"
        # One job in one mpirun needs no directory, whoever has it.
        run = Run(job(1, 1, MLP, SHORT + [f"daemon.dir={daemon.dir}"]), seconds / 4)
        assert run.finish() == 0 and card(daemon) == before, run.text()
        assert good_job(daemon, folder, seconds / 4)
        # A card that was left behind says nothing.
        kill(daemon.keeper(), signal.SIGKILL)
        daemon.wait_until(lambda: not daemon.lives(), 15, "all ends with its keeper")
        with open(os.path.join(daemon.dir, "daemon"), "w", encoding="utf-8") as file:
            file.write(before)
        run = Run(server, seconds / 4, program=())
        try:
            daemon.wait_until(lambda: card(daemon) != before, 20, "the card is replaced")
            daemon.wait_until(lambda: daemon.status()["pid"] == run.process.pid, 20, "the new daemon reports")
        finally:
            kill(run.process.pid, signal.SIGINT)
            run.finish()
        assert not os.path.exists(os.path.join(daemon.dir, "daemon")), run.text()


def names_from_outside(folder, seconds):
    """Who knows the token, and still says names that would spoil a log, JSON, or a command for pasting."""
    def knock(name, host="h1"):
        done = subprocess.run([f"{BUILD}/knock", daemon.dir, name, host], capture_output=True, timeout=seconds / 4, check=True)
        return done.stdout.decode(errors="replace")
    with Daemon(folder, MLP, servers=1, overrides=SERVER) as daemon:
        for name in ("$(touch spoiled)", "a b", "", "..", "..\n", "x" * 32, b"\xff\xfe", "a/../b"):
            assert knock(name).startswith("refused: job.name: allowed: 1 to 31 letters"), name
        for host in (b"\xc3(", "h\x1b[2J", "h" * 40):
            assert "host's name" in knock("a", host), host
        assert knock("a.b_c-1") == "let in\n", daemon.log()
        assert good_job(daemon, folder, seconds / 4)


PAIR = re.compile(r'([^\s="]+)(?:=(?:"((?:[^"\\]|\\["\\])*)"|([^\s="\\]*)))?(?: |$)')


def logfmt(line):
    """The pairs of a line of the log; what is none fails."""
    pairs, at = {}, 0
    while at < len(line):
        match = PAIR.match(line, at)
        assert match, f"no key=value: {line[at:]!r} of {line!r}"
        quoted, bare = match.group(2), match.group(3)
        pairs[match.group(1)] = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else bare
        at = match.end()
    return pairs


def words_that_are_no_text(folder, seconds):
    """A job that ends with bytes that are no text: the log stays a log, and the status goes on being written."""
    place = os.fsdecode(os.fsencode(folder) + b'/my "own"\n\xff\\place')
    with Daemon(folder, MLP, servers=1, overrides=SERVER) as daemon:
        run = daemon.job(seconds / 3, overrides=SHORT, more=["--save", os.path.join(place, "x.safetensors")])
        fails(run, "--save")
        daemon.wait_until(lambda: [j["state"] for j in daemon.status()["jobs"]] == ["failed"], 15, "the status has the job")
        said = daemon.status()["jobs"][0]["message"]
        assert r'my "own"\x0a\xff\place' in said, said
        good_job(daemon, folder, seconds / 3)
        daemon.wait_until(lambda: [j["state"] for j in daemon.status()["jobs"]] == ["failed", "finished"], 15, "and the next one")
        assert "the status cannot be written" not in daemon.log(), daemon.log()
        with open(os.path.join(daemon.dir, "log"), "rb") as file:
            log = file.read().decode()  # all of it is UTF-8
        lines = [logfmt(line) for line in log.splitlines() if line.startswith("time=")]
        assert [e for e in lines if e["msg"] == "the job ends" and e["reason"] == said and e["level"] == "error"], log
        assert {e["process"] for e in lines} == {"keeper", "server0"}, log


def one_server(folder, seconds):
    """Its workers are through, and say so, before its accept has returned: that is no sign of death."""
    with Daemon(folder, MLP, servers=1, overrides=SERVER) as daemon:
        hashes = {good_job(daemon, folder, seconds / 3, f"job{number}") for number in range(5)}
        assert len(hashes) == 1 and "turned away" not in daemon.log(), daemon.log()


def two_at_a_time(folder, seconds):
    expected = reference(folder, seconds / 3)
    with Daemon(folder, MLP, overrides=SERVER) as daemon:
        paths = [os.path.join(folder, f"{n}.json") for n in "ab"]
        # The first is still at it when the second comes: it trains on after the others' end.
        first = daemon.job(seconds, overrides=LONG)
        assert first.wait_for("step ", 30), first.text()
        runs = [daemon.job(seconds, overrides=SHORT, more=["--summary", path]) for path in paths]
        for run, path in zip(runs, paths):
            assert run.finish() == 0, f"{run.text()}\n{daemon.log()}"
            assert hash_of(path) == expected
        # The status is a second old at most.
        daemon.wait_until(lambda: [j["number"] for j in daemon.running()] == [0], 15, "the first alone is left")
        kill_job(first)


def name_free_again(folder, seconds):
    """Who has the name of a job that has just ended, is named alike by all servers, though one of them does not know yet of that end."""
    named = ["job.name=again"]
    with Daemon(folder, MLP, overrides=SERVER + ["daemon.orphan_s=0"]) as daemon:
        first = daemon.job(seconds / 3, overrides=LONG + named)
        assert first.wait_for("step ", 40), first.text()
        kill(daemon.server(1), signal.SIGSTOP)
        kill_job(first)
        daemon.wait_until(lambda: not daemon.running(), 20, "the job is gone from the status")
        time.sleep(3)  # for server 0 its processes are gone by then
        second = daemon.job(seconds / 3, overrides=SHORT + named)
        daemon.wait_until(lambda: "job=again number=1 " in daemon.log(), 20, "server 0 lets it in")
        kill(daemon.server(1), signal.SIGCONT)
        assert second.finish() == 0, f"{second.text()}\n{daemon.log()}"
        assert daemon.log().count("job=again number=1 ") == 2, daemon.log()


def killed_in_training(folder, seconds):
    """The whole job dies at once, mid-traffic; another one trains on meanwhile, and the next is served."""
    expected = reference(folder, seconds / 3)
    with Daemon(folder, MLP, overrides=SERVER + ["daemon.orphan_s=0"]) as daemon:
        servers = {daemon.server(0), daemon.server(1)}
        other = daemon.job(seconds, overrides=["training.max_steps=150", "consistency.deadline_s=8"])
        victim = daemon.job(seconds, overrides=LONG)
        assert victim.wait_for("step ", 40) and other.wait_for("step ", 40), victim.text()
        kill_job(victim)
        daemon.wait_until(lambda: "without a goodbye" in daemon.log(), 10, "the servers notice")
        assert other.finish() == 0, f"{other.text()}\n{daemon.log()}"
        assert good_job(daemon, folder, seconds / 3) == expected
        assert daemon.lives() >= servers
        states = {j["state"] for j in daemon.status()["jobs"] if j["message"]}
        assert states == {"failed"}, daemon.status()


def knocks(port):
    """How many connections stand at a door."""
    with open("/proc/net/tcp", encoding="ascii") as file:
        rows = [line.split() for line in file.read().splitlines()[1:]]
    return sum(1 for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "01")


def door(daemon, server):
    with open(os.path.join(daemon.dir, "daemon"), encoding="utf-8") as file:
        return int(next(line for line in file if line.startswith(f"server {server} ")).split()[3])


def killed_while_joining(count, mpirun=()):
    def case(folder, seconds):
        with Daemon(folder, MLP, overrides=SERVER, mpirun=mpirun) as daemon:
            servers = {daemon.server(0), daemon.server(1)}
            began = time.monotonic()
            for strike in range(count):
                port = door(daemon, strike % 2)
                at_rest = knocks(port)
                victim = daemon.job(seconds, overrides=LONG)
                until = patient(20)
                while knocks(port) == at_rest and time.monotonic() < until:
                    time.sleep(0.001)
                time.sleep((strike * 7 % 10) * 0.006)  # joining takes some 20 ms a server
                kill_job(victim)
                assert daemon.lives() >= servers, daemon.log()
                daemon.wait_until(lambda: knocks(port) == at_rest, 20, "the lifelines of the dead are closed")
            # What of them came in ends; the next is served, and by all servers.
            assert good_job(daemon, folder, seconds / 2)
            assert daemon.lives() >= servers, daemon.log()
            assert time.monotonic() - began < seconds, daemon.log()
            assert "joined" in daemon.log(), daemon.log()
    return case


def one_worker_killed(folder, seconds):
    """A worker dies: its job ends with a sentence that names it, the servers stay."""
    with Daemon(folder, MLP, overrides=SERVER + ["consistency.on_worker_loss=end"]) as daemon:
        run = daemon.job(seconds, overrides=LONG)
        assert run.wait_for("step ", 40), run.text()
        pid = run.ranks()[1]
        began = time.monotonic()
        kill(pid, signal.SIGKILL)
        code = run.finish()
        assert code is not None and time.monotonic() - began < 15, f"{code} {run.text()}"
        assert re.search(r"worker 1 .*ended without a goodbye", run.text()), run.text()
        assert good_job(daemon, folder, seconds / 2)


def stop_with_a_job(folder, seconds):
    """Nobody is let in any more; after daemon.drain_s the job is told, and all ends."""
    with Daemon(folder, MLP, overrides=SERVER + ["daemon.drain_s=3"]) as daemon:
        run = daemon.job(seconds, overrides=LONG)
        assert run.wait_for("step ", 40), run.text()
        stop = subprocess.Popen([f"{BUILD}/terse", "stop", daemon.dir], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        daemon.wait_until(lambda: "nobody is let in" in daemon.log(), 10, "draining")
        late = daemon.job(seconds, overrides=SHORT)
        fails(late, "lets nobody in")
        said = stop.communicate(timeout=30)[0]
        assert stop.returncode == 0, said
        fails(run, "told to stop")
        assert not daemon.lives(), daemon.lives()


def ends_when_empty(folder, seconds):
    with Daemon(folder, MLP, overrides=SERVER + ["daemon.when_empty=exit"]) as daemon:
        assert good_job(daemon, folder, seconds / 2)
        daemon.wait_until(lambda: not daemon.lives(), 15, "all ends with the last job")
        assert "msg=\"the daemon has ended\" exit=0" in daemon.log(), daemon.log()
        assert not os.path.exists(os.path.join(daemon.dir, "daemon")), os.listdir(daemon.dir)


def fails(run, words, limit=30):
    began = time.monotonic()
    code = run.finish()
    text = run.text()
    assert code is not None and "parameters_xxh3" not in text, f"exit {code}:\n{text}"  # mpirun's 0 means nothing
    assert time.monotonic() - began < limit, text
    assert words in text, f"nobody said '{words}':\n{text}"


def daemon_not_there(folder, seconds):
    """Each is a named error within the deadline."""
    def attach(place, more=()):
        return Run(list(more) + job(0, 2, MLP, SHORT + [f"daemon.dir={place}"]), seconds)
    fails(attach(os.path.join(folder, "nothing")), "No such file")
    place = os.path.join(folder, "place")
    os.mkdir(place, 0o700)
    fails(attach(place), "holds no daemon")
    os.chmod(place, 0o750)
    fails(attach(place), "mode 0750")
    done = command(["start", MLP, "--run-dir", place])
    assert done.returncode == 1 and "mode 0750" in done.stderr, done
    for verb in ("status", "stop"):
        done = command([verb, place])
        assert done.returncode == 1 and "mode 0750" in done.stderr, done
    os.chmod(place, 0o700)
    with open(os.path.join(place, "daemon"), "w", encoding="utf-8") as file:
        file.write("something else\n")
    fails(attach(place), "no daemon's card")
    done = command(["stop", os.path.join(folder, "nothing")])
    assert done.returncode == 3, done


def stale_directory(folder, seconds):
    """Everything of a daemon is killed: its files say nothing that is believed, and a new one can start there."""
    with Daemon(folder, MLP, overrides=SERVER) as daemon:
        kept = os.path.join(folder, "kept")
        shutil.copytree(daemon.dir, kept)
        for pid in daemon.lives():
            kill(pid, signal.SIGKILL)
        daemon.wait_until(lambda: not daemon.lives(), 10, "all are dead")
        for name in os.listdir(kept):
            shutil.copy(os.path.join(kept, name), daemon.dir)
        assert command(["status", daemon.dir]).returncode == 3
        fails(daemon.job(seconds, overrides=SHORT), "cannot be reached")
        with Daemon(folder, MLP, overrides=SERVER) as again:
            # Parts of two cards are no card; that another token opens no door, test_door shows.
            with open(os.path.join(kept, "daemon"), encoding="utf-8") as file:
                old = re.search(r"token \w+", file.read()).group(0)
            path = os.path.join(again.dir, "daemon")
            with open(path, encoding="utf-8") as file:
                card = file.read()
            with open(path, "w", encoding="utf-8") as file:
                file.write(re.sub(r"token \w+", old, card))
            fails(again.job(seconds, overrides=SHORT), "is damaged")
            with open(path, "w", encoding="utf-8") as file:
                file.write(card)
            assert good_job(again, folder, seconds / 3)
            assert command(["stop", again.dir, "--now"]).returncode == 0
        assert not again.lives()


def name_server_wrong_or_dead(folder, seconds):
    with Daemon(folder, MLP, overrides=SERVER) as daemon:
        servers = {daemon.server(0), daemon.server(1)}
        words = daemon.words(2, SHORT)
        at = words.index("--ompi-server")
        fails(Run(words[:at] + words[at + 2:], seconds), "--ompi-server")
        daemon.wait_until(lambda: not daemon.running(), 20, "nobody of it stays")
        assert good_job(daemon, folder, seconds / 3), "served as if nothing had been"
        name_server = next(p for p in daemon.lives() if b"ompi-server" in open(f"/proc/{p}/cmdline", "rb").read().split(b"\0")[0])
        kill(name_server, signal.SIGKILL)
        run = daemon.job(seconds, overrides=SHORT)
        began = time.monotonic()
        code = run.finish()
        assert code is not None and time.monotonic() - began < 30, run.text()
        daemon.wait_until(lambda: "ompi-server has ended" in daemon.log(), 10, "the log says so")
        assert daemon.lives() >= servers, daemon.log()
        done = command(["stop", daemon.dir])
        assert done.returncode == 0 and not daemon.lives(), done


def server_killed(number):
    def case(folder, seconds):
        """Its part of the parameters is gone: all end, and say which."""
        with Daemon(folder, MLP, overrides=SERVER) as daemon:
            run = daemon.job(seconds, overrides=LONG)
            assert run.wait_for("step ", 40), run.text()
            kill(daemon.server(number), signal.SIGKILL)
            fails(run, f"server {number}")
            daemon.wait_until(lambda: not daemon.lives(), 20, "all ends")
            assert f"server {number}" in daemon.log() and "its part of the parameters" in daemon.log(), daemon.log()
            fails(daemon.job(seconds, overrides=SHORT), "unable to connect")  # mpirun itself: ompi-server is gone
    return case


def keeper_killed(folder, seconds):
    """What keeps it all is killed: nothing is left running."""
    del seconds
    with Daemon(folder, MLP, overrides=SERVER) as daemon:
        kill(daemon.keeper(), signal.SIGKILL)
        daemon.wait_until(lambda: not daemon.lives(), 15, "all ends with its keeper")
        assert command(["status", daemon.dir]).returncode == 3
        assert command(["stop", daemon.dir]).returncode == 3


def of_this_run(place, before):
    """Processes that were not there before and have the run's folder on their command line."""
    found = []
    for pid in descendants(1) - before:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                found += [pid] if place.encode() in file.read() else []
        except OSError:
            continue
    return found


def start_that_fails(folder, seconds):
    """No servers come up: the end of the log is shown, and nothing is left."""
    del seconds
    place = os.path.join(folder, "run")
    before = descendants(1)
    done = command(["start", MLP, "--servers", "2", "--run-dir", place, "--", "--no-such-option"], 40)
    assert done.returncode == 1 and "the end of" in done.stderr, done
    done = command(["start", MLP, "--run-dir", place, "--timeout", "0.1"], 40)
    assert done.returncode == 4 and "not up within" in done.stderr, done
    until = patient(10)
    while (left := of_this_run(place, before)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left, left


def signals(folder, seconds):
    """SIGUSR2 dumps whom a server waits for."""
    with Daemon(folder, MLP, overrides=SERVER) as daemon:
        run = daemon.job(seconds, overrides=LONG)
        assert run.wait_for("step ", 40), run.text()
        kill(daemon.server(1), signal.SIGUSR2)
        daemon.wait_until(lambda: "waits for:" in daemon.log(), 10, "the dump")
        done = command(["status", daemon.dir])
        assert done.returncode == 0 and "step" in done.stdout and "2 workers" in done.stdout, done
        kill(daemon.server(0), signal.SIGINT)  # at once
        fails(run, "told to stop")
        daemon.wait_until(lambda: not daemon.lives(), 15, "all ends")


def checkpoints_of_a_daemon(folder, seconds):
    """Stopped with a job under way: the job's checkpoint is complete; a new daemon and the same job go on from it."""
    short = reference(folder, seconds / 4)
    kept = [f"checkpoint.dir={os.path.join(folder, 'kept')}"]
    flat = ["optimizer.schedule.name=constant"]  # so that steps do not depend on how many are to come
    mine = LONG + kept + flat + ["job.name=mine"]
    with Daemon(folder, MLP, overrides=SERVER + kept + ["daemon.drain_s=3"]) as daemon:
        run = daemon.job(seconds, overrides=mine)
        assert run.wait_for("step ", 40), run.text()
        kill(daemon.server(1), signal.SIGUSR1)
        daemon.wait_until(lambda: "a checkpoint is complete" in daemon.log(), 20, "SIGUSR1 makes one")
        done = command(["stop", daemon.dir])
        assert done.returncode == 0 and not daemon.lives(), done
        assert daemon.log().count("a checkpoint is complete") == 2, daemon.log()
        fails(run, "the same command goes on from step")
    places = os.listdir(os.path.join(folder, "kept"))
    assert places == ["mine"], places
    steps = max(int(name.rsplit("-", 1)[1]) for name in os.listdir(os.path.join(folder, "kept", "mine")) if "-step-" in name)
    with Daemon(folder, MLP, overrides=SERVER + kept) as again:
        path = os.path.join(folder, "again.json")
        some_more = [f"training.max_steps={steps + 10}"]
        run = again.job(seconds, overrides=mine + some_more, more=["--summary", path])
        assert run.finish() == 0, f"{run.text()}\n{again.log()}"
        with open(path, encoding="utf-8") as file:
            summary = json.load(file)
        assert summary["resumed_step"] == steps, summary
        assert summary["parameters_xxh3"] == reference(folder, seconds / 4, sets=flat + some_more), summary
        # One without a name could not be found again: it has no checkpoints, and is told so.
        assert good_job(again, folder, seconds / 4) == short
        assert "no checkpoints of this job: job.name is not set" in again.log(), again.log()
    assert os.listdir(os.path.join(folder, "kept")) == ["mine"], os.listdir(os.path.join(folder, "kept"))


def secret_of_a_daemon(folder, seconds):
    """Who has the card but not the secret is turned away, by name, and disturbs nobody."""
    paths = [os.path.join(folder, name) for name in ("secret", "other")]
    for number, path in enumerate(paths):
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            file.write(f"a secret of thirty-two letters, {number}\n")
    with Daemon(folder, MLP, overrides=SERVER + [f"auth.secret_file={paths[0]}"]) as daemon:
        other = daemon.job(seconds, overrides=LONG + [f"auth.secret_file={paths[0]}"])
        assert other.wait_for("step ", 40), other.text()
        fails(daemon.job(seconds, overrides=SHORT), "secret")
        fails(daemon.job(seconds, overrides=SHORT + [f"auth.secret_file={paths[1]}"]), "secret")
        mine = os.path.join(folder, "mine.json")
        run = daemon.job(seconds, overrides=SHORT + [f"auth.secret_file={paths[0]}"], more=["--summary", mine])
        assert run.finish() == 0, f"{run.text()}\n{daemon.log()}"
        assert other.process.poll() is None, other.text()
        with open(paths[0], encoding="utf-8") as file:
            assert file.read().strip() not in daemon.log()
        kill_job(other)


CASES = [
    ("daemon-name-free-again", 90, name_free_again),
    ("daemon-one-after-another", 120, one_after_another),
    ("daemon-of-one-server", 120, one_server),
    ("daemon-second-refused", 120, second_refused),
    ("daemon-names-from-outside", 90, names_from_outside),
    ("daemon-words-that-are-no-text", 90, words_that_are_no_text),
    ("daemon-two-at-a-time", 120, two_at_a_time),
    ("daemon-job-killed-in-training", 120, killed_in_training),
    ("daemon-jobs-killed-while-joining", 120, killed_while_joining(8)),
    ("daemon-jobs-killed-while-joining-tcp", 120, killed_while_joining(4, ["--mca", "btl", "tcp,self"])),
    ("daemon-one-worker-killed", 90, one_worker_killed),
    ("daemon-stop-with-a-job", 90, stop_with_a_job),
    ("daemon-ends-when-empty", 60, ends_when_empty),
    ("daemon-not-there", 90, daemon_not_there),
    ("daemon-stale-directory", 120, stale_directory),
    ("daemon-name-server-wrong-or-dead", 120, name_server_wrong_or_dead),
    ("daemon-server-killed", 90, server_killed(1)),
    ("daemon-server-0-killed", 90, server_killed(0)),
    ("daemon-keeper-killed", 60, keeper_killed),
    ("daemon-start-that-fails", 60, start_that_fails),
    ("daemon-signals", 60, signals),
    ("daemon-checkpoints", 120, checkpoints_of_a_daemon),
    ("daemon-secret", 120, secret_of_a_daemon),
]
