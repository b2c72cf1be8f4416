"""How calibration scales with workers: npuflow's driver and dask's scheduler, run for real,
and workers on a virtual clock.

    python benchmarks/scaling.py [RECIPE] [--samples 1000 10000] [--workers 1 10 30 100 300 1000] [--write]
    python benchmarks/scaling.py --check        # the scheduler's time a task, here and in a real scheduler

The recipe's stages are planned as for a build, its model is read and cut, and samples, observations, shards,
regions and statistics go through the driver as they would: keys computed, the store asked, batches made,
waves sent by dask's `Client.map`. `virtual_cluster.py` says what is run and what is not. A task takes what
its stage took on an idle core for EfficientNet-Lite0 (`SECONDS`, by its items), times a normal of 10 %; a
worker's first task a second more (imports), a task that runs the network 40 ms more (sessions); one worker in
a hundred is four times slower, one dies while it observes. Efficiency is work / (workers x time), work being
the stages' seconds alone, without starts, on workers of full speed.
"""

import argparse
import json
import logging
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import study
from virtual_cluster import Costs, VirtualCluster

from npuflow.base.registry import Registry
from npuflow.base.tables import Locator
from npuflow.flow.recipe import Recipe, load
from npuflow.flow.recipe_build import Settings, open_cache, plan_recipe, run_plan
from npuflow.flow.run import _Driver, build
from npuflow.flow.stage import STAGES
from npuflow.flow.store import Store
from npuflow.flow.wire import wire

HERE = Path(__file__).parent
SECONDS = {
    "samples": 0.0167, "statistics.items": 0.0147, "statistics.merge1": 0.0012, "statistics.merge2": 0.006,
    "statistics": 0.006,
}
"""An item of samples and of statistics (a sample in a segment); of what a merge reads, the rest."""
SESSIONS = 0.04
HEAD = """# How calibration scales with workers

`python benchmarks/scaling.py`: npuflow's driver and dask's scheduler run for real (their processor
time counts), workers and network are events on a virtual clock;
see the docstrings there for what is assumed.
{about}
Seconds until each stage is done, of work in the driver's process (npuflow's share, and dask's client), and in
the scheduler's.

"""
COLUMNS = (
    "| workers | tasks | samples s | observed s | merged s | driver s | client s | scheduler s | ms a task "
    "there "
    "| efficiency |"
)


class Case:
    """A recipe with so many samples, up to date as far as its segments."""

    def __init__(self, recipe, samples, folder):
        np.save(folder / "x.npy", np.zeros((samples, 28, 28, 1), np.uint8))
        sets = [f'data.source="{folder / "x.npy"}"', f"data.count={samples}", "data.choose=first"]
        self.recipe = load(recipe, sets, lenient=True)
        self.samples = samples
        self.settings = Settings(cache=folder / "cache", out=folder / "out", until="segments", jobs=1)
        self.store = open_cache(self.recipe, self.settings)
        plan = plan_recipe(self.recipe, STAGES, replace(self.settings, until="segments"))
        run_plan(plan, self.recipe, self.store, self.settings).check()

    def run(self, workers, costs):
        """Seconds by name, and the cluster."""
        plan = plan_recipe(self.recipe, STAGES, replace(self.settings, until="statistics"))
        for step in plan:
            step.fixed  # noqa: B018  (code closures: of the build's start, not of its steps)
        rng, work = np.random.default_rng(0), [0.0]

        def seconds(task):
            if task.step not in SECONDS:
                return None
            read = [len(members) for one in task.work for members in one.sources.values()]
            items = len(task.work) if task.step in ("samples", "statistics.items") else sum(read) or 30
            own = items * SECONDS[task.step]
            work[0] += own
            return own * max(0.5, rng.normal(1, 0.1)) + (SESSIONS if task.step == "statistics.items" else 0.0)

        slow = rng.random(workers) < (0.01 if workers > 1 else 0)
        cluster = VirtualCluster(workers, seconds, costs, slow=np.flatnonzero(slow), die=workers > 1)
        result = _Driver(plan, self.store, cluster, lambda _: None, frozenset(), False).run()
        cluster.close(wait=True)
        assert not result.errors and cluster.dead == int(workers > 1)
        return work[0], cluster


def row(case, workers, costs):
    work, cluster = case.run(workers, costs)
    ends, spent = cluster.step_ends, cluster.spent
    efficiency = work / (workers * cluster.driver_at)
    each = 1000 * spent["scheduler"] / cluster.sent
    times = [
        ends["samples"],
        ends["statistics.items"],
        ends["statistics"],
        spent["driver"],
        spent["client"],
        spent["scheduler"],
    ]
    return (
        f"| {workers} | {cluster.sent} | "
        + " | ".join(f"{t:.1f}" for t in times)
        + f" | {each:.1f} | {efficiency:.0%} |"
    )


def check(count=1500):
    """Processor milliseconds a task: a real scheduler process with two real workers, and the virtual one."""
    import psutil

    recipe = Recipe(None, "bench", {"source": {"count": count}}, Locator())
    plan = wire(Registry.unlisted("stages", "flowbench.stages"), recipe, until="single")
    with tempfile.TemporaryDirectory() as place:
        listens, running = Path(place) / "s.json", []
        for words in (["scheduler", "--port", "0"], *[["worker", "--nthreads", "1", "--no-nanny"]] * 2):
            module = f"distributed.cli.dask_{words[0]}"
            line = [
                sys.executable,
                "-m",
                module,
                *words[1:],
                "--no-dashboard",
                "--scheduler-file",
                str(listens),
            ]
            env = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parent}"}
            running.append(
                subprocess.Popen(line, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            while not listens.exists():
                time.sleep(0.2)
        try:
            address, process = json.loads(listens.read_text())["address"], psutil.Process(running[0].pid)
            # until the workers are there, and their start is over
            time.sleep(15)
            before = sum(process.cpu_times()[:2])
            ran = build(plan, Store(Path(place) / "real"), scheduler=address).check().ran
            real = sum(process.cpu_times()[:2]) - before
        finally:
            for one in running:
                one.terminate()
                one.wait()
        plan = wire(Registry.unlisted("stages", "flowbench.stages"), recipe, until="single")
        cluster = VirtualCluster(2, lambda task: None, Costs())
        _Driver(
            plan, Store(Path(place) / "virtual"), cluster, lambda _: None, frozenset(), False
        ).run().check()
        cluster.close(wait=True)
    own = cluster.spent["scheduler"]
    return (
        f"{ran} steps: a real scheduler process {1000 * real / ran:.2f} ms a task, this one "
        f"{1000 * own / ran:.2f}"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", nargs="?", default=str(HERE.parent / "recipes" / "fashion.toml"))
    parser.add_argument("--samples", type=int, nargs="+", default=[1000, 10000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 10, 30, 100, 300, 1000])
    parser.add_argument("--latency-ms", type=float, default=3.0)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true", help="into its study, below what it says by hand")
    args = parser.parse_args()
    # else a line for each of a thousand workers
    logging.getLogger("distributed").setLevel(logging.ERROR)
    if args.check:
        print(check())
        return
    reported = []
    for samples in args.samples:
        with tempfile.TemporaryDirectory() as folder:
            case = Case(Path(args.recipe), samples, Path(folder))
            reported += [f"{samples:,} samples:", "", COLUMNS, "| --- " * COLUMNS.count(" | ") + "| --- |"]
            print("\n".join(reported[-4:]), flush=True)
            for workers in args.workers:
                reported.append(row(case, workers, Costs(latency=args.latency_ms / 1000)))
                print(reported[-1], flush=True)
            reported.append("")
    if args.write:
        about = f"{Path(args.recipe).stem}, Python {platform.python_version()}."
        kept = study.page(__file__).read_text().partition("## What it shows")
        study.write(__file__, HEAD.format(about=about) + "\n".join(reported) + "\n" + "".join(kept[1:]))


if __name__ == "__main__":
    sys.exit(main())
