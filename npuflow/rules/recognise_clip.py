"""Replaces Max or Min with a number, alone or after Clip or Relu, by one Clip.
ReLU6 spelled out is one.
"""

from __future__ import annotations

from math import inf, isnan

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.queries import kind, made_by, sole_user
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._match import bounds, origins, plain_float, with_scalar


@RULES.entry
class RecogniseClip(Rule):
    """The number may have any shape that leaves the other operand's alone; NaN bounds nothing."""

    order = 19
    triggers = ("max", "min")
    makes = ("clip",)

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        found = with_scalar(graph, node)
        if found is None or node.op.clip is not None or not plain_float(graph, node):
            return None
        x, number = found
        if isnan(number):
            return Refusal("recognise_clip", node.name, "its bound is NaN")
        lo, hi = -inf, inf
        nodes: tuple[Node, ...] = (node,)
        before = made_by(graph, x, "clip", "relu")
        if before is not None and before.op.clip is None and sole_user(graph, x) is node:
            lo, hi = bounds(before)
            x, nodes = before.inputs[0], (before, node)
        # of what is already within lo and hi, max(., c) is within max(lo, c) and max(hi, c)
        pick = max if kind(node) == "max" else min
        outer = (pick(lo, number), pick(hi, number))
        return Change(nodes, (Node(OPS["clip"](*outer), (x,), node.outputs, origins(*nodes)),))
