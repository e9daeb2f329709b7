#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory of a server at 100 M parameters with sparse pushes: bench_memory.py [STEPS]

One server, two workers, the synthetic model with the tensors of a transformer. For each optimizer a JSON line: the
server's peak of resident memory beside the arrays it cannot do without (parameters, reference, optimizer state), what
its own account says of it (the state dump), and what `terse check` foretold. Exits 1 when the peak is more than 10 %
above the arrays.
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))
from launch import BUILD, Run, environment, kill  # noqa: E402

MOST_ABOVE = 0.10
CASES = [("sgd, momentum at the workers", "{name: sgd, lr: 0.01, momentum: 0.9}", "{momentum_correction: 0.9}", 2),
         ("sgd, momentum", "{name: sgd, lr: 0.01, momentum: 0.9}", "{momentum_correction: 0}", 3),
         ("adam", "{name: adam}", "{momentum_correction: 0}", 4)]


def shapes():
    """About 100 million parameters in the proportions of a language model."""
    width, lines = 768, ["embedding.weight 20000 768"]
    for layer in range(12):
        for name, rows, columns in (("query", 1, 1), ("key", 1, 1), ("value", 1, 1), ("out", 1, 1), ("up", 4, 1), ("down", 1, 4)):
            lines += [f"layer{layer}.{name}.weight {rows * width} {columns * width}", f"layer{layer}.{name}.bias {rows * width}"]
    return lines


def count(lines):
    total = 0
    for line in lines:
        n = 1
        for extent in line.split()[1:]:
            n *= int(extent)
        total += n
    return total


def peak_bytes(pid):
    """VmHWM, or 0 when the process is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            found = re.search(r"VmHWM:\s+(\d+) kB", file.read())
    except OSError:
        return 0
    return int(found.group(1)) * 1024 if found else 0


def watch(run, steps):
    """The server's peak, and its dump when most of the training is over."""
    server, peak, dumped = None, 0, False
    began = time.monotonic()
    while run.process.poll() is None and time.monotonic() - began < run.seconds:
        if server is None and "training starts" in run.text():
            server = run.ranks().get(0)
            started = time.monotonic()
        if server is not None:
            now = peak_bytes(server)
            peak = max(peak, now)
            if not dumped and time.monotonic() - started > 1 + steps * 0.1:
                kill(server, signal.SIGUSR2)
                dumped = True
        time.sleep(0.05)
    return peak


def foretold(config):
    text = subprocess.run([f"{BUILD}/terse", "check", config, "--servers", "1", "--workers", "2"], capture_output=True,
                          text=True, check=True, env=environment()).stdout
    value, unit = re.search(r"at most ([0-9.]+) (\w+) a server", text).groups()
    return float(value) * {"kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]


def measure(folder, case, steps):
    name, optimizer, feedback, arrays = case
    config = os.path.join(folder, "memory.yaml")
    lines = shapes()
    with open(os.path.join(folder, "memory.shapes"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    with open(config, "w", encoding="utf-8") as file:
        file.write(f"training: {{model: synthetic, data: none, shapes: memory.shapes, epochs: 1, max_steps: {steps}}}\n"
                   f"optimizer: {optimizer}\nerror_feedback: {feedback}\n"
                   "push: {default: topk:0.001 | int8 | rice}\npull: {default: topk:0.001 | int8 | rice}\n")
    run = Run(["-n", "1", f"{BUILD}/terse-server", config, ":", "-n", "2", f"{BUILD}/terse-worker", config], 300)
    peak = watch(run, steps)
    code = run.finish()
    text = run.text()
    account = re.search(r"memory in all: (\d+) bytes of (\d+) resident", text)
    if code != 0 or peak == 0 or not account:
        print(text)
        return False
    parameters = count(lines)
    need = arrays * 4 * parameters
    above = peak / need - 1
    print(json.dumps({"what": "server memory", "optimizer": name, "parameters": parameters, "workers": 2, "steps": steps,
                      "arrays": arrays, "arrays_bytes": need, "peak_bytes": peak, "above_arrays_percent": round(100 * above, 2),
                      "counted_bytes": int(account.group(1)), "resident_then_bytes": int(account.group(2)),
                      "foretold_bytes": int(foretold(config))}), flush=True)
    return above <= MOST_ABOVE


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="?", type=int, default=40)
    steps = parser.parse_args().steps
    good = True
    with tempfile.TemporaryDirectory(prefix="terse-") as folder:
        for case in CASES:
            good = measure(folder, case, steps) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
