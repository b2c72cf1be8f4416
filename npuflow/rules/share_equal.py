"""Two nodes that compute the same from the same become one."""

from __future__ import annotations

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import users
from npuflow.rules import RULES, Change, Refusal, Rule


@RULES.entry
class ShareEqual(Rule):
    """The earlier node stays. Nodes with subgraphs or random results are left alone."""

    order = 12

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if not node.inputs or not node.inputs[0] or any(o in graph.outputs for o in node.outputs):
            return None
        if str(getattr(node.op, "op_type", "")).startswith(("Random", "Bernoulli", "Multinomial", "Dropout")):
            return None
        for twin in users(graph, node.inputs[0]):
            if twin is node:
                return None
            if twin.inputs == node.inputs and len(twin.outputs) == len(node.outputs) and twin.op == node.op:
                if any(o and not t for o, t in zip(node.outputs, twin.outputs, strict=True)):
                    return None
                return Change(
                    (node,), alias=tuple((o, t) for o, t in zip(node.outputs, twin.outputs, strict=True) if o)
                )
        return None
