"""int8 mixed with a float type by `[precision]`, beside int8 mixed with 16-bit integers.

python benchmarks/float_search.py MODELS OUT [TASK ...] [--floats bf16] [--target bm1684x] [--limit N]
       [--set KEY=VALUE ...]

Networks and data as in defaults.py. Three builds a network: the search in integers alone, the search with
`floats`, and 16 bits for all activations; `--set` goes to all of them, and into the row. Every row: decibels
of the outputs against the float network's, the task's figures, simulated cycles with the host's, tensors of
which the simulator differs from the reference, nodes on the host and layers by type.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from defaults import Task, floats, recipe, summaries
from floats import decibels


def ways(names: list[str]) -> dict[str, list[str]]:
    """Settings by the name of a way to build."""
    return {
        "8 and 16 bits": ["precision.floats=[]"],
        f"8 bits and {', '.join(names)}": [f"precision.floats={json.dumps(names)}"],
        "16 bits": ["quantize.activations.bits=16", 'precision.strategy="none"'],
    }


def row(task: Task, out: Path, way: str, settings: list[str], target: str, limit: int) -> dict[str, Any]:
    import npuflow

    folder = out / task.name / way.replace(" ", "-").replace(",", "")
    steps, seconds = summaries(recipe(task, out, target), folder, out / "cache", settings)
    wanted = floats(task, out, limit)
    runner = npuflow.Runner(npuflow.load_program(next(folder.rglob("model.npu"))))
    made = task.outputs(lambda feed: runner.run(dict(feed)), limit)
    simulate, quantize = steps.get("simulate", {}), steps.get("quantize", {})
    return {
        "task": task.name,
        "way": way,
        "program_db": decibels(made, wanted),
        **({} if limit and task.name == "sts" else task.figures(made, wanted)),
        "cycles": simulate.get("cycles"),
        "host_cycles": simulate.get("host_cycles"),
        "different": simulate.get("different"),
        "host_nodes": quantize.get("float_nodes"),
        "host_macs": quantize.get("host_macs"),
        "precision": steps.get("precision", {}),
        "seconds": round(seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("tasks", nargs="*", default=["vad", "sts", "notes"])
    parser.add_argument("--floats", nargs="*", default=["bf16"])
    parser.add_argument("--ways", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--target", default="bm1684x")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[], dest="more")
    args = parser.parse_args()
    chosen = list(ways(args.floats).items())
    for name in args.tasks or ["vad", "sts", "notes"]:
        task = Task(name, args.models.resolve(), args.out.resolve())
        for at in args.ways:
            way, settings = chosen[at]
            way = ", ".join((way, *args.more))
            done = row(task, args.out.resolve(), way, [*settings, *args.more], args.target, args.limit)
            print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
