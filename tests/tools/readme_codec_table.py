#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes README's codec table from the benchmark: readme_codec_table.py [BENCH.json]

Without a file it runs `terse bench codec --json` itself (minutes; keep the machine quiet). The table lies between two
markers in README.md.
"""
import json
import os
import subprocess
import sys

BEGIN, END = "<!-- codec table: begin -->", "<!-- codec table: end -->"


def rows(results):
    yield "| pipeline | bytes | ratio | relative error | encode GB/s | over the sweep | decode-add GB/s | over the sweep |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for r in results:
        yield (f"| `{r['pipeline'].replace('|', chr(92) + '|')}` | {r['bytes']:,} | {r['ratio']:,.1f} | "
               f"{r['relative_error']:.3g} | {r['encode_gbps']:.3g} | {r['encode_over_sweep']:.2f} | "
               f"{r['decode_add_gbps']:.3g} | {r['decode_add_over_sweep']:.2f} |")


def cpu():
    """The kind of CPU, as the kernel tells it."""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        facts = dict([part.strip() for part in line.split(":", 1)] for line in lines if ":" in line)
    kind = " ".join(f"{key.removeprefix('cpu ')} {facts[key]}" for key in ("cpu family", "model") if key in facts)
    return f"{facts.get('model name', 'an unknown CPU')} ({kind})" if kind else facts.get("model name", "an unknown CPU")


def main():
    if len(sys.argv) > 1:
        with open(sys.argv[1], encoding="utf-8") as file:
            results = json.load(file)
    else:
        build = os.environ.get("BUILD", "build")
        results = json.loads(subprocess.run([f"{build}/terse", "bench", "codec", "--json"], check=True,
                                            capture_output=True, text=True).stdout)
    first = results[0]
    table = [f"{first['n']:,} floats, one core of {cpu()}, {first['simd']}, with error feedback; "
             f"medians of {first['runs']} runs. The sweep is the bare `e += g` on the same buffers in the same run ({1000 * first['sweep_s']:.1f} ms). Relative "
             "error is ‖g − C(g)‖ / ‖g‖ of one gradient; error feedback sends the rest later.", ""] + list(rows(results))
    with open("README.md", encoding="utf-8") as file:
        readme = file.read()
    head, rest = readme.split(BEGIN)
    _, tail = rest.split(END)
    with open("README.md", "w", encoding="utf-8") as file:
        file.write(head + BEGIN + "\n" + "\n".join(table) + "\n" + END + tail)
    return 0


if __name__ == "__main__":
    sys.exit(main())
