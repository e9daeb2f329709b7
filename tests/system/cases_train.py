# SPDX-License-Identifier: Apache-2.0
"""Training over mpirun: every combination of ranks works, and the bits do not depend on them where they must not."""
import json
import os
import re
import signal
import struct
import subprocess
import time

from launch import BUILD, Run, environment, job, kill, not_with_a_sanitizer
from safetensors_reader import read_safetensors

MLP = "configs/fashion-mnist.yaml"
SOFTMAX = "configs/softmax.yaml"


def train(folder, seconds, servers, workers, config, sets=(), words=()):
    """Trains, expects success, returns the summary."""
    summary = os.path.join(folder, f"summary-{servers}-{workers}-{len(os.listdir(folder))}.json")
    run = Run(job(servers, workers, config, sets, ["--summary", summary] + list(words)), seconds)
    code = run.finish()
    assert code == 0, f"mpirun ended with {code} after {run.took:.0f} s:\n{run.text()}"
    with open(summary, encoding="utf-8") as file:
        return json.load(file)


def ranks_case(servers, workers):
    def case(folder, seconds):
        got = train(folder, seconds, servers, workers, SOFTMAX, ["training.max_steps=25"])
        assert got["workers"] == workers and got["servers"] == servers and got["steps"] == 25, got
        assert got["parameters"] == 7850, got
        assert got["dense_bytes"] == workers * 25 * 7850 * 8, got
        assert abs(got["ratio"] - got["dense_bytes"] / (got["push_bytes"] + got["pull_bytes"])) < 1e-6 * got["ratio"]
        assert got["test_accuracy"] > 0.5, got
    return (f"train-softmax-{servers}-servers-{workers}-workers", 60, case)


def more_servers_than_slices(folder, seconds):
    got = train(folder, seconds, 4, 1, SOFTMAX, ["training.max_steps=10"])
    assert got["servers"] == 4 and got["steps"] == 10, got


def same_bits(folder, seconds):
    sets = ["training.max_steps=40", "servers.slice_elems=50000", "error_feedback.warmup.steps=20"]
    seen = {}
    for name, servers in (("first", 2), ("again", 2), ("one server", 1), ("three servers", 3)):
        seen[name] = train(folder, seconds, servers, 3, MLP, sets)["parameters_xxh3"]
    assert len(set(seen.values())) == 1, seen
    other = train(folder, seconds, 2, 3, MLP, sets + ["training.seed=2"])["parameters_xxh3"]
    assert other not in seen.values(), "another seed gave the same parameters"


def threads_of(text, who):
    """How many threads each process says that it works with."""
    return set(re.findall(rf'from={who} .* threads=(\w+)', text))


def one_thread_or_several(folder, seconds):
    """Where rounds are closed and who moves the bytes changes no bit; a wait that outlasts the patience of one thread ends."""
    seen = {}
    for name, push in (("dense", ["push.default=dense", "push.rules=[]"]), ("sparse", [])):
        sets = ["training.max_steps=80", "log.level=debug", "servers.slice_elems=50000"] + push
        for threads in ("one", "several"):
            summary = os.path.join(folder, f"{name}-{threads}.json")
            words = job(2, 3, MLP, sets, ["--summary", summary])
            for at in [words.index(":") + 1, 0]:
                words[at:at] = ["-x", f"TERSE_THREADS={threads}"]
            run = Run(words, seconds)
            stops = 0
            for _ in range(3):  # the others wait, first awake and then asleep
                if run.wait_for("who moves the bytes", 30) and 4 in run.ranks():
                    kill(run.ranks()[4], signal.SIGSTOP)
                    time.sleep(0.3)
                    kill(run.ranks()[4], signal.SIGCONT)
                    stops += 1
                time.sleep(0.2)
            assert run.finish() == 0 and stops > 0, run.text()
            assert threads_of(run.text(), "loop") == threads_of(run.text(), "terse") == {threads}, run.text()
            with open(summary, encoding="utf-8") as file:
                seen[name, threads] = json.load(file)["parameters_xxh3"]
        assert seen[name, "one"] == seen[name, "several"], seen


def exact_pulls(folder, seconds):
    """New values where something changed give the bits of dense pulls, for a small part of their bytes."""
    sets = ["training.max_steps=60", "pull.rules=[]", "error_feedback.warmup.steps=0"]
    seen = {pull: train(folder, seconds, 2, 3, MLP, sets + [f"pull.default={pull}"])
            for pull in ("dense", "exact", "exact | bitmap | zstd:1")}
    assert len({got["parameters_xxh3"] for got in seen.values()}) == 1, seen
    assert len({got["train_loss"] for got in seen.values()}) == 1, seen
    pulled = {pull: got["pull_bytes"] for pull, got in seen.items()}
    assert pulled["exact"] * 30 < pulled["dense"], pulled
    for more in (["consistency.mode=ssp", "consistency.staleness=2"], ["consistency.mode=asp"]):
        got = train(folder, seconds, 2, 3, MLP, sets + more + ["pull.default=exact | rice"])
        assert got["pull_bytes"] * 10 < pulled["dense"] and got["test_accuracy"] > 0.5, got


def stacks(folder, seconds):
    """Pushes through stages of every kind train, each within the bytes that it promises."""
    dense = None
    for push, least in (("dense", 1), ("topk:0.01 | qsgd:4 | rice", 1.8), ("powersgd:2 | fp16", 1.8), ("delta:64 | linear:4 | huffman", 1.6),
                        ("topk:0.001 | int4 | rice | zstd:3", 1.8)):
        got = train(folder, seconds, 2, 2, MLP, ["training.max_steps=60", f"push={{default: '{push}', rules: []}}",
                                                 "pull={default: dense, rules: []}"])
        assert got["steps"] == 60 and got["test_accuracy"] > 0.5, (push, got)
        dense = dense or got["push_bytes"] + got["pull_bytes"]
        assert dense >= least * (got["push_bytes"] + got["pull_bytes"]), (push, dense, got)


def without_feedback(folder, seconds):
    """What draws keeps the expectation when nothing is kept for later: a tenth of the elements at random, ten times as large,
    learns like all of them; a tenth of them as they are would not."""
    sets = ["training.max_steps=150", "error_feedback={enabled: false}", "optimizer={name: sgd, lr: 0.02, momentum: 0}",
            "pull={default: dense, rules: []}"]
    loss = {push: train(folder, seconds, 1, 2, SOFTMAX, sets + [f"push={{default: '{push}', rules: []}}"])["train_loss"]
            for push in ("dense", "randomk:0.1", "bernoulli:0.1")}
    assert max(loss.values()) < 1.15 * loss["dense"], loss


def save_is_what_the_servers_hold(folder, seconds):
    path = os.path.join(folder, "model.safetensors")
    got = train(folder, seconds, 2, 2, SOFTMAX, ["training.max_steps=10"], ["--save", path])
    tensors = read_safetensors(path)
    assert all(t["dtype"] == "F32" for t in tensors.values()), tensors.keys()
    assert sum(t["elements"] for t in tensors.values()) == got["parameters"], tensors.keys()
    assert any(any(b) for b in (t["bytes"] for t in tensors.values())), "all parameters are zero"


def quadratic(folder, seconds):
    """Issue-independent known answer: f(w) = 0.5 |w - w*|^2, 60 steps of plain SGD at lr 0.1, one worker."""
    payload = {}
    for pipeline, expected, tolerance in (("dense", 0.05563, 0.00001), ("topk:0.1 | fp32", 0.01192, 0.00001)):
        config = os.path.join(folder, "quadratic.yaml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"training: {{data: none}}\noptimizer: {{name: sgd, lr: 0.1, momentum: 0}}\n"
                       f"push: {{default: '{pipeline}'}}\n")
        run = Run(["-n", "1", f"{BUILD}/terse-server", config, ":", "-n", "1", f"{BUILD}/examples/quadratic", config,
                   "tests/vectors/quadratic-optimum.f32"], seconds)
        code = run.finish()
        text = run.text()
        verdict = [line.split() for line in text.splitlines() if line.startswith("distance ")]
        assert code == 0 and verdict, f"exit {code}:\n{text}"
        distance = float(verdict[0][1])
        payload[pipeline] = int(verdict[0][3])
        assert abs(distance - expected) <= tolerance, f"{pipeline}: {distance} instead of {expected}"
    assert payload["dense"] >= 8 * payload["topk:0.1 | fp32"], payload


def readme_trainer(folder, seconds):
    """The 40-line trainer of README, compiled against an installed Terse and run."""
    not_with_a_sanitizer()
    with open("README.md", encoding="utf-8") as file:
        readme = file.read()
    code = readme.split("```c\n", 1)[1].split("```", 1)[0]
    assert code.count("\n") <= 40, "the README's trainer has more than 40 lines"
    with open("worker/examples/linear.c", encoding="utf-8") as file:
        assert file.read().split("\n", 1)[1] == code, "README's trainer and worker/examples/linear.c differ"
    program = os.path.join(folder, "my_trainer")
    with open(program + ".c", "w", encoding="utf-8") as file:
        file.write(code)
    prefix = os.path.join(folder, "prefix")
    subprocess.run(["make", "-s", "install", f"PREFIX={prefix}", f"BUILD={BUILD}"], check=True, capture_output=True)
    env = dict(environment(), PKG_CONFIG_PATH=f"{prefix}/lib/pkgconfig")
    line = readme.split("Build it after `make install` with `", 1)[1].split("`", 1)[0]
    subprocess.run(line, shell=True, check=True, cwd=folder, env=env)
    run = Run(["-n", "2", f"{prefix}/bin/terse-server", "configs/linear.yaml", ":", "-x",
               f"LD_LIBRARY_PATH={prefix}/lib", "-n", "3", program, "configs/linear.yaml"], seconds)
    assert run.finish() == 0, run.text()
    assert "final loss" in run.text(), run.text()
    assert float(run.text().split("final loss")[1].split()[0]) < 1e-3, run.text()


def plugin_installed(folder, seconds):
    """The build line in the plug-in example's own comment, against an installed Terse below a DESTDIR."""
    with open("worker/examples/plugin_linear.c", encoding="utf-8") as file:
        source = file.read()
    line = next(words.strip(" *\n") for words in source.splitlines() if words.strip(" *").startswith("cc "))
    with open(os.path.join(folder, "plugin_linear.c"), "w", encoding="utf-8") as file:
        file.write(source)
    root = os.path.join(folder, "root")
    subprocess.run(["make", "-s", "install", f"DESTDIR={root}", "PREFIX=/usr", f"BUILD={BUILD}"], check=True,
                   capture_output=True)
    assert os.path.exists(f"{root}/usr/share/terse/openmpi.conf")
    env = dict(environment(), PKG_CONFIG_PATH=f"{root}/usr/lib/pkgconfig", PKG_CONFIG_SYSROOT_DIR=root)
    subprocess.run(line, shell=True, check=True, cwd=folder, env=env)
    got = train(folder, seconds, 1, 2, "configs/linear.yaml", ["training.max_steps=50"],
                ["--plugin", os.path.join(folder, "plugin_linear.so")])
    assert got["steps"] == 50, got


def plugin(folder, seconds):
    got = train(folder, seconds, 1, 2, "configs/linear.yaml", ["training.max_steps=300"],
                ["--plugin", f"{BUILD}/examples/plugin_linear.so"])
    assert got["steps"] == 300 and got["train_loss"] < 0.01, got


WEIGHED = r"""
#include <stdint.h>
#include <stdlib.h>
#include "worker/terse_model.h"
/* f(w) = ½ (w - c)², c the worker's number, its mean over 1 + 9·worker samples. */
typedef struct { unsigned worker; float w[1], g[1]; terse_model_tensor t; } weighed;
static void *create(const terse_model_context *c, char *message, size_t n) {
    (void)message, (void)n;
    weighed *m = calloc(1, sizeof *m);
    m->worker = c->worker;
    m->t = (terse_model_tensor){.name = "w", .shape = {1}, .ndim = 1, .param = m->w, .gradient = m->g};
    return m;
}
static size_t tensors(void *m, const terse_model_tensor **t) { *t = &((weighed *)m)->t; return 1; }
static uint64_t steps(void *m) { (void)m; return 0; }
static double step(void *model, uint64_t s) {
    weighed *m = model;
    (void)s;
    m->g[0] = m->w[0] - (float)m->worker;
    return 0;
}
static void destroy(void *m) { free(m); }
#ifdef FIRST_ABI /* as it was then: a table that ends here, and whatever stands behind it */
typedef struct {
    uint32_t abi; const char *name; void *(*create)(const terse_model_context *, char *, size_t);
    size_t (*tensors)(void *, const terse_model_tensor **); uint64_t (*steps_per_epoch)(void *);
    double (*step)(void *, uint64_t); void (*evaluate)(void *, const float *const *, uint32_t, uint32_t, double *, double *);
    void (*destroy)(void *);
} first_model;
static const struct { first_model model; uintptr_t behind; } table =
    {{1, "weighed", create, tensors, steps, step, NULL, destroy}, 0x1234};
TERSE_MODEL_EXPORT const void *terse_model_plugin(void) { return &table; }
#else
static uint32_t samples(void *m) { return 1 + 9 * ((weighed *)m)->worker; }
TERSE_MODEL_EXPORT const terse_model *terse_model_plugin(void) {
    static const terse_model table = {.abi = TERSE_MODEL_ABI, .name = "weighed", .create = create, .tensors = tensors,
                                      .steps_per_epoch = steps, .step = step, .destroy = destroy, .samples = samples};
    return &table;
}
#endif
"""


def samples_weigh(folder, seconds):
    """The optimum of uneven data: the servers weigh by what the model says; a plug-in that says nothing weighs 1."""
    source, saved = os.path.join(folder, "weighed.c"), os.path.join(folder, "w.safetensors")
    with open(source, "w", encoding="utf-8") as file:
        file.write(WEIGHED)
    weighed, plain = (1 * 0 + 10 * 1 + 19 * 2) / 30, 1.0
    for flags, mode, optimum in ((), "samples", weighed), ((), "mean", plain), (["-DFIRST_ABI"], "samples", plain):
        plug = os.path.join(folder, f"weighed-{mode}-{len(flags)}.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-I.", *flags, "-o", plug, source], check=True)
        config = os.path.join(folder, "weighed.yaml")
        with open(config, "w", encoding="utf-8") as file:
            file.write("training: {data: none, max_steps: 60}\noptimizer: {lr: 0.4, momentum: 0}\n"
                       f"aggregation: {{mode: {mode}}}\n")
        train(folder, seconds, 1, 3, config, words=["--plugin", plug, "--save", saved])
        (got,) = struct.unpack("<f", read_safetensors(saved)["w"]["bytes"])
        assert abs(got - optimum) < 1e-5, (flags, mode, got, optimum)


def samples_at_the_remainder(folder, seconds):
    """Built-in models: weighed or scaled, the mean over all samples of a step is the same."""
    sets = ["training.batch=2142", "training.epochs=2", "optimizer.momentum=0", "push.default=dense", "push.rules=[]",
            "pull.default=dense", "pull.rules=[]", "error_feedback.momentum_correction=0"]  # 60000 = 4 * 7 * 2142 + 24
    weights = {}
    for mode in ("mean", "samples"):
        saved = os.path.join(folder, mode)
        train(folder, seconds, 1, 7, SOFTMAX, sets + [f"aggregation.mode={mode}"], ["--save", saved])
        data = b"".join(t["bytes"] for t in read_safetensors(saved).values())
        weights[mode] = struct.unpack(f"<{len(data) // 4}f", data)
    off = max(abs(a - b) for a, b in zip(*weights.values()))
    assert 0 < off < 1e-5 * max(map(abs, weights["mean"])), off


def what_has_no_effect_is_told(folder, seconds):
    """A rule that no tensor falls under, and a batch that is larger than a worker's data, each once."""
    def told(sets):
        run = Run(job(2, 2, SOFTMAX, ["training.max_steps=2"] + sets), seconds)
        assert run.finish() == 0, run.text()
        return run.text()
    quiet = told([])
    assert "is not used" not in quiet and "share of the data" not in quiet, quiet
    text = told(["push.rules=[{match: nothing.*, pipeline: int8}]", "training.batch=40000"])
    assert text.count("push.rules[0] (match nothing.*, pipeline int8) is the rule of none of the 2 tensors") == 1, text
    assert text.count("batch=40000 share=30000 samples=60000 workers=2") == 1, text


def cnn_learns(folder, seconds):
    got = train(folder, seconds, 2, 2, "configs/cnn.yaml", ["training.max_steps=60"])
    assert got["test_accuracy"] > 0.6, got


def bench_model_runs(folder, seconds):
    got = train(folder, seconds, 2, 2, "configs/bench-resnet50.yaml", ["training.max_steps=3"])
    assert got["parameters"] == 25557032 and got["steps"] == 3, got


CASES = [ranks_case(s, w) for s in (1, 2, 3) for w in (1, 2, 3, 5)] + [
    ("train-stacks", 150, stacks),
    ("train-without-feedback", 90, without_feedback),
    ("more-servers-than-slices", 60, more_servers_than_slices),
    ("same-bits-again-and-with-1-2-3-servers", 60, same_bits),
    ("one-thread-or-several-give-the-same-bits", 90, one_thread_or_several),
    ("exact-pulls-give-the-bits-of-dense-ones", 90, exact_pulls),
    ("save-is-what-the-servers-hold", 60, save_is_what_the_servers_hold),
    ("quadratic-known-answer", 60, quadratic),
    ("readme-trainer", 60, readme_trainer),
    ("plugin", 60, plugin),
    ("samples-weigh-gradients", 60, samples_weigh),
    ("samples-weigh-at-the-remainder", 60, samples_at_the_remainder),
    ("plugin-against-an-installed-terse", 60, plugin_installed),
    ("what-has-no-effect-is-told", 60, what_has_no_effect_is_told),
    ("cnn-learns", 90, cnn_learns),
    ("bench-resnet50-runs", 120, bench_model_runs),
]
