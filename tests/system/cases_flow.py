# SPDX-License-Identifier: Apache-2.0
"""Flow control over mpirun: shares that are far too small slow a job down and change nothing else."""
import json
import os

from launch import BUILD, Run

CONFIG = "configs/fashion-mnist-dense.yaml"


def train(folder, seconds, traffic):
    summary = os.path.join(folder, "summary.json")
    sets = ["--set", f"limits.traffic_bytes={traffic}", "--set", "training.max_steps=20"]
    run = Run(["-n", "2", f"{BUILD}/terse-server", CONFIG] + sets + [":", "-n", "3", f"{BUILD}/terse-worker", CONFIG] +
              sets + ["--summary", summary], seconds)
    code = run.finish()
    assert code == 0, f"exit {code}:\n{run.text()}"
    with open(summary, encoding="utf-8") as file:
        return json.load(file)["parameters_xxh3"], run.text()


def tiny_shares(folder, seconds):
    ample, said = train(folder, seconds, 1 << 31)
    assert "limits.traffic_bytes is full" not in said, said
    tiny, said = train(folder, seconds, 300000)
    assert "limits.traffic_bytes is full" in said and "packets_refused=" in said, said
    assert tiny == ample, f"{tiny} with shares of 100 kB, {ample} with enough"


CASES = [("flow-tiny-shares-same-parameters", 60, tiny_shares)]
