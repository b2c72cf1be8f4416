"""Values that stay on several cores: the boxes that cores hand each other, in plans drawn at
random and in the search's own."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from npuflow.base.errors import TargetError
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.space import elements
from npuflow.report.profile import profile
from npuflow.report.profile.schedule import apart
from npuflow.schedule.borders import OtherBorders, spreads, trimmed
from npuflow.schedule.frame import Frame, Topology
from npuflow.schedule.geometry import Border, Spread
from npuflow.search.plan import TilingPlan
from tests.networks import random_groups, random_networks
from tests.networks.harness import check_exact, machine
from tests.tiers import often, tiered


def spread_of(graph: Graph, plan: TilingPlan, target: Target) -> dict[str, Spread]:
    topology = Topology(graph, machine(target), target.numerics)
    frames = [Frame(topology, g, frozenset(plan.kept)) for g in plan.groups]
    return dict(spreads(frames, plan.kept, target.compute.cores))


def tried(seed: int, depth: int = 7) -> int:
    """Borders of a plan drawn at random on several cores; what it makes is exact, the
    schedule time within the bars."""
    rng = random.Random(seed)
    target = random_networks.target(rng)
    target = replace(target, compute=replace(target.compute, cores=max(2, target.compute.cores)))
    try:
        graph, inputs = random_networks.network(rng, target.numerics, depth)
        plan, _ = random_groups.plan(graph, machine(target), target.numerics, rng)
    except TargetError:
        return 0
    found = spread_of(graph, plan, target)
    for value, spread in found.items():
        shape = graph.type(value).shape
        for border in spread.borders:
            assert (
                spread.maker < spread.reader and border.source not in border.targets and elements(border.box)
            )
            assert all(0 <= a < b <= n for (a, b), n in zip(border.box, shape, strict=True))
            for core in border.targets:
                box = spread.boxes[core]
                assert box is not None
                assert all(c <= a and b <= e for (a, b), (c, e) in zip(border.box, box, strict=True))
    borders = sum(len(s.borders) for s in found.values())
    if borders:
        assert not apart(profile(check_exact(graph, inputs, target, plan)))
    return borders


def test_borders_of_plans_drawn_at_random() -> None:
    assert sum(tried(seed, 5) > 0 for seed in range(3, 28)) >= 3


@pytest.mark.parametrize("first", tiered(range(1000, 2000, 100), 2))
def test_borders_of_many_plans(first: int) -> None:
    assert sum(tried(seed) > 0 for seed in range(first, first + 100)) >= 20


@pytest.mark.parametrize("count", often([9, 30], 2))
def test_every_core_finds_what_it_reads(count: int) -> None:
    """What a core has made, and the borders that it loads, cover what its parts read."""
    covered = 0
    for seed in range(count):
        rng = random.Random(seed)
        target = random_networks.target(rng)
        target = replace(target, compute=replace(target.compute, cores=max(2, target.compute.cores)))
        try:
            graph, _ = random_networks.network(rng, target.numerics)
            plan, _ = random_groups.plan(graph, machine(target), target.numerics, rng)
        except TargetError:
            continue
        topology = Topology(graph, machine(target), target.numerics)
        frames = [Frame(topology, g, frozenset(plan.kept)) for g in plan.groups]
        for value, spread in spread_of(graph, plan, target).items():
            maker = frames[spread.maker]
            for core in range(target.compute.cores):
                there = np.zeros(graph.type(value).shape, bool)
                own = maker.there(value, core) if core < maker.group.cores[1] else None
                for box in [
                    *([own] if own is not None else []),
                    *(b.box for b in spread.borders if core in b.targets),
                ]:
                    there[tuple(slice(a, b) for a, b in box)] = True
                for frame in frames[spread.maker + 1 :]:
                    if frame.moves or core >= frame.group.cores[1]:
                        continue
                    wants = frame.wants(value, core)
                    if wants is not None:
                        covered += 1
                        assert there[tuple(slice(a, b) for a, b in wants)].all(), (seed, value, core)
    assert covered > 20 * count / 30


def test_borders_of_a_part_lie_in_those_of_the_whole() -> None:
    """Where another core hands on, or more, the bytes of the whole plan do not serve."""
    def spread(*borders: Border) -> dict[str, Spread]:
        return {"x": Spread((), borders, 0, 1)}

    whole = Border("x", 0, (1, 2), ((0, 1), (0, 256)))
    part = replace(whole, box=((0, 1), (0, 64)))
    assert trimmed(spread(part), spread(whole)) == {part.name: whole.name}
    assert trimmed(spread(), spread()) == {}
    larger = replace(whole, box=((0, 1), (0, 257)))
    for other in (replace(part, source=3), replace(part, targets=(1,)), larger):
        with pytest.raises(OtherBorders):
            trimmed(spread(other), spread(whole))
    with pytest.raises(OtherBorders):
        trimmed(spread(part, part), spread(whole))
