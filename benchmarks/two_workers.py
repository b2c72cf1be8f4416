"""Calibration by two worker processes beside one: statistics of a recipe's samples, decoded before.

    python benchmarks/two_workers.py RECIPE [--rounds 3] [--set ...]      # prints the table of its study

Every run is a build `--until statistics` of one cache whose samples and segments are there, the rest
deleted; a cluster of processes with one thread each, started before the clock runs, as is their import of
the stages (each has observed one sample). The ceiling is what the machine itself gives: two processes that
each observe half of the samples and know nothing of each other, beside one that observes all, started and
warm before the clock as well.
"""

import argparse
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

from distributed import Client, LocalCluster

from npuflow.flow.recipe_build import build

READY = 300


def seconds(recipe, sets, cache, scheduler, jobs=None):
    """From the first task to the end of `statistics`, as the build itself counts."""
    place = Path(tempfile.mkdtemp(dir=cache.parent))
    shutil.copytree(cache, place / "cache")
    begun = time.perf_counter()
    done = build(
        recipe,
        sets,
        cache=place / "cache",
        out=place / "out",
        until="statistics",
        scheduler=scheduler,
        jobs=jobs,
    )
    whole = time.perf_counter() - begun
    shutil.rmtree(place)
    return done.check().seconds, whole, done.outputs["statistics"]


def alone(recipe, sets, names, ready, go, reported):
    """Observe some samples again and again in a process of its own: seconds from the signal on."""
    from npuflow.statistics import segments, walk

    sys.path.insert(0, str(Path(__file__).parent))
    from calibrate import Case

    case = Case(recipe, sets)
    parts = segments.segments(case.graph, case.names)
    feeds = {
        name: (lambda feed=feed: feed)
        for name, feed in case.feeds(None)
        if int(name.split("/")[-1][:3]) % 2 in names
    }
    few = dict(list(feeds.items())[:2])
    list(walk.observed(parts, list(parts), few))
    ready.release()
    go.wait(READY)
    begun = time.perf_counter()
    for _ in walk.observed(parts, list(parts), feeds):
        pass
    reported.put((len(feeds), time.perf_counter() - begun))


def ceiling(recipe, sets):
    """Samples a second: one process; two at once."""
    found = []
    for halves in ([(0, 1)], [(0,), (1,)]):
        context = multiprocessing.get_context("spawn")
        ready, go, reported = context.Semaphore(0), context.Event(), context.Queue()
        processes = [
            context.Process(target=alone, args=(recipe, sets, half, ready, go, reported)) for half in halves
        ]
        for one in processes:
            one.start()
        for _ in processes:
            ready.acquire(timeout=READY)
        go.set()
        each = [reported.get(timeout=READY) for _ in processes]
        for one in processes:
            one.join()
        found.append(sum(n for n, _ in each) / max(t for _, t in each))
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        for until in ("samples", "segments"):
            build(args.recipe, args.set, cache=cache, out=Path(folder) / "out", until=until, jobs=2).check()
        times, outputs = {1: [], 2: []}, set()
        for _ in range(args.rounds):
            for workers in times:
                with LocalCluster(
                    n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=50
                ) as cluster:
                    with Client(cluster) as client:
                        client.run(_warm)
                    spent, whole, output = seconds(args.recipe, args.set, cache, cluster.scheduler_address)
                    times[workers].append(spent)
                    outputs.add(output)
                    print(
                        f"{workers} worker(s): {spent:.2f} s ({whole:.2f} s with the start of the build)",
                        flush=True,
                    )
        assert len(outputs) == 1, "the statistics differ"
        one, two = (statistics.median(found) for found in times.values())
        rates = ceiling(args.recipe, args.set)
    apart = rates[1] / rates[0]
    print(
        f"two workers: {one / two:.2f} times one; two processes that know nothing of each other: "
        f"{apart:.2f} times one"
    )


def _warm():
    """What a worker's first task would import and load."""
    import numpy as np

    import npuflow.stages.statistics
    from npuflow.statistics.observe import Counter
    from npuflow.statistics.statistics import merged

    merged([("x", Counter(["x"]).observe([np.ones(3, np.float32)]))])
    return npuflow.stages.statistics.__name__


if __name__ == "__main__":
    main()
