"""A quantised network as a value: everything that fixes its integers, and what building them makes of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.types import QuantType, span
from npuflow.place.islands import Prices
from npuflow.place.place import NodePlacement
from npuflow.quantise.config import Override, Quantize
from npuflow.quantise.scales import Range
from npuflow.quantise.stated import usable
from npuflow.rounders import RoundedWeight


@dataclass(frozen=True)
class Candidate:
    """A float network with all that its quantised form depends on; `quantise.graph.build` makes that form.

    `graph`: the float network after all rewrites; `placed`: the place of each of its nodes; `scheme`: widths,
    modes and overrides; `ranges`: (low, high) by value id; `stated`: types by value id that the model or a
    table fixes, those that the target lacks being only ranges; `weights`: codes of weights that were chosen
    before, by value id, used where the layer has a weight of that width and granularity; `coded`: inputs that
    are fed as their stated codes, whatever the scheme says of inputs; `prices`: the target's memory and host,
    which decide whether nodes that quantisation cuts off from the others stay on the NPU (None: all that
    compute do); `caches`: what caches are made of: values that have their stated types of integers, whatever
    layers around them compute in.
    """

    graph: Graph
    placed: NodePlacement
    scheme: Quantize
    numerics: Numerics
    ranges: Mapping[str, Range] = field(default_factory=dict)
    stated: Mapping[str, QuantType] = field(default_factory=dict)
    weights: Mapping[str, RoundedWeight] = field(default_factory=dict)
    coded: frozenset[str] = frozenset()
    prices: Prices | None = None
    caches: frozenset[str] = frozenset()

    @cached_property
    def codes(self) -> tuple[Mapping[str, QuantType], Mapping[str, str]]:
        """Of the stated types those that the target has, by value id, and why it has not the others."""
        constants = {v: self.graph.const(v) is not None for v in self.stated if v in self.graph.values}
        known = {v: self.stated[v] for v in constants}
        return usable(known, constants, self.numerics, self.caches)

    @property
    def room(self) -> int | None:
        """Bytes of local memory, which a layer's table has to fit; None: any size."""
        return None if self.prices is None else self.prices.target.memory.local_bytes

    @property
    def fixed(self) -> Mapping[str, QuantType]:
        """The stated types that the target has."""
        return self.codes[0]

    def spans(self, ranges: Mapping[str, Range]) -> dict[str, Range]:
        """Ranges with those of stated codes that the target lacks. Where scales are powers of two, a range
        that is known is not replaced: one that ends just beyond a power of two costs half of the codes."""
        lacking = {v: span(self.stated[v]) for v in self.codes[1]}
        return {**lacking, **ranges} if self.numerics.power_of_two else {**ranges, **lacking}

    def with_(self, **changes: Any) -> Self:
        """The candidate with other fields."""
        return replace(self, **changes)

    def with_caches(self, types: Mapping[str, QuantType]) -> Self:
        """The candidate with these types for what caches are made of."""
        return self.with_(stated={**self.stated, **types}, caches=frozenset(types))

    def with_ranges(self, ranges: Mapping[str, Range]) -> Self:
        """The candidate with other ranges for some values."""
        return self.with_(ranges={**self.ranges, **ranges})

    def with_overrides(self, overrides: Sequence[Override]) -> Self:
        """The candidate with more overrides, before those of its scheme."""
        return self.with_(scheme=replace(self.scheme, overrides=(*overrides, *self.scheme.overrides)))

    def stranded(self, graph: Graph, chosen: Collection[int]) -> Mapping[int, str]:
        """Of the nodes `chosen` for the NPU, by index, those that belong to the host because others went
        there, each with the reason."""
        return self.placed.stranded(graph, chosen, self.prices)


@dataclass(frozen=True)
class Note:
    """Something the user should know of one node: it stays on the host, or is not quite
    as the recipe says, and why."""

    node: str
    reason: str
    on_host: bool = True


@dataclass(frozen=True)
class Quantization:
    """The quantised graph, and which nodes had to stay in float for their numbers. `refused`: of these, by
    what they make, those that the target runs but not with these codes, and why."""

    graph: Graph
    notes: tuple[Note, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
