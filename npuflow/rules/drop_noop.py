"""Removes nodes that return their input unchanged.
Identity, Dropout, a Cast to the same type, a copy to the same place, the one row that there is.
"""

from __future__ import annotations

from math import inf

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind, maker, users
from npuflow.onnx.types import is_tensor
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._match import attribute


@RULES.entry
class DropNoop(Rule):
    """A graph output that is an input or a constant keeps its Identity: the name needs a producer."""

    order = 10
    triggers = (
        "identity",
        "host:identity",
        "host:dropout",
        "host:cast",
        "host:castlike",
        "reshape",
        "transpose",
        "pad",
        "slice",
        "concat",
        "clip",
        "host:concat",
        "host:gather",
        "host:sum",
        "expand",
        "split",
    )

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if node.op.clip is not None or any(
            users(graph, o) or o in graph.outputs for o in node.outputs[1:] if o
        ):
            return None
        source, result = node.inputs[0], node.outputs[0]
        if not result or not source:
            return None
        if graph.type(source) != graph.type(result) or not self.keeps(graph, node):
            return None
        if result in graph.outputs:
            producer = maker(graph, source)
            if producer is None or source in graph.outputs or not is_tensor(graph.type(source)):
                return None
        return Change((node,), alias=((result, source),))

    def keeps(self, graph: Graph, node: Node) -> bool:
        """Whether the output equals the first input, types being equal."""
        what = kind(node).removeprefix("host:")
        if what == "dropout":
            return len(node.inputs) < 3 or not node.inputs[2] or not bool(_const(graph, node.inputs[2], True))
        if what in ("concat", "sum"):
            return sum(map(bool, node.inputs)) == 1
        op = node.op
        if what == "gather" and kind(node) != what:
            axis = attribute(node, "axis")
            return graph.type(node.inputs[0]).shape[axis if isinstance(axis, int) else 0] == 1
        if what == "transpose":
            perm = getattr(op, "perm", ())
            return tuple(perm) == tuple(range(len(perm)))
        if what == "pad":
            return not any(getattr(op, "pads", (1,)))
        if what == "slice":
            return graph.type(node.inputs[0]).is_static and all(s == 1 for s in getattr(op, "steps", (0,)))
        if what == "clip":
            return bool(getattr(op, "min", 0.0) == -inf and getattr(op, "max", 0.0) == inf)
        if what in ("reshape", "expand"):
            return graph.type(node.inputs[0]).is_static
        return what in ("identity", "cast", "castlike", "split")


def _const(graph: Graph, value_id: str, default: bool) -> bool:
    array = graph.const(value_id)
    return default if array is None else bool(array.reshape(-1)[0])
