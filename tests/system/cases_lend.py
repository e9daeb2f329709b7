# SPDX-License-Identifier: Apache-2.0
"""Gradients that a step sends from where they lie are the program's again when it returns, however it does."""
from launch import BUILD, Run

TCP = ["--mca", "btl", "tcp,self"]
SETTINGS = ["push.default=dense", "pull.default=dense", "error_feedback.enabled=false", "optimizer.lr=0.5", "optimizer.momentum=0",
            "optimizer.weight_decay=0"]


def refused_step(threads, workers, through):
    def case(folder, seconds):
        del folder
        sets = [word for s in SETTINGS for word in ("--set", s)]
        config = "configs/bench-resnet50.yaml"
        run = Run(through + ["-x", f"TERSE_THREADS={threads}", "-n", "1", f"{BUILD}/terse-server", config] + sets +
                  [":", "-x", f"TERSE_THREADS={threads}", "-n", str(workers), f"{BUILD}/lend_check", config] + sets, seconds)
        code = run.finish()
        assert code == 0, f"exit {code}:\n{run.text()}"
        for w in range(workers):
            assert f"lend_check: worker {w} ok" in run.text(), run.text()
    return case


CASES = [("lend, a step is refused in the middle, one thread", 40, refused_step("one", 1, [])),
         ("lend, a step is refused in the middle, several threads", 40, refused_step("several", 2, [])),
         ("lend, a step is refused in the middle, TCP", 40, refused_step("one", 2, TCP))]
