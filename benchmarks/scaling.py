"""How calibration scales with workers: a discrete simulation of its task graph, and its assumptions.

    python benchmarks/scaling.py [--samples 10000 100000] [--batch 32] [--sample-ms 40] [--segments 3] [--task-ms 1.0]

Tasks are those of a build. Batches of samples are observed in any order; then every segment's statistics merge in a
tree: shards of the samples' observations, regions of shards, and one last task of regions (`flow.refs.groups` makes the
groups, so that they are those of a build). A level begins when the one below it is done. The scheduler hands out one
task after the other (`--task-ms` each; the measured cost of dask's `Client.map` is 0.2 to 2.8 ms); a worker's first task
starts its session (`--start-s`). Task times vary by 20 % (seeded); one worker in a hundred is four times slower; one
worker dies in the middle of the observing and its batch is run again. Efficiency is work / (workers x time), where work
is one worker's time without starting up. Beside it: the same with one task that merges all, as it was before the tree.
"""

import argparse
import heapq

import numpy as np

from npuflow.flow.refs import groups, pair

TOGETHER = 4                                # shards a task, as the stage says


def simulate(workers, tasks, task, start, rng, speed, deaths=0):
    """Time until the last of some tasks (seconds each) is done."""
    free = [(0.0, w) for w in range(workers)]
    begun, dispatcher, end = set(), 0.0, 0.0
    queue = [float(t) for t in np.asarray(tasks) * rng.normal(1.0, 0.2, len(tasks)).clip(0.5)]
    lost = len(queue) // 2
    while queue:
        at, worker = heapq.heappop(free)
        dispatcher = max(dispatcher, at) + task
        work = queue.pop() * speed[worker] + (0.0 if worker in begun else start)
        begun.add(worker)
        if deaths and len(queue) == lost and workers > 1:
            deaths = 0
            queue.append(work / 2)          # the batch again; the worker is gone
            continue
        done = dispatcher + work
        end = max(end, done)
        heapq.heappush(free, (done, worker))
    return end


def tree(samples, segments):
    """Members of every group, level by level, of one network's segments."""
    ids = [pair(f"{k:02}", f"sample {i:06}.jpg") for k in range(segments) for i in range(samples)]
    levels = []
    for stage in ("shards", "regions"):
        found = groups(ids, stage)
        levels.append([len(members) for members in found.values()])
        ids = list(found)
    return levels, len(ids)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, nargs="+", default=[10000, 100000])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--segments", type=int, default=3)
    parser.add_argument("--sample-ms", type=float, default=40.0)
    parser.add_argument("--task-ms", type=float, default=1.0)
    parser.add_argument("--read-ms", type=float, default=1.2, help="to add one observation of a segment to a shard")
    parser.add_argument("--merge-ms", type=float, default=6.0, help="to add one shard or region to another")
    parser.add_argument("--start-s", type=float, default=1.0)
    args = parser.parse_args()
    for samples in args.samples:
        levels, regions = tree(samples, args.segments)
        shards = [n * args.read_ms / 1000 for n in levels[0]]
        together = [sum(shards[i : i + TOGETHER]) for i in range(0, len(shards), TOGETHER)]
        merges = [n * args.merge_ms / 1000 for n in levels[1]]
        last = regions * args.merge_ms / 1000
        once = samples * args.segments * args.read_ms / 1000
        work = samples * args.sample_ms / 1000 + sum(shards) + sum(merges) + last
        print(f"{samples} samples of {args.sample_ms:g} ms in {args.segments} segments, {args.task_ms:g} ms a task; "
              f"{len(shards)} shards, {len(merges)} regions; longest merges {max(shards):.2f}, {max(merges):.2f}, {last:.2f} s")
        print("| workers | batch | observe s | shards s | regions s | last s | efficiency | with one merge |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for workers in (1, 10, 30, 100, 300, 1000):
            size = max(1, min(args.batch, samples // (4 * workers) or 1))
            rng, task = np.random.default_rng(0), args.task_ms / 1000
            speed = np.where(rng.random(workers) < 0.01, 4.0, 1.0)
            batches = [size * args.sample_ms / 1000] * -(-samples // size)
            times = [simulate(workers, batches, task, args.start_s, rng, speed, 1)]
            times += [simulate(workers, level, task, 0.0, rng, speed) for level in (together, merges, [last])]
            single = samples * args.sample_ms / 1000 + once
            print(f"| {workers} | {size} | " + " | ".join(f"{t:.1f}" for t in times)
                  + f" | {work / (workers * sum(times)):.1%} | {single / (workers * (times[0] + once)):.1%} |")
        print()


if __name__ == "__main__":
    main()
