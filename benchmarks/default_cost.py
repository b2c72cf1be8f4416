"""What the defaults of accuracy cost in build time: chosen ranges, corrected biases and widths by
need, against a build without.

    python benchmarks/default_cost.py MODELS OUT [fashion-recipe] [TASK ...] [--set
    KEY=VALUE ...] [--table FILE]

MODELS is a folder with `models`, `data`, `models2` and `data2`, as for defaults.py; `fashion-recipe` is
recipes/fashion.toml. Every task is built twice from an empty cache, by one process at a time: with the
defaults, and with `[calibrate] method = "minmax"`, `[correct] bias = "off"` and `[precision] strategy =
"none"`. Advice on poor outputs is off in both: it is no part of what is compared. Then the default build is
run again with another number of simulated samples, which reaches none of the choices. Printed: processor
seconds (all processes) and wall seconds of both, their ratios, the seconds of the stages that choose, and
which of them ran again. A build that is not measured comes first: it compiles the kernels.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from builds import built
from defaults import Task, recipe

FIRST = "fashion-recipe"
WITHOUT = ('calibrate.method="minmax"', 'correct.bias="off"', 'precision.strategy="none"')
BOTH = ("verdict.advice=false",)
CHOICES = ("clipping", "baseline", "sensitivity", "precision", "correct")


@dataclass(frozen=True)
class Ran:
    """Seconds of a build: processor time of all its processes, wall time, and wall
    time of each stage that ran."""

    processor: float
    wall: float
    stages: Mapping[str, float]


def timed(path: Path, out: Path, cache: Path, settings: Sequence[str]) -> Ran:
    before = os.times()
    events, wall = built(path, out, cache, settings)
    after = os.times()
    stages: dict[str, float] = {}
    for event in events:
        if event["event"] == "step" and event["status"] == "ran":
            stages[event["stage"]] = stages.get(event["stage"], 0.0) + event["seconds"]
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return Ran(spent, wall, stages)


def row(name: str, path: Path, out: Path, settings: Sequence[str]) -> tuple[float, float, str]:
    """Ratios of processor and wall time, and a line of the table."""
    found = []
    for label, more in (("first", ()), ("with", ()), ("without", WITHOUT)):
        cache = out / f"cache-{label}"
        shutil.rmtree(cache, ignore_errors=True)
        found.append(timed(path, out / label, cache, (*settings, *BOTH, *more)))
    _, defaults, plain = found
    again = timed(path, out / "with", out / "cache-with", (*settings, *BOTH, "simulate.samples=1"))
    reached = [stage for stage in CHOICES if stage in again.stages]
    spent = ", ".join(
        f"{stage} {defaults.stages[stage]:.1f}" for stage in CHOICES if defaults.stages.get(stage, 0) >= 0.05
    )
    processor, wall = defaults.processor / plain.processor, defaults.wall / plain.wall
    cells = (
        f"{plain.processor:.1f}",
        f"{defaults.processor:.1f}",
        f"{processor:.2f}",
        f"{plain.wall:.1f}",
        f"{defaults.wall:.1f}",
        f"{wall:.2f}",
        spent,
        ", ".join(reached) or "none",
    )
    return processor, wall, "| " + " | ".join((name, *cells)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("tasks", nargs="*", default=[FIRST])
    parser.add_argument("--target", default="edge-4t")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    out = args.out.resolve()
    example = Path(__file__).resolve().parent.parent / "recipes" / "fashion.toml"
    columns = (
        "network",
        "processor s without",
        "with",
        "ratio",
        "wall s without",
        "with",
        "ratio",
        "seconds of the stages that choose",
        "run again by a change behind them",
    )
    lines = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    print("\n".join(lines), flush=True)
    ratios = []
    for name in args.tasks:
        path = example if name == FIRST else recipe(Task(name, args.models.resolve(), out), out, args.target)
        processor, wall, line = row(name, path, out / name, args.settings)
        ratios.append((processor, wall))
        lines.append(line)
        print(line, flush=True)
    middle = [statistics.median(r[k] for r in ratios) for k in (0, 1)]
    lines += ["", f"Median: {middle[0]:.2f} times the processor time, {middle[1]:.2f} times the wall time."]
    print("\n".join(lines[-2:]))
    if args.table is not None:
        head = (
            "# What the defaults of accuracy cost in build "
            f"time\n\n{(__doc__ or '').split('MODELS is')[0].strip()}\n"
        )
        args.table.write_text(f"{head}\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
