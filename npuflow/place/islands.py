"""Finds connected NPU nodes between host nodes, and those not worth their boundary."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from npuflow.base.tables import Config, Range
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.place.host import CODE_BITS, HostWork


@dataclass(frozen=True)
class PlacementTable(Config, table="placement"):
    """The smallest parts of the network that run on the NPU between host parts."""

    min_macs: Annotated[int, Range(0, None)] = 100_000
    """An island of fewer multiply-accumulates is placed on the host where its boundary costs more cycles
    than the host needs to compute it. An island is a connected part of the network on the NPU with nodes of
    the host before or after it."""
    min_bytes: Annotated[int, Range(0, None)] = 0
    """An island with fewer bytes of results (at 8 bits) is treated in the same way,
    whatever it multiplies."""
    joined_outputs: bool = False
    """Keep a Concat in front of an output on the NPU even where it joins scores (a Sigmoid's, a Softmax's)
    with other numbers, such as boxes: with one scale of 8 bits the scores are lost. Without it the host joins
    them, each with its own scale."""


@dataclass(frozen=True)
class Doing:
    """What islands are judged by, of one node: what it computes, and whether it only moves data."""

    macs: int
    elements: int
    moves: bool


@dataclass(frozen=True)
class Prices:
    """By which islands are weighed: the target's boundary and host, and the least that an island must do."""

    target: Target
    least: PlacementTable = PlacementTable()


@dataclass(frozen=True)
class Island:
    """Nodes by index, what they compute and make in all, and the codes that cross
    between them and the host."""

    nodes: tuple[int, ...]
    inside: HostWork
    made: int
    border: HostWork
    moves: bool

    def reason(self, prices: Prices | None) -> str:
        """Why it belongs to the host; empty where it does not."""
        crossing = f"{self.border.bytes:,} bytes cross to and from the host for it"
        if self.moves:
            return f"only data movement next to host nodes: {crossing}"
        if prices is None or (
            prices.least.min_macs <= self.inside.macs and prices.least.min_bytes <= self.made
        ):
            return ""
        across, here = self.border.cycles(prices.target), self.inside.cycles(prices.target)
        if across <= here:
            return ""
        size = f"{len(self.nodes)} nodes" if len(self.nodes) > 1 else "one node"
        return (
            f"an island of {size} and {self.inside.macs:,} MACs next to host nodes: {crossing} "
            f"({across:,.0f} cycles), which computes it in {here:,.0f}"
        )


def stranded(
    graph: Graph, chosen: Collection[int], doing: Sequence[Doing], prices: Prices | None = None
) -> dict[int, str]:
    """Nodes of the NPU (`chosen`, by index) that the host should run, each with the reason: those on
    islands that only move data and, by `prices`, on small ones. Moving a whole island changes no other
    one, so that once is enough."""
    found: dict[int, str] = {}
    for nodes, border in _islands(graph, chosen):
        if not border:
            continue                      # nothing of the host is beside it
        work = sum((HostWork(doing[i].macs, doing[i].elements) for i in nodes), HostWork())
        made = sum(_bytes(graph, o) for i in nodes for o in graph.nodes[i].outputs if o)
        crossing = sum((HostWork(0, _size(graph, v), _bytes(graph, v)) for v in border), HostWork())
        island = Island(tuple(nodes), work, made, crossing, all(doing[i].moves for i in nodes))
        if reason := island.reason(prices):
            found.update(dict.fromkeys(nodes, reason))
    return found


def _islands(graph: Graph, chosen: Collection[int]) -> Iterator[tuple[list[int], list[str]]]:
    """Connected parts of the chosen nodes in the graph's order, each with the values that cross
    between it and nodes of the host."""
    maker = {o: i for i, node in enumerate(graph.nodes) for o in node.outputs if o}
    reads = ((i, v) for i, node in enumerate(graph.nodes) for v in dict.fromkeys(node.inputs))
    edges = [(maker[v], i, v) for i, v in reads if v in maker]
    inside = set(chosen)
    root = {i: i for i in inside}

    def top(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    for a, b, _ in edges:
        if a in inside and b in inside:
            first, second = sorted((top(a), top(b)))
            root[second] = first
    members: dict[int, list[int]] = {}
    for i in sorted(inside):
        members.setdefault(top(i), []).append(i)
    borders: dict[int, dict[str, None]] = {key: {} for key in members}
    for a, b, value in edges:
        if (a in inside) != (b in inside):
            borders[top(a if a in inside else b)][value] = None
    return ((members[key], list(borders[key])) for key in members)


def _size(graph: Graph, value_id: str) -> int:
    kind = graph.type(value_id)
    return kind.size if kind.is_static else 0


def _bytes(graph: Graph, value_id: str) -> int:
    return _size(graph, value_id) * CODE_BITS // 8
