"""What a step costs the build system: time and memory for 10,000 steps that do nothing.

    python benchmarks/flow_steps.py            # every measurement; writes its study
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

import study

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
    }


def fresh(*args: object) -> dict[str, float]:
    """The same in a process of its own."""
    env = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parent}", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, __file__, "--one", *map(str, args)]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def planned(count: int, place: Path) -> list[float]:
    """Seconds and CPU seconds of `npuflow plan` on the command line, everything being in the cache."""
    recipe = place / "bench.toml"
    recipe.write_text(f"[source]\ncount = {count}\n")
    env = {
        **os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parent}", "NPUFLOW_STAGES": "flowbench.stages",
        "NPUFLOW_CACHE": str(place / "cache"),
    }
    line = [
        sys.executable,
        "-m",
        "npuflow",
        "plan",
        str(recipe),
        "--until",
        "single",
        "--out",
        str(place / "out"),
        "--json",
    ]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(line, env=env, check=True, capture_output=True, text=True)
    seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stdout.count('"status": "hit"') == count, done.stdout[-400:]
    return [seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime]


def floor(count: int, place: Path) -> float:
    """Milliseconds that the file system alone takes for the files of a step: a folder
    of two, renamed; one linked."""
    for name in ("tmp", *(f"{kind}{index:02x}" for kind in "or" for index in range(256))):
        (place / name).mkdir(parents=True)
    begun = time.perf_counter()
    for index in range(count):
        made, record, end = f"{place}/tmp/{index}", f"{place}/tmp/r{index}", f"{index % 256:02x}/{index}"
        os.mkdir(made)  # noqa: PTH102
        for path in (f"{made}/value.json", f"{made}/manifest.json", record):
            number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.write(number, b"x" * 400)
            os.close(number)
        os.rename(made, f"{place}/o{end}")  # noqa: PTH104
        os.link(record, f"{place}/r{end}")
        os.unlink(record)  # noqa: PTH108
    return (time.perf_counter() - begun) / count * 1e3


def table(count: int, repeat: int, place: Path) -> str:
    """Nothing is deleted before the end: some file systems look at every inode freed
    lately for each new file."""
    rows = [
        "| case | ms a step | bar | CPU ms a step | kB a step | bar |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    bar = {"threads": 1.0, "processes:2": 5.0}
    for name, (stage, scheduler, jobs) in CASES.items():
        runs, small = [], []
        for _ in range(repeat):
            runs.append(fresh(stage, scheduler, jobs, count, tempfile.mkdtemp(dir=place)))
            small.append(fresh(stage, scheduler, jobs, count // 10, tempfile.mkdtemp(dir=place)))
        each = statistics.median(run["seconds"] for run in runs) / count * 1e3
        memory = statistics.median(a["rss"] - b["rss"] for a, b in zip(runs, small, strict=True)) / (
            count * 0.9
        )
        spent = statistics.median(a["cpu"] - b["cpu"] for a, b in zip(runs, small, strict=True))
        cpu = spent / (count * 0.9) * 1e3
        rows.append(f"| {name} | {each:.2f} | {bar[scheduler]:g} | {cpu:.2f} | {memory:.1f} | 5 |")
        print(rows[-1], flush=True)
    alone = floor(count, place / "floor")
    rows.append(f"| the files of a step alone, without npuflow | {alone:.2f} | | | | |")
    fresh("single", "threads", 1, count, place / "cache")
    build = statistics.median(
        fresh("single", "threads", 1, count, place / "cache")["whole"] for _ in range(repeat)
    )
    plans = [planned(count, place) for _ in range(repeat)]
    seconds, spent = (statistics.median(column) for column in zip(*plans, strict=True))
    tail = (
        f"All {count} steps in the cache, a fresh process each, no memo: `npuflow plan --json` "
        f"{seconds:.2f} s "
        f"(bar 2; CPU {spent:.2f} s), `build` {build:.2f} s after its imports."
    )
    cores = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    machine = f"{cores}, Python {platform.python_version()}, medians of {repeat}, {count} steps"
    return f"# What a step costs\n\n{machine}.\n\n" + "\n".join(rows) + f"\n\n{tail}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=5, metavar=("STAGE", "SCHEDULER", "JOBS", "COUNT", "CACHE"))
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--place", help="the folder to measure on; the system's for temporary files by default"
    )
    args = parser.parse_args()
    if args.one:
        stage, scheduler, jobs, count, cache = args.one
        print(json.dumps(measure(stage, scheduler, int(jobs), int(count), cache)))
        return
    with tempfile.TemporaryDirectory(prefix="npuflow-steps-", dir=args.place) as place:
        text = table(args.count, args.repeat, Path(place))
    study.write(__file__, text)
    print(text)


if __name__ == "__main__":
    main()
