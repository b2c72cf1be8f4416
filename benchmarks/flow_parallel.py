"""Two worker processes against one, on 40 s of pure-Python steps; cluster start is excluded and printed.

    python benchmarks/flow_parallel.py         # writes its study
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

import study

from npuflow.base.registry import Registry
from npuflow.base.tables import Locator
from npuflow.flow.recipe import Recipe
from npuflow.flow.run import build
from npuflow.flow.store import Store
from npuflow.flow.wire import wire

HERE = Path(__file__).parent


def once(scheduler: str, jobs: int, steps: int, seconds: float) -> tuple[float, float]:
    """Seconds of work and seconds of start, with an empty cache."""
    recipe = Recipe(None, "bench", {"source": {"count": steps}, "work": {"seconds": seconds}}, Locator())
    plan = wire(Registry.unlisted("stages", "flowbench.stages"), recipe, until="single")
    with tempfile.TemporaryDirectory() as cache:
        begun = time.perf_counter()
        result = build(plan, Store(cache), scheduler=scheduler, jobs=jobs).check()
        return result.seconds, time.perf_counter() - begun - result.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=0.625)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    pairs = {
        "one process": ("processes:1", 1),
        "two processes": ("processes:2", 2),
        "default, --jobs 2": ("threads", 2),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in pairs}
    for _ in range(args.repeat):  # interleaved, so that what else the machine does falls on all alike
        for name, (scheduler, jobs) in pairs.items():
            times[name].append(once(scheduler, jobs, args.steps, args.seconds))
            print(name, times[name][-1], os.getloadavg(), flush=True)
    work = {name: statistics.median(one for one, _ in runs) for name, runs in times.items()}
    start = {name: statistics.median(one for _, one in runs) for name, runs in times.items()}
    rows = [
        "| workers | s of work | times faster | bar | s of start and end |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in pairs:
        bar = "" if name == "one process" else "1.6"
        rows.append(
            f"| {name} | {work[name]:.1f} | {work['one process'] / work[name]:.2f} | {bar} | "
            f"{start[name]:.1f} |"
        )
    head = (
        f"{os.cpu_count()} cores, Python {platform.python_version()}, {args.steps} steps of {args.seconds} "
        "s of CPU, "
    )
    text = (
        f"# Two processes against one\n\n{head}medians of {args.repeat} interleaved runs.\n\n"
        + "\n".join(rows)
        + "\n"
    )
    study.write(__file__, text)
    print(text)


if __name__ == "__main__":
    main()
