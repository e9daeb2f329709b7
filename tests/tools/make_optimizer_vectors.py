#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/vectors/optimizer-*: 100 steps of each optimizer on the same gradients, computed from the formulas in
PyTorch's documentation of torch.optim (LAMB: You et al. 2020, algorithm 2), in float64 and in float32. Knows nothing of
the C code.

  optimizer-start.f32, optimizer-gradients.f32   ELEMS values; STEPS times ELEMS, step by step
  optimizer-NAME.f32, optimizer-NAME.f64         the parameters after the last step, computed in either precision
  optimizer-cases.txt                            a case a line: NAME KEY=VALUE..., the keys of the configuration
"""
import os
import sys

import numpy as np

ELEMS, STEPS = 173, 100  # not a multiple of any vector's width

CASES = [  # name, hyper-parameters; what is not given has torch.optim's default
    ("sgd", dict(lr=0.1)),
    ("sgd-decay", dict(lr=0.1, weight_decay=0.01)),
    ("momentum", dict(lr=0.02, momentum=0.9)),
    ("momentum-decay", dict(lr=0.02, momentum=0.9, weight_decay=0.01)),
    ("momentum-decoupled", dict(lr=0.02, momentum=0.9, weight_decay=0.1, decoupled_weight_decay=True)),
    ("nesterov", dict(lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.01)),
    ("adagrad", dict()),
    ("adagrad-decay", dict(lr=0.05, weight_decay=0.1, eps=1e-6)),
    ("rmsprop", dict()),
    ("rmsprop-momentum", dict(momentum=0.8, alpha=0.9, weight_decay=0.01)),
    ("rmsprop-centered", dict(centered=True, eps=1e-4)),
    ("rmsprop-all", dict(lr=0.003, centered=True, momentum=0.5, alpha=0.95, weight_decay=0.01, eps=1e-3)),
    ("adam", dict()),
    ("adam-decay", dict(lr=0.01, beta1=0.8, beta2=0.99, weight_decay=0.1, eps=1e-6)),
    ("adam-decoupled", dict(lr=0.01, weight_decay=0.1, decoupled_weight_decay=True)),
    ("adamw", dict()),
    ("adamw-decay", dict(lr=0.02, beta1=0.7, weight_decay=0.2)),
    ("lamb", dict()),
    ("lamb-decay", dict(lr=0.02, weight_decay=0.1, beta2=0.98)),
]
NAMES = {"momentum": "sgd", "nesterov": "sgd"}
DEFAULTS = {
    "sgd": dict(momentum=0.0, weight_decay=0.0),
    "adagrad": dict(lr=0.01, weight_decay=0.0, eps=1e-10),
    "rmsprop": dict(lr=0.01, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0),
    "adam": dict(lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0),
    "adamw": dict(lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01),
    "lamb": dict(lr=0.001, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.01),
}


def decay(name, w, g, p, scalar):
    """Weight decay as a gradient, or beside it."""
    wd = p["weight_decay"]
    if name == "lamb" or wd == 0:
        return w, g
    if name == "adamw" or p.get("decoupled_weight_decay"):
        return w * scalar(1 - p["lr"] * wd), g
    return w, g + scalar(wd) * w


def step_sgd(w, g, p, state, t, scalar):
    if p["momentum"] == 0:
        return w - scalar(p["lr"]) * g
    state["v"] = g if t == 1 else scalar(p["momentum"]) * state["v"] + g
    step = g + scalar(p["momentum"]) * state["v"] if p.get("nesterov") else state["v"]
    return w - scalar(p["lr"]) * step


def step_adagrad(w, g, p, state, t, scalar):
    state["sum"] = state.get("sum", scalar(0)) + g * g
    return w - scalar(p["lr"]) * g / (np.sqrt(state["sum"]) + scalar(p["eps"]))


def step_rmsprop(w, g, p, state, t, scalar):
    alpha, less = scalar(p["alpha"]), scalar(1 - p["alpha"])
    state["v"] = alpha * state.get("v", scalar(0)) + less * (g * g)
    spread = state["v"]
    if p.get("centered"):
        state["mean"] = alpha * state.get("mean", scalar(0)) + less * g
        spread = spread - state["mean"] * state["mean"]
    average = np.sqrt(spread) + scalar(p["eps"])
    if p["momentum"] == 0:
        return w - scalar(p["lr"]) * (g / average)
    state["b"] = scalar(p["momentum"]) * state.get("b", scalar(0)) + g / average
    return w - scalar(p["lr"]) * state["b"]


def moments(g, p, state, scalar):
    state["m"] = scalar(p["beta1"]) * state.get("m", scalar(0)) + scalar(1 - p["beta1"]) * g
    state["v"] = scalar(p["beta2"]) * state.get("v", scalar(0)) + scalar(1 - p["beta2"]) * (g * g)


def step_adam(w, g, p, state, t, scalar):
    moments(g, p, state, scalar)
    m = state["m"] / scalar(1 - p["beta1"] ** t)
    v = state["v"] / scalar(1 - p["beta2"] ** t)
    return w - scalar(p["lr"]) * m / (np.sqrt(v) + scalar(p["eps"]))


def step_lamb(w, g, p, state, t, scalar):
    moments(g, p, state, scalar)
    m = state["m"] / scalar(1 - p["beta1"] ** t)
    v = state["v"] / scalar(1 - p["beta2"] ** t)
    u = m / (np.sqrt(v) + scalar(p["eps"])) + scalar(p["weight_decay"]) * w
    ratio = np.linalg.norm(w) / np.linalg.norm(u)
    return w - scalar(p["lr"]) * scalar(ratio) * u


STEP = {"sgd": step_sgd, "adagrad": step_adagrad, "rmsprop": step_rmsprop, "adam": step_adam, "adamw": step_adam,
        "lamb": step_lamb}


def run(name, p, start, gradients, scalar):
    w, state = start.astype(scalar), {}
    for t in range(1, STEPS + 1):
        kept, g = decay(name, w, gradients[t - 1].astype(scalar), p, scalar)
        w = STEP[name](kept, g, p, state, t, scalar)
        assert w.dtype == scalar, (name, w.dtype)
    return w


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "tests/vectors"
    random = np.random.default_rng(20)
    start = random.standard_normal(ELEMS).astype(np.float32)
    scale = np.exp(random.standard_normal(ELEMS))  # elements of different size, and some that rarely have a gradient
    gradients = random.standard_normal((STEPS, ELEMS)) * scale * 0.1 + 0.02
    gradients[:, ::7] *= random.random((STEPS, len(range(0, ELEMS, 7)))) < 0.1
    gradients = gradients.astype(np.float32)
    start.tofile(os.path.join(folder, "optimizer-start.f32"))
    gradients.tofile(os.path.join(folder, "optimizer-gradients.f32"))
    lines = []
    for case, given in CASES:
        kind = case.split("-")[0]
        name = NAMES.get(kind, kind)
        p = {**DEFAULTS[name], **given}
        exact = run(name, p, start, gradients, np.float64)
        brief = run(name, p, start, gradients, np.float32)
        exact.tofile(os.path.join(folder, f"optimizer-{case}.f64"))
        brief.tofile(os.path.join(folder, f"optimizer-{case}.f32"))
        said = dict(given)
        if name == "sgd":  # terse's defaults for sgd are not PyTorch's
            said.setdefault("momentum", 0)
        text = {k: str(v).lower() if isinstance(v, bool) else repr(v) for k, v in said.items()}
        lines.append(" ".join([case, f"optimizer.name={name}"] + [f"optimizer.{k}={v}" for k, v in text.items()]))
        print(f"{case}: float32 is off by {np.linalg.norm(brief - exact) / np.linalg.norm(exact):.2e}")
    with open(os.path.join(folder, "optimizer-cases.txt"), "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
