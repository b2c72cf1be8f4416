"""Rewrite rules, one a file: pattern, check, rewrite. A rule refuses with a reason, which is kept as data.

Noun: `Rule`.
Public: `Rule`, `Change`, `Refusal`, `Applied`, `Hardware`.
Does not know: other rules, the order in which rules run.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from npuflow.base.registry import Registry
from npuflow.hw.target import Compute, Dma, Memory
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.types import Array, Value

RULES = Registry("rules", "npuflow.rules")


@dataclass(frozen=True)
class Refusal:
    """Why a rule that matched a node left it alone."""

    rule: str
    node: str
    reason: str


@dataclass(frozen=True)
class Applied:
    """One change that was made, at a node; operator and name of the nodes that are gone and of those in their
    place.
    """

    rule: str
    node: str
    removed: tuple[tuple[str, str], ...] = ()
    made: tuple[tuple[str, str], ...] = ()

    def line(self) -> str:
        """Nodes before and after: `conv c, relu r -> conv c`."""
        before, after = (
            ", ".join(f"{op} {name}" for op, name in nodes) for nodes in (self.removed, self.made)
        )
        return f"{before or 'nothing'} -> {after or 'nothing'}"


@dataclass(frozen=True)
class Change:
    """Nodes `remove`d (by first output id) and the `nodes` put in their place (at the last removed one's
    position); `values` and `consts` are added or replace same-named ones; `alias` redirects uses of a
    removed output to another value.
    """

    remove: tuple[Node, ...]
    nodes: tuple[Node, ...] = ()
    values: tuple[Value, ...] = ()
    consts: tuple[tuple[str, Array], ...] = ()
    alias: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Hardware:
    """What a rule may ask of the target: the array, the cores, local memory and the way of activations to
    external memory. `front`: cycles of a transfer before its bytes move; `local_bytes` 0: not known."""

    rows: int = 32
    columns: int = 32
    pixels: int = 1
    output_stationary: bool = False
    cores: int = 1
    bandwidth: float = 16.0
    shared_bytes: int = 0
    shared_bandwidth: float = 0.0
    front: int = 72
    local_bytes: int = 0

    @classmethod
    def of(cls, compute: Compute, memory: Memory, dma: Dma) -> Hardware:
        return cls(
            compute.array_rows,
            compute.array_cols,
            compute.array_pixels,
            compute.dataflow == "output_stationary",
            compute.of_one_inference.cores,
            memory.external_bandwidth,
            memory.shared_bytes,
            memory.shared_bandwidth,
            compute.command_cycles + dma.setup_cycles,
            memory.local_bytes,
        )

    def passes(self, taps: int, inputs: int, outputs: int, positions: int) -> float:
        """Cycles of a dense convolution on the arrays of all cores, edges included."""
        columns = ceil(outputs / self.columns)
        if self.output_stationary:
            return taps * inputs * columns * ceil(positions / self.rows) / self.cores
        return taps * ceil(inputs / self.rows) * columns * ceil(positions / self.pixels) / self.cores

    def moved(self, size: float) -> float:
        """Cycles of so many bytes of activations on the bus."""
        return size / (self.shared_bandwidth if size < self.shared_bytes else self.bandwidth)


class Rule:
    """One graph rewrite. `order`: rules with a lower number reach their fixed point first. `triggers`:
    operator file names (OPS names) at which `rewrite` is tried; `makes`: operators the rule may
    introduce (they enter cache keys); `asks`: whether it reads `hardware`, the target's."""

    order: ClassVar[int] = 50
    triggers: ClassVar[tuple[str, ...]] = ()
    makes: ClassVar[tuple[str, ...]] = ()
    asks: ClassVar[bool] = False
    hardware: Hardware = Hardware()

    @classmethod
    def asks_at(cls, graph: Graph, node: Node) -> bool:
        """Whether what the target has may matter at this node, one of `triggers`. Where no node of a network
        is such a one, all targets share its rewritten graph."""
        return cls.asks

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        """The change at `node`, a refusal when the pattern is there but the check fails,
        None when it does not match."""
        raise NotImplementedError
