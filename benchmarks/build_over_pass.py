"""A cold default build of a task beside one float pass of its calibration samples, in one run.

    python benchmarks/build_over_pass.py SHARED TASK [--target edge-4t] [--rounds 1]

SHARED holds `models`, `data`, `models2` and `data2`, TASK is one of defaults.py. The pass is onnxruntime's,
fp32, one thread, one sample at a time; the build is `npuflow build` in a process of its own with an empty
cache, its kernels compiled before by a build that is not measured. Printed: clock and processor seconds (all
processes) of both, and the clock seconds of every stage that judges networks, and of all that take a second.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
from builds import Events, built
from defaults import Task, recipe


def passed(model: Path, samples: Path) -> tuple[float, float]:
    """Clock and processor seconds of the float network on all samples."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    stacked = dict(np.load(samples))
    count = len(next(iter(stacked.values())))
    clock, processor = time.perf_counter(), time.process_time()
    for i in range(count):
        session.run(None, {name: array[i] for name, array in stacked.items()})
    return time.perf_counter() - clock, time.process_time() - processor


JUDGING = ("baseline", "sensitivity", "precision", "correct")


def by_stage(events: Events) -> Counter[str]:
    """Clock seconds of every stage that ran."""
    spent: Counter[str] = Counter()
    for event in events:
        if event["event"] == "step" and event["status"] == "ran":
            spent[event["stage"]] += event["seconds"]
    return spent


def stages(events: Events) -> str:
    """The same in a line, those that judge first, with their sum."""
    spent = by_stage(events)
    judging = {stage: spent.pop(stage, 0.0) for stage in JUDGING}
    others = {stage: seconds for stage, seconds in spent.most_common() if seconds >= 1}
    listed = (", ".join(f"{k} {v:.1f}" for k, v in some.items()) for some in (judging, others))
    return f"judging {sum(judging.values()):.1f} s: {next(listed)}; others: {next(listed)}"


def children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shared", type=Path)
    parser.add_argument("task")
    parser.add_argument("--target", default="edge-4t")
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="npuflow-pass-") as folder:
        out = Path(folder)
        task = Task(args.task, args.shared.resolve(), out)
        path = recipe(task, out, args.target)
        built(path, out / "warm", out / "warm-cache", ["data.count=8"])
        for _ in range(args.rounds):
            clock, processor = passed(Path(task.model), path.parent / "calibration.npz")
            before = children()
            events, seconds = built(path, out / "out", out / "cache", [])
            used = children() - before
            shutil.rmtree(out / "cache")
            print(
                f"float pass {clock:.2f} s, processor {processor:.2f} s; build {seconds:.2f} s, processor "
                f"{used:.2f} s: clock {seconds / clock:.1f}x, processor {used / processor:.1f}x"
            )
            print(stages(events), flush=True)


if __name__ == "__main__":
    main()
