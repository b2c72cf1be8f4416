"""A quantised graph as what the NPU and the host run in turn."""

from __future__ import annotations

from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.place.partition import HostStep, Segment, host_steps, segments


def parts_of(graph: Graph) -> tuple[Segment | HostStep, ...]:
    """The graph as the NPU's segments and the host's steps, in an order that may run."""
    found: list[Segment | HostStep] = []
    for segment in segments(graph):
        found += [segment] if segment.kind == "npu" else host_steps(graph, segment)
    return tuple(found)


def constant_outputs(graph: Graph) -> dict[str, Array]:
    """Outputs that no node makes."""
    return {name: array for name in graph.outputs if (array := graph.const(name)) is not None}
