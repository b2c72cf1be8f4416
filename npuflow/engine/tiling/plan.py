"""The plan of a network: every integer node tiled for local memory, costed, with lower bounds and the gap to them."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from npuflow.base.errors import TargetError
from npuflow.engine.allocate import Life, place
from npuflow.engine.arrange import Method
from npuflow.engine.partition import is_npu, nbytes, segments
from npuflow.engine.tiling.columns import gathered
from npuflow.engine.tiling.cost import Machine
from npuflow.engine.tiling.frame import WIDE, Topology, moves_of
from npuflow.engine.tiling.fuse import NO_PINS, Pins, fuse
from npuflow.engine.tiling.groups import Group, Part, group_of_json
from npuflow.engine.tiling.model import Layer, describe, follows, leads, packed_arrays, space_of
from npuflow.engine.tiling.moves import move_costs
from npuflow.engine.tiling.pipeline import makespan
from npuflow.engine.tiling.search import DEFAULT_LEVEL, Solution, solve
from npuflow.engine.tiling.views import views_of
from npuflow.hw.target import Memory, Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.space import Space

FUSING = 2                                # from this level on, parts are joined


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
    kept: tuple[str, ...] = ()   # values that stay in local memory from the group that makes them to the last that reads them
    asked: int = 0            # groups of several parts costed
    repeated: int = 0         # of them, equal to one before
    room: float = 0.0         # bytes of local memory that constants of later groups may fill
    allocation: Method = "greedy"   # how addresses are found, in local and in external memory

    @property
    def cycles(self) -> float:
        """All groups one after the other; constants come in while groups before run."""
        if self.room:
            return makespan([c for g in self.groups for c in g.pieces], self.room)
        hidden = sum(min(a.costs.tail, b.costs.early) for a, b in pairwise(self.groups))
        return sum(g.costs.cycles for g in self.groups) - hidden

    @property
    def bytes(self) -> float:
        return sum(g.costs.bytes for g in self.groups)

    @property
    def gap(self) -> float:
        return self.cycles / self.bounds.cycles if self.bounds.cycles else 1.0

    def to_json(self) -> dict[str, Any]:
        return {"groups": [asdict(g) for g in self.groups], "bounds": asdict(self.bounds), "solved": self.solved,
                "kept": list(self.kept), "asked": self.asked, "repeated": self.repeated,
                "room": self.room, "allocation": self.allocation}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        return cls(
            tuple(group_of_json(g) for g in data["groups"]), Bounds(**data["bounds"]), data["solved"], tuple(data["kept"]),
            data["asked"], data["repeated"], data["room"],
            data["allocation"],
        )


class Planner:
    """One network being planned; answers are kept by layer, so that repeated blocks are searched once."""

    def __init__(self, graph: Graph, machine: Machine, numerics: Numerics, level: int) -> None:
        self.graph, self.machine, self.numerics, self.level = graph, machine, numerics, level
        self.solved: dict[Layer, Solution] = {}
        self.faults: list[TargetError] = []
        self.unfit: list[int] = []             # the nodes of these faults
        self.moving = moves_of(graph)
        self.saved = views_of(graph, list(enumerate(graph.nodes)), self.moving).saved
        self._spaces: dict[int, Space] = {}

    def groups(self) -> list[Group]:
        """Each node with the ones that gain by following it in local memory; level 0 leaves every node alone."""
        found: list[Group] = []
        taken: set[int] = set()
        for index, node in enumerate(self.graph.nodes):
            if index in taken or not is_npu(node):
                continue
            group = self._moves(index) if index in self.moving else self._grown(index)
            if group is not None:
                taken.update(group.nodes)
                found.append(group)
        return found

    def _moves(self, index: int) -> Group:
        site = self.graph.site(self.graph.nodes[index])
        moves = [m for n, m in enumerate(self.moving[index]) if (index, n) not in self.saved]
        return Group((Part((index,), None),), move_costs(moves, [np.dtype(o.dtype).itemsize for o in site.outputs], self.machine))

    def _grown(self, index: int) -> Group | None:
        try:
            best = self._solve((index,))
        except TargetError as fault:
            self.faults.append(fault)
            self.unfit.append(index)
            return None
        nodes: tuple[int, ...] = (index,)
        while self.level and (follower := self._follower(nodes)) is not None:
            longer = (*nodes, follower)
            try:
                joint, alone = self._solve(longer), self._solve((follower,))
            except TargetError:
                break
            if joint.costs.cycles > best.costs.cycles + alone.costs.cycles:
                break
            nodes, best = longer, joint
        return Group((Part(nodes, best.choice),), best.costs)

    def _solve(self, nodes: tuple[int, ...]) -> Solution:
        sites = [self.graph.site(self.graph.nodes[n]) for n in nodes]
        layer = describe(sites, self.numerics, needed(self.graph, nodes))
        layer = gathered(layer, self.machine.compute, self.machine.memory)
        if layer not in self.solved:
            self.solved[layer] = solve(layer, self.machine, sites[0].node.name, self.level)
        return self.solved[layer]

    def space(self, index: int) -> Space:
        if index not in self._spaces:
            self._spaces[index] = space_of(self.graph.site(self.graph.nodes[index]), self.numerics)
        return self._spaces[index]

    def _follower(self, nodes: tuple[int, ...]) -> int | None:
        """The next node that works point by point on what the group makes, everything else it reads being there before."""
        lead = self.space(nodes[0])
        if not leads(lead):
            return None
        made = {o for n in nodes for o in self.graph.nodes[n].outputs}
        before = self._available(nodes[0])
        readers = [i for v in made for i in self._readers.get(v, ())]
        for index in sorted(set(readers) - set(nodes)):
            node = self.graph.nodes[index]
            if index in self.moving or not is_npu(node) or self._segment[index] != self._segment[nodes[0]]:
                continue
            if any(v and v not in made and v not in before and self.graph.values[v].const is None for v in node.inputs):
                continue
            inner = [n for n, v in enumerate(node.inputs) if v in made]
            if follows(self.space(index), lead.outputs[0].shape, inner):
                return index
        return None

    @cached_property
    def _readers(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for index, node in enumerate(self.graph.nodes):
            for value_id in node.inputs:
                found.setdefault(value_id, []).append(index)
        return found

    @cached_property
    def _segment(self) -> dict[int, int]:
        index = {id(n): i for i, n in enumerate(self.graph.nodes)}
        return {index[id(n)]: k for k, part in enumerate(segments(self.graph)) for n in part.nodes}

    @cached_property
    def _made_at(self) -> dict[str, tuple[int, int]]:
        """Value -> (segment, node) that makes it."""
        return {o: (self._segment[i], i) for i, n in enumerate(self.graph.nodes) for o in n.outputs}

    def _available(self, index: int) -> Container[str]:
        """Values that are made before a node runs: in earlier segments, or by earlier nodes of its own."""
        here = (self._segment[index], index)
        late = {v for v, place in self._made_at.items() if place >= here}
        return _Except(late)


class _Except(Container[str]):
    """Every value but some."""

    def __init__(self, out: Collection[str]) -> None:
        self._out = out

    def __contains__(self, value: object) -> bool:
        return value not in self._out


def plan_network(
    graph: Graph, machine: Machine, numerics: Numerics, level: int = DEFAULT_LEVEL, pins: Pins = NO_PINS,
    allocation: Method = "greedy",
) -> Plan:  # fmt: skip
    """Group and tile every integer node of a quantised graph; equal layers are solved once."""
    machine = replace(machine, inside=fits_shared(graph, machine.memory))
    planner = Planner(graph, machine, numerics, level)
    groups = planner.groups()
    if planner.faults:
        raise _together(planner.faults)
    peak = machine.compute.macs
    tiled = [n for g in groups for p in g.parts if p.choice for n in p.nodes]
    packed = {d for n in tiled for d in packed_arrays(graph.site(graph.nodes[n]), planner.space(n), numerics)}
    macs = sum(planner.space(n).total_macs for n in tiled)
    amount = _compulsory(graph, packed, not machine.inside)
    compute = sum(g.costs.bound_cycles for g in groups) / machine.compute.cores
    bounds = Bounds(compute, amount / machine.memory.external_bandwidth, macs / peak / machine.compute.cores, amount)
    if level < FUSING and pins == NO_PINS:
        return Plan(tuple(groups), bounds, len(planner.solved), allocation=allocation)
    fused = fuse(Topology(graph, machine, numerics), machine, groups, level, pins)
    room = WIDE * machine.memory.local_bytes
    return Plan(fused.groups, bounds, len(planner.solved), fused.kept, fused.asked, fused.repeated, room, allocation)


def needed(graph: Graph, nodes: Collection[int]) -> frozenset[str]:
    """Values made by some nodes that others read, or that are results."""
    made = {o for n in nodes for o in graph.nodes[n].outputs if o}
    members = set(nodes)
    outside = {i for k, n in enumerate(graph.nodes) if k not in members for i in n.inputs if i in made}
    return frozenset(outside | (made & set(graph.outputs)))


def _together(faults: Sequence[TargetError]) -> TargetError:
    if len(faults) == 1:
        return faults[0]
    first = faults[0]
    names = ", ".join(f.where.node or "?" for f in faults[1:6])
    more = f"{first.because}; {len(faults) - 1} more layers do not fit: {names}" + (", ..." if len(faults) > 6 else "")
    return TargetError(first.message, where=first.where, because=more, hint=first.hint, code=first.code)


def fits_shared(graph: Graph, memory: Memory) -> bool:
    """Whether all activations find room in the memory that the cores share on the chip, every layer being alone."""
    if not memory.shared_bytes:
        return False
    nodes = [(i, n) for i, n in enumerate(graph.nodes) if is_npu(n)]
    views = views_of(graph, nodes, moves_of(graph))
    spans: dict[str, list[int]] = {}
    for step, node in nodes:
        for value_id in (*node.inputs, *node.outputs):
            if value_id and graph.values[value_id].const is None:
                spans.setdefault(views.root(value_id)[0], [step, step])[1] = step
    lives = [Life(name, max(1, views.bytes(name)), a, b) for name, (a, b) in spans.items()]
    return place(lives, memory.burst).total <= memory.shared_bytes if lives else False


def _compulsory(graph: Graph, packed: Collection[str], activations: bool = True) -> int:
    """Bytes that must cross at least once: what the host writes and reads, and every constant; `packed`: two codes a byte."""
    npu = [n for n in graph.nodes if is_npu(n)]
    made = {o for n in npu for o in n.outputs}
    read = {i for n in npu for i in n.inputs if i}
    outside = {i for n in graph.nodes if not is_npu(n) for i in n.inputs} | set(graph.outputs)
    arrays = {p for n in npu for _, p in n.params or () if isinstance(p, str)}
    arrays |= {d for i in read if (d := graph.values[i].const) is not None}
    crossing = [i for i in read if i not in made and graph.values[i].const is None] + [o for o in made if o in outside]
    own = sum(nbytes(graph, i) for i in crossing) if activations else 0
    return own + sum(-(-int(graph.consts[a].nbytes) // (1 + (a in packed))) for a in arrays)
