"""Seconds of cold default builds of the tasks of defaults.py, by the clock and of all processors.

    python benchmarks/default_times.py SHARED [TASK ...] [--target edge-4t] [--study]

SHARED holds `models`, `data`, `models2` and `data2`. A build is `npuflow build` of a recipe of model, shapes
and data in a process of its own with an empty cache, its kernels compiled before by a build of eight samples
that is not measured. "Longest": the stages that took most, in their own seconds. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import study
from build_over_pass import by_stage
from builds import figures_of, measured
from defaults import Task, recipe

TASKS = (
    "thai", "wake", "fashion", "face", "pitch", "vad", "g2p", "box", "photos", "selfie", "lines", "text",
    "notes", "scenes", "oskut",
)
COLUMNS = ("task", "clock s", "processor s", "largest process, GiB", "cycles", "longest stages, s")
GIB = 1 << 30


def row(name: str, shared: Path, out: Path, target: str) -> dict[str, str]:
    """What a cold build of a task takes."""
    path = recipe(Task(name, shared, out), out, target)
    measured(path, out / "warm", out / "warm-cache", ["data.count=8"])
    events, spent = measured(path, out / "built", out / "cache", [])
    shutil.rmtree(out / "cache")
    shutil.rmtree(out / "warm-cache")
    longest = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in by_stage(events).most_common(4))
    cycles = f"{figures_of(events)['simulate']['cycles']:,}"
    clock, processor, size = f"{spent.clock:.1f}", f"{spent.processor:.1f}", f"{spent.largest / GIB:.2f}"
    return dict(zip(COLUMNS, (name, clock, processor, size, cycles, longest), strict=True))


def told(rows: Sequence[dict[str, str]]) -> str:
    middle = median(float(one["clock s"]) for one in rows)
    return f"The median of {len(rows)} tasks is {middle:.1f} s by the clock."


def write(rows: Sequence[dict[str, str]]) -> None:
    """The table in its study."""
    head = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    lines = [f"| {' | '.join(one.values())} |" for one in rows]
    title, *said = (__doc__ or "").splitlines()
    text = "\n".join(said).replace("    python", "`python").strip().replace("--study]", "--study]`")
    study.write(__file__, "\n".join((f"# {title}", "", text, "", *head, *lines, "", told(rows), "")))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shared", type=Path)
    parser.add_argument("tasks", nargs="*", default=TASKS)
    parser.add_argument("--target", default="edge-4t")
    parser.add_argument("--study", action="store_true", help="write the table to its study")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    rows = []
    for name in args.tasks:
        with tempfile.TemporaryDirectory(prefix="npuflow-times-") as folder:
            rows.append(row(name, args.shared.resolve(), Path(folder), args.target))
        print(*rows[-1].values(), sep=" | ", flush=True)
    print(told(rows))
    if args.study:
        write(rows)


if __name__ == "__main__":
    main()
