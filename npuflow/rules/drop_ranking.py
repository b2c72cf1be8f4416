"""TopK, ArgMax and ArgMin along a dimension of one element: the values are the input, all positions are 0."""

from __future__ import annotations

import numpy as np

from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import Node
from npuflow.ir.queries import kind
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._match import attribute


@RULES.entry
class DropRanking(Rule):
    """Sequences that were sorted by their lengths, in a model that is compiled for one sequence."""

    order = 4
    triggers = ("host:argmax", "host:argmin", "host:topk")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        x, top = graph.type(node.inputs[0]), kind(node) == "host:topk"
        given = attribute(node, "axis")
        axis = given if isinstance(given, int) else -1 if top else 0
        if not x.is_static or not x.shape or x.shape[axis] != 1:
            return None
        if any(o in graph.outputs or (o and not graph.type(o).is_static) for o in node.outputs):
            return None
        values, positions = node.outputs if len(node.outputs) == 2 else ("", node.outputs[0])
        alias = [(values, node.inputs[0])] if values else []
        if values and graph.type(values) != x:
            return None                   # a TopK of no elements
        if not positions:
            return Change((node,), alias=tuple(alias))
        zeros = np.zeros(graph.type(positions).shape, np.int64)
        value, entry = constant(f"{positions}:first", zeros)
        return Change((node,), (), (value,), tuple(entry.items()), (*alias, (positions, value.id)))
