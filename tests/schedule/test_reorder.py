"""Jobs in another order: queues take what is ready, what depends on each other keeps its order, and programs
stay exact."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations, pairwise

import pytest

from npuflow.base.errors import TargetError
from npuflow.program.codegen.generate import generate
from npuflow.schedule.allocate import Lifetime, aligned, in_own_bytes
from npuflow.schedule.jobs import NO_BOX, Allocation, ConstantShare, Job, Outside, Place, Queues
from npuflow.schedule.reorder import reordered
from npuflow.search.plan import plan_network
from tests.networks import random_groups, random_networks
from tests.networks.harness import SMALL, check_exact, machine
from tests.tiers import often, tiered

QUEUES, MACHINE = Queues(SMALL.dma.channels), machine(SMALL)
LOAD, STORE, ARRAY, VECTOR = QUEUES.values, QUEUES.stores, QUEUES.tensor, QUEUES.vector
SHARD = 100


def bytes_of(low: int, size: int, *replaces: Allocation) -> Allocation:
    return Allocation(low, low + size, size, NO_BOX, 1, replaces)


def job(
    queue: int, cycles: int, reads: list[Allocation], writes: list[Allocation], outside: Outside | None = None
) -> Job:
    def places(allocations: list[Allocation]) -> list[Place]:
        return [(a, None) for a in allocations]

    nothing = ConstantShare((), (), 0)
    return Job(0, queue, 0, 0, 0, places(reads), places(writes), cycles, nothing, 0, outside)


def value(name: str, low: int = 0, high: int = 64) -> Outside:
    return Outside(name, name, NO_BOX, (low, high))


def test_a_queue_takes_the_first_job_that_is_ready() -> None:
    """The array's second job needs what the vector unit is still at; its third needs nothing."""
    sums, made, more, other = (bytes_of(64 * n, 64) for n in range(4))
    first = job(ARRAY, 10, [], [sums])
    ending = job(VECTOR, 30, [sums], [made])
    waits = job(ARRAY, 10, [made], [more])
    free = job(ARRAY, 10, [], [other])
    assert reordered([first, ending, waits, free], MACHINE) == [first, ending, free, waits]


def test_of_several_that_are_ready_the_first_in_the_program_goes_first() -> None:
    jobs = [job(ARRAY, n, [], [bytes_of(64 * n, 64)]) for n in (9, 3, 5)]
    assert reordered(jobs, MACHINE) == jobs


def test_bytes_are_taken_when_all_that_used_them_is_done() -> None:
    """The third job takes the bytes of the first one's sums: not before the vector unit has read them."""
    sums, made = bytes_of(0, 64), bytes_of(64, 64)
    again = bytes_of(0, 64, sums)
    jobs = [
        job(ARRAY, 10, [], [sums]), job(VECTOR, 30, [sums], [made]), job(ARRAY, 10, [], [again]),
        job(ARRAY, 10, [], [bytes_of(128, 64)]),
    ]
    assert reordered(jobs, MACHINE) == [jobs[0], jobs[1], jobs[3], jobs[2]]


def test_external_memory_keeps_its_order() -> None:
    """A store may write over what a load before it reads; a load waits for the store of its bytes, and loads
    and stores for those before them."""
    a, b, c = (bytes_of(64 * n, 64) for n in range(3))
    made = job(VECTOR, 100, [], [c])
    jobs = [
        made, job(ARRAY, 5, [c], [a]), job(LOAD, 5, [], [a], value("old")),
        job(STORE, 5, [b], [], value("new")), job(LOAD, 5, [], [b], value("new")),
    ]
    # the first load waits for the array, which reads the bytes that it takes; the store could begin at once
    assert reordered(jobs, MACHINE) == jobs


def drawn(rng: random.Random) -> list[Job]:
    slots: list[list[Allocation]] = [[bytes_of(64 * n, 64)] for n in range(6)]
    found = []
    for _ in range(rng.randint(2, 40)):
        kind, near = rng.choice((LOAD, STORE, ARRAY, VECTOR)), rng.sample(slots, 2)
        if kind != STORE and rng.random() < 0.4:          # what comes to lie there is written first
            near[1].append(bytes_of(near[1][-1].low, 64, near[1][-1]))
        reads = [] if kind == LOAD else [near[0][-1]]
        writes = [] if kind == STORE else [near[1][-1]]
        outside = value(rng.choice("abc")) if kind in (LOAD, STORE) else None
        found.append(job(kind, rng.randint(1, 50), reads, writes, outside))
    return found


def test_what_depends_on_each_other_keeps_its_order() -> None:
    """By bytes, seen without the code's own accesses: of two jobs that touch the same bytes of local memory,
    one of them writing, or the same value in external memory, the first comes first."""
    moved = 0
    for seed in range(300):
        jobs = drawn(random.Random(seed))
        found = reordered(jobs, MACHINE)
        at = {id(one): n for n, one in enumerate(found)}
        assert len(at) == len(found) == len(jobs)
        moved += found != jobs
        written = [{a.low for a, _ in one.writes} for one in jobs]
        used = [{a.low for a, _ in (*one.reads, *one.writes)} for one in jobs]
        for n, m in combinations(range(len(jobs)), 2):
            one, other = jobs[n], jobs[m]
            queues = one.queue, other.queue
            together = bool(written[n] & used[m] or used[n] & written[m])
            together |= queues in ((LOAD, LOAD), (STORE, STORE), (LOAD, STORE))
            if queues == (STORE, LOAD) and one.outside is not None and other.outside is not None:
                together |= one.outside.owner == other.outside.owner
            assert not together or at[id(one)] < at[id(other)], seed
    assert moved > 100


def taken(lives: list[Lifetime], moment: int) -> int:
    return sum(aligned(v.size, 16) for v in lives if v.first <= moment <= v.last)


def test_buffers_lie_apart_as_far_as_there_is_room() -> None:
    """Lives begin when they did, end later by so many parts at most, and never take more than there is where
    they did not before; the last way is as they are."""
    longer = 0
    for seed in range(100):
        rng = random.Random(seed)
        lives = [
            Lifetime(f"v{n}", rng.randint(1, 200), t := rng.randint(0, 8), t + rng.randint(0, 3))
            for n in range(rng.randint(1, 15))
        ]
        constants, limit, parts = {v.name for v in lives[::4]}, rng.choice((300, 800)), rng.randint(1, 3)
        ways = list(in_own_bytes(lives, constants, parts, limit, 16))
        assert ways[-1] == [v for v in lives if v.name not in constants]
        own = {v.name: v for v in lives}
        for way in ways:
            changed = [*way, *(own[name] for name in constants)]
            for v in changed:
                assert own[v.name].first == v.first and 0 <= v.last - own[v.name].last <= parts
            for t in range(12):
                assert taken(changed, t) <= max(taken(lives, t), limit)
        longer += ways[0] != ways[-1]
        assert all(sum(v.last for v in b) <= sum(v.last for v in a) for a, b in pairwise(ways))
    assert longer > 50


def exact(seed: int) -> bool:
    """Any legal groups with their jobs in another order; whether the program is another one."""
    rng = random.Random(seed)
    target = random_networks.target(rng)
    try:
        graph, feed = random_networks.network(rng, target.numerics)
        plan, _ = random_groups.plan(graph, machine(target), target.numerics, rng)
        other = replace(plan, ahead=rng.choice((1, 2)))
        changed = generate(graph, other, target).to_bytes() != generate(graph, plan, target).to_bytes()
    except TargetError:
        return False
    check_exact(graph, feed, target, other, exact_only=seed % 2 == 0)
    return changed


@pytest.mark.parametrize("count", often([3, 12], 2))
def test_programs_of_groups_drawn_at_random_are_exact(count: int) -> None:
    assert sum(exact(seed) for seed in range(count)) > count / 3


@pytest.mark.parametrize("first", tiered(range(1000, 3000, SHARD), 2))
def test_many_programs_of_groups_drawn_at_random_are_exact(first: int) -> None:
    for seed in range(first, first + SHARD):
        exact(seed)


@pytest.mark.slow
def test_the_search_takes_it_where_it_is_faster() -> None:
    """Never slower than without, faster for some, and as exact."""
    faster = 0
    for seed in range(8):
        rng = random.Random(seed)
        target = random_networks.target(rng)
        try:
            graph, feed = random_networks.network(rng, target.numerics, 8)
            plan = plan_network(graph, machine(target), target.numerics)
        except TargetError:
            continue
        names = ("reordered x 1", "reordered x 2")
        plain = plan_network(graph, machine(target), target.numerics, without=names)
        assert plan.cycles <= plain.cycles and plain.ahead == 0
        faster += plan.cycles < plain.cycles
        if plan.ahead:
            check_exact(graph, feed, target, plan)
    assert faster > 0
