"""A schedule as a value: what jobs read is there, bytes are used by one thing at a time, and both
consumers leave it as it is."""

from __future__ import annotations

import random
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from npuflow.base.errors import TargetError
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.program.codegen.generate import generate
from npuflow.schedule.accesses import LocalAccesses
from npuflow.schedule.build import constants_first, schedule_of
from npuflow.schedule.frame import Frame, Topology
from npuflow.schedule.jobs import Allocation, ConstantShare, Job, Queues, Schedule
from npuflow.schedule.local import lay_local
from npuflow.schedule.machine import Machine
from npuflow.schedule.time import time_of
from npuflow.search.finalists import places
from npuflow.search.plan import TilingPlan
from tests.networks import random_groups, random_networks
from tests.networks.harness import machine
from tests.tiers import often

SEEDS = often(range(12), 2)


@cache
def drawn(seed: int) -> tuple[Graph, TilingPlan, Target]:
    rng = random.Random(seed)
    target = random_networks.target(rng)
    try:
        graph, _ = random_networks.network(rng, target.numerics)
        return graph, random_groups.plan(graph, machine(target), target.numerics, rng)[0], target
    except TargetError:
        pytest.skip("no tile of this network fits")


def scheduled(graph: Graph, plan: TilingPlan, target: Target) -> tuple[Schedule, Machine]:
    topology = Topology(graph, machine(target), target.numerics)
    frames = [Frame(topology, g, frozenset(plan.kept)) for g in plan.groups]
    local = lay_local(frames, plan.kept, machine(target))
    return schedule_of(frames, local, machine(target), places(topology, frames)), machine(target)


def jobs_of(schedule: Schedule) -> list[Job]:
    return [job for phase in schedule.phases for job in phase.jobs]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_job_reads_has_been_written(seed: int) -> None:
    schedule, _ = scheduled(*drawn(seed))
    written: set[Allocation] = set()
    for job in jobs_of(schedule):
        assert {a for a, _ in job.reads} <= written, job
        written |= {a for a, _ in job.writes}
    assert written


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_used_after_something_else_lies_in_its_bytes(seed: int) -> None:
    schedule, made = scheduled(*drawn(seed))
    gone: set[Allocation] = set()
    seen: set[Allocation] = set()
    for job in jobs_of(schedule):
        for allocation, _ in (*job.reads, *job.writes):
            assert allocation not in gone, job
            assert 0 <= allocation.low < allocation.high <= made.memory.local_bytes and allocation.size >= 0
            if allocation not in seen:
                seen.add(allocation)
                gone |= set(allocation.replaces)


@pytest.mark.parametrize("seed", SEEDS)
def test_time_leaves_a_schedule_as_it_is(seed: int) -> None:
    """Twice the same time: nothing of the first is left in the jobs. Terms add up to what jobs say."""
    graph, plan, target = drawn(seed)
    schedule, made = scheduled(graph, plan, target)
    first = time_of(schedule, made)
    assert time_of(schedule, made) == first and first.cycles > 0
    assert max(first.ends) == first.cycles
    array = [0] * made.compute.cores
    for job in jobs_of(schedule):
        array[job.core] += job.cycles if job.queue == Queues(made.dma.channels).tensor else 0
    assert max(array) <= sum(t.array for t in first.terms) <= first.cycles * made.compute.cores


@pytest.mark.parametrize("seed", SEEDS)
def test_commands_are_those_of_the_jobs(seed: int) -> None:
    """Every load and store of the schedule is one command, on its core and queue."""
    graph, plan, target = drawn(seed)
    schedule, made = scheduled(graph, plan, target)
    program = generate(graph, plan, target)
    queues = Queues(made.dma.channels)
    for core, commands in enumerate(program.decoded):
        moved = [c.queue for c in commands if c.opcode in ("LOAD", "STORE")]
        own = [j.queue for j in jobs_of(schedule) if j.core == core and j.queue <= queues.stores]
        assert moved == own


def test_accesses_of_what_was_never_touched_are_those_of_what_it_replaced() -> None:
    old = Allocation(0, 64, 64, (), 1, ())
    above: Allocation = old
    for _ in range(1500):                       # slots that were renewed and not used: no recursion
        above = Allocation(0, 64, 64, (), 1, (above, old))
    local = LocalAccesses()
    local[old].touch(None, 3, 7, True)
    found: dict[int, int] = {}
    local[above].before_write(None, found)
    assert found == {3: 7}


def test_a_part_of_a_load_waits_for_what_lay_in_its_bytes() -> None:
    old = [Allocation(64 * k, 64 * (k + 1), 64, (), 1, ()) for k in range(3)]
    first = Allocation(0, 192, 192, (), 1, tuple(old))
    new = Allocation(0, 192, 192, ((0, 192),), 1, (first,))      # the same slot, with something in it
    local = LocalAccesses()
    for k, one in enumerate(old):
        local[one].touch(None, 3, 7 + k, False)
    first_part: dict[int, int] = {}
    second_part, all_of_it = dict(first_part), dict(first_part)
    local[new].before_part(new.touched(((0, 100),)), ((0, 100),), first_part)
    local[new].touch(((0, 100),), 0, 5, True)
    local[new].before_part(new.touched(((100, 120),)), ((100, 120),), second_part)
    local[new].before_write(None, all_of_it)
    assert (first_part, second_part, all_of_it) == ({3: 8}, {3: 8}, {0: 5, 3: 9})


def test_parts_of_constants_come_in_front_of_what_uses_other_bytes() -> None:
    def job(low: int, what: Any) -> Job:
        place = (Allocation(low, low + 64, 64, (), 1, ()), None)
        return Job(0, 0, 0, 5, 0, (), (place,), 4, what)

    share = ConstantShare((), (), 0)
    value, over, free = job(0, None), job(32, share), job(256, share)
    frame: Any = SimpleNamespace(
        moves=False, members=[SimpleNamespace(nodes=(5,), layer=SimpleNamespace(mac=object()))]
    )
    assert constants_first([value, over, free], frame) == [free, value, over]
