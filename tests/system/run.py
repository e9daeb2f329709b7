#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""System tests: run.py [-k WORD] [--list]   (from the repository's root, after make)

Every case lies in a table of cases_*.py. A case passes when its function returns; exit codes of mpirun prove
nothing, so each looks at what was printed or written. Closes with "system: N passed, N failed".
"""
import importlib
import glob
import os
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def cases():
    for path in sorted(glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases_*.py"))):
        module = importlib.import_module(os.path.basename(path)[:-3])
        yield from module.CASES


def main():
    words = sys.argv[1:]
    only = words[words.index("-k") + 1] if "-k" in words else ""
    chosen = [c for c in cases() if only in c[0]]
    if "--list" in words:
        for name, seconds, _ in chosen:
            print(f"{name:48} {seconds:4} s")
        return 0
    passed = failed = 0
    for name, seconds, function in chosen:
        began = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="terse-") as folder:
                function(folder, seconds)
            passed += 1
            verdict = "ok"
        except Exception as problem:  # a failing case must not hide the others
            failed += 1
            verdict = "FAILED"
            print("".join(traceback.format_exception_only(type(problem), problem)).rstrip())
        print(f"{verdict:6} {name} ({time.monotonic() - began:.1f} s)", flush=True)
    print(f"system: {passed} passed, {failed} failed")
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
