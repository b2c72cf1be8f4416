"""Moves a Mul or Div by a number up to a layer whose weights take it.
It passes products of two computed operands and what only moves data.
"""

from __future__ import annotations

from dataclasses import replace

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind, maker, sole_user
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._affine import WEIGHTED
from npuflow.rules._match import fresh, plain_float, scalar

_MOVERS = ("reshape", "transpose")


@RULES.entry
class LiftScale(Rule):
    """The scale of attention's scores goes into the weights of the queries. Nobody else may read what lies
    between."""

    order = 31
    triggers = ("mul", "div")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if not plain_float(graph, node) or node.op.clip is not None or len(node.inputs) != 2:
            return None
        at = next((k for k in (1, 0) if scalar(graph, node.inputs[k]) is not None), None)
        if at is None or (at == 0 and kind(node) == "div") or (scalar(graph, node.inputs[at]) or 0.0) <= 0:
            return None
        value, above = node.inputs[1 - at], list[Node]()
        if graph.type(value).shape != graph.type(node.outputs[0]).shape:
            return None
        while (found := maker(graph, value)) is not None and kind(found) in (*_MOVERS, "matmul"):
            if sole_user(graph, value) is None or found.op.clip is not None:
                return None
            above.append(found)
            value = found.inputs[0]
        weighted = maker(graph, value)
        if not above or weighted is None or kind(weighted) not in WEIGHTED or weighted.op.clip is not None:
            return None
        if sole_user(graph, value) is None or graph.const(weighted.inputs[1]) is None:
            return None
        scaled = replace(graph.values[value], id=fresh(graph, f"{value}:scaled"))
        inputs = (value, node.inputs[1]) if at else (node.inputs[0], value)
        nodes, values = [Node(node.op, inputs, (scaled.id,), node.origin)], [scaled]
        for mover in reversed(above):
            own = node.outputs if mover is above[0] else (fresh(graph, f"{mover.outputs[0]}:scaled"),)
            nodes.append(Node(mover.op, (*nodes[-1].outputs, *mover.inputs[1:]), own, mover.origin))
            values += [replace(graph.values[mover.outputs[0]], id=o) for o in own if own != node.outputs]
        return Change((*reversed(above), node), tuple(nodes), tuple(values))
