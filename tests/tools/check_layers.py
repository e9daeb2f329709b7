#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that includes and symbols point down only: check_layers.py [BUILD]

Prints each upward arrow and exits 1 when there is one. The layers are those of ARCHITECTURE.md.
"""
import glob
import os
import re
import subprocess
import sys

# What each folder may include besides itself.
ALLOWED = {
    "common/base": set(),
    "common/codec": {"common/base"},
    "common/wire": {"common/base"},
    "common/net": {"common/base"},
    "common/contract": {"common/base", "common/codec", "common/wire"},
    "common/ckpt": {"common/base", "common/codec", "common/contract"},
    "common/keep": {"common/base", "common/codec", "common/contract", "common/ckpt"},
    "common/metrics": {"common/base"},
    "common/config": {"common/base", "common/codec", "common/wire", "common/contract"},
    "common/cli": {"common/base", "common/codec", "common/wire", "common/net", "common/contract", "common/ckpt", "common/keep",
                   "common/config", "common/metrics"},
    "server": {"common/base", "common/codec", "common/wire", "common/net", "common/contract", "common/ckpt",
               "common/config", "common/metrics"},
    "common/relay": {"common/base", "common/net", "common/contract", "common/config", "server", "worker/client"},
    "worker": {"common/base"},
    "worker/client": {"worker", "common/base", "common/codec", "common/wire", "common/net", "common/contract",
                      "common/ckpt", "common/keep", "common/config", "common/metrics"},
    "worker/models": {"worker", "worker/data", "common/base", "common/config"},
    "worker/data": {"common/base"},
    "worker/trainer": {"worker", "worker/models", "worker/data", "common/base", "common/ckpt", "common/config"},
    "worker/examples": {"worker"},
}
MPI_FILES = re.compile(r"^common/net/mpi_\w+\.c$")
UV_FILES = re.compile(r"^(common/net/pump\.[ch]|server/loop\.[ch]|worker/client/comm_thread\.[ch])$")
PURE = ["base", "codec", "wire", "contract", "ckpt", "keep", "config", "metrics"]


def check_includes():
    faults = 0
    for path in sorted(glob.glob("common/**/*.[ch]", recursive=True) + glob.glob("server/**/*.[ch]", recursive=True) +
                       glob.glob("worker/**/*.[ch]", recursive=True)):
        folder = os.path.dirname(path)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for included in re.findall(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', text, re.M):
            if included == "mpi.h" and not MPI_FILES.match(path) and folder != "worker/examples":
                faults += fault(path, "includes <mpi.h>; only the MPI back end (common/net/mpi_*.c) may")
            if included == "uv.h" and not UV_FILES.match(path):
                faults += fault(path, "includes <uv.h>; only the pump, the programs' loops and the client's thread may")
            target = os.path.dirname(included)
            if not target.startswith(("common", "server", "worker")) or target == folder:
                continue
            if folder not in ALLOWED:
                faults += fault(path, "lies in a folder that no layer names")
            elif target not in ALLOWED[folder]:
                faults += fault(path, f"includes {included}: {folder} may not know {target}")
    return faults


def check_symbols(build):
    faults = 0
    for layer in PURE:
        for path in glob.glob(f"{build}/obj/common/{layer}/*.o"):
            undefined = subprocess.run(["nm", "-u", path], capture_output=True, text=True, check=True).stdout
            for symbol in re.findall(r"\bU (MPI_\w+|ompi_\w+|uv_\w+)", undefined):
                faults += fault(path, f"calls {symbol}; the {layer} layer is pure")
    library = f"{build}/libterse.so"
    if os.path.exists(library):
        defined = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True,
                                 check=True).stdout
        for symbol in re.findall(r" [A-Z] (\w+)", defined):
            if not symbol.startswith("terse_") or symbol.startswith("terse__"):
                faults += fault(library, f"exports {symbol}; only terse_* may be visible")
    return faults


def fault(path, what):
    print(f"{path}: {what}")
    return 1


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    faults = check_includes() + check_symbols(build)
    print(f"layers: {'clean' if faults == 0 else str(faults) + ' upward arrows'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
