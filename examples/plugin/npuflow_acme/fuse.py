"""Abs of a difference becomes AbsDiff."""

from __future__ import annotations

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.queries import made_by, sole_user
from npuflow.rules import RULES, Change, Refusal, Rule


@RULES.entry
class FuseAbsdiff(Rule):
    """Of two tensors of one shape; the difference must have no other reader."""

    order = 20
    triggers = ("abs",)
    makes = ("absdiff",)

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        made = made_by(graph, node.inputs[0], "sub")
        if made is None or made.op.clip is not None or node.op.clip is not None:
            return None
        if sole_user(graph, made.outputs[0]) is None or made.outputs[0] in graph.outputs:
            return Refusal("fuse_absdiff", node.name, "something else reads the difference")
        if any(graph.const(i) is not None for i in made.inputs):
            return Refusal("fuse_absdiff", node.name, "an operand is a constant")
        shapes = {graph.type(i).shape for i in made.inputs}
        if len(shapes) != 1:
            return Refusal("fuse_absdiff", node.name, f"operands of shapes {sorted(shapes)}")
        origin = tuple(dict.fromkeys((*made.origin, *node.origin)))
        return Change((made, node), (Node(OPS["absdiff"](), made.inputs, node.outputs, origin),))
