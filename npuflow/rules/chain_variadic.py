"""Sum, Max and Min of more than two operands become a chain of operators of two."""

from __future__ import annotations

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.queries import kind
from npuflow.ir.types import Value
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._match import fresh, plain_float


@RULES.entry
class ChainVariadic(Rule):
    """Left to right, as onnxruntime adds."""

    order = 15
    triggers = ("host:sum", "host:max", "host:min")
    makes = ("add", "max", "min")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if len(node.inputs) < 2 or not all(node.inputs):
            return None
        if not plain_float(graph, node) or not all(graph.type(i).is_static for i in node.inputs):
            return Refusal("chain_variadic", node.name, "not float32, or a shape that is not static")
        pair = {"host:sum": OPS["add"], "host:max": OPS["max"], "host:min": OPS["min"]}[kind(node)]
        left, nodes, values = node.inputs[0], [], []
        result = graph.type(left)
        for index, right in enumerate(node.inputs[1:], 1):
            result = pair().infer(result, graph.type(right))[0]
            last = index == len(node.inputs) - 1
            out = node.outputs[0] if last else fresh(graph, f"{node.outputs[0]}:{index}")
            if not last:
                values.append(Value(out, result))
            nodes.append(Node(pair(), (left, right), (out,), node.origin))
            left = out
        return Change((node,), tuple(nodes), tuple(values))
