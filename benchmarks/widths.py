"""A labelled task's figures for several widths of weights: whole builds, scored by the network's integers.

    python benchmarks/widths.py SCORER TASK RECIPE OUT NAME=SETTINGS ... [--limit N] [--cycles] [--cache DIR]

SCORER and TASK as for accuracy.py. Each NAME=SETTINGS is one build of RECIPE: settings as for --set,
separated by semicolons ("w4=quantize.weights.bits=4;round.mode='sequential'"). The quantised graph with
corrected biases runs the whole evaluation set on the whole-tensor executor, whose results are the program's;
--cycles also generates the program and simulates it. The float network's outputs are kept in OUT. Prints a
row of a table for each: how many weights have how many bits, their bytes as a share of 8 bits for each,
figures, processor time of the build.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from accuracy import Task, chunks, module, task_parser
from rounding import pixels_fed

from npuflow import build, load_recipe
from npuflow.flow.recipe_build import Settings, open_cache
from npuflow.flow.signature import signature
from npuflow.flow.stage import STAGES
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.stages.parse import Parsed
from npuflow.stages.precision import Precision
from npuflow.stages.quantize import Quantized
from npuflow.whole.execute.executor import Executor

COLUMNS = ("build", "weights", "bytes", "figures", "held-out dB", "cycles", "processor seconds")
BATCH = 8


def widths(graph: Graph) -> tuple[str, float]:
    """How many layers' weights have how many bits, and their bytes as a share of 8 bits for each."""
    layers, bits, count = Counter[int](), 0, 0
    for node in graph.nodes:
        for at, value in enumerate(node.inputs):
            stored = graph.const(value) if value else None
            quant = graph.values[value].quant if stored is not None else None
            if quant is None or stored is None or node.op.role(at) != "weight":
                continue
            layers[quant.bits] += 1
            bits, count = bits + quant.bits * stored.size, count + stored.size
    text = ", ".join(f"{n} at {width}" for width, n in sorted(layers.items()))
    return text, bits / (8 * max(count, 1))


def spent() -> float:
    """Processor seconds of this process and of those that it has waited for."""
    every = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in every)


class Builds:
    """Builds of one recipe, scored on one task."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.recipe, self.cache, self.cycles = args.recipe, args.cache, args.cycles
        model = args.recipe.parent / Path(load_recipe(args.recipe).tables["model"]["path"])
        args.out.mkdir(parents=True, exist_ok=True)
        self.task = Task(module(args.scorer), args.task, model, args.limit, args.out / f"{args.task}.npz")

    def row(self, name: str, sets: list[str]) -> list[str]:
        """The cells of a build."""
        before = spent()
        done = build(self.recipe, sets, until="simulate" if self.cycles else "correct", cache=self.cache)
        seconds = spent() - before
        loaded = load_recipe(self.recipe, sets)
        store = open_cache(loaded, Settings(cache=self.cache))
        made: Quantized = store.load(done.outputs["correct"], Quantized)
        chosen: Precision = store.load(done.outputs["precision"], Precision)
        stage = next(one for one in ("equalize", "ordered", "pixels", "checked", "parse") if one in done.refs)
        parsed: Parsed = store.load(done.outputs[stage], Parsed)
        executor = Executor(made.graph, loaded.read(Numerics)[0], BATCH)
        place = self.task.outputs.index(self.task.name)
        found = [
            row[made.graph.outputs[place]]
            for part in chunks((pixels_fed(parsed, feed) for feed in self.task.samples()), BATCH)
            for row in executor.run_many(part)
        ]
        arrays, base = ({self.task.name: np.concatenate(rows)} for rows in (found, self.task.base))
        figures: dict[str, Any] = self.task.scorer.score(self.task.task, arrays, base)
        shown = ", ".join(
            f"{k} {v}" for k, v in figures.items() if k not in ("task", "n", "finite") and v is not None
        )
        cycles = ""
        if self.cycles:
            summary = store.load(done.outputs["simulate"], signature(STAGES["simulate"]).output).summary()
            cycles = f"{summary['cycles']:,}, different {summary['different']}"
        text, share = widths(made.graph)
        level = min((one.sqnr for one in chosen.after), default=float("nan"))
        return [name, text, f"{100 * share:.1f} %", shown, f"{level:.1f}", cycles, f"{seconds:.0f}"]


def main() -> None:
    parser = task_parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("builds", nargs="+")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--cycles", action="store_true")
    parser.add_argument("--cache", type=Path)
    args = parser.parse_args()
    builds = Builds(args)
    print(f"| {' | '.join(COLUMNS)} |\n" + "| --- " * len(COLUMNS) + "|", flush=True)
    for one in args.builds:
        name, _, sets = one.partition("=")
        print(f"| {' | '.join(builds.row(name, [s for s in sets.split(';') if s]))} |", flush=True)


if __name__ == "__main__":
    main()
