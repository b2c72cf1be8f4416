"""What the levels of a search stand for beyond the recipe's width, the widest integers and the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from npuflow.hw.floats import largest
from npuflow.ir.op import Node
from npuflow.place.names import answers, names_of
from npuflow.place.place import op_name
from npuflow.quantise.config import FLOATS
from npuflow.quantise.floats import refusal
from npuflow.quantise.scales import whole_types
from npuflow.strategies import OWN
from npuflow.tune.precision.fakequant import FakeQuantNetwork, Ranges


@dataclass(frozen=True)
class LevelTypes:
    """Levels from OWN on: `widths` of integers, then `floats` of the NPU, as recipes name them. `layers`:
    names and operators that these are for; empty: all. `room`: bytes of local memory, which the table of a
    function has to fit."""

    widths: tuple[int, ...] = ()
    floats: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    room: int | None = None

    @cached_property
    def float_levels(self) -> tuple[int, ...]:
        """The levels that are float types of the NPU."""
        first = OWN + len(self.widths)
        return tuple(range(first, first + len(self.floats)))

    def mode(self, level: int) -> str:
        """The float type of a level, as recipes name it; empty: it is none."""
        at = level - OWN - len(self.widths)
        return self.floats[at] if at >= 0 else ""

    def number(self, level: int) -> str:
        """The same by the table of element types."""
        return FLOATS[self.mode(level)] if self.mode(level) else ""

    def bits(self, level: int) -> int | None:
        """The listed width of integers that a level stands for."""
        at = level - OWN
        return self.widths[at] if 0 <= at < len(self.widths) else None

    def level_of(self, number: str) -> int | None:
        """The level of a type of the table of element types."""
        return next((level for level in self.float_levels if self.number(level) == number), None)

    def of_layer(self, units: Sequence[int], levels: Sequence[int]) -> int:
        """The float level that a layer computes at: that of any unit that it reads, writes or multiplies by;
        of several the last. 0: it computes in integers."""
        if not self.floats:
            return 0
        return max((levels[u] for u in units if levels[u] in self.float_levels), default=0)


def floatable(network: FakeQuantNetwork, types: LevelTypes, level: int, ranges: Ranges) -> frozenset[int]:
    """Units that may have a float level: every layer that touches one computes in the type, the recipe names
    no type for it, and the numbers fit. `ranges`: the widest known, by value id."""
    barred = set[int]()
    for node, units in zip(network.nodes, network.touched, strict=True):
        if any(_obstacles(network, types, level, node)):
            barred.update(units)
    for value_id in (*network.candidate.stated, *whole_types(network.graph, network.nodes)):
        if value_id in network.units:
            barred.add(network.units[value_id])
    most = largest(types.number(level))
    for value_id, unit in network.units.items():
        stored = network.graph.const(value_id)
        known = stored if stored is not None else np.asarray(ranges.get(value_id, ()), np.float64)
        if np.abs(known).max(initial=0.0) > most:
            barred.add(unit)
    return frozenset(range(len(network.groups) + len(network.weights))) - barred


def _obstacles(network: FakeQuantNetwork, types: LevelTypes, level: int, node: Node) -> Iterator[bool]:
    names, op = names_of(node), op_name(node)
    yield bool(types.layers) and not answers(types.layers, names, op)
    yield any(rule.type is not None for rule in network.quantize.matching(names, op))
    yield refusal(node, types.number(level), types.room) is not None
