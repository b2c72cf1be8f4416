"""Which nodes form a part: each with the ones that gain by following it point by point in local memory."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from npuflow.base.errors import InternalError, TargetError
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph, step_of
from npuflow.ir.space import IterationDomain
from npuflow.ir.views import views_of
from npuflow.place.partition import is_npu, segments
from npuflow.schedule.columns import gathered
from npuflow.schedule.dense_rows import with_whole_rows
from npuflow.schedule.groups import FusedOp, FusionGroup
from npuflow.schedule.machine import Machine
from npuflow.schedule.model import Layer, describe, follows, leads, space_of
from npuflow.schedule.moves import move_costs, moves_of
from npuflow.search.canonical import Cost, Subgraph, cutting
from npuflow.search.memory import SearchMemory
from npuflow.search.tilings import Solution, solve


def tiled(part: Subgraph, machine: Machine, numerics: Numerics) -> Cost:
    """The best tiling of one part."""
    (nodes,) = part.excerpt.parts
    try:
        return Cost(solve(layer_of(part.excerpt.graph, nodes, machine, numerics), machine, level=part.level))
    except TargetError:
        return Cost()


def layer_of(graph: Graph, nodes: Sequence[int], machine: Machine, numerics: Numerics) -> Layer:
    layer = describe([graph.site(graph.nodes[n]) for n in nodes], numerics, needed(graph, nodes))
    layer = gathered(layer, machine.compute, machine.memory)
    return layer if graph.state else with_whole_rows(layer, machine, lambda _: False)


class Planner:
    """One network being planned; answers are kept by the structure of parts, so that
    repeated blocks are searched once."""

    def __init__(
        self, graph: Graph, machine: Machine, numerics: Numerics, level: int,
        memory: SearchMemory | None = None,
    ) -> None:
        self.graph, self.machine, self.numerics, self.level = graph, machine, numerics, level
        self.memory = memory or SearchMemory()
        self.solved: dict[str, Cost] = {}
        self.faults: list[TargetError] = []
        self.unfit: list[int] = []             # the nodes of these faults
        self.moving = moves_of(graph)
        self.saved = views_of(graph, list(enumerate(graph.nodes)), self.moving).saved
        self._spaces: dict[int, IterationDomain] = {}
        self._subgraphs: dict[tuple[int, ...], Subgraph] = {}

    def groups(self) -> list[FusionGroup]:
        """Each node with the ones that gain by following it in local memory; level 0
        leaves every node alone."""
        found: list[FusionGroup] = []
        taken: set[int] = set()
        for index, node in enumerate(self.graph.nodes):
            if index in taken or not is_npu(node):
                continue
            group = self._moves(index) if index in self.moving else self._grown(index)
            if group is not None:
                taken.update(group.nodes)
                found.append(group)
        return found

    def candidates(self) -> Iterator[Subgraph]:
        """Every part that `groups` may ask for."""
        for index, node in enumerate(self.graph.nodes):
            if not is_npu(node) or index in self.moving:
                continue
            nodes: tuple[int, ...] | None = (index,)
            while nodes is not None:
                yield self.subgraph(nodes)
                follower = self._follower(nodes) if self.level else None
                nodes = (*nodes, follower) if follower is not None else None

    def subgraph(self, nodes: tuple[int, ...]) -> Subgraph:
        if nodes not in self._subgraphs:
            excerpt = cutting(self.graph, [nodes], self._needed(nodes)).excerpt
            self._subgraphs[nodes] = Subgraph(excerpt, self.machine.inside, self.level)
        return self._subgraphs[nodes]

    def _moves(self, index: int) -> FusionGroup:
        site = self.graph.site(self.graph.nodes[index])
        moves = [m for n, m in enumerate(self.moving[index]) if (index, n) not in self.saved]
        return FusionGroup(
            (FusedOp((index,), None),),
            move_costs(moves, [np.dtype(o.dtype).itemsize for o in site.outputs], self.machine),
        )

    def _grown(self, index: int) -> FusionGroup | None:
        best = self._solve((index,))
        if best is None:
            self.faults.append(self._refusal((index,)))
            self.unfit.append(index)
            return None
        nodes: tuple[int, ...] = (index,)
        while self.level and (follower := self._follower(nodes)) is not None:
            longer = (*nodes, follower)
            joint, alone = self._solve(longer), self._solve((follower,))
            if joint is None or alone is None or self._worth(joint) > self._worth(best) + self._worth(alone):
                break
            nodes, best = longer, joint
        return FusionGroup((FusedOp(nodes, best.choice),), best.costs)

    def _worth(self, found: Solution) -> float:
        return self.machine.worth(found.costs.cycles, found.costs.bytes)

    def _solve(self, nodes: tuple[int, ...]) -> Solution | None:
        part = self.subgraph(nodes)
        if part.key not in self.solved:
            self.solved[part.key] = self.memory.once(
                part.key, lambda: tiled(part, self.machine, self.numerics)
            )
        return self.solved[part.key].tiling

    def _refusal(self, nodes: tuple[int, ...]) -> TargetError:
        """Why no tile of a part fits, in the network's own names."""
        layer = layer_of(self.graph, nodes, self.machine, self.numerics)
        try:
            solve(layer, self.machine, self.graph.nodes[nodes[0]].name, self.level)
        except TargetError as fault:
            return fault
        raise InternalError(
            f"{self.graph.nodes[nodes[0]].name} fits alone, but not in its network", code="NF-INTERNAL-019",
        )

    def space(self, index: int) -> IterationDomain:
        if index not in self._spaces:
            self._spaces[index] = space_of(self.graph.site(self.graph.nodes[index]), self.numerics)
        return self._spaces[index]

    def _follower(self, nodes: tuple[int, ...]) -> int | None:
        """The next node that works point by point on what the group makes, everything else
        it reads being there before."""
        lead = self.space(nodes[0])
        if not leads(lead):
            return None
        made = {o for n in nodes for o in self.graph.nodes[n].outputs}
        before = self._available(nodes[0])
        readers = [i for v in made for i in self._readers.get(v, ())]
        for index in sorted(set(readers) - set(nodes)):
            node = self.graph.nodes[index]
            if index in self.moving or not is_npu(node) or self._stretch(index) != self._stretch(nodes[0]):
                continue
            if any(
                v and v not in made and v not in before and self.graph.values[v].const is None
                for v in node.inputs
            ):
                continue
            inner = [n for n, v in enumerate(node.inputs) if v in made]
            if follows(self.space(index), lead.outputs[0].shape, inner):
                return index
        return None

    def _needed(self, nodes: Collection[int]) -> set[str]:
        """Values made by some nodes that others read, or that are results."""
        members, outputs = set(nodes), set(self.graph.outputs)
        made = {o for n in nodes for o in self.graph.nodes[n].outputs if o}
        return {v for v in made if v in outputs or any(r not in members for r in self._readers.get(v, ()))}

    @cached_property
    def _readers(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for index, node in enumerate(self.graph.nodes):
            for value_id in node.inputs:
                found.setdefault(value_id, []).append(index)
        return found

    @cached_property
    def _segment(self) -> dict[int, int]:
        return {n: k for k, part in enumerate(segments(self.graph)) for n in part.numbers}

    @cached_property
    def _steps(self) -> dict[int, int]:
        return step_of(self.graph)

    def _stretch(self, index: int) -> tuple[int, int]:
        """A node's segment, and which step of a loop it is of."""
        return self._segment[index], self._steps.get(index, 0)

    @cached_property
    def _made_at(self) -> dict[object, tuple[int, int]]:
        """Value -> (segment, node) that makes it."""
        return {o: (self._segment[i], i) for i, n in enumerate(self.graph.nodes) for o in n.outputs}

    def _available(self, index: int) -> Container[object]:
        """Values that are made before a node runs: in earlier segments, or by earlier nodes of its own."""
        return _Before(self._made_at, (self._segment[index], index))


class _Before(Container[object]):
    """Every value but those that are made at a place or behind it."""

    def __init__(self, made_at: Mapping[object, tuple[int, int]], here: tuple[int, int]) -> None:
        self._made_at, self._here = made_at, here

    def __contains__(self, value: object) -> bool:
        place = self._made_at.get(value)
        return place is None or place < self._here


def needed(graph: Graph, nodes: Collection[int]) -> frozenset[str]:
    """Values made by some nodes that others read, or that are results."""
    made = {o for n in nodes for o in graph.nodes[n].outputs if o}
    members = set(nodes)
    outside = {i for k, n in enumerate(graph.nodes) if k not in members for i in n.inputs if i in made}
    return frozenset(outside | (made & set(graph.outputs)))
