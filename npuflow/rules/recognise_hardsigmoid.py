"""HardSigmoid spelled out: clip(a x + b, 0, c) / c, as a Clip and what scales it."""

from __future__ import annotations

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.queries import kind, made_by, sole_user
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._match import origins, plain_float
from npuflow.rules._terms import product, total


@RULES.entry
class RecogniseHardsigmoid(Rule):
    """The clip of a bare sum is a hard sigmoid only where its upper bound, after scaling, is 1."""

    order = 21
    triggers = ("mul", "div", "clip")
    makes = ("hardsigmoid",)

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if not plain_float(graph, node) or node.op.clip is not None:
            return None
        number, gate, read = 1.0, node, list[Node]([node])
        if kind(node) != "clip":
            whole = product(graph, node.outputs[0])
            found = made_by(graph, whole.factors[0], "clip") if len(whole.factors) == 1 else None
            if found is None or sole_user(graph, whole.factors[0]) is None:
                return None
            number, gate, read = whole.number, found, [*whole.nodes, found]
        low, high = gate.op.min, gate.op.max  # type: ignore[attr-defined]
        if low != 0.0 or abs(number * high - 1.0) > 1e-6:
            return None
        line = total(graph, gate.inputs[0])
        if line is None or len(line.terms) != 1 or len(line.terms[0].factors) != 1:
            return None
        if sole_user(graph, gate.inputs[0]) is None:
            return Refusal(
                "recognise_hardsigmoid", node.name, f"the input of {gate.name} is read elsewhere too"
            )
        x, slope = line.terms[0].factors[0], line.terms[0].number
        if graph.type(x).shape != graph.type(node.outputs[0]).shape or graph.const(x) is not None:
            return None
        if kind(node) == "clip" and made_by(graph, x, "conv", "gemm", "convtranspose") is not None:
            # the sum folds into the weights, the clip into their operator: cheaper than a table
            return None
        op = OPS["hardsigmoid"](number * slope, number * line.number)
        return Change((node,), (Node(op, (x,), node.outputs, origins(*read, *line.nodes)),))
