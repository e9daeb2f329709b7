#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""House rules that a compiler does not see: SPDX lines, file lengths, unique file names. Exits 1 on a fault."""
import collections
import os
import subprocess
import sys

LONGEST = 600


def main():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], capture_output=True,
                            text=True, check=False).stdout.split("\n")
    files = [f for f in listed if f.endswith((".c", ".h", ".py", ".sh", ".proto", ".mk")) and os.path.exists(f)]
    faults = []
    names = collections.defaultdict(list)
    for path in files:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
        if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:3]):
            faults.append(f"{path}: no SPDX line at its head")
        if len(lines) > LONGEST:
            faults.append(f"{path}: {len(lines)} lines; the limit is {LONGEST}: split it by what it does")
        names[os.path.basename(path)].append(path)
    faults += [f"{name}: not unique: {', '.join(paths)}" for name, paths in names.items() if len(paths) > 1]
    for line in faults:
        print(line)
    print(f"source: {len(files)} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
