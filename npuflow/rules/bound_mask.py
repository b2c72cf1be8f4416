"""Replaces minus infinity in a mask before a Softmax by a large finite number: its exp is 0 as well."""

from __future__ import annotations

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind, users
from npuflow.ir.types import Array
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._attention import LOWEST
from npuflow.rules._match import plain_float
from npuflow.rules._parts import Parts

_TESTS = ("host:isnan", "host:isinf")


@RULES.entry
class BoundMask(Rule):
    """No integer stands for an infinite number. A constant mask that is added, or the constant of a Where. A
    row that attends to nothing is not a number; where that is known, or looked for, it stays."""

    order = 8
    triggers = ("add", "host:where")
    makes = ("add", "host")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        chosen = kind(node) == "host:where"
        if not chosen and (not plain_float(graph, node) or node.op.clip is not None):
            return None
        held = {i: graph.const(i) for i in node.inputs[chosen:]}
        floats = {i: a for i, a in held.items() if a is not None and a.dtype.kind == "f"}
        found = next((i for i, a in floats.items() if np.isneginf(a).any()), None)
        ends = found is not None and _ends(graph, node, last=not chosen)
        if found is None or not ends:
            return None
        if isinstance(ends, str):
            return Refusal("bound_mask", node.name, ends)
        array: Array = floats[found]
        if np.isnan(array).any() or np.isposinf(array).any():
            return Refusal("bound_mask", node.name, "it holds NaN or infinity beside minus infinity")
        if not chosen and np.isneginf(array).all(-1).any():
            return Refusal("bound_mask", node.name, "a row of it is infinite all along")
        parts = Parts(graph, node)
        bounded = parts.const(np.maximum(array, LOWEST), "mask")
        given = tuple(bounded if i == found else i for i in node.inputs)
        return parts.done(parts.op_as(node.op, given, "bounded") if chosen else parts.add(*given))


def _ends(graph: Graph, node: Node, last: bool) -> bool | str:
    """Whether all that reads the result is a Softmax, or a move of it or a sum of which that is true; or why
    it may not be finite. `last`: sums and a Softmax over rows alone."""
    waiting, seen = [node.outputs[0]], set[str]()
    while waiting:
        value = waiting.pop()
        if value in graph.outputs:
            return False
        rank = len(graph.type(value).shape)
        for user in users(graph, value):
            if kind(user) == "softmax":
                axis = getattr(user.op, "axis", -1) % rank
                if last and axis != rank - 1:
                    return False
                if {kind(one) for one in users(graph, user.outputs[0])} & set(_TESTS):
                    return "rows that are masked whole are looked for"
            elif (kind(user) == "add" and user.op.clip is None) or (user.op.moves_data and not last):
                waiting += [o for o in user.outputs if o not in seen]
                seen.update(user.outputs)
            else:
                return False
    return True
