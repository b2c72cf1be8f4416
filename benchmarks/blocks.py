"""A network with its products in block floating point beside bf16 and float32: accuracy without calibration.

python benchmarks/blocks.py MODELS OUT [TASK ...] [--modes mx9 ...] [--target xdna2] [--limit N] [--first N]

Networks and data as in defaults.py. The quantised graph runs on the whole-tensor executor, which has the bits
of the reference; with `--first`, on as many samples, the reference runs, too, and their outputs are compared.
Every row: decibels of the outputs against the float network's, the task's figures with their differences to
float32, bytes of the weights as they lie in memory, seconds a sample.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from defaults import Task, floats, recipe
from floats import decibels

MODES = ("bf16", "bfp16", "mx9", "mx6", "mxint8", "mxfp8", "mxfp8_e5m2", "mxfp6", "mxfp6_e3m2", "mxfp4")


def stage_output(path: Path, out: Path, stage: str, settings: list[str]) -> tuple[Any, Any]:
    """What a stage of a build yields, and the plan."""
    from npuflow.flow.recipe import load
    from npuflow.flow.recipe_build import Settings, open_cache, plan_recipe, run_plan
    from npuflow.flow.signature import signature
    from npuflow.flow.stage import STAGES

    how = Settings(cache=out / "cache", jobs=1, scheduler="threads", publish=False, until=stage)
    given = load(path, settings)
    plan, store = plan_recipe(given, STAGES, how), open_cache(given, how)
    result = run_plan(plan, given, store, how).check()
    return store.load(result.outputs[stage], signature(STAGES[stage]).output), plan


def quantised(path: Path, out: Path, mode: str) -> Any:
    """The quantised graph and the target's numerics."""
    from npuflow.hw.target import Numerics

    settings = [f'quantize.mode="{mode}"', "data.fold_normalize=false"]
    made, plan = stage_output(path, out, "quantize", settings)
    step = next(step for step in plan if step.name == "quantize")
    numerics = next(table for table in step.configs.values() if isinstance(table, Numerics))
    return made.graph, numerics


def weight_bytes(graph: Any, numerics: Any) -> int:
    """Of constants as they lie in memory, biases and bounds among them; tables of functions are left out."""
    from npuflow.ir import forms
    from npuflow.schedule.model import describe

    total = 0
    for node in graph.nodes:
        if not node.is_integer or forms.space(graph.site(node), numerics) is None:
            continue
        layer = describe([graph.site(node)], numerics, node.outputs)
        total += layer.const_bytes if layer.mac is not None else 0
    return total


def row(task: Task, out: Path, mode: str, args: argparse.Namespace) -> dict[str, Any]:
    from npuflow.run.interpret import Interpreter
    from npuflow.whole.execute.executor import Executor

    graph, numerics = quantised(recipe(task, out, args.target), out, mode)
    executor, reference = Executor(graph, numerics, batch=1), Interpreter(graph, numerics)
    seen: list[Mapping[str, Any]] = []

    def run(feed: Mapping[str, Any]) -> Mapping[str, Any]:
        given = {name: np.asarray(feed[name]) for name in graph.inputs}
        made = executor.run(given)
        if len(seen) < args.first:
            want = reference.run(given)
            assert all(np.array_equal(made[o], want[o], equal_nan=True) for o in graph.outputs), mode
            seen.append(want)
        return {name: made[name] for name in graph.outputs}

    began = time.perf_counter()
    outputs = task.outputs(run, args.limit)
    seconds = (time.perf_counter() - began) / len(next(iter(outputs.values())))
    wanted = floats(task, out, args.limit)
    figures = {} if args.limit and task.name == "sts" else task.figures(outputs, wanted)
    return {
        "task": task.name,
        "mode": mode,
        "decibels": decibels(outputs, wanted),
        **figures,
        "weight_bytes": weight_bytes(graph, numerics),
        "seconds": round(seconds, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("tasks", nargs="*", default=("photos",))
    parser.add_argument("--modes", nargs="*", default=MODES)
    parser.add_argument("--target", default="xdna2")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    for name in args.tasks:
        task = Task(name, args.models.resolve(), args.out.resolve())
        for mode in args.modes:
            print(json.dumps(row(task, args.out.resolve(), mode, args)), flush=True)


if __name__ == "__main__":
    main()
