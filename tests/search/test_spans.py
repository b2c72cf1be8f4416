"""Costs of groups by structure alone: what an excerpt says holds in its network, and an
edit reaches what contains it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from types import MappingProxyType

import numpy as np
import pytest

from npuflow.base.errors import TargetError
from npuflow.base.plain import plain, typed
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.schedule.frame import Topology
from npuflow.schedule.groups import FusionGroup
from npuflow.search.canonical import Cost, Subgraph, cutting
from npuflow.search.memory import SearchMemory
from npuflow.search.parts import Planner, layer_of
from npuflow.search.plan import plan_network
from npuflow.search.score import Scorer
from npuflow.search.spans import Coster, Shared, in_network, run_at
from tests.networks import random_networks
from tests.networks.harness import machine
from tests.tiers import often

LEVEL = 3


def drawn(seeds: range) -> Iterator[tuple[Graph, Target, list[FusionGroup], Topology]]:
    yield from (found for seed in seeds if (found := drawn_once(seed)) is not None)


@cache
def drawn_once(seed: int) -> tuple[Graph, Target, list[FusionGroup], Topology] | None:
    rng = random.Random(seed)
    target = random_networks.target(rng)
    graph, _ = random_networks.network(rng, target.numerics, 8)
    planner = Planner(graph, machine(target), target.numerics, LEVEL)
    parts = planner.groups()
    return (
        None if planner.faults else (graph, target, parts, Topology(graph, machine(target), target.numerics))
    )


def spans(parts: list[FusionGroup], topology: Topology) -> list[Subgraph]:
    found = [run_at(topology, parts, start, LEVEL) for start in range(len(parts))]
    return [one[0] for one in found if one is not None]


@pytest.mark.parametrize("count", often([8, 20], 2))
def test_layers_of_an_excerpt_are_those_of_the_network(count: int) -> None:
    seen = 0
    for graph, target, parts, topology in drawn(range(count)):
        for part in (p for g in parts for p in g.parts if p.choice is not None):
            alone = cutting(graph, [part.nodes], topology.needed(part.nodes)).excerpt
            one = Subgraph(alone, False, LEVEL)
            again = typed(Subgraph, json.loads(json.dumps(plain(one))))
            assert again == one and again.key == one.key
            (nodes,) = again.excerpt.parts
            m = machine(target)
            assert layer_of(again.excerpt.graph, nodes, m, target.numerics) == layer_of(
                graph, part.nodes, m, target.numerics
            )
            seen += 1
    assert seen > 2 * count


def test_costs_in_an_excerpt_are_those_in_the_network() -> None:
    seen = 0
    for _, target, parts, topology in drawn(range(5)):
        m = machine(target)
        whole = Coster(topology, m, LEVEL, parts, Scorer(topology, m, LEVEL))
        for start in range(len(parts)):
            found = run_at(topology, parts, start, LEVEL)
            if found is None:
                continue
            span, cut = found
            costs = Shared(target.numerics).cost(span, m)
            assert typed(Cost, json.loads(json.dumps(plain(costs, rows=True))), rows=True) == costs
            for way in costs.ways:
                here, there = whole.best(start, start + way.parts), in_network(way, cut)
                assert (
                    here is not None and there.costs == here.costs and there.group.nodes == here.group.nodes
                )
                assert dict(there.group.held) == dict(here.group.held) and there.used == here.used
                seen += 1
    assert seen > 20


def rescaled(graph: Graph) -> Graph:
    """Other names, weights and scales: what another calibration changes, and more."""
    values = {
        f"_{n}": replace(
            v,
            id=f"_{n}",
            quant=replace(v.quant, scale=tuple(2 * s for s in v.quant.scale)) if v.quant else None,
        )
        for n, v in graph.values.items()
    }
    nodes = tuple(
        replace(
            n,
            inputs=tuple(i and f"_{i}" for i in n.inputs),
            outputs=tuple(o and f"_{o}" for o in n.outputs),
            origin=(),
        )
        for n in graph.nodes
    )
    consts = {d: np.zeros_like(a) for d, a in graph.consts.items()}
    names = (tuple(f"_{v}" for v in some) for some in (graph.inputs, graph.outputs))
    return Graph(*names, nodes, MappingProxyType(values), MappingProxyType(consts))


def test_names_weights_and_scales_are_no_part_of_a_span() -> None:
    for graph, target, parts, topology in drawn(range(8)):
        other = rescaled(graph)
        mine = [s.key for s in spans(parts, topology)]
        assert mine == [s.key for s in spans(parts, Topology(other, machine(target), target.numerics))]


def edited(graph: Graph, parts: list[FusionGroup]) -> tuple[int, Graph] | None:
    """The graph with another width of one constant, and the part that reads it; None where
    the network has none to edit."""
    chosen = [
        (p, n)
        for p, g in enumerate(parts)
        if g.choice is not None
        for n in g.nodes
        for v in graph.nodes[n].inputs[1:2]
        if v and graph.values[v].const is not None and graph.values[v].quant is not None
    ]
    if not chosen or len(parts) < 4:
        return None
    at, node = chosen[len(chosen) // 2]
    value = graph.values[graph.nodes[node].inputs[1]]
    assert value.quant is not None and value.const is not None
    wide = replace(value, quant=replace(value.quant, bits=16 if value.quant.bits <= 8 else 8))
    consts = {**graph.consts, value.const: graph.consts[value.const].astype(wide.dtype)}
    return at, replace(
        graph, values=MappingProxyType({**graph.values, value.id: wide}), consts=MappingProxyType(consts)
    )


def edits(seeds: range) -> Iterator[tuple[Graph, Target, list[Subgraph], list[Subgraph], list[bool]]]:
    """(edited network, target, spans before, spans after, which of them hold the edited part)."""
    for graph, target, parts, topology in drawn(seeds):
        found = edited(graph, parts)
        if found is None:
            continue
        at, other = found
        planner = Planner(other, machine(target), target.numerics, LEVEL)
        changed = planner.groups()
        if planner.faults or [g.nodes for g in changed] != [g.nodes for g in parts]:
            continue
        before, after = (
            spans(parts, topology),
            spans(changed, Topology(other, machine(target), target.numerics)),
        )
        starts = [s for s, g in enumerate(parts) if g.choice is not None]
        holding = [s <= at < s + len(span.alone) for s, span in zip(starts, before, strict=True)]
        yield other, target, before, after, holding


@pytest.mark.parametrize("count", often([12, 28], 2))
def test_an_edit_reaches_the_spans_that_contain_it_and_no_other(count: int) -> None:
    """Another width of one constant."""
    seen = 0
    for _, _, before, after, holding in edits(range(count)):
        assert [a.key != b.key for a, b in zip(before, after, strict=True)] == holding
        known = {s.key for s in before} & {a.key for a in after}
        assert len({a.key for a in after} - known) == len(
            {a.key for a, h in zip(after, holding, strict=True) if h}
        )
        seen += any(holding) and not all(holding)
    assert seen >= 5 * count / 28


def test_costs_that_an_edit_leaves_give_the_plan_of_a_clean_search() -> None:
    compared = 0
    for other, target, before, after, _ in edits(range(12)):
        m, numerics = machine(target), target.numerics
        shared = Shared(numerics)
        known = {s.key: shared.cost(s, m) for s in before if s.key in {a.key for a in after}}
        try:
            clean = plan_network(other, m, numerics, LEVEL)
        except TargetError:
            continue
        assert plan_network(other, m, numerics, LEVEL, memory=SearchMemory(known)) == clean
        compared += bool(known)
        if compared == 2:
            break
    assert compared == 2


@pytest.mark.slow
@pytest.mark.parametrize("first", often([3, 0], 2))
def test_a_higher_level_is_never_slower(first: int) -> None:
    """By the replay of whole plans, which is what the plan's cycles are; level 0 is
    replayed where it may win."""
    for graph, target, _, _ in drawn(range(first, first + 3)):
        cycles = {}
        for level in (0, 3, 5):
            try:
                cycles[level] = plan_network(graph, machine(target), target.numerics, level).cycles
            except TargetError:
                break
        assert sorted(cycles.values(), reverse=True) == list(cycles.values()), cycles
