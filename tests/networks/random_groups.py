"""Legal groups drawn at random: runs of parts, strips, cores, held and kept values; any of
them must compute the same."""

from __future__ import annotations

import random
from dataclasses import replace

from npuflow.base.errors import TargetError
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.schedule.frame import Frame, Topology
from npuflow.schedule.geometry import Uncuttable
from npuflow.schedule.groups import FusedOp, FusionGroup
from npuflow.schedule.local import lay_local
from npuflow.schedule.machine import Machine
from npuflow.search.plan import LowerBounds, Planner, TilingPlan
from npuflow.search.score import stores_again
from npuflow.search.spans import joins
from tests.networks.random_tilings import FREE, choice


def joined(
    topology: Topology, parts: list[FusedOp], machine: Machine, rng: random.Random, kept: frozenset[str]
) -> FusionGroup | None:
    """One group of these parts, cut and tiled at random; None if it does not work out."""
    nodes = [n for p in parts for n in p.nodes]
    made = {o for n in nodes for o in topology.graph.nodes[n].outputs if o}
    inner = [
        o for p in parts for o in topology.needed(p.nodes)
        if any(r in nodes and r not in p.nodes for r in topology.readers.get(o, ()))
    ]
    read = {
        v
        for n in nodes
        for v in topology.graph.nodes[n].inputs
        if v and topology.graph.values[v].const is None
    }
    outside = sorted(read - made - kept)
    held = {v: rng.choice((1, 2)) for v in (*inner, *(v for v in outside if rng.random() < 0.4))}
    held.update(dict.fromkeys(made & kept, 1))
    if rng.random() < 0.3:
        held.update({v: 1 for v in topology.needed(nodes) if v not in held})
    strips = tuple(
        (rng.choice((0, 1, 2, 2, 2, 3)), rng.randint(1, 4)) for _ in range(rng.choice((0, 1, 1, 2)))
    )
    cores = (rng.choice((0, 1, 2, 2)), rng.randint(1, machine.compute.cores))
    group = FusionGroup(tuple(parts), FREE, strips, cores, tuple(held.items()))
    frame = Frame(topology, group, kept)
    if group.is_split and not all(m.can_split for m in frame.unjoined):
        return None
    if stores_again(topology, group.nodes, kept):
        return None
    try:
        layers = frame.layers
    except Uncuttable:
        return None
    drawn = [choice(layer, machine, rng, 30) for layer in layers]
    if any(d is None for d in drawn):
        return None
    return replace(group, parts=tuple(FusedOp(p.nodes, d) for p, d in zip(parts, drawn, strict=True)))


def plan(
    graph: Graph, machine: Machine, numerics: Numerics, rng: random.Random, level: int = 3
) -> tuple[TilingPlan, int]:
    """(a plan, groups of several parts in it)."""
    planner = Planner(graph, machine, numerics, level)
    singles = planner.groups()
    if planner.faults:
        raise planner.faults[0]
    topology = Topology(graph, machine, numerics)
    groups: list[FusionGroup] = []
    kept: frozenset[str] = frozenset()
    rest = list(singles)
    several = 0
    while rest:
        run = [rest.pop(0)]
        while rest and rng.random() < 0.7 and joins(topology, [*run, rest[0]], 0, len(run) + 1):
            run.append(rest.pop(0))
        found = None
        if run[0].choice is not None:
            for _ in range(3):
                found = joined(topology, [g.parts[0] for g in run], machine, rng, kept)
                if found is not None and fits([*groups, found], topology, kept, machine):
                    break
                found = None
        several += found is not None and (len(run) > 1 or found.is_split)
        groups += [found] if found is not None else run
        kept = frozenset()
    kept = frozenset(keep(groups, topology, machine, rng))
    groups = [with_held(g, topology, kept) for g in groups]
    return TilingPlan(tuple(groups), LowerBounds(0, 0, 0, 0), 0, tuple(sorted(kept))), several + len(kept)


def fits(groups: list[FusionGroup], topology: Topology, kept: frozenset[str], machine: Machine) -> bool:
    try:
        lay_local([Frame(topology, g, kept) for g in groups], kept, machine, look=0)
    except TargetError:
        return False
    return True


def with_held(group: FusionGroup, topology: Topology, kept: frozenset[str]) -> FusionGroup:
    made = {o for n in group.nodes for o in topology.graph.nodes[n].outputs}
    held = {v: n for v, n in group.held if v not in kept}
    held.update(dict.fromkeys(sorted(made & kept), 1))
    return replace(group, held=tuple(held.items()))


def keep(groups: list[FusionGroup], topology: Topology, machine: Machine, rng: random.Random) -> set[str]:
    """Values that stay between groups, whatever cores have to hand each other for it, where there is room."""
    kept: set[str] = set()
    for g, group in enumerate(groups):
        if group.choice is None and len(group.parts) == 1:
            continue
        for value in topology.needed(group.nodes):
            if rng.random() < 0.5:
                continue
            trial = frozenset(kept | {value})
            tried = [with_held(x, topology, trial) for x in groups]
            works = legal(tried, topology, trial, value, g) and retiled(tried, topology, trial, machine, rng)
            if works and fits(tried, topology, trial, machine):
                kept.add(value)
                groups[:] = tried
    return kept


def retiled(
    groups: list[FusionGroup], topology: Topology, kept: frozenset[str], machine: Machine, rng: random.Random
) -> bool:
    """Tilings for layers whose operands have become local."""
    for g, group in enumerate(groups):
        frame = Frame(topology, group, kept)
        if frame.moves:
            continue
        parts = []
        for part, layer in zip(group.parts, frame.layers, strict=True):
            if part.choice is not None and len(part.choice.slots) != len(layer.streams):
                drawn = choice(layer, machine, rng, 30)
                if drawn is None:
                    return False
                part = FusedOp(part.nodes, drawn)
            parts.append(part)
        groups[g] = replace(group, parts=tuple(parts))
    return True


def legal(
    groups: list[FusionGroup], topology: Topology, kept: frozenset[str], value: str, maker: int
) -> bool:
    segment = topology.segment
    try:
        for core in range(groups[maker].cores[1]):
            Frame(topology, groups[maker], kept).there(value, core)
        for later in groups[maker + 1 :]:
            frame = Frame(topology, later, kept)
            if frame.moves and later.nodes[0] in topology.joining:
                if value in topology.graph.nodes[later.nodes[0]].inputs:
                    return False
                continue
            if frame.moves or not any(value == v for m in frame.members for v, _ in m.inputs):
                continue
            if segment[later.nodes[0]] != segment[groups[maker].nodes[0]] or any(
                v == value for v, _ in later.held
            ):
                return False
            for core in range(later.cores[1]):
                frame.wants(value, core)
        return any(r not in groups[maker].nodes for r in topology.readers.get(value, ()))
    except Uncuttable:
        return False

