# SPDX-License-Identifier: Apache-2.0
"""The MPI transport alone, over mpirun: floods through shared memory and TCP, deaths in the middle, absent ranks."""
import json
import re

from launch import BUILD, Run

TCP = ["--mca", "btl", "tcp,self"]
# Sockets that hold less than a message, so that a credit is often still under way when the next one falls due: it must
# be sent when that is over, since the peer's window may be used up and nothing else be left to come.
NARROW = TCP + ["--mca", "btl_tcp_sndbuf", "8192", "--mca", "btl_tcp_rcvbuf", "8192"]
VERDICT = re.compile(r"^transport_check: rank (\d+) of (\d+) (ok|WRONG) .*bells=(\d)", re.M)


def check(ranks, words, through, seconds):
    """Runs transport_check; returns its output and the ranks that reported success."""
    run = Run(through + ["-n", str(ranks), f"{BUILD}/transport_check"] + words, seconds)
    code = run.finish()
    text = run.text()
    assert code is not None, f"did not end within {seconds} s:\n{text}"
    verdicts = VERDICT.findall(text)
    assert all(v[2] == "ok" for v in verdicts), text
    return text, sorted(int(v[0]) for v in verdicts)


def flood(ranks, words, through=()):
    def case(folder, seconds):
        del folder
        text, good = check(ranks, words, list(through), seconds)
        assert good == list(range(ranks)), text
    return case


def near(through, mebibytes):
    """How far a step may be ahead of its answers on one host: what caches hold, or what sockets take."""
    def case(folder, seconds):
        del folder
        text, _ = check(3, ["frames=10"], list(through), seconds)
        assert re.findall(r" near=(\d+)$", text, re.M) == 3 * [str(mebibytes << 20)], text
    return case


def death(victim, through=()):
    def case(folder, seconds):
        del folder
        text, good = check(4, ["frames=60", f"kill={victim}", "deadline=8"], list(through), seconds)
        assert good == [r for r in range(4) if r != victim], text
        assert f"(rank {victim} on " in text, text
    return case


def absent(victim, sentence):
    """The others say who is missing, and end the job, though the absent one sleeps on."""
    def case(folder, seconds):
        del folder
        run = Run(["-n", "3", f"{BUILD}/transport_check", f"absent={victim}", "deadline=2"], seconds)
        code = run.finish()
        assert sentence in run.text(), run.text()
        assert code is not None, f"still there after {seconds} s:\n{run.text()}"
    return case


def no_mpi_program(folder, seconds):
    del folder
    run = Run(["-n", "1", f"{BUILD}/transport_check", "deadline=2", ":", "-n", "1", "sleep", "8"], seconds)
    run.finish()
    assert "rank 0 of 2" in run.text() and "MPI_Init did not return within 6 s" in run.text(), run.text()


def benchmark(through):
    """The benchmark beside bare MPI does its work; what it measures is no matter of a test."""
    def case(folder, seconds):
        del folder
        run = Run(list(through) + ["-n", "2", f"{BUILD}/bench_transport", "rounds=20", "idle=1"], seconds)
        run.finish()
        told = [json.loads(line) for line in run.text().splitlines() if line.startswith("{")]
        assert {"round_trip_us", "sleepy_us", "stream_gb_s", "idle_cpu"} <= {t["what"] for t in told}, run.text()
    return case


CASES = [
    ("transport floods, shared memory", 60, flood(4, ["frames=100"])),
    ("transport floods, TCP", 60, flood(4, ["frames=60"], TCP)),
    ("transport, how far ahead", 40, near([], 2)),
    ("transport, how far ahead, TCP", 40, near(TCP, 16)),
    ("transport, small windows", 60, flood(3, ["frames=60", "window=100000"])),
    ("transport, small windows, TCP", 60, flood(3, ["frames=60", "window=100000"], TCP)),
    ("transport, credits that fall due while one is under way", 60,
     flood(3, ["frames=40", "window=100000", "deadline=10"], NARROW)),
    ("transport, frames over one side's limit", 60, flood(3, ["frames=60", "small=1"])),
    ("transport, frames over one side's limit, TCP", 60, flood(3, ["frames=60", "small=1"], TCP)),
    ("transport, a flood is one turn", 40, flood(3, ["frames=400", "turns=1"])),
    ("transport, a flood is one turn, TCP", 40, flood(3, ["frames=60", "turns=1"], TCP)),
    ("transport, who is ahead waits for others, TCP", 40, flood(4, ["frames=120", "ahead=1"], TCP)),
    ("transport, workers of two jobs", 60, flood(7, ["frames=20", "jobs=2"])),
    ("transport in a program's own MPI", 60, flood(4, ["frames=40", "user=1"])),
    ("transport, a rank alone", 30, flood(1, ["frames=10"])),
    ("transport, a rank is killed, shared memory", 40, death(2)),
    ("transport, a rank is killed, TCP", 40, death(1, TCP)),
    ("transport, a rank does not join", 30, absent(1, "rank 1 of 3 did not join within 2 s")),
    ("transport, rank 0 does not join", 30, absent(0, "rank 0 did not answer the roll call within 2 s")),
    ("transport, a program without MPI", 30, no_mpi_program),
    ("transport, the benchmark, shared memory", 60, benchmark([])),
    ("transport, the benchmark, TCP", 60, benchmark(TCP)),
]
