"""Whole networks in 16-bit floats beside float32, and beside onnxruntime with Casts at the same places.

python benchmarks/floats.py MODELS OUT [TASK ...] [--modes bf16 fp16] [--target bm1684x] [--limit N]

Networks and data as in defaults.py. Nothing is calibrated. Every row: decibels of the outputs against the
float network's, of the program on the simulator and of the exported model (npuflow's own Casts) on
onnxruntime; the task's figures; tensors of which the simulator differs from the reference; nodes on the
host. States that a network carries are the program's own, so errors add up along a clip.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from defaults import Task, floats, recipe, summaries

TASKS = ("photos", "scenes", "sts", "vad")


def decibels(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> float:
    """Of all outputs together."""
    noise = sum(float(np.square(np.asarray(found[k], np.float64) - wanted[k]).sum()) for k in wanted)
    power = sum(float(np.square(np.asarray(wanted[k], np.float64)).sum()) for k in wanted)
    return round(10 * np.log10(power / noise), 2) if noise else float("inf")


def exported(task: Task, path: Path, limit: int) -> dict[str, Any]:
    """The exported model on onnxruntime, without rewrites that remove Casts."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return task.outputs(lambda feed: dict(zip(names, session.run(names, dict(feed)), strict=True)), limit)


def row(task: Task, out: Path, mode: str, target: str, limit: int) -> dict[str, Any]:
    import npuflow

    folder = out / task.name / mode
    settings = [f"quantize.mode={mode}", "data.fold_normalize=false"]
    steps, _ = summaries(recipe(task, out, target), folder, out / "cache", settings)
    program, model = next(folder.rglob("model.npu")), next(folder.rglob("model.qdq.onnx"))
    wanted = floats(task, out, limit)
    runner = npuflow.Runner(npuflow.load_program(program))
    made = task.outputs(lambda feed: runner.run(dict(feed)), limit)
    beside = exported(task, model, limit)
    # of sentences only the whole set has figures
    figures = {} if limit and task.name == "sts" else task.figures(made, wanted)
    simulate, quantize = steps.get("simulate", {}), steps.get("quantize", {})
    return {
        "task": task.name,
        "mode": mode,
        "program_db": decibels(made, wanted),
        "onnxruntime_db": decibels({k: beside[k] for k in wanted}, wanted),
        **figures,
        "different": simulate.get("different"),
        "cycles": simulate.get("cycles"),
        "host_nodes": quantize.get("float_nodes"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("tasks", nargs="*", default=TASKS)
    parser.add_argument("--modes", nargs="*", default=["bf16", "fp16"])
    parser.add_argument("--target", default="bm1684x")
    parser.add_argument("--limit", type=int, default=0)
    args = parser.parse_args()
    for name in args.tasks:
        task = Task(name, args.models.resolve(), args.out.resolve())
        for mode in args.modes:
            print(json.dumps(row(task, args.out.resolve(), mode, args.target, args.limit)), flush=True)


if __name__ == "__main__":
    main()
