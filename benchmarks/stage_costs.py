"""Cold default builds of a task at two commits, alternately: seconds of every stage, artifacts that moved.

    python benchmarks/stage_costs.py SHARED TASK BEFORE AFTER [--rounds 2] [--study]

SHARED holds `models`, `data`, `models2` and `data2`, TASK is one of defaults.py, BEFORE and AFTER are
commits. Each build has an empty cache and compiled kernels. Processor seconds are those of all processes;
the seconds of a stage are by the clock, of the round in which the build took least processor time.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from build_over_pass import JUDGING, by_stage, children
from builds import Events, built
from defaults import Task, recipe
from study import ROOT, write


@dataclass(frozen=True)
class Built:
    """A build: its events, and processor and clock seconds."""

    events: Events
    processor: float
    clock: float

    @property
    def outputs(self) -> dict[str, str]:
        """By stage the digest of its artifact."""
        last: dict[str, Any] = next(event for event in self.events[::-1] if event["event"] == "summary")
        return dict(last["outputs"])


def checkout(commit: str, folder: Path) -> Path:
    """The package of a commit."""
    packed = subprocess.run(["git", "archive", commit, "npuflow"], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def once(package: Path, path: Path, out: Path, settings: Sequence[str] = ()) -> Built:
    os.environ["PYTHONPATH"] = str(package)
    before = children()
    events, clock = built(path, out / "out", out / "cache", settings)
    used = children() - before
    shutil.rmtree(out / "cache")
    return Built(events, used, clock)


def table(task: str, commits: Sequence[str], found: Sequence[Sequence[Built]], load: float) -> str:
    least = [min(some, key=lambda one: one.processor) for some in found]
    spent = [by_stage(one.events) for one in least]
    rows = [("**processor seconds, all processes**", *(one.processor for one in least))]
    rows += [("clock seconds", *(one.clock for one in least))]
    rows += [("judging, clock", *(sum(stages[stage] for stage in JUDGING) for stages in spent))]
    others = [stage for stage, seconds in spent[0].most_common() if seconds >= 1 and stage not in JUDGING]
    rows += [(stage, *(stages[stage] for stages in spent)) for stage in (*JUDGING, *others)]
    moved = [stage for stage, digest in least[1].outputs.items() if least[0].outputs.get(stage) != digest]
    lines = [f"| {task} | {commits[0]} | {commits[1]} |", "| --- | ---: | ---: |"]
    lines += [f"| {name} | {was:.1f} | {now:.1f} |" for name, was, now in rows]
    same = "every artifact is equal" if not moved else f"artifacts that differ: {', '.join(moved)}"
    return "\n".join([*lines, "", f"{same}. Best of {len(found[0])} builds each, at a load of {load:.0f}."])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shared", type=Path)
    parser.add_argument("task")
    parser.add_argument("commits", nargs=2)
    parser.add_argument("--target", default="edge-4t")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--study", action="store_true")
    parser.add_argument("--folder", type=Path, help="keeps samples and compiled kernels for another run")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="npuflow-stages-") as folder:
        out = args.folder or Path(folder)
        path = recipe(Task(args.task, args.shared.resolve(), out), out, args.target)
        packages = [checkout(commit, out / commit) for commit in args.commits]
        for package in packages:
            once(package, path, out, ["data.count=8"])
        found: list[list[Built]] = [[], []]
        for _ in range(args.rounds):
            for package, some in zip(packages, found, strict=True):
                some.append(once(package, path, out))
        text = table(args.task, args.commits, found, os.getloadavg()[0])
    print(text)
    if args.study:
        head = "# What the stages of a default build take, before and after\n\n"
        write(__file__, f"{head}{(__doc__ or '').partition('SHARED holds')[2].partition('. ')[2]}\n{text}\n")


if __name__ == "__main__":
    main()
