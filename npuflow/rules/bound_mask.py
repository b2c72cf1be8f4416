"""Replaces minus infinity in a constant mask before a Softmax by a large finite number.
Its exp is 0 as well.
"""

from __future__ import annotations

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind, users
from npuflow.ir.types import Array
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._attention import LOWEST
from npuflow.rules._match import plain_float
from npuflow.rules._parts import Parts


@RULES.entry
class BoundMask(Rule):
    """No integer stands for an infinite number. A row that attends to nothing is not a number, and stays."""

    order = 8
    triggers = ("add",)
    makes = ("add",)

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if not plain_float(graph, node) or node.op.clip is not None:
            return None
        held = {i: graph.const(i) for i in node.inputs}
        found = next((i for i, a in held.items() if a is not None and np.isneginf(a).any()), None)
        if found is None or not _ends(graph, node):
            return None
        array: Array = held[found]  # type: ignore[assignment]
        if np.isnan(array).any() or np.isposinf(array).any() or np.isneginf(array).all(-1).any():
            return Refusal("bound_mask", node.name, "a row of it is infinite all along")
        parts = Parts(graph, node)
        bounded = parts.const(np.maximum(array, LOWEST), "mask")
        return parts.done(parts.add(*(bounded if i == found else i for i in node.inputs)))


def _ends(graph: Graph, node: Node) -> bool:
    """Whether all that reads the sum is a Softmax over its rows, or a sum of which that is true."""
    if node.outputs[0] in graph.outputs:
        return False
    rank = len(graph.type(node.outputs[0]).shape)
    for user in users(graph, node.outputs[0]):
        last = kind(user) == "softmax" and getattr(user.op, "axis", -1) % rank == rank - 1
        if not last and not (kind(user) == "add" and user.op.clip is None and _ends(graph, user)):
            return False
    return True
