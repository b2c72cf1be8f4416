"""Element operations of a node from its shapes alone: what the host spends on it
beside multiply-accumulates."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from npuflow.ir.graph import Graph
from npuflow.ir.loops import times
from npuflow.ir.macs import attributes_of, kind_of, node_macs
from npuflow.ir.op import Node

VIEWS = frozenset(
    ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout", "Shape", "Size", "Constant")
)
PARTS = frozenset(("Slice", "Gather", "GatherElements", "GatherND", "Split", "Compress", "OneHot", "NonZero"))
WINDOWS = frozenset(("MaxPool", "AveragePool", "LpPool"))


def node_elements(graph: Graph, node: Node) -> int:
    """One for every element that is computed or moved: of the results, or of the operand where that is
    larger (reductions); a window counts its area, a view of the same bytes nothing. Shapes that are
    not static count as nothing. In a loop those of all steps."""
    return _in_one_step(graph, node) * times(graph, node)


def _in_one_step(graph: Graph, node: Node) -> int:
    kind = kind_of(node)
    if kind in VIEWS:
        return 0
    made = sum(_sizes(graph, node.outputs))
    if kind in WINDOWS:
        return made * prod(attributes_of(node).get("kernel_shape") or (1,))
    if kind in PARTS or node.op.border_of_loop == "slice" or node_macs(graph, node):
        return made
    return max([made, *_sizes(graph, node.inputs)])


def _sizes(graph: Graph, ids: Sequence[str]) -> list[int]:
    """Of values that are there, static and no constants."""
    values = [graph.values[i] for i in dict.fromkeys(ids) if i]
    return [v.type.size for v in values if v.const is None and v.type.is_static]
