#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""System tests over mpirun. Run from the repository's root, after make; BUILD names the build's folder.

Every case lies in a table of cases_*.py. A case passes when its function returns; exit codes of mpirun prove
nothing, so each looks at what was printed or written. Closes with "system: N passed, N failed".
"""
import argparse
import fnmatch
import glob
import importlib
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


def run(chosen):
    passed = failed = skipped = 0
    for name, seconds, function in chosen:
        began = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="terse-") as folder:
                function(folder, seconds)
            passed += 1
            verdict = "ok"
        except Skipped as reason:
            skipped += 1
            verdict = "skip"
            print(f"{name}: {reason}")
        except Exception as problem:  # a failing case must not hide the others
            failed += 1
            verdict = "FAILED"
            print("".join(traceback.format_exception_only(type(problem), problem)).rstrip())
        print(f"{verdict:6} {name} ({time.monotonic() - began:.1f} s)", flush=True)
    print(f"system: {passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 0 if failed == 0 and passed > 0 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    parser.add_argument("case", nargs="*", help="name or shell pattern, as 'server-*'; none: all cases")
    parser.add_argument("-k", metavar="WORD", default="", help="of these, those whose name holds WORD")
    parser.add_argument("--list", action="store_true", help="print names and time limits, run nothing")
    words = parser.parse_args()
    chosen = [c for c in choose(list(cases()), words.case) if words.k in c[0]]
    if words.list:
        for name, seconds, _ in chosen:
            print(f"{name:48} {seconds:4} s")
        return 0
    return run(chosen)


if __name__ == "__main__":
    sys.exit(main())
