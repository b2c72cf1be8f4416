"""Where, and a Cast of a truth value: arithmetic on masks of 0 and 1."""

from __future__ import annotations

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind
from npuflow.rules import RULES, Change, Refusal
from npuflow.rules._infinities import infinities
from npuflow.rules._masks import MAKES, NoMask, mask, opposite
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class SpellWhere(Decomposition):
    """After the rules that recognise an activation in it. Infinite constants stay; those in front of a
    Softmax are finite by now."""

    order = 24
    triggers = ("host:where", "host:cast")
    makes = (*MAKES, "add", "expand")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if kind(node) == "host:cast" and (
            graph.type(node.inputs[0]).dtype,
            graph.type(node.outputs[0]).dtype,
        ) != (
            "bool",
            "float32",
        ):
            return None
        return super().rewrite(graph, node)

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        found = mask(parts, parts.input(0))
        if isinstance(found, NoMask) or kind(parts.node) == "host:cast":
            return str(found) if isinstance(found, NoMask) else (found,)
        held, shape = parts.array(found), parts.shape(parts.node.outputs[0])
        if held is not None and held.size and held.min() == held.max():
            return (parts.expand(parts.node.inputs[1 if held.min() else 2], shape),)
        sides = []
        for value in parts.node.inputs[1:]:
            held = parts.array(value)
            if held is not None and not np.isfinite(held).all():
                return "an infinite constant"
            if held is None and _special(parts.graph, value):
                return "an operand that may be infinite or not a number"
            sides.append(value)
        factors = found, opposite(parts, found)
        terms = [_times(parts, v, m) for v, m in zip(sides, factors, strict=True)]
        left = [t for t in terms if t]
        if len(left) == 1:
            return (parts.expand(left[0], shape),)
        y = parts.add(*(t or parts.const(0.0) for t in terms))
        return (parts.expand(y, shape),)


def _special(graph: Graph, value: str) -> bool:
    """Whether an element may be other than finite: 0 times it is not 0."""
    found = infinities(graph, value)
    return found is None or bool(np.any(found))


def _times(parts: Parts, value: str, factor: str) -> str:
    """value * factor; "" where that is a constant 0."""
    held, given = parts.array(value), parts.array(factor)
    if any(a is not None and not np.any(a) for a in (held, given)):
        return ""
    if given is not None and given.size == 1 and np.all(given == 1):
        return value
    if held is not None and given is not None:
        return parts.const(held * given, "term")
    return parts.mul(value, factor, "term")
