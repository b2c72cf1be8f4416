"""Leaves parts without elements out of a Concat, as those that a Slice of nothing gives."""

from __future__ import annotations

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._match import origins


@RULES.entry
class DropEmpty(Rule):
    """What is left of one part is a Concat of it alone, which `drop_noop` removes."""

    order = 10
    triggers = ("concat", "host:concat")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        kinds = [graph.type(v) for v in node.inputs if v]
        if not all(kind.is_static for kind in kinds):
            return None
        left = tuple(v for v in node.inputs if v and graph.type(v).size)
        if not left or len(left) == len(node.inputs):
            return None
        return Change((node,), (Node(node.op, left, node.outputs, origins(node)),))
