#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of common/codec/STAGES.md from `terse codec list`: stages_table.py [--check]

With --check nothing is written: exits 1 when the tables in the file are others.
"""
import json
import os
import subprocess
import sys

PATH = "common/codec/STAGES.md"
BEGIN, END = "<!-- stages: begin -->", "<!-- stages: end -->"
TITLES = {"transform": "Transforms", "select": "Selectors", "quantise": "Quantisers", "index pack": "Index packs",
          "byte pack": "Byte packs"}


def span(extent):
    """Its two ends, as words."""
    low, high = (f"{extent[end]:,.0f}" if extent["integral"] else f"{extent[end]:g}" for end in ("low", "high"))
    text = f"{low} … {high}" if extent["integral"] else f"above {low}, to {high}" if extent["low_open"] else f"{low} to {high}"
    return text + (", optional" if extent.get("optional") else "")


def cell(text):
    return text.replace("|", "\\|")


def rows(stages):
    yield "| stage | range | what | formula | source |"
    yield "|---|---|---|---|---|"
    for stage in stages:
        args = stage["args"]
        name = stage["name"] + (args.replace("[", "[:") if args.startswith("[") else f":{args}" if args else "")
        ranges = "; ".join(span(extent) for extent in stage["ranges"])
        yield f"| `{name}` | {ranges} | {cell(stage['summary'])} | {cell(stage['formula'])} | {cell(stage['source'])} |"


def main():
    build = os.environ.get("BUILD", "build")
    stages = json.loads(subprocess.run([f"{build}/terse", "codec", "list"], check=True, capture_output=True, text=True).stdout)
    text = []
    for kind, title in TITLES.items():
        text += [f"### {title}", "", *rows([stage for stage in stages if stage["kind"] == kind]), ""]
    table = "\n".join(text).rstrip()
    with open(PATH, encoding="utf-8") as file:
        page = file.read()
    head, rest = page.split(BEGIN)
    there, tail = rest.split(END)
    if "--check" in sys.argv[1:]:
        if there.strip() != table:
            print(f"{PATH}: its tables are not those of `{build}/terse codec list`; tests/tools/stages_table.py writes them")
        return int(there.strip() != table)
    with open(PATH, "w", encoding="utf-8") as file:
        file.write(head + BEGIN + "\n" + table + "\n" + END + tail)
    return 0


if __name__ == "__main__":
    sys.exit(main())
