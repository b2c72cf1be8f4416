"""Two nodes that compute the same from the same become one."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import users
from npuflow.rules import RULES, Change, Refusal, Rule


@RULES.entry
class ShareEqual(Rule):
    """The earlier node stays. Constants are the same where their numbers are. Nodes with subgraphs or random
    results are left alone."""

    order = 12

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        read = next((i for i in node.inputs if i and graph.values[i].const is None), "")
        if not read or any(o in graph.outputs for o in node.outputs):
            return None
        if str(getattr(node.op, "op_type", "")).startswith(("Random", "Bernoulli", "Multinomial", "Dropout")):
            return None
        for twin in users(graph, read):
            if twin is node:
                return None
            same = len(twin.outputs) == len(node.outputs) and twin.op == node.op
            if same and _same(graph, twin.inputs, node.inputs):
                if any(o and not t for o, t in zip(node.outputs, twin.outputs, strict=True)):
                    return None
                return Change(
                    (node,), alias=tuple((o, t) for o, t in zip(node.outputs, twin.outputs, strict=True) if o)
                )
        return None


def _same(graph: Graph, some: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two nodes read the same values, or constants of the same numbers."""

    def known(value_id: str) -> object:
        value = graph.values.get(value_id)
        return value_id if value is None or value.const is None else (value.const, value.quant)

    return len(some) == len(others) and all(map(lambda a, b: known(a) == known(b), some, others))
