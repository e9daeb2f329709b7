# SPDX-License-Identifier: Apache-2.0
"""terse doctor: what it finds, and that each finding comes with its remedy."""
import json
import os
import subprocess

from launch import BUILD, Run, environment

TERSE = f"{BUILD}/terse"


def alone(*words, **variables):
    env = {k: v for k, v in environment().items() if not k.startswith("OMPI_MCA_")}
    env.update(variables)
    done = subprocess.run([TERSE, "doctor", *words], capture_output=True, text=True, timeout=30, env=env)
    return done


def findings(text):
    return {line["what"]: line for line in map(json.loads, text.strip().split("\n"))}


def this_host(folder, seconds):
    del folder, seconds
    done = alone("--json")
    found = findings(done.stdout)
    assert done.returncode == (1 if any(f["verdict"] == "FAIL" for f in found.values()) else 0), done
    for what in ("mpirun", "ompi-server", "recovery", "interfaces", "host name", "shared memory", "locked memory", "binding"):
        assert what in found, done.stdout
    assert found["recovery"]["verdict"] == "ok" and found["mpirun"]["verdict"] != "FAIL", done.stdout
    assert all(f["fix"] for f in found.values() if f["verdict"] != "ok"), done.stdout


def what_is_missing(folder, seconds):
    """Nothing on PATH, and no file of flags here: each is named with its remedy."""
    del seconds
    done = subprocess.run([os.path.abspath(TERSE), "doctor", "--json"], capture_output=True, text=True, timeout=30, cwd=folder,
                          env={"PATH": folder})
    found = findings(done.stdout)
    assert done.returncode == 1, done
    assert found["mpirun"]["verdict"] == "FAIL" and "openmpi-bin" in found["mpirun"]["fix"], done.stdout
    assert found["recovery"]["verdict"] == "warn" and "--tune" in found["recovery"]["fix"], done.stdout
    if os.geteuid() == 0:
        assert found["root"]["verdict"] == "FAIL" and "OMPI_ALLOW_RUN_AS_ROOT" in found["root"]["fix"], done.stdout


def bad_words(folder, seconds):
    del folder, seconds
    for words in (["--deadline", "0"], ["--deadline"], ["here"]):
        done = alone(*words)
        assert done.returncode == 2 and done.stderr.startswith("terse doctor: "), done


def ranks(folder, seconds):
    del folder
    run = Run(["-n", "3", TERSE, "doctor"], seconds)
    code = run.finish()
    text = run.text()
    assert code == 0 and "peers: heard all 3 ranks" in text and "FAIL" not in text, f"exit {code}:\n{text}"


def bad_settings(folder, seconds):
    """A launch whose flags are wrong: every rank says so."""
    del folder
    run = Run(["--mca", "btl_tcp_eager_limit", "4096", "--mca", "btl", "tcp,self", "--mca", "async_mpi_finalize", "0",
               "--mca", "mpi_event_tick_rate", "-1", "-n", "2", TERSE, "doctor", "--json"], seconds)
    run.finish()
    lines = [json.loads(line) for line in run.text().split("\n") if line.startswith("{")]
    for rank in range(2):
        mine = {line["what"]: line for line in lines if line["where"].startswith(f"rank {rank} ")}
        for what in ("recovery", "eager limits"):
            assert mine[what]["verdict"] == "FAIL" and mine[what]["fix"], run.text()
        for what in ("transport in a host", "sockets"):
            assert mine[what]["verdict"] == "warn", run.text()


def nobody_there(folder, seconds):
    """A rank that is no MPI program: the doctor leaves at its deadline, and says what it waited for."""
    del folder
    run = Run(["-n", "1", TERSE, "doctor", "--deadline", "2", ":", "-n", "1", "sleep", "12"], seconds)
    code = run.finish()
    assert code is not None and "MPI_Init did not return" in run.text(), f"exit {code}:\n{run.text()}"


CASES = [
    ("doctor-this-host", 30, this_host),
    ("doctor-what-is-missing", 30, what_is_missing),
    ("doctor-bad-words", 20, bad_words),
    ("doctor-ranks", 30, ranks),
    ("doctor-bad-settings", 30, bad_settings),
    ("doctor-nobody-there", 30, nobody_there),
]
