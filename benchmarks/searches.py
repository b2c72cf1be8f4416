"""Searches for widths on real networks: cycles that were predicted beside those of the program, and figures.

    python benchmarks/searches.py MODELS OUT TASK [--target bm1684x] [--points N] [--limit N] [--score]
        [--set KEY=VALUE ...]

MODELS, OUT and TASK as for defaults.py, whose recipe is built with `--set` on top; these name the search
(`precision.strategy="ilp"` ...). A line for the recipe's own widths, one for the default search, one for what
the search takes, and with --points one for every point of its Pareto front. Each is quantised, planned, and
simulated; predicted cycles are the estimate that the search worked with. --score runs the evaluation set
(its first N samples with --limit) through the programs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from defaults import Task, floats, recipe, scored

from npuflow import build, load_recipe
from npuflow.flow.recipe_build import Settings, open_cache
from npuflow.flow.signature import signature
from npuflow.flow.stage import STAGES
from npuflow.stages.precision import Precision

COLUMNS = ("widths", "predicted", "program", "error", "MB", "held-out dB", "different, hazards", "figures")
NONE, AUTO = ["precision.strategy='none'"], ["precision.strategy='auto'"]


class Search:
    """Builds of one task's recipe in one cache."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.out: Path = args.out.resolve()
        self.task = Task(args.task, args.models.resolve(), self.out)
        self.path = recipe(self.task, self.out, args.target)
        self.cache, self.limit, self.score = self.out / "cache", args.limit, args.score
        self.narrow = 0

    def row(self, name: str, sets: list[str]) -> None:
        """Build, simulate, and print a line."""
        with tempfile.TemporaryDirectory() as folder:
            done = build(self.path, sets, until="simulate", out=Path(folder), cache=self.cache)
            store = open_cache(load_recipe(self.path, sets), Settings(cache=self.cache))
            chosen = store.load(done.outputs["precision"], Precision)
            made: dict[str, Any] = store.load(done.outputs["simulate"], self.kind("simulate")).summary()
            figures = ""
            if self.score:
                program = Path(done.products["program"])
                found = scored(self.task, program, floats(self.task, self.out, self.limit), self.limit)
                figures = json.dumps({k: v for k, v in found.items() if not k.startswith("delta")})
        self.narrow = self.narrow or made["cycles"]
        predicted = chosen.cycles * self.narrow
        level = min((one.sqnr for one in chosen.after), default=float("nan"))
        error = f"{100 * (predicted / made['cycles'] - 1):+.1f} %"
        checks = f"{made['different']}, {made['hazards']}"
        cells = [name, f"{predicted:,.0f}", f"{made['cycles']:,}", error, f"{made['mb']}", f"{level:.1f}"]
        print(f"| {' | '.join([*cells, checks, figures])} |", flush=True)

    @staticmethod
    def kind(stage: str) -> Any:
        return signature(STAGES[stage]).output


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("models", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("task")
    parser.add_argument("--target", default="bm1684x")
    parser.add_argument("--points", type=int, default=0)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--score", action="store_true")
    parser.add_argument("--set", nargs="+", default=[])
    args = parser.parse_args()
    search = Search(args)
    print(f"| {' | '.join(COLUMNS)} |\n" + "| --- " * len(COLUMNS) + "|")
    own = [one for one in args.set if not one.startswith("precision.")]
    search.row("the recipe's", [*own, *NONE])
    search.row("auto, the default", [*own, *AUTO])
    search.row("the search", args.set)
    for point in range(args.points):
        search.row(
            f"point {point}", [*args.set, f"precision.points={args.points}", f"precision.point={point}"]
        )


if __name__ == "__main__":
    main()
