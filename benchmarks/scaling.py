"""How calibration scales with workers: a discrete simulation of its task graph, and its assumptions.

    python benchmarks/scaling.py [--samples 10000] [--batch 32] [--sample-ms 40] [--task-ms 1.0] [--read-ms 0.7]

Tasks are those of a build: batches of samples are observed, in any order, then one task merges all. The scheduler hands
out one task after the other (`--task-ms` each, the measured cost of dask's `Client.map` per task is 0.2 to 2.8 ms); a
worker's first task starts its session (`--start-s`). Task times vary by 20 % (seeded); one worker in a hundred is four
times slower; one worker dies in the middle and its batch is run again. The merge reads every sample's statistics
(`--read-ms` each). Efficiency is work / (workers x time), where work is one worker's time without starting up.
"""

import argparse
import heapq

import numpy as np


def simulate(workers, batches, seconds, task, start, rng):
    """Time until the last batch is done."""
    speed = np.where(rng.random(workers) < 0.01, 4.0, 1.0)
    free = [(0.0, w) for w in range(workers)]
    begun, dispatcher, end = set(), 0.0, 0.0
    queue = list(seconds * rng.normal(1.0, 0.2, batches).clip(0.5))
    lost = len(queue) // 2
    while queue:
        at, worker = heapq.heappop(free)
        dispatcher = max(dispatcher, at) + task
        work = queue.pop() * speed[worker] + (0.0 if worker in begun else start)
        begun.add(worker)
        if len(queue) == lost and workers > 1:
            lost = -1
            queue.append(work / 2)          # the batch again; the worker is gone
            continue
        done = dispatcher + work
        end = max(end, done)
        heapq.heappush(free, (done, worker))
    return end


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--sample-ms", type=float, default=40.0)
    parser.add_argument("--task-ms", type=float, default=1.0)
    parser.add_argument("--read-ms", type=float, default=0.7)
    parser.add_argument("--start-s", type=float, default=1.0)
    args = parser.parse_args()
    print(f"{args.samples} samples of {args.sample_ms} ms, {args.task_ms} ms a task, merge {args.read_ms} ms a sample")
    print("workers  batch  observe s  merge s  efficiency")
    for workers in (1, 10, 30, 100, 300, 1000):
        size = max(1, min(args.batch, args.samples // (4 * workers) or 1))
        batches = -(-args.samples // size)
        rng = np.random.default_rng(0)
        seconds = size * args.sample_ms / 1000
        observe = simulate(workers, batches, seconds, args.task_ms / 1000, args.start_s, rng)
        merge = args.samples * args.read_ms / 1000
        work = args.samples * args.sample_ms / 1000 + merge
        print(f"{workers:7} {size:6} {observe:10.1f} {merge:8.1f} {work / (workers * (observe + merge)):10.1%}")


if __name__ == "__main__":
    main()
