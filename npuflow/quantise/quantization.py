"""What quantisation makes of a network: the graph, and notes on nodes that are not as the recipe says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    """The quantised graph, and which nodes had to stay in float for their numbers. `refused`: of these, by
    what they make, those that the target runs but not with these codes, and why."""

    graph: Graph
    notes: tuple[Note, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
