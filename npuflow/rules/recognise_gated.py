"""x times a gate of x: sigmoid (SiLU), hard sigmoid (HardSwish), tanh of softplus (Mish)."""

from __future__ import annotations

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node, Op
from npuflow.ir.queries import kind, made_by, sole_user
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._match import close, origins, plain_float
from npuflow.rules._terms import product, total

_GATES = ("sigmoid", "hardsigmoid", "tanh", "clip")


@RULES.entry
class RecogniseGated(Rule):
    """Also x * clip(x + 3, 0, 6) / 6. A gate that something else reads too is left alone."""

    order = 22
    triggers = ("mul", "div")
    makes = ("silu", "hardswish", "mish")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if not plain_float(graph, node) or node.op.clip is not None:
            return None
        whole = product(graph, node.outputs[0])
        if len(whole.factors) != 2:
            return None
        for x, gate in (whole.factors, whole.factors[::-1]):
            source = made_by(graph, gate, *_GATES)
            if source is None or source.op.clip is not None or graph.const(x) is not None:
                continue
            op = self.gated(graph, source, x, whole.number)
            if op is None:
                continue
            if sole_user(graph, gate) is None:
                return Refusal("recognise_gated", node.name, f"the gate {source.name} is read elsewhere too")
            return Change((node,), (Node(op, (x,), node.outputs, origins(node, *whole.nodes, source)),))
        return None

    def gated(self, graph: Graph, gate: Node, x: str, number: float) -> Op | None:
        """The operator number * x * gate(x), if there is one."""
        name, inner = kind(gate), gate.inputs[0]
        found: Op | None = None
        if name == "sigmoid" and close(number, 1.0):
            scaled = product(graph, inner)
            if inner == x:
                found = OPS["silu"](1.0)
            elif scaled.factors == (x,) and scaled.number > 0:
                found = OPS["silu"](scaled.number)
        elif name == "hardsigmoid" and close(number, 1.0) and inner == x:
            op = gate.op
            if close(op.alpha, 1 / 6) and close(op.beta, 0.5):  # type: ignore[attr-defined]
                found = OPS["hardswish"]()
        elif name == "tanh" and close(number, 1.0):
            plus = made_by(graph, inner, "softplus")
            if plus is not None and plus.inputs[0] == x and plus.op.clip is None:
                found = OPS["mish"]()
        elif name == "clip" and close(number, 1 / 6):
            shifted, op = total(graph, inner), gate.op
            bounds = (op.min, op.max) == (0.0, 6.0)  # type: ignore[attr-defined]
            if bounds and shifted is not None and close(shifted.number, 3.0) and len(shifted.terms) == 1:
                term = shifted.terms[0]
                if term.factors == (x,) and close(term.number, 1.0):
                    found = OPS["hardswish"]()
        return found
