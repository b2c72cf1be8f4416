"""LeakyRelu and PRelu spelled out: max(x, a x), relu(x) - a relu(-x), and a PRelu of one slope."""

from __future__ import annotations

from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import OPS, Node
from npuflow.ir.queries import kind, made_by, maker
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._match import attribute, fresh, origins, plain_float, scalar
from npuflow.rules._terms import product


@RULES.entry
class RecogniseLeaky(Rule):
    """One slope for all gives LeakyRelu, a constant of slopes PRelu."""

    order = 23
    triggers = ("max", "add", "sub", "prelu", "host:where")
    makes = ("leakyrelu", "prelu")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if not plain_float(graph, node) or node.op.clip is not None or len(node.inputs) not in (2, 3):
            return None
        name = kind(node)
        if name == "prelu":
            slope = scalar(graph, node.inputs[1])
            return None if slope is None else self.leaky(node, node.inputs[0], slope)
        if name == "max":
            return self.maximum(graph, node) if len(node.inputs) == 2 else None
        if name == "host:where":
            return self.where(graph, node)
        return self.halves(graph, node, 1.0 if name == "add" else -1.0)

    def leaky(self, node: Node, x: str, slope: float, *more: Node) -> Change:
        return Change((node,), (Node(OPS["leakyrelu"](slope), (x,), node.outputs, origins(node, *more)),))

    def maximum(self, graph: Graph, node: Node) -> Change | Refusal | None:
        for x, scaled in (node.inputs, node.inputs[::-1]):
            part = product(graph, scaled)
            if part.factors == (x,) and part.nodes and graph.const(x) is None:
                if not 0.0 <= part.number <= 1.0:
                    return Refusal("recognise_leaky", node.name, f"max(x, {part.number:g} x) is no LeakyRelu")
                return self.leaky(node, x, part.number, *part.nodes)
        return None

    def where(self, graph: Graph, node: Node) -> Change | Refusal | None:
        """Where(x > 0, x, a x)."""
        test = maker(graph, node.inputs[0])
        x, part = node.inputs[1], product(graph, node.inputs[2])
        if (
            test is None
            or kind(test) not in ("host:greater", "host:greaterorequal")
            or attribute(test, "axis") is not None
        ):
            return None
        if (
            test.inputs[0] != x
            or scalar(graph, test.inputs[1]) != 0.0
            or part.factors != (x,)
            or not part.nodes
        ):
            return None
        return self.leaky(node, x, part.number, test, *part.nodes)

    def halves(self, graph: Graph, node: Node, sign: float) -> Change | Refusal | None:
        """relu(x) plus or minus a * relu(-x): the slope below zero is the opposite of the factor."""
        for index in (0, 1) if sign > 0 else (0,):
            upper, lower = made_by(graph, node.inputs[index], "relu"), node.inputs[1 - index]
            if upper is None or upper.op.clip is not None:
                continue
            x, part, slopes = upper.inputs[0], product(graph, lower), ""
            number, factors = part.number, part.factors
            if len(factors) == 2 and any(graph.const(f) is not None for f in factors):
                slopes = next(f for f in factors if graph.const(f) is not None)
                factors = tuple(f for f in factors if f != slopes)
            factor = made_by(graph, factors[0], "relu") if len(factors) == 1 else None
            if factor is None or factor.op.clip is not None:
                continue
            flipped = product(graph, factor.inputs[0])
            if flipped.factors != (x,) or flipped.number != -1.0:
                continue
            if not slopes:
                return self.leaky(node, x, -sign * number, upper, factor, *part.nodes)
            return self.prelu(graph, node, x, slopes, -sign * number, (upper, factor, *part.nodes))
        return None

    def prelu(
        self, graph: Graph, node: Node, x: str, slopes: str, number: float, read: tuple[Node, ...]
    ) -> Change | Refusal | None:
        array, shape = graph.const(slopes), graph.type(x).shape
        assert array is not None
        if array.ndim > len(shape) or graph.type(node.outputs[0]).shape != shape:
            return Refusal("recognise_leaky", node.name, "the slopes widen the result")
        value, consts = constant(
            fresh(graph, f"{node.outputs[0]}:slope"), (array * number).astype(array.dtype)
        )
        made = Node(OPS["prelu"](), (x, value.id), node.outputs, origins(node, *read))
        return Change((node,), (made,), (value,), tuple(consts.items()))
