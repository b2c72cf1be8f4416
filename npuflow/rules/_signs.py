"""Values that are positive whatever the inputs are: what a logarithm or a quotient is safe on."""

from __future__ import annotations

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind, maker

_NOT_NEGATIVE = ("relu", "abs", "sqrt", "exp", "sigmoid", "softplus", "softmax")
_FAR = 6  # nodes that are looked back


def positive(graph: Graph, value_id: str) -> bool:
    """Whether every element is above 0. Functions that approach 0 (Exp, Sigmoid) may round to it: they are
    not negative, and positive once a positive number was added."""
    return _above(graph, value_id, True, _FAR)


def _above(graph: Graph, value_id: str, strictly: bool, far: int) -> bool:
    """Whether every element is above 0, or else at least 0."""
    held, node = graph.const(value_id), maker(graph, value_id)
    if held is not None:
        return bool(np.all(held > 0) if strictly else np.all(held >= 0))
    if node is None or not far:
        return False
    low, name = _low(node), kind(node).removeprefix("host:")
    if low > 0 or (low == 0 and not strictly):
        return True
    inputs = [i for i in node.inputs if i]
    if name == "max":
        return any(_above(graph, i, strictly, far - 1) for i in inputs)
    if name in ("add", "sum"):
        signs = all(_above(graph, i, False, far - 1) for i in inputs)
        return signs and any(_above(graph, i, strictly, far - 1) for i in inputs)
    if name == "min" or (node.op.moves_data and name not in ("pad", "lookup")):
        return all(_above(graph, i, strictly, far - 1) for i in inputs)
    squared = name == "mul" and node.inputs[0] == node.inputs[1]
    return not strictly and (squared or name in _NOT_NEGATIVE)


def _low(node: Node) -> float:
    """The lower bound that the node itself clips to."""
    if node.op.clip is not None:
        return float(min(np.min(bound) for bound in node.op.clip))
    if kind(node) == "clip":
        return float(min(node.op.min, node.op.max))  # type: ignore[attr-defined]
    return float("-inf")
