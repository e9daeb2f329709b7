#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/vectors/optimizer-*: what PyTorch's optimizers make of 100 steps of the same gradients, in float32 and in
float64. Needs PyTorch (Debian: python3-torch), which no test does. Knows nothing of the C code.

  optimizer-start.f32, optimizer-gradients.f32   read: ELEMS values; STEPS times ELEMS, step by step
  optimizer-NAME.f32, optimizer-NAME.f64         written: the parameters after the last step, computed in either precision
  optimizer-cases.txt                            written: a case a line: NAME KEY=VALUE..., the keys of the configuration

torch.optim computes SGD, AdaGrad, RMSProp, Adam and AdamW, torch.optim.lr_scheduler the schedules, and torch.nn.utils
clips. It has no decoupled decay for SGD, which is here what its AdamW
does, p.mul_(1 - lr * weight_decay) before the step, and no LAMB: You et al. 2020, algorithm 2, in the same operations on
tensors as torch.optim's Adam.
"""
import array
import os
import sys

import torch

ELEMS, STEPS = 173, 100  # not a multiple of any vector's width

CASES = [  # name, hyper-parameters; what is not given has torch.optim's default
    ("sgd", dict(lr=0.1)),
    ("sgd-decay", dict(lr=0.1, weight_decay=0.01)),
    ("sgd-decoupled", dict(lr=0.1, weight_decay=0.01, decoupled_weight_decay=True)),
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
    ("momentum-stepped", dict(lr=0.05, momentum=0.9, schedule=dict(name="step", every_steps=30, gamma=0.3))),
    ("momentum-cosine", dict(lr=0.05, momentum=0.9, schedule=dict(name="cosine", min_lr=0.001))),
    ("adamw-cosine", dict(lr=0.01, schedule=dict(name="cosine", warmup_steps=20))),
    ("adam-warm", dict(lr=0.01, schedule=dict(warmup_steps=40))),
    ("lamb-stepped", dict(lr=0.02, schedule=dict(name="step", every_steps=25, gamma=0.5, warmup_steps=10))),
    ("momentum-clipped", dict(lr=0.05, momentum=0.9, clip_norm=2.0)),
    ("adagrad-clipped", dict(lr=0.05, clip_value=0.3)),
    ("adamw-clipped", dict(lr=0.01, clip_value=1.0, clip_norm=1.8)),
]
NAMES = {"momentum": "sgd", "nesterov": "sgd"}


class Lamb(torch.optim.Optimizer):
    """One tensor, bias correction, no bounds on the ratio."""

    def __init__(self, params, lr=0.001, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["t"] += 1
                state["m"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                state["v"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                divisor = state["v"].sqrt().div_((1 - beta2 ** state["t"]) ** 0.5).add_(group["eps"])
                u = state["m"].div(1 - beta1 ** state["t"]).div_(divisor).add_(p, alpha=group["weight_decay"])
                p.add_(u, alpha=-group["lr"] * float(p.norm() / u.norm()))


def optimizer_of(name, given, w):
    """The optimizer, and what it does not do itself: the factor of a decoupled decay, or 1."""
    given = dict(given)
    decoupled = given.pop("decoupled_weight_decay", False)
    kept = 1.0
    if name == "adam" and decoupled:
        name = "adamw"
    elif decoupled:
        kept = 1 - given["lr"] * given.pop("weight_decay")
    if name in ("adam", "adamw", "lamb"):
        given["betas"] = (given.pop("beta1", 0.9), given.pop("beta2", 0.999))
    kind = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "rmsprop": torch.optim.RMSprop,
            "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "lamb": Lamb}[name]
    return kind([w], **given), kept


def schedule_of(optimizer, wanted):
    """Of torch.optim.lr_scheduler; the warm-up before the rest."""
    rates = torch.optim.lr_scheduler
    warmup, name, parts = wanted.get("warmup_steps", 0), wanted.get("name", "constant"), []
    if warmup:
        parts.append(rates.LinearLR(optimizer, start_factor=1 / warmup, end_factor=1, total_iters=warmup - 1))
    if name == "step":
        parts.append(rates.StepLR(optimizer, step_size=wanted["every_steps"], gamma=wanted["gamma"]))
    elif name == "cosine":
        parts.append(rates.CosineAnnealingLR(optimizer, T_max=STEPS - warmup, eta_min=wanted.get("min_lr", 0)))
    else:
        parts.append(rates.ConstantLR(optimizer, factor=1))
    return rates.SequentialLR(optimizer, parts, milestones=[warmup]) if warmup else parts[0]


def run(name, given, start, gradients, dtype):
    w = torch.nn.Parameter(start.to(dtype, copy=True))
    given = dict(given)
    value, norm, wanted = given.pop("clip_value", 0), given.pop("clip_norm", 0), given.pop("schedule", {})
    optimizer, kept = optimizer_of(name, given, w)
    schedule = schedule_of(optimizer, wanted)
    for gradient in gradients:
        w.grad = gradient.to(dtype, copy=True)
        if value:
            torch.nn.utils.clip_grad_value_([w], value)
        if norm:
            torch.nn.utils.clip_grad_norm_([w], norm)
        if kept != 1.0:
            with torch.no_grad():
                w.mul_(kept)
        optimizer.step()
        schedule.step()
    assert w.dtype == dtype
    return w.detach()


def read(path, count):
    values = array.array("f")
    with open(path, "rb") as file:
        values.fromfile(file, count)
    return torch.tensor(values.tolist(), dtype=torch.float32)


def write(path, tensor, code):
    with open(path, "wb") as file:
        array.array(code, tensor.tolist()).tofile(file)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "tests/vectors"
    start = read(os.path.join(folder, "optimizer-start.f32"), ELEMS)
    gradients = read(os.path.join(folder, "optimizer-gradients.f32"), STEPS * ELEMS).reshape(STEPS, ELEMS)
    lines = []
    for case, given in CASES:
        kind = case.split("-")[0]
        name = NAMES.get(kind, kind)
        exact = run(name, given, start, gradients, torch.float64)
        brief = run(name, given, start, gradients, torch.float32)
        write(os.path.join(folder, f"optimizer-{case}.f64"), exact, "d")
        write(os.path.join(folder, f"optimizer-{case}.f32"), brief, "f")
        said = dict(given)
        if name == "sgd":  # terse's defaults for sgd are not PyTorch's
            said.setdefault("momentum", 0)
        said.update({"schedule." + k: v for k, v in said.pop("schedule", {}).items()})
        text = {k: v if isinstance(v, str) else str(v).lower() if isinstance(v, bool) else repr(v) for k, v in said.items()}
        lines.append(" ".join([case, f"optimizer.name={name}"] + [f"optimizer.{k}={v}" for k, v in text.items()]))
        off = float((brief.double() - exact).norm() / exact.norm())
        print(f"{case}: PyTorch's float32 is off its float64 by {off:.2e}")
    with open(os.path.join(folder, "optimizer-cases.txt"), "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
