"""Legal tilings drawn at random: any of them must compute the same."""

from __future__ import annotations

import random

import numpy as np

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.schedule.choice import Costs, TileChoice
from npuflow.schedule.columns import gathered
from npuflow.schedule.groups import FusedOp, FusionGroup
from npuflow.schedule.machine import Machine
from npuflow.schedule.model import Layer, describe
from npuflow.search.cost import CandidateGrid, traffic
from npuflow.search.parts import Planner, needed
from npuflow.search.plan import LowerBounds, TilingPlan
from npuflow.search.tilings import footprint, reverses, slot_counts, variants

FREE = Costs(*[0.0] * 12)


def grid_of(layer: Layer, sizes: dict[str, int]) -> CandidateGrid:
    arrays = {a.name: np.array([sizes[a.name]]) for a in layer.axes}
    return CandidateGrid(arrays, {a.name: -(-np.array([a.size]) // arrays[a.name]) for a in layer.axes}, 1)


def choice(layer: Layer, machine: Machine, rng: random.Random, tries: int) -> TileChoice | None:
    """Any sizes, any nesting, any slot policy that fits; None if none was found."""
    for _ in range(tries):
        sizes = {}
        for a in layer.axes:
            parts = -(-a.size // a.multiple)
            sizes[a.name] = a.size if a.kind == "whole" else min(a.size, rng.randint(1, parts) * a.multiple)
        grid = grid_of(layer, sizes)
        if np.prod([c[0] for c in grid.counts.values()]) > 60:
            continue
        moved = traffic(layer, machine, grid)
        slots = slot_counts(layer, moved, rng.choice(list(variants(layer))), grid)
        used = int(footprint(grid, moved, slots)[0])
        if used <= machine.memory.local_bytes:
            break
    else:
        return None
    par = [a.name for a in layer.axes if a.kind != "sum"]
    rng.shuffle(par)
    order = (*par, *(a.name for a in layer.axes if a.kind == "sum"))
    own = random.Random(used)                           # of its own: what else is drawn stays as it is
    axis = own.choice(par) if par and own.random() < 0.5 else ""
    begin = (
        axis,
        own.choice((-2, -1, 1, 2) if axis and reverses(layer, layer.space.axis(axis)) else (1, 2))
        if axis
        else 0,
    )
    return TileChoice(tuple(sizes.items()), order, tuple(int(s[0]) for s in slots), used, begin)


def plan(
    graph: Graph,
    machine: Machine,
    numerics: Numerics,
    rng: random.Random,
    level: int = 0,
    tries: int = 100_000,
) -> TilingPlan:
    """The planner's groups with tilings of our own, where one is found."""
    planner = Planner(graph, machine, numerics, level)
    groups = []
    for group in planner.groups():
        if group.parts[0].choice is not None:
            sites = [graph.site(graph.nodes[n]) for n in group.nodes]
            layer = gathered(
                describe(sites, numerics, needed(graph, group.nodes)), machine.compute, machine.memory
            )
            drawn = choice(layer, machine, rng, tries)
            group = FusionGroup((FusedOp(group.nodes, drawn),), FREE) if drawn else group
        groups.append(group)
    return TilingPlan(tuple(groups), LowerBounds(0, 0, 0, 0), 0)
