"""Recognises Gelu spelled out by erf or tanh, in any order of writing.
0.5 x (1 + erf(x / sqrt 2)), or with tanh of x + 0.044715 x^3.
"""

from __future__ import annotations

from math import pi, sqrt

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.queries import kind, made_by, sole_user
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._match import close, origins, plain_float
from npuflow.rules._terms import product, total


@RULES.entry
class RecogniseGelu(Rule):
    """The nodes in between stay if something else reads them."""

    order = 20
    triggers = ("mul", "div")
    makes = ("gelu",)

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if not plain_float(graph, node) or node.op.clip is not None:
            return None
        whole = product(graph, node.outputs[0])
        if len(whole.factors) != 2 or not close(whole.number, 0.5):
            return None
        for x, gate in (whole.factors, whole.factors[::-1]):
            bracket = total(graph, gate)
            if bracket is None or not close(bracket.number, 1.0) or len(bracket.terms) != 1:
                continue
            term = bracket.terms[0]
            if len(term.factors) != 1 or not close(term.number, 1.0) or sole_user(graph, gate) is None:
                continue
            curve = made_by(graph, term.factors[0], "erf", "tanh")
            form = self.form(graph, curve, x) if curve is not None and curve.op.clip is None else None
            if form is not None:
                made = Node(
                    OPS["gelu"](form), (x,), node.outputs, origins(node, *whole.nodes, *bracket.nodes)
                )
                return Change((node,), (made,))
        return None

    def form(self, graph: Graph, curve: Node, x: str) -> str | None:
        """Which Gelu the erf or tanh of something of x belongs to."""
        inner = product(graph, curve.inputs[0])
        if kind(curve) == "erf":
            return "none" if inner.factors == (x,) and close(inner.number, 1 / sqrt(2)) else None
        if not close(inner.number, sqrt(2 / pi)):
            return None
        if len(inner.factors) == 1:                      # x + 0.044715 x^3
            cubic = total(graph, inner.factors[0])
            found = {} if cubic is None else {t.factors: t.number for t in cubic.terms}
            right = cubic is not None and cubic.number == 0.0 and set(found) == {(x,), (x, x, x)}
            return "tanh" if right and close(found[x,], 1.0) and close(found[x, x, x], 0.044715) else None
        if len(inner.factors) == 2 and x in inner.factors:       # x (1 + 0.044715 x^2)
            rest = inner.factors[1] if inner.factors[0] == x else inner.factors[0]
            square = total(graph, rest)
            if square is not None and close(square.number, 1.0) and len(square.terms) == 1:
                term = square.terms[0]
                return "tanh" if term.factors == (x, x) and close(term.number, 0.044715) else None
        return None
