"""What a step costs the build system: time and memory for 10,000 steps that do nothing.

    python benchmarks/flow_steps.py            # every measurement; writes benchmarks/flow_steps.md
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
CASES = {
    "in process, a task a step": ("single", "threads", 1),
    "in process, batches of 8": ("batched", "threads", 1),
    "cluster of 2 workers, a task a step": ("single", "processes:2", 2),
    "cluster of 2 workers, batches of 8": ("batched", "processes:2", 2),
}


def measure(stage: str, scheduler: str, jobs: int, count: int, cache: str) -> dict[str, float]:
    """One build in this process."""
    from npuflow.base.registry import Registry
    from npuflow.base.tables import Locator
    from npuflow.flow.recipe import Recipe
    from npuflow.flow.run import build
    from npuflow.flow.store import Store
    from npuflow.flow.wire import wire

    begun = time.perf_counter()
    recipe = Recipe(None, "bench", {"source": {"count": count}}, Locator())
    plan = wire(Registry.unlisted("stages", "flowbench.stages"), recipe, until=stage)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = build(plan, Store(cache), scheduler=scheduler, jobs=jobs).check()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": result.seconds, "whole": time.perf_counter() - begun,
        "ran": result.ran, "hit": result.hit, "rss": after, "rise": after - before,
        "cpu": sum(one.ru_utime + one.ru_stime for one in used),
    }  # fmt: skip


def fresh(*args: object) -> dict[str, float]:
    """The same in a process of its own."""
    env = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parent}", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, __file__, "--one", *map(str, args)]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(count: int, repeat: int) -> str:
    rows = ["| case | ms a step | bar | CPU ms a step | kB a step | bar |", "| --- | --- | --- | --- | --- | --- |"]
    bar = {"threads": 1.0, "processes:2": 5.0}
    for name, (stage, scheduler, jobs) in CASES.items():
        runs, small = [], []
        for _ in range(repeat):
            with tempfile.TemporaryDirectory() as cache:
                runs.append(fresh(stage, scheduler, jobs, count, cache))
            with tempfile.TemporaryDirectory() as cache:
                small.append(fresh(stage, scheduler, jobs, count // 10, cache))
        each = statistics.median(run["seconds"] for run in runs) / count * 1e3
        memory = statistics.median(a["rss"] - b["rss"] for a, b in zip(runs, small, strict=True)) / (count * 0.9)
        spent = statistics.median(a["cpu"] - b["cpu"] for a, b in zip(runs, small, strict=True))
        cpu = spent / (count * 0.9) * 1e3
        rows.append(f"| {name} | {each:.2f} | {bar[scheduler]:g} | {cpu:.2f} | {memory:.1f} | 5 |")
    with tempfile.TemporaryDirectory() as cache:
        fresh("single", "threads", 1, count, cache)
        hits = [fresh("single", "threads", 1, count, cache) for _ in range(repeat)]
    whole = statistics.median(run["whole"] for run in hits)
    rows.append(f"| all {count} steps hit, fresh process, memo off: {whole:.2f} s (bar 2) | | | | | |")
    load = os.getloadavg()[0]
    cores = f"{os.cpu_count()} cores, load {load:.1f} (of other work too)"
    machine = f"{cores}, Python {platform.python_version()}, medians of {repeat}, {count} steps"
    return f"# What a step costs\n\n{machine}.\n\n" + "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=5, metavar=("STAGE", "SCHEDULER", "JOBS", "COUNT", "CACHE"))
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    if args.one:
        stage, scheduler, jobs, count, cache = args.one
        print(json.dumps(measure(stage, scheduler, int(jobs), int(count), cache)))
        return
    text = table(args.count, args.repeat)
    (HERE / "flow_steps.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
