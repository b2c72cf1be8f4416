"""Which values of a segment lie with channels innermost: those that convolutions read or make, and what is
computed of them place by place."""

from __future__ import annotations

from npuflow.engine.execute.layout import Layout
from npuflow.engine.partition import Segment
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph


def layouts(graph: Graph, part: Segment, numerics: Numerics) -> dict[str, Layout]:
    """Value -> layout of those that do not lie in C order."""
    return {}
