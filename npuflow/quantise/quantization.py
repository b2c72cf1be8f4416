"""What quantisation makes of a network: the graph, and notes on nodes that are not as the recipe says."""

from __future__ import annotations

from dataclasses import dataclass

from npuflow.ir.graph import Graph


@dataclass(frozen=True)
class Note:
    """Something the user should know of one node: it stays on the host, or is not quite
    as the recipe says, and why."""

    node: str
    reason: str
    on_host: bool = True


@dataclass(frozen=True)
class Quantization:
    """The quantised graph, and which nodes had to stay in float for their numbers."""

    graph: Graph
    notes: tuple[Note, ...]
