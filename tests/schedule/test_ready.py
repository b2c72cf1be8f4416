"""Jobs in the order in which they can run: the same jobs, and every value as it was."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

import numpy as np
import pytest

from npuflow.base.errors import TargetError
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.quantise.config import Quantize
from npuflow.report.profile import profile
from npuflow.schedule.build import schedule_of
from npuflow.schedule.frame import Frame, Topology
from npuflow.schedule.jobs import Job, Queues, Schedule
from npuflow.schedule.local import lay_local
from npuflow.schedule.ready import by_readiness
from npuflow.schedule.time import time_of
from npuflow.search.finalists import places
from npuflow.search.plan import plan_network
from npuflow.testing.quantised import quantize_graph
from tests.networks import random_groups, random_networks
from tests.networks.harness import SMALL, check_exact, local, machine
from tests.networks.small import Builder
from tests.schedule.test_jobs import drawn, jobs_of, scheduled
from tests.tiers import tiered

SHARD = 100


def lines(schedule: Schedule) -> dict[Hashable, list[Job]]:
    """Jobs that keep their order: of a phase, those of loads and stores by queue, of engines by node."""
    found: dict[Hashable, list[Job]] = {}
    for number, phase in enumerate(schedule.phases):
        for job in phase.jobs:
            key = number, job.core, job.queue
            engine = job.queue >= job_queues(schedule).tensor
            found.setdefault((*key, job.group, job.node) if engine else key, []).append(job)
    return found


def job_queues(schedule: Schedule) -> Queues:
    return Queues(max(job.queue for job in jobs_of(schedule)) // 2)


@pytest.mark.parametrize("seed", range(12))
def test_the_same_jobs_in_another_order(seed: int) -> None:
    """Each phase has its jobs, those of a line in order; loads that cores make together are the same."""
    schedule, on = scheduled(*drawn(seed))
    found = by_readiness(schedule, on)
    assert found is not None and by_readiness(schedule, on, 1.0) is None
    assert [sorted(map(id, p.jobs)) for p in found.phases] == [
        sorted(map(id, p.jobs)) for p in schedule.phases
    ]
    assert lines(found) == lines(schedule)
    for old, new in zip(schedule.phases, found.phases, strict=True):
        together = [{id(phase.jobs[n]) for n in every} for phase in (old, new) for every in phase.shared]
        half = len(together) // 2
        assert sorted(map(sorted, together[:half])) == sorted(map(sorted, together[half:]))


def exact(seed: int, count: Counter[str]) -> None:
    """Programs of any legal plan, and their schedule's time."""
    rng = random.Random(seed)
    target = random_networks.target(rng)
    try:
        graph, feed = random_networks.network(rng, target.numerics, rng.randint(4, 10))
        plan, _ = random_groups.plan(graph, machine(target), target.numerics, rng)
    except TargetError:
        count["refused"] += 1
        return
    program = check_exact(graph, feed, target, replace(plan, ready=True), exact_only=seed % 2 == 0)
    measured = profile(program)
    count["near"] += abs(measured.totals()["schedule_cycles"] / measured.whole_cycles - 1) < 0.02
    count["exact"] += 1


def campaign(seeds: range) -> None:
    count: Counter[str] = Counter()
    for seed in seeds:
        try:
            exact(seed, count)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert count["refused"] < 0.3 * len(seeds) and count["near"] >= 0.9 * count["exact"], count


def test_programs_are_exact() -> None:
    campaign(range(12))


@pytest.mark.parametrize("first", tiered(range(1000, 3000, SHARD), 2))
def test_many_programs_are_exact(first: int) -> None:
    campaign(range(first, first + SHARD))


def pooled() -> tuple[Graph, dict[str, np.ndarray]]:
    """A layer of the array, a pool and a layer again."""
    b = Builder()
    x = b.add(
        OPS["conv"]((3, 3), (1, 1), (1, 1), (1, 1, 1, 1)), b.input("x", (1, 8, 24, 24)),
        b.const((8, 8, 3, 3), 0.3),
    )
    p = b.add(OPS["maxpool"]((3, 3), (1, 1), (1, 1), (1, 1, 1, 1)), x)
    y = b.add(OPS["conv"]((3, 3), (1, 1), (1, 1), (1, 1, 1, 1)), p, b.const((8, 8, 3, 3), 0.3))
    graph = Graph(("x",), (y,), tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    return quantize_graph(
        graph, lambda _: True, ranges, Quantize(), SMALL.numerics
    ).graph, {"x": b.arrays["x"]}


def test_a_pool_runs_while_the_array_multiplies() -> None:
    """The plan's own order lets the vector unit wait for the whole layer before the pool."""
    graph, feed = pooled()
    target = local(SMALL, 1 << 15)
    old = plan_network(graph, machine(target), target.numerics, without=["as ready"])
    new = plan_network(graph, machine(target), target.numerics)
    assert new.ready and new.origin.endswith(", as ready") and new.cycles < 0.98 * old.cycles
    assert profile(check_exact(graph, feed, target, new)).cycles == pytest.approx(new.cycles, rel=0.02)


def test_bytes_of_what_comes_next_lie_apart() -> None:
    """Where there is room, a buffer's bytes are not used again by the next parts."""
    graph, _ = pooled()
    target = local(SMALL, 1 << 15)
    plan = plan_network(graph, machine(target), target.numerics, without=["as ready"])
    topology, on = Topology(graph, machine(target), target.numerics), machine(target)
    frames = [Frame(topology, g, frozenset(plan.kept)) for g in plan.groups]
    near, far = (lay_local(frames, plan.kept, on, apart=n) for n in (0, 2))
    assert near.total < far.total <= 1 << 15
    times = []
    for one in (near, far):
        found = by_readiness(schedule_of(frames, one, on, places(topology, frames)), on)
        assert found is not None
        times.append(time_of(found, on).cycles)
    assert times[1] <= times[0]
