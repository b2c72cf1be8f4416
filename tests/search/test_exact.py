"""Level 3 beside every way to cut a small network into groups, and every way to let
values stay between these."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise, product

import pytest

from npuflow.base.errors import TargetError
from npuflow.hw.target import Compute, Target
from npuflow.ir.graph import Graph
from npuflow.schedule.frame import Frame, Topology
from npuflow.schedule.local import widened
from npuflow.search.finalists import Finalist, overlapping
from npuflow.search.fuse import Fuser
from npuflow.search.plan import Contest, plan_network
from npuflow.search.score import Scored
from tests.networks import random_networks
from tests.networks.harness import machine
from tests.tiers import tiered


def ways(fuser: Fuser) -> Iterator[list[Scored]]:
    """Every way to cut the order into groups, each run as it is best by itself."""
    n = len(fuser.singles)
    for cuts in product((False, True), repeat=n - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), n]
        found = [fuser.best(a, b) if fuser.joins(a, b) else None for a, b in pairwise(edges)]
        if all(found):
            yield [f for f in found if f is not None]


def crossing(fuser: Fuser, groups: list[Scored]) -> list[tuple[str, int, int]]:
    """Values that may stay: with the group that makes each, and the last that reads it."""
    topology, where = fuser.topology, {n: g for g, c in enumerate(groups) for n in c.group.nodes}
    found = []
    for g, scored in enumerate(groups):
        for value in topology.needed(scored.group.nodes) if scored.group.parts[0].choice is not None else ():
            readers = [where[r] for r in topology.readers.get(value, ()) if where.get(r, g) > g]
            if readers and all(groups[r].group.parts[0].choice is not None for r in readers):
                found.append((value, g, max(readers)))
    return found


def staying(fuser: Fuser, groups: list[Scored], stay: tuple[tuple[str, int, int], ...]) -> Finalist | None:
    """The same groups, tiled for the values that stay, in the room that these leave."""
    kept, found = frozenset(v for v, _, _ in stay), []
    for g, old in enumerate(groups):
        room = fuser.room - sum(fuser.topology.bytes(v) for v, first, last in stay if first < g <= last)
        parts = [p.nodes for p in old.group.parts]
        moves = old.group.parts[0].choice is None
        scored = (
            old
            if moves or not stay
            else fuser.scorer.score(parts, old.group.strips, old.group.cores, kept, room)
        )
        if scored is None:
            return None
        found.append(scored.group)
    frames = [Frame(fuser.topology, g, kept) for g in found]
    return Finalist(tuple(widened(frames, kept, fuser.machine)), tuple(sorted(kept)))


def every_plan(fuser: Fuser) -> Iterator[Finalist]:
    for groups in ways(fuser):
        values = crossing(fuser, groups)
        for count in range(len(values) + 1):
            yield from filter(None, (staying(fuser, groups, stay) for stay in combinations(values, count)))


def drawn(seed: int, most: int = 6) -> tuple[Graph, Target, Fuser] | None:
    """A network of two to so many parts, and its fuser in exact mode."""
    rng = random.Random(seed)
    target = replace(
        random_networks.target(rng),
        compute=Compute(array_rows=4, array_cols=4, vector_lanes=4, fill_cycles=4),
    )
    try:
        graph, _ = random_networks.network(rng, target.numerics, rng.randint(2, 5))
        singles = list(plan_network(graph, machine(target), target.numerics, 1).groups)
    except TargetError:
        return None
    fuser = Fuser(Topology(graph, machine(target), target.numerics), machine(target), singles, 3)
    fuser.exact = True
    return (graph, target, fuser) if 2 <= len(singles) <= most else None


def total(fuser: Fuser) -> float:
    """The score of the cheapest cuts."""
    return sum(group.score for group in fuser.cuts())


def gaps(seeds: range) -> list[float]:
    """What level 3 is above the best of all cuts, by the search's score: which exact mode finds."""
    found = []
    for seed in seeds:
        if (one := drawn(seed)) is not None:
            _, _, exact = one
            best = min(sum(c.score for c in groups) for groups in ways(exact))
            quick = total(Fuser(exact.topology, exact.machine, exact.singles, 3))
            assert total(exact) == pytest.approx(best, rel=1e-9) and quick >= best * (1 - 1e-9), seed
            found.append(quick / best - 1 if best else 0.0)
    return found


def replayed(seeds: range, most: int = 6) -> list[float]:
    """What the plan of level 3 is above the fastest of all plans, both replayed tile by tile;
    below 0 where it is faster."""
    found = []
    for seed in seeds:
        if (one := drawn(seed, most)) is not None:
            graph, target, exact = one
            contest = Contest(exact.topology, exact.machine, "greedy", 3, frozenset())
            contest.offer(every_plan(exact))
            assert contest.best is not None
            contest.offer([overlapping(contest.best, exact.topology, exact.machine)])
            best = contest.best.cycles
            found.append(plan_network(graph, machine(target), target.numerics, 3).cycles / best - 1)
    return found


def test_exact_mode_is_brute_force() -> None:
    found = gaps(range(12))
    assert len(found) >= 5 and sum(found) / len(found) <= 0.05, found


def test_level_3_beside_every_plan() -> None:
    found = replayed(range(1, 6), 4)
    assert len(found) >= 3 and sum(found) / len(found) <= 0.05, found


@pytest.mark.parametrize("first", tiered(range(100, 700, 50), 2))
def test_level_3_beside_every_plan_of_many(first: int) -> None:
    """At least 20 of 50 draws are networks of two to six parts: 240 in all, with the campaign."""
    seeds = range(first, first + 50)
    by_score, by_replay = gaps(seeds), replayed(seeds)
    for name, found in (("by score", by_score), ("replayed", by_replay)):
        print(
            f"{len(found)} networks from seed {first}, {name}: {sum(found):.4f} in all, "
            f"{max(found):.4f} at most"
        )
    assert len(by_score) >= 20
    assert all(sum(found) / len(found) <= 0.05 for found in (by_score, by_replay)), (by_score, by_replay)
