"""Costs a fusion group under mixed widths, from sums over layers and border traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node

STEEPEST = 32.0                           # exponent from which on engines count as overlapping entirely


class GroupSums(NamedTuple):
    """Of a group at some levels: array cycles of its layers, cycles of those on the host and of casts, cycles
    to load tables of functions, and bytes over its border."""

    array: float
    host: float
    casts: float
    tables: float
    moved: float

    def replaced(self, old: GroupSums, new: GroupSums) -> Self:
        """With new sums in the place of the old ones of some layers; the same to the last bit where these are
        equal."""
        return type(self)(*(b + (n - o) for b, n, o in zip(self, new, old, strict=True)))


@dataclass(frozen=True)
class NodeCost:
    """One node: array cycles with narrow operands and cycles on the host; the units that it
    reads, writes, and its weights.
    What it writes does not slow the array down, however wide. `casts`: cycles for each unit that is cast
    where the node is in floats; `tables`: bytes of its function's table there, by type. `fixed`: command
    and fill cycles of the array, which do not depend on widths; most of a product of one row, as in loops."""

    array: float
    host: float
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    weights: tuple[int, ...]
    casts: Mapping[int, float] = field(default_factory=dict)
    tables: Mapping[str, int] = field(default_factory=dict)
    fixed: float = 0.0

    @property
    def units(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((*self.reads, *self.writes, *self.weights)))


@dataclass(frozen=True)
class GroupCost:
    """A fusion group: its layers, cycles with narrow operands by engine, the exponent of their p-norm and
    cycles beyond it, and bytes by unit of what crosses its border."""

    layers: tuple[int, ...]
    array: float
    vector: float
    transfers: float
    exponent: float
    rest: float
    crossing: Mapping[int, float]

    def cycles(self, sums: GroupSums, plain: float, bytes_: float) -> float:
        """`plain`, `bytes_`: array cycles and bytes at the recipe's widths."""
        times = sums.array / plain if plain else 1.0
        growth = sums.moved / bytes_ if bytes_ else 1.0
        parts = self.array * times, self.vector + sums.casts, self.transfers * growth + sums.tables
        return norm(parts, self.exponent) + self.rest + sums.host


def overlap(parts: Sequence[float], cycles: float) -> float:
    """The p at which the engines' p-norm gives the group's cycles: large where they
    overlap, 1 where they take turns."""
    low, high = 1.0, STEEPEST
    if cycles >= sum(parts) or not any(parts):
        return low
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if norm(parts, middle) > cycles else (low, middle)
    return high


def norm(parts: Sequence[float], p: float) -> float:
    most = max(parts)
    return most * sum((x / most) ** p for x in parts) ** (1 / p) if most else 0.0


def crossing_of(graph: Graph, nodes: Sequence[Node], units: Mapping[str, int]) -> dict[int, float]:
    """By unit the bytes, at one an element, of what nodes read from outside, hand on, or hold as weights.
    `units`: by value."""
    made = {o for n in nodes for o in n.outputs if o}
    inside = {n.outputs for n in nodes}
    consumers = graph.consumers()
    read = {v for n in nodes for v in n.inputs if v and v not in made}
    given = {
        o
        for o in made
        if o in graph.outputs or any(n.outputs not in inside for n in consumers.get(o, []))
    }
    found: dict[int, float] = {}
    for value_id in sorted(read | given):
        if value_id in units:
            unit = units[value_id]
            found[unit] = found.get(unit, 0.0) + graph.type(value_id).size
    return found
