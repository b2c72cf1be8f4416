"""Subgraphs by their structure alone: what has been found for one is taken for its equals, under their names.

A `Subgraph` is text, and its digest is what costs are stored under; inside one search a tuple of numbers
does (`Stretches`). Either way nodes and values are numbered in the same order, and one renaming
(`Names`) leads from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from npuflow.base.digest import digest
from npuflow.base.plain import plain
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node, Param
from npuflow.ir.text import from_text, op_name, to_text
from npuflow.ir.types import Array, QuantType, Value
from npuflow.schedule.choice import Costs, TileChoice
from npuflow.schedule.frame import Topology
from npuflow.schedule.groups import FusionGroup
from npuflow.search.cuts import GroupCandidate
from npuflow.search.tilings import Solution

SHOWN = 3                                 # operators that an excerpt's name lists


@dataclass(frozen=True)
class CanonicalSubgraph:
    """Some nodes as a graph of their own, in parts. Values are numbered; constants have types
    but no content; scales are 1."""

    text: str
    parts: tuple[tuple[int, ...], ...]    # nodes of each part, by position in the graph

    @cached_property
    def graph(self) -> Graph:
        source = from_text(self.text)
        wanted = {v.const for v in source.values.values() if v.const is not None}
        wanted |= {p for n in source.nodes for _, p in n.params or () if isinstance(p, str)}
        return replace(source, consts=MappingProxyType({name: _hollow(name) for name in sorted(wanted)}))


@dataclass(frozen=True)
class Alone:
    """A part's own tiling (None: alone it moves external memory), and its cycles and bytes by itself."""

    choice: TileChoice | None
    costs: Costs


@dataclass(frozen=True)
class Subgraph:
    """What is costed: a part to be tiled; or, with the tilings of its parts, the parts that groups from the
    first one on may hold. All that the costs depend on, but the target."""

    excerpt: CanonicalSubgraph
    inside: bool                          # activations lie in the chip's shared memory
    level: int
    alone: tuple[Alone, ...] = ()         # by part
    trials: int = 0                       # how many ways to run its groups are tried

    @cached_property
    def key(self) -> str:
        told = {
            "graph": self.excerpt.text, "parts": self.excerpt.parts, "inside": self.inside,
            "level": self.level, "alone": plain(self.alone, rows=True), "trials": self.trials,
        }
        return digest(told).partition(":")[2][:16]

    @cached_property
    def name(self) -> str:
        """Some of its operators, and a digest of all that it says."""
        names = [op_name(self.excerpt.graph.nodes[part[0]].op) for part in self.excerpt.parts]
        shown = "-".join(names[:SHOWN]) + (f"-and-{len(names) - SHOWN}" if len(names) > SHOWN else "")
        return f"{shown}-{self.key}"


@dataclass(frozen=True)
class SubgraphGroup:
    """The best way found to run the first `parts` of a subgraph as one group, and the local memory
    that it holds at most."""

    parts: int
    group: FusionGroup
    used: int


@dataclass(frozen=True)
class Cost:
    """What was found for a subgraph. Of one part, its best tiling, None where no tile fits local memory;
    of several, the groups of the first ones, and how many ways to run these were costed."""

    tiling: Solution | None = None
    ways: tuple[SubgraphGroup, ...] = ()
    asked: int = 0


Memo = Mapping[str, Cost]                 # by the keys of subgraphs


@dataclass(frozen=True)
class Names:
    """What the nodes of each part of a subgraph are called in some network, and its
    values, in their canonical order."""

    nodes: tuple[tuple[int, ...], ...]
    values: tuple[str, ...]

    def renamed(self, group: FusionGroup, other: Names) -> FusionGroup:
        """A group of the first parts of an equal subgraph, `other`, as a group of this one."""
        if other is self:
            return group
        names = dict(zip(other.values, self.values, strict=True))
        parts = tuple(replace(p, nodes=n) for p, n in zip(group.parts, self.nodes, strict=False))
        return replace(group, parts=parts, held=tuple((names[v], n) for v, n in group.held))


@dataclass(frozen=True)
class Cutting:
    """An excerpt with its own names and those of the network that it is cut from."""

    excerpt: CanonicalSubgraph
    own: Names
    network: Names


def cutting(graph: Graph, parts: Sequence[tuple[int, ...]], needed: Collection[str]) -> Cutting:
    """These nodes on their own. `needed`: values of theirs that somebody outside
    reads, or that are results."""
    nodes = tuple(n for part in parts for n in part)
    names: dict[str, str] = {"": ""}
    values: dict[str, Value] = {}
    inputs: list[str] = []
    found: list[Node] = []

    def numbered(value_id: str, made: bool) -> str:
        if value_id not in names:
            names[value_id] = name = f"v{len(names) - 1}"
            value = graph.values[value_id]
            const = graph.consts[value.const] if value.const is not None else None
            values[name] = Value(
                name, value.type, _plain(value.quant), None if const is None else _described(const)
            )
            if const is None and not made:
                inputs.append(name)
        return names[value_id]

    for index in nodes:
        node = graph.nodes[index]
        read = tuple(numbered(v, False) for v in node.inputs)
        made = tuple(numbered(v, True) for v in node.outputs)
        params = tuple((k, _param(graph, p)) for k, p in node.params) if node.params is not None else None
        found.append(Node(replace(node.op, clip=None), read, made, (), params))
    own = {o for n in found for o in n.outputs if o}
    outputs = tuple(n for v, n in names.items() if n in own and v in needed)
    alone = Graph(tuple(inputs), outputs, tuple(found), values)
    at = {n: k for k, n in enumerate(nodes)}
    excerpt = CanonicalSubgraph(to_text(alone), tuple(tuple(at[n] for n in part) for part in parts))
    return Cutting(excerpt, Names(excerpt.parts, tuple(names.values())), Names(tuple(parts), tuple(names)))


def _param(graph: Graph, param: Param) -> Param:
    if isinstance(param, str):
        return _described(graph.consts[param])
    return (0,) * len(param) if isinstance(param, tuple) else 0


def _plain(quant: QuantType | None) -> QuantType | None:
    return replace(quant, scale=(1.0,), zero_point=(0,)) if quant is not None else None


def _described(array: Array) -> str:
    return f"{array.dtype.name}[{','.join(map(str, array.shape))}]"


def _hollow(described: str) -> Array:
    """An array of that type that takes no room."""
    dtype, _, shape = described.partition("[")
    return np.broadcast_to(np.zeros((), dtype), tuple(int(d) for d in shape.rstrip("]").split(",") if d))


@dataclass(eq=False)
class Known:
    """What was found for stretches of parts in any network on one machine, by structure."""

    signs: dict[object, int] = field(default_factory=dict)       # what a part is -> its number
    groups: dict[object, tuple[Names, list[GroupCandidate], int]] = field(default_factory=dict)


class Stretches:
    """Consecutive parts of a network that compute; equal ones are costed once."""

    def __init__(self, topology: Topology, singles: Sequence[FusionGroup], known: Known) -> None:
        self.topology, self.singles, self.known = topology, singles, known
        self._parts: dict[int, tuple[int, tuple[str, ...]]] = {}

    def once(
        self, start: int, end: int, kept: frozenset[str], find: Callable[[], tuple[list[GroupCandidate], int]]
    ) -> tuple[list[GroupCandidate], int]:
        """Groups of these parts, and how many ways to run them were costed: as found for an equal
        stretch, or now. `kept`: as in `key`."""
        key, names = self.key(start, end, kept)
        if key not in self.known.groups:
            self.known.groups[key] = names, *find()
        other, found, ways = self.known.groups[key]
        if other is names:
            return found, ways
        return [
            GroupCandidate(replace(c.scored, group=names.renamed(c.scored.group, other)), kept, c.exchange)
            for c in found
        ], ways

    def key(self, start: int, end: int, kept: Collection[str] = ()) -> tuple[object, Names]:
        """All that the costs of these parts depend on, and their names. `kept`: values that are in local
        memory before, or stay there."""
        numbers: dict[str, int] = {}
        found: list[object] = []
        for index in range(start, end):
            sign, values = self._part(index)
            found.append((sign, tuple(numbers.setdefault(v, len(numbers)) for v in values)))
        nodes = tuple(g.parts[0].nodes for g in self.singles[start:end])
        results = set(self.topology.needed([n for part in nodes for n in part]))
        flags = tuple(
            (v in results, v in kept, v in results and self.topology.wanted_in_data(v, kept)) for v in numbers
        )
        return (tuple(found), flags), Names(nodes, tuple(numbers))

    def _part(self, index: int) -> tuple[int, tuple[str, ...]]:
        """The number of what a part is, and the values that it reads and makes."""
        if index not in self._parts:
            single = self.singles[index]
            member = self.topology.member(single.parts[0].nodes, frozenset())
            alone = single.nodes[0] in self.topology.core       # other parts may be cut over cores
            sign = member.layer, member.spaces, single.parts[0].choice, single.costs, alone
            values = *(v for v, _ in member.inputs), *member.outputs
            self._parts[index] = self.known.signs.setdefault(sign, len(self.known.signs)), values
        return self._parts[index]
