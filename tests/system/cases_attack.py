# SPDX-License-Identifier: Apache-2.0
"""What users do wrong: a model that fails at one worker, values that are not finite, odd files, odd shapes."""
import os
import subprocess

from launch import BUILD, Run, job

PLUGIN = r"""
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "worker/terse_model.h"
typedef struct { unsigned worker; float w[100], g[100]; terse_model_tensor t; } trial;
static int is(const char *what, const trial *m) {
    return atoi(getenv("BAD_WORKER")) == (int)m->worker && getenv("BAD")[0] == what[0];
}
static void *create(const terse_model_context *c, char *message, size_t n) {
    trial *m = calloc(1, sizeof *m);
    m->worker = c->worker;
    m->t = (terse_model_tensor){.name = "w", .shape = {100}, .ndim = 1, .param = m->w, .gradient = m->g};
    if (is("create", m)) snprintf(message, n, "the cupboard is bare");
    return is("create", m) ? NULL : m;
}
static size_t tensors(void *m, const terse_model_tensor **t) { *t = &((trial *)m)->t; return 1; }
static uint64_t steps(void *m) { (void)m; return 0; }
static double step(void *model, uint64_t s) {
    trial *m = model;
    for (int i = 0; i < 100; i++) m->g[i] = m->w[i] - 1;
    if (s == 3 && is("nan", m)) m->g[7] = NAN;
    if (s == 3 && is("gone", m)) m->t.gradient = NULL;
    if (s == 3 && is("long", m)) sleep(3);
    return 1;
}
static void destroy(void *m) { free(m); }
TERSE_MODEL_EXPORT const terse_model *terse_model_plugin(void) {
    static const terse_model table = {.abi = TERSE_MODEL_ABI, .name = "trial", .create = create, .tensors = tensors,
                                      .steps_per_epoch = steps, .step = step, .destroy = destroy};
    return &table;
}
"""


def trial(folder, seconds, bad, sets=()):
    """Trains the plug-in above; worker 1 misbehaves. Returns what was printed."""
    source, plugin, config = (os.path.join(folder, name) for name in ("trial.c", "trial.so", "trial.yaml"))
    with open(source, "w", encoding="utf-8") as file:
        file.write(PLUGIN)
    subprocess.run(["cc", "-shared", "-fPIC", "-I.", "-o", plugin, source, "-lm"], check=True)
    with open(config, "w", encoding="utf-8") as file:
        file.write("training: {data: none, max_steps: 10}\noptimizer: {lr: 0.1, momentum: 0}\n")
    os.environ.update(BAD=bad, BAD_WORKER="1")
    run = Run(job(1, 2, config, sets, ["--plugin", plugin]), seconds)
    code = run.finish()
    assert code is not None, run.text()
    return run.text()


def model_fails(bad, sentence):
    def case(folder, seconds):
        text = trial(folder, seconds, bad)
        assert "worker 1" in text and sentence in text, text
        # the others must not go on without it, and know why
        assert "parameters_xxh3" not in text, text
        assert any("terse-worker 0" in line and sentence in line for line in text.splitlines()), text
    return case


def nan_is_said(folder, seconds):
    text = trial(folder, seconds, "nan", ["error_feedback.nonfinite=skip"])
    assert "parameters_xxh3" in text and "a gradient that is not finite was left out" in text, text


def long_step_is_waited_for(folder, seconds):
    text = trial(folder, seconds, "long", ["consistency.deadline_s=2"])
    assert "parameters_xxh3" in text, text


def devices_stay(folder, seconds):
    """A link stays and its target is written; a device that takes nothing is refused before training and stays, too."""
    target, link = os.path.join(folder, "model.safetensors"), os.path.join(folder, "link")
    with open(target, "w", encoding="utf-8"):
        os.symlink(target, link)
    words = ["training.max_steps=2"]
    run = Run(job(1, 1, "configs/softmax.yaml", words, ["--save", link, "--summary", "/dev/full"]), seconds / 2)
    assert run.finish() is not None and "/dev/full" in run.text(), run.text()
    assert os.path.islink(link) and os.path.getsize(target) == 0 and not os.path.isfile("/dev/full"), run.text()
    run = Run(job(1, 1, "configs/softmax.yaml", words, ["--save", link, "--summary", "/dev/null"]), seconds / 2)
    assert run.finish() == 0, run.text()
    assert os.path.islink(link) and os.path.getsize(target) > 7850 * 4, run.text()


def odd_shapes(folder, seconds):
    config = os.path.join(folder, "odd.yaml")
    with open(os.path.join(folder, "odd.shapes"), "w", encoding="utf-8") as file:
        file.write("".join(f"t{n} {n}\n" for n in (1, 3, 65, 65535, 65537)) + "scalar\n")
        file.write("".join(f"small{i} 1\n" for i in range(3000)))
    with open(config, "w", encoding="utf-8") as file:
        file.write("training: {model: synthetic, data: none, shapes: odd.shapes, max_steps: 3}\n"
                   "push: {default: 'topk:1e-9 | int8 | rice'}\npull: {default: 'topk:1 | fp32'}\n")
    run = Run(job(3, 3, config), seconds)
    assert run.finish() == 0 and "parameters_xxh3" in run.text(), run.text()


def secret(folder, seconds):
    """Who knows the shared secret trains; who does not is told, and the servers name it."""
    paths = []
    for name in ("good", "bad"):
        paths.append(os.path.join(folder, name))
        with open(os.open(paths[-1], os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(f"a secret that is {name}, and long enough\n")
    config, good, bad = "configs/softmax.yaml", *(["--set", f"auth.secret_file={p}"] for p in paths)
    quick = ["--set", "training.max_steps=5", "--set", "consistency.deadline_s=3", "--set", "consistency.start_s=6"]
    words = ["-n", "2", f"{BUILD}/terse-server", config, *quick, *good, ":", "-n", "2", f"{BUILD}/terse-worker", config, *quick,
             *good]
    run = Run(words, seconds)
    code = run.finish()
    assert code == 0 and "test accuracy" in run.text(), f"exit {code}:\n{run.text()}"
    stranger = [":", "-n", "1", f"{BUILD}/terse-worker", config, *quick, *bad]
    for policy, goes_on in (("go_on", True), ("end", False)):
        chosen = ["--set", f"consistency.on_worker_loss={policy}"]
        run = Run([w for word in words for w in ([*chosen, word] if word == ":" else [word])] + chosen + stranger, seconds)
        code = run.finish()
        text = run.text()
        assert code is not None and "does not know the secret" in text and "worker 2" in text, f"exit {code}:\n{text}"
        assert ("test accuracy" in text) == goes_on and "a secret that is" not in text, f"{policy}:\n{text}"
    os.chmod(paths[0], 0o644)
    done = subprocess.run([f"{BUILD}/terse", "check", config, *good], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and "chmod 600" in done.stderr and "auth.secret_file" in done.stderr, done


CASES = [
    ("secret", 40, secret),
    ("model-not-created-at-one-worker", 40, model_fails("create", "the cupboard is bare")),
    ("model-without-gradient-at-one-worker", 40, model_fails("gone", "has no gradient after a step")),
    ("nan-kept-out-is-said", 40, nan_is_said),
    ("step-longer-than-the-deadline", 40, long_step_is_waited_for),
    ("devices-and-links-stay", 40, devices_stay),
    ("odd-shapes", 60, odd_shapes),
]
