#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two sites behind slow links, with and without relays: bench_sites.py [--megabit N] [--delay MS] [--steps N] (--help)

A server in the middle, two sites of two workers each, all on hosts of their own (network namespaces): links inside a site
are fast, each site's link to the middle is shaped both ways. The same training once flat, each worker talking to the
server, and once with a relay in each site (configs/two-racks). A JSON line each, then the ratios.
"""
import argparse
import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from namespaces import Sites, can_run  # noqa: E402

BUILD = os.environ.get("BUILD", "build")
WORLD, RACKS = "configs/two-racks/world.yaml", ("configs/two-racks/rack-a.yaml", "configs/two-racks/rack-b.yaml")
# Host 1: the server. Each site: a relay's host and two workers'.
SITES = ((2, 3, 4), (5, 6, 7))


def measure(network, what, parts, summaries, seconds):
    """Runs and returns bytes over the sites' links, seconds of training, and the hashes of the parameters."""
    before = network.uplinks()
    run = network.mpirun(parts, {}, seconds)
    list(run.lines())
    after = network.uplinks()
    found = []
    for path in summaries:
        try:
            with open(path) as file:
                found.append(json.load(file))
        except (OSError, ValueError):
            print("\n".join(run.said[-40:]), file=sys.stderr)
            raise RuntimeError(f"{what} failed") from None
    moved = sum(a[i] - b[i] for a, b in zip(after, before) for i in (0, 1))
    result = {"what": what, "link_bytes": moved, "wall_s": round(max(s["wall_s"] for s in found), 3),
              "steps": found[0]["steps"], "hashes": sorted({s["parameters_xxh3"] for s in found})}
    print(json.dumps(result), flush=True)
    return result


def compare(network, steps, extra, seconds, folder):
    """Flat, then with relays."""
    steps = ["--set", f"training.max_steps={steps}", *extra]
    flat_words = [WORLD, "--set", "training.batch=64", *steps]
    summary = os.path.join(folder, "flat.json")
    flat = measure(network, "flat", [((1,), [f"{BUILD}/terse-server", *flat_words]),
                                     ((3, 4, 6, 7), [f"{BUILD}/terse-worker", *flat_words, "--summary", summary])],
                   [summary], seconds)
    parts, summaries = [((1,), [f"{BUILD}/terse-server", WORLD])], []
    for site, rack in zip(SITES, RACKS):
        summaries.append(os.path.join(folder, os.path.basename(rack) + ".json"))
        parts.append((site[:1], [f"{BUILD}/terse-relay", rack, *extra]))
        parts.append((site[1:], [f"{BUILD}/terse-worker", rack, *steps, "--summary", summaries[-1]]))
    tiers = measure(network, "with relays", parts, summaries, seconds)
    return flat, tiers


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--megabit", type=int, default=10)
    options.add_argument("--delay", type=int, default=0, help="milliseconds, one way (needs the kernel's netem)")
    options.add_argument("--steps", type=int, default=300)
    args = options.parse_args()
    reason = can_run()
    if reason:
        print(f"bench-sites: skipped: {reason}")
        return 0
    network = Sites(7, SITES, args.megabit, args.delay)
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            flat, tiers = compare(network, args.steps, [], 300, folder)
    finally:
        network.close()
    print(json.dumps({"link_bytes_ratio": round(flat["link_bytes"] / tiers["link_bytes"], 3),
                      "time_ratio": round(flat["wall_s"] / tiers["wall_s"], 3), "megabit": args.megabit,
                      "took_s": round(time.monotonic() - began, 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
