"""Fewer cycles than a default build at the same figures: what widths can save, and what a search finds.

    python benchmarks/cycle_search.py [--target bm1684x] [--bounds] [--limit N] MODELS OUT TASK
        NAME=SETTINGS ...

MODELS, OUT and TASK as for defaults.py. --bounds: a line of plans, cycles alone, for each of 8 and 4 bits for
all weights with 8 and 16 bits for all activations; no mixture of these widths is below the first. Then the
default build and one build for each NAME=SETTINGS (as for --set, separated by semicolons): cycles of the
plan, dB of the worst output on held-out samples, processor seconds of the build, and the figures of the
quantised graph on the evaluation set (its first N samples with --limit) by the whole-tensor executor, whose
results are the program's.
"""

from __future__ import annotations

import argparse
import json
import resource
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from defaults import Feed, Task, floats, recipe

from npuflow import build, load_recipe
from npuflow.flow.recipe_build import Settings, open_cache
from npuflow.flow.signature import signature
from npuflow.flow.stage import STAGES
from npuflow.hw.target import Numerics
from npuflow.whole.execute.executor import Executor

PLAIN = ["precision.strategy='none'", "round.method='nearest'"]
BOUNDS = {
    f"W{weights}A{activations}": [
        *PLAIN, f"quantize.weights.bits={weights}", f"quantize.activations.bits={activations}"
    ]
    for activations in (8, 16)
    for weights in (4, 8)
}


def spent() -> float:
    every = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in every)


class Builds:
    """Builds of one task's recipe in one cache."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.out: Path = args.out.resolve()
        self.task, self.limit = Task(args.task, args.models.resolve(), self.out), args.limit
        self.path, self.usual = recipe(self.task, self.out, args.target), 0

    def row(self, name: str, sets: list[str], scored: bool) -> None:
        before, cache = spent(), self.out / "cache"
        done = build(self.path, sets, until="tiling", cache=cache)
        seconds, loaded = spent() - before, load_recipe(self.path, sets)
        store = open_cache(loaded, Settings(cache=cache))

        def made(stage: str) -> Any:
            return store.load(done.outputs[stage], signature(STAGES[stage]).output)

        cycles = made("tiling").summary()["cycles"]
        self.usual = self.usual or (cycles if scored else 0)
        against = f"{100 * (cycles / self.usual - 1):+.1f} %" if self.usual else ""
        level = figures = ""
        if scored:
            level = f"{min((o.sqnr for o in made('precision').after), default=float('nan')):.1f}"
            figures = self.figures(made("correct").graph, loaded.read(Numerics)[0])
        cells = [self.task.name, name, f"{cycles:,}", against, level, f"{seconds:.0f}", figures]
        print(f"| {' | '.join(cells)} |", flush=True)

    def figures(self, graph: Any, numerics: Numerics) -> str:
        executor = Executor(graph, numerics, 1)
        names = [o.name for o in onnx.load(self.task.model, load_external_data=False).graph.output]

        def run(feed: Feed) -> dict[str, Any]:
            found = executor.run({name: np.asarray(array) for name, array in feed.items()})
            return {name: found[value] for name, value in zip(names, graph.outputs, strict=True)}

        base = floats(self.task, self.out, self.limit)
        made = self.task.figures(self.task.outputs(run, self.limit), base)
        return json.dumps({k: v for k, v in made.items() if not k.startswith("delta")}, default=float)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("models", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("task")
    parser.add_argument("builds", nargs="*")
    parser.add_argument("--target", default="bm1684x")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--bounds", action="store_true")
    args = parser.parse_args()
    builds = Builds(args)
    columns = ("task", "widths", "cycles", "default", "held-out dB", "processor seconds", "figures")
    print(f"| {' | '.join(columns)} |\n" + "| --- " * len(columns) + "|")
    builds.row("default", [], True)
    for name, sets in BOUNDS.items() if args.bounds else ():
        builds.row(name, sets, False)
    for one in args.builds:
        name, _, sets = one.partition("=")
        builds.row(name, [s for s in sets.split(";") if s], True)


if __name__ == "__main__":
    main()
