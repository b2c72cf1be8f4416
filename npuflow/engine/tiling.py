"""The plan of a network: every integer node tiled for local memory, costed, with lower bounds and the gap to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from npuflow.base.errors import TargetError
from npuflow.engine.cost import Machine
from npuflow.engine.partition import is_npu, nbytes
from npuflow.engine.tiling_model import Layer, describe
from npuflow.engine.tiling_moves import move_costs
from npuflow.engine.tiling_search import DEFAULT_LEVEL, Choice, Costs, Solution, solve
from npuflow.engine.tiling_views import views_of
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.op import Move


@dataclass(frozen=True)
class Group:
    """Nodes run together tile by tile. `choice` None: the node only moves data."""

    nodes: tuple[int, ...]
    choice: Choice | None
    costs: Costs


@dataclass(frozen=True)
class Bounds:
    """What no program for this network and machine can beat, in cycles and external bytes."""

    compute: float            # best mapping of every layer on a free memory system
    traffic: float            # inputs, outputs and constants once, over the external bandwidth
    roofline: float           # multiply-accumulates over the array's peak
    bytes: int                # inputs, outputs and constants once

    @property
    def cycles(self) -> float:
        return max(self.compute, self.traffic)


@dataclass(frozen=True)
class Plan:
    groups: tuple[Group, ...]
    bounds: Bounds
    solved: int               # different layers searched; the others repeat one of them

    @property
    def cycles(self) -> float:
        return sum(g.costs.cycles for g in self.groups)

    @property
    def bytes(self) -> float:
        return sum(g.costs.bytes for g in self.groups)

    @property
    def gap(self) -> float:
        return self.cycles / self.bounds.cycles if self.bounds.cycles else 1.0

    def to_json(self) -> dict[str, Any]:
        return {"groups": [asdict(g) for g in self.groups], "bounds": asdict(self.bounds), "solved": self.solved}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        return cls(tuple(_group(g) for g in data["groups"]), Bounds(**data["bounds"]), data["solved"])


def _group(data: Mapping[str, Any]) -> Group:
    c = data["choice"]
    choice = None
    if c is not None:
        sizes = tuple((str(a), int(s)) for a, s in c["sizes"])
        choice = Choice(sizes, tuple(c["order"]), tuple(c["slots"]), c["local_bytes"])
    return Group(tuple(data["nodes"]), choice, Costs(**data["costs"]))


def plan_network(graph: Graph, machine: Machine, numerics: Numerics, level: int = DEFAULT_LEVEL) -> Plan:
    """Tile every integer node of a quantised graph; equal layers are solved once."""
    solved: dict[Layer, Solution] = {}
    groups: list[Group] = []
    faults: list[TargetError] = []
    peak = machine.compute.array_rows * machine.compute.array_cols
    compute = roofline = 0.0
    moving = moves_of(graph)
    saved = views_of(graph, list(enumerate(graph.nodes)), moving).saved
    for index, node in enumerate(graph.nodes):
        if not is_npu(node):
            continue
        site = graph.site(node)
        if index in moving:
            moves = [m for n, m in enumerate(moving[index]) if (index, n) not in saved]
            items = [np.dtype(o.dtype).itemsize for o in site.outputs]
            groups.append(Group((index,), None, move_costs(moves, items, machine)))
            continue
        layer = describe(site, numerics)
        if layer not in solved:
            try:
                solved[layer] = solve(layer, machine, node.name, level)
            except TargetError as fault:
                faults.append(fault)
                continue
        found = solved[layer]
        groups.append(Group((index,), found.choice, found.costs))
        compute += found.costs.bound_cycles
        roofline += layer.space.total_macs / peak
    if faults:
        raise _together(faults)
    amount = _compulsory(graph)
    bounds = Bounds(compute, amount / machine.memory.external_bandwidth, roofline, amount)
    return Plan(tuple(groups), bounds, len(solved))


def moves_of(graph: Graph) -> dict[int, tuple[Move, ...]]:
    """Moves of every integer node that only moves data."""
    found = {}
    for index, node in enumerate(graph.nodes):
        if is_npu(node):
            moves = node.op.moves(graph.site(node))
            if moves is not None:
                found[index] = moves
    return found


def _together(faults: Sequence[TargetError]) -> TargetError:
    if len(faults) == 1:
        return faults[0]
    first = faults[0]
    names = ", ".join(f.where.node or "?" for f in faults[1:6])
    more = f"{first.because}; {len(faults) - 1} more layers do not fit: {names}" + (", ..." if len(faults) > 6 else "")
    return TargetError(first.message, where=first.where, because=more, hint=first.hint, code=first.code)


def _compulsory(graph: Graph) -> int:
    """Bytes that must cross at least once: what the host writes and reads, and every constant."""
    npu = [n for n in graph.nodes if is_npu(n)]
    made = {o for n in npu for o in n.outputs}
    read = {i for n in npu for i in n.inputs if i}
    outside = {i for n in graph.nodes if not is_npu(n) for i in n.inputs} | set(graph.outputs)
    arrays = {p for n in npu for _, p in n.params or () if isinstance(p, str)}
    arrays |= {d for i in read if (d := graph.values[i].const) is not None}
    crossing = [i for i in read if i not in made and graph.values[i].const is None] + [o for o in made if o in outside]
    return sum(nbytes(graph, i) for i in crossing) + sum(int(graph.consts[a].nbytes) for a in arrays)
