#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""System tests over mpirun. Run from the repository's root, after make; BUILD names the build's folder.

Every case lies in a table of cases_*.py. A case passes when its function returns; exit codes of mpirun prove
nothing, so each looks at what was printed or written. A case with "alone" behind its function has the machine to
itself. Closes with "system: N passed, N failed".
"""
import argparse
import fnmatch
import glob
import importlib
import multiprocessing
import multiprocessing.connection
import os
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from launch import Skipped  # noqa: E402


def cases():
    for path in sorted(glob.glob(os.path.join(HERE, "cases_*.py"))):
        module = importlib.import_module(os.path.basename(path)[:-3])
        yield from module.CASES


def choose(known, patterns):
    """The cases that some pattern names, in the tables' order. A pattern that names none is an error."""
    names = {pattern: {c[0] for c in known if fnmatch.fnmatchcase(c[0], pattern)} for pattern in patterns}
    for pattern, found in names.items():
        if not found:
            sys.exit(f"run.py: {pattern}: no case has this name; --list shows them all")
    return [c for c in known if not patterns or any(c[0] in found for found in names.values())]


def sanitizer_reports():
    """What processes of a sanitizer's build have written since this was asked last (make system SAN=…)."""
    place, text = os.environ.get("TERSE_SANITIZER_LOG"), ""
    for path in sorted(glob.glob(place + ".*")) if place else []:
        with open(path, encoding="utf-8", errors="replace") as file:
            text += file.read()
        os.unlink(path)
    return text


def attempt(name, seconds, function):
    """Runs a case. Returns its verdict ("ok", "skip", "FAILED") and what there is to say."""
    try:
        with tempfile.TemporaryDirectory(prefix="terse-") as folder:
            function(folder, seconds)
        reports = sanitizer_reports()
        return ("FAILED", reports) if reports else ("ok", "")
    except Skipped as reason:
        return "skip", f"{name}: {reason}"
    except Exception as problem:  # a failing case must not hide the others
        return "FAILED", "".join(traceback.format_exception_only(type(problem), problem)).rstrip() + sanitizer_reports()


class Beside:
    """A case under way in a process of its own."""

    def __init__(self, case):
        self.name = case[0]
        self.began = time.monotonic()
        self.verdict, there = multiprocessing.Pipe(duplex=False)
        self.process = multiprocessing.get_context("fork").Process(target=lambda: there.send(attempt(*case[:3])))
        self.process.start()
        there.close()

    def result(self):
        """Once there is something to read."""
        try:
            verdict, text = self.verdict.recv()
        except EOFError:
            verdict, text = "FAILED", "the process of the case ended before it had a verdict"
        self.process.join()
        return verdict, text, time.monotonic() - self.began


def results(chosen, at_once):
    """Verdicts as they come, of up to `at_once` cases beside each other; those that want to be alone come last."""
    if at_once == 1:
        for case in chosen:
            began = time.monotonic()
            verdict, text = attempt(*case[:3])
            yield case[0], verdict, text, time.monotonic() - began
        return
    alone = [c for c in chosen if "alone" in c[3:]]
    waiting, running = [c for c in chosen if c not in alone], []
    while waiting or running:
        while waiting and len(running) < at_once:
            running.append(Beside(waiting.pop(0)))
        for pipe in multiprocessing.connection.wait([r.verdict for r in running]):
            case = next(r for r in running if r.verdict is pipe)
            running.remove(case)
            yield (case.name, *case.result())
    yield from results(alone, 1)


def run(chosen, at_once):
    count = {"ok": 0, "FAILED": 0, "skip": 0}
    for name, verdict, text, seconds in results(chosen, at_once):
        count[verdict] += 1
        if text:
            print(text)
        print(f"{verdict:6} {name} ({seconds:.1f} s)", flush=True)
    print(f"system: {count['ok']} passed, {count['FAILED']} failed" + (f", {count['skip']} skipped" if count["skip"] else ""))
    return 0 if count["FAILED"] == 0 and count["ok"] > 0 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    parser.add_argument("case", nargs="*", help="name or shell pattern, as 'server-*'; none: all cases")
    parser.add_argument("-k", metavar="WORD", default="", help="of these, those whose name holds WORD")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="so many cases beside each other (1)")
    parser.add_argument("--list", action="store_true", help="print names and time limits, run nothing")
    words = parser.parse_args()
    if words.at_once < 1:
        parser.error("--at-once takes a whole number from 1 on")
    chosen = [c for c in choose(list(cases()), words.case) if words.k in c[0]]
    if words.list:
        for name, seconds, *_ in chosen:
            print(f"{name:48} {seconds:4} s")
        return 0
    return run(chosen, words.at_once)


if __name__ == "__main__":
    sys.exit(main())
