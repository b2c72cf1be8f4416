"""A power of a square is a power of the magnitude."""

from __future__ import annotations

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind, made_by, sole_user
from npuflow.rules import RULES, Change, Refusal
from npuflow.rules._match import plain_float
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class MergePowers(Decomposition):
    """A square has twice the decibels of what it is made of: small values would be lost in its codes, and a
    table is steepest there."""

    order = 17
    triggers = ("pow", "sqrt")
    makes = ("abs", "pow")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        plain = node.op.clip is None and plain_float(graph, node)
        return super().rewrite(graph, node) if plain and _squared(graph, node.inputs[0]) is not None else None

    def spelled(self, parts: Parts) -> tuple[str, ...]:
        x = _squared(parts.graph, parts.input(0))
        assert x is not None
        power = 2 * getattr(parts.node.op, "exponent", 0.5)
        size = parts.op("abs", (x,))
        return (size if power == 1.0 else parts.op("pow", (size,), exponent=power),)


def _squared(graph: Graph, value: str) -> str | None:
    """What a value is the square of, if nobody else reads it."""
    node = made_by(graph, value, "mul", "pow")
    if node is None or sole_user(graph, value) is None or node.op.clip is not None:
        return None
    if kind(node) == "pow":
        return node.inputs[0] if node.op.exponent == 2.0 else None  # type: ignore[attr-defined]
    return node.inputs[0] if node.inputs[0] == node.inputs[1] else None
