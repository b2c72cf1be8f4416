"""Reshape after Reshape and Transpose after Transpose become one; a Transpose that
moves no data becomes a Reshape."""

from __future__ import annotations

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.queries import kind, made_by
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._match import origins


@RULES.entry
class MergeMoves(Rule):
    """Inverse pairs come out as copies to the same place, which drop_noop removes."""

    order = 20
    triggers = ("reshape", "transpose")
    makes = ("reshape", "transpose")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        source, shape = graph.type(node.inputs[0]), graph.type(node.outputs[0]).shape
        if not source.is_static or node.op.clip is not None:
            return None
        if kind(node) == "transpose":
            perm: tuple[int, ...] = node.op.perm  # type: ignore[attr-defined]
            wide = [p for p in perm if source.shape[p] != 1]
            if wide == sorted(wide) and perm != tuple(sorted(perm)):
                return Change((node,), (Node(OPS["reshape"](shape), node.inputs, node.outputs, node.origin),))
        before = made_by(graph, node.inputs[0], kind(node))
        if before is None or before.op.clip is not None:
            return None
        op = OPS["reshape"](shape)
        if kind(node) == "transpose":
            first, then = before.op.perm, node.op.perm  # type: ignore[attr-defined]
            op = OPS["transpose"](tuple(first[p] for p in then))
        return Change((node,), (Node(op, before.inputs, node.outputs, origins(node, before)),))
