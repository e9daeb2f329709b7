# SPDX-License-Identifier: Apache-2.0
"""Consistency over mpirun: workers of unequal speed under each mode, and training that reaches what it should."""
import json
import os
import re
import subprocess

from launch import Run, job
from cases_train import MLP, SOFTMAX, train

PLUGIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "worker/terse_model.h"
typedef struct { unsigned worker; float w[200], g[200]; terse_model_tensor t; } uneven;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec; }
static void *create(const terse_model_context *c, char *message, size_t n) {
    (void)message, (void)n;
    uneven *m = calloc(1, sizeof *m);
    m->worker = c->worker;
    m->t = (terse_model_tensor){.name = "w", .shape = {200}, .ndim = 1, .param = m->w, .gradient = m->g};
    return m;
}
static size_t tensors(void *m, const terse_model_tensor **t) { *t = &((uneven *)m)->t; return 1; }
static uint64_t steps(void *m) { (void)m; return 1000; } /* an epoch's report is a barrier: there is none */
static double step(void *model, uint64_t s) {
    uneven *m = model;
    fprintf(stderr, "step %u %llu %.6f\n", m->worker, (unsigned long long)s, now());
    if (m->worker == 1) usleep(50000);
    double loss = 0;
    for (int i = 0; i < 200; i++) { m->g[i] = m->w[i] - 1; loss += 0.5 * m->g[i] * m->g[i]; }
    return loss;
}
static void destroy(void *m) { free(m); }
TERSE_MODEL_EXPORT const terse_model *terse_model_plugin(void) {
    static const terse_model table = {.abi = TERSE_MODEL_ABI, .name = "uneven", .create = create, .tensors = tensors,
                                      .steps_per_epoch = steps, .step = step, .destroy = destroy};
    return &table;
}
"""
STEPS = 20


def uneven(folder, seconds, sets):
    """Worker 1 of 3 computes 50 ms longer. Returns the summary, and when worker w began step s."""
    source, plugin, config, summary = (os.path.join(folder, "uneven" + end) for end in (".c", ".so", ".yaml", ".json"))
    with open(source, "w", encoding="utf-8") as file:
        file.write(PLUGIN)
    subprocess.run(["cc", "-shared", "-fPIC", "-I.", "-o", plugin, source, "-lm"], check=True)
    with open(config, "w", encoding="utf-8") as file:
        file.write(f"training: {{data: none, max_steps: {STEPS}}}\noptimizer: {{lr: 0.3, momentum: 0}}\n")
    run = Run(job(2, 3, config, list(sets) + ["servers.slice_elems=64"], ["--plugin", plugin, "--summary", summary]),
              seconds)
    assert run.finish() == 0 and "parameters_xxh3" in run.text(), run.text()
    began = {(int(w), int(s)): float(t) for w, s, t in re.findall(r"step (\d) (\d+) ([\d.]+)\n", run.text())}
    assert len(began) == 3 * STEPS, run.text()
    with open(summary, encoding="utf-8") as file:
        return json.load(file), began


def lead(began):
    """How many steps a fast worker was ahead of the slow one, at most."""
    return max(step - max((s for s in range(STEPS) if began[1, s] <= at), default=0)
               for (worker, step), at in began.items() if worker != 1)


def uneven_case(least, most, *sets):
    def case(folder, seconds):
        ahead = lead(uneven(folder, seconds, sets)[1])
        # what a fast worker waits for is the slow one's push, which comes a moment before its next step
        assert least <= ahead <= most + 1, f"{ahead} steps ahead, expected {least} to {most}"
    return case


def straggler_case(*sets):
    """Two of three are enough: the fast ones do not wait, rounds are lost to the slow one, and all learn."""
    def case(folder, seconds):
        got, began = uneven(folder, seconds, sets + ("consistency.quorum=2",))
        assert lead(began) >= 8 and got["lost_rounds"] >= 8, (lead(began), got)
        # the slow one's last losses are those of a problem that is nearly solved
        assert got["train_loss"] < 50, got
    return case


def training_case(config, accuracy, *sets):
    def case(folder, seconds):
        got = train(folder, seconds, 2, 3, config, sets)
        assert got["test_accuracy"] > accuracy, got
    return case


CASES = [
    ("consistency-bsp-waits-for-the-slow", 60, uneven_case(0, 0, "consistency.mode=bsp")),
    ("consistency-ssp-stays-within-its-bound", 60, uneven_case(2, 3, "consistency.mode=ssp", "consistency.staleness=3")),
    ("consistency-asp-waits-for-nobody", 60, uneven_case(8, STEPS, "consistency.mode=asp")),
    ("consistency-backup-workers", 60, straggler_case("consistency.stragglers=backup")),
    ("consistency-backup-workers-late-applied", 60, straggler_case("consistency.stragglers=backup",
                                                                   "consistency.late=apply")),
    ("consistency-proceed-after-a-deadline", 60, straggler_case("consistency.stragglers=proceed",
                                                                "consistency.straggler_s=0.01")),
    ("consistency-backup-trains-compressed", 120, training_case(
        MLP, 0.75, "training.max_steps=200", "consistency.stragglers=backup", "consistency.quorum=2")),
    ("consistency-ssp-trains", 90, training_case(SOFTMAX, 0.75, "training.max_steps=150", "consistency.mode=ssp",
                                                 "consistency.staleness=4")),
    ("consistency-asp-trains-compressed", 120, training_case(MLP, 0.75, "training.max_steps=200", "consistency.mode=asp")),
]
