# SPDX-License-Identifier: Apache-2.0
"""Flow control over mpirun: shares that are far too small slow a job down and change nothing else."""
import json
import os
import re
import subprocess

from launch import BUILD, Run, environment

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


def check(words, code=0):
    done = subprocess.run([f"{BUILD}/terse", "check"] + words, capture_output=True, text=True, env=environment())
    assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout if code == 0 else done.stderr


def placement(folder, seconds):
    """Each server's share of ResNet-50: parameters add up, work is even; hosts of their own or shared."""
    del folder, seconds
    for servers in (1, 2, 5):
        for shared in ([], ["--shared-hosts"]):
            text = check(["configs/bench-resnet50.yaml", "--placement", "--servers", str(servers), "--workers", "4"] + shared)
            elements = [int(n) for n in re.findall(r"server \d+: \d+ tensors, \d+ slices, (\d+) elements", text)]
            assert len(elements) == servers and sum(elements) == 25557032, text
            assert float(re.search(r"above the mean: work ([0-9.]+) %", text).group(1)) < 2, text
            assert ("its host has" in text) == bool(shared), text
    text = check(["configs/bench-resnet50.yaml", "--placement", "--set", "optimizer.name=lamb"])
    assert "is not cut" in text, text
    text = check(["configs/fashion-mnist.yaml", "--set", "push.default=delta:64 | linear:4", "--set", "push.rules=[]", "--set",
                  "error_feedback.momentum_correction=0", "--set", "error_feedback.warmup.steps=0"])
    assert "delta keeps" in text and "535818 parameters" in text, text
    assert "a number from 1 to 4096" in check(["configs/linear.yaml", "--servers", "0"], 2)
    assert "known to the program alone" in check(["configs/linear.yaml", "--placement"], 2)
    assert "are known" not in check(["configs/linear.yaml"])


CASES = [("check-placement", 20, placement),
         ("flow-tiny-shares-same-parameters", 60, tiny_shares)]
