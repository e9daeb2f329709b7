#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes README's tables of what positions and exact values cost: codec_sizes_table.py [--check]

All of it is sizes, so any machine gives the same; --check compares README with them instead (a version of Zstandard may
differ by two in a hundred) and exits 1 when they differ. The tables lie between two markers in README.md.
"""
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

BEGIN, END = "<!-- sizes: begin -->", "<!-- sizes: end -->"
TERSE = os.path.join(os.environ.get("BUILD", "build"), "terse")
GRADIENTS = "tests/vectors/gradients"
WHOLE = "4294967295"
SHARES = ((0.1, 2_000_000), (0.01, 4_000_000), (0.001, 10_000_000), (0.0001, 25_000_000))
LOSSLESS = ("fp32 | huffman", "fp32 | rle8 | huffman", "fp32 | zstd:1", "fp32 | zstd:9", "fp32 | zstd:19")


def sizes(folder, source, pipeline, slice_elems=WHOLE):
    """What `terse codec inspect` says of the file's packets."""
    packet = os.path.join(folder, "g.tp")
    subprocess.run([TERSE, "codec", "encode", "--pipeline", pipeline, "--slice-elems", slice_elems, source, packet], check=True)
    return json.loads(subprocess.run([TERSE, "codec", "inspect", packet], check=True, capture_output=True, text=True).stdout)


def independent(k, n, draw):
    """Each of n places with probability k / n."""
    at, scale = -1, math.log1p(-k / n)
    while True:
        at += 1 + int(math.log(1 - draw.random()) / scale)
        if at >= n:
            return
        yield at


def clustered(k, n, draw):
    """The same number in runs of 40 with gaps of at most 3."""
    chosen = set()
    while len(chosen) < k:
        at = draw.randrange(n - 200)
        for _ in range(40):
            at += 1 + draw.randrange(4)
            chosen.add(at)
    return sorted(chosen)


def entropy(k, n):
    """log2 of the number of sets of k among n, an index."""
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2) / k


def index_bits(folder, places, n, slice_elems=WHOLE):
    """How many positions there are, and what `rice` takes for each."""
    source, count = os.path.join(folder, "places.f32"), 0
    with open(source, "wb") as file:
        file.truncate(4 * n)
        for at in places:
            file.seek(4 * at)
            file.write(struct.pack("<f", 1.0))
            count += 1
    got = sizes(folder, source, "threshold:0.5 | sign | rice", slice_elems)
    assert got["values"] == count, (got["values"], count)
    return count, 8 * sum(part["index_bytes"] for part in got["slices"]) / count


def index_rows(folder):
    yield "| share sent | entropy | `rice`, independent | in slices of 262,144 | `rice`, clustered |"
    yield "|---:|---:|---:|---:|---:|"
    for share, n in SHARES:
        k, whole = index_bits(folder, independent(share * n, n, random.Random(5)), n)
        _, cut = index_bits(folder, independent(share * n, n, random.Random(5)), n, "262144")
        _, runs = index_bits(folder, clustered(share * n, n, random.Random(5)), n)
        yield f"| {100 * share:g} % | {entropy(k, n):.2f} | {whole:.2f} | {cut:.2f} | {runs:.2f} |"


def lossless_rows(folder):
    names = sorted(name for name in os.listdir(GRADIENTS) if name.endswith(".f32"))
    yield "| pipeline | " + " | ".join(f"`{name.removesuffix('.f32')}`" for name in names) + " | all, by size |"
    yield "|---|" + "---:|" * (len(names) + 1)
    for pipeline in LOSSLESS:
        dense = [os.path.getsize(os.path.join(GRADIENTS, name)) for name in names]
        packed = [sizes(folder, os.path.join(GRADIENTS, name), pipeline)["bytes"] for name in names]
        ratios = [d / p for d, p in zip(dense, packed)] + [sum(dense) / sum(packed)]
        yield f"| `{pipeline.replace('|', chr(92) + '|')}` | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |"


def alike(here, there):
    """The same words, and numbers within two in a hundred."""
    number = re.compile(r"\d+\.\d+")
    a, b = number.findall(here), number.findall(there)
    return number.sub("#", here) == number.sub("#", there) and len(a) == len(b) and all(
        abs(float(x) - float(y)) <= 0.02 * float(x) for x, y in zip(a, b))


def main():
    with tempfile.TemporaryDirectory() as folder:
        table = "\n".join(["Bits a position:", "", *index_rows(folder), "",
                           "What is left of float32 without losing a bit, dense bytes / packed bytes:", "",
                           *lossless_rows(folder)])
    with open("README.md", encoding="utf-8") as file:
        readme = file.read()
    head, rest = readme.split(BEGIN)
    there, tail = rest.split(END)
    if "--check" in sys.argv[1:]:
        if alike(table.strip(), there.strip()):
            return 0
        print(f"README.md: the tables of sizes are not what {TERSE} gives; tests/tools/codec_sizes_table.py writes\n{table}")
        return 1
    with open("README.md", "w", encoding="utf-8") as file:
        file.write(head + BEGIN + "\n" + table + "\n" + END + tail)
    return 0


if __name__ == "__main__":
    sys.exit(main())
