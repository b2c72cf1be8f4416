"""Replaces Reshape, Transpose, Reshape that permute one dimension by a Gather.
The channel shuffle of grouped convolutions is one.
"""

from __future__ import annotations

from math import prod

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.queries import made_by, sole_user
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._match import origins


@RULES.entry
class MergePermutation(Rule):
    """No tile passes through a Reshape that splits dimensions; a Gather along one dimension is tiled along
    all others, and runs in local memory."""

    order = 30
    triggers = ("reshape",)
    makes = ("gather",)

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        turned = made_by(graph, node.inputs[0], "transpose")
        cut = made_by(graph, turned.inputs[0], "reshape") if turned is not None else None
        if turned is None or cut is None or any(n.op.clip is not None for n in (node, turned, cut)):
            return None
        source = graph.type(cut.inputs[0])
        if not source.is_static or source.shape != graph.type(node.outputs[0]).shape:
            return None
        if sole_user(graph, turned.outputs[0]) is not node or sole_user(graph, cut.outputs[0]) is not turned:
            return None
        perm: tuple[int, ...] = turned.op.perm  # type: ignore[attr-defined]
        found = _order(source.shape, graph.type(cut.outputs[0]).shape, perm)
        if found is None:
            return None
        axis, indices = found
        gather = OPS["gather"](indices, (len(indices),), axis)
        return Change(
            (cut, turned, node), (Node(gather, cut.inputs, node.outputs, origins(cut, turned, node)),)
        )


def _order(
    shape: tuple[int, ...], middle: tuple[int, ...], perm: tuple[int, ...]
) -> tuple[int, tuple[int, ...]] | None:
    """The one dimension whose order a permutation of `middle` changes, and the indices it picks of it."""
    changed = [d for d, p in enumerate(perm) if d != p]
    if not changed:
        return None
    first, last = changed[0], changed[-1] + 1
    outer, inner = prod(middle[:first]), prod(middle[last:])
    for axis, size in enumerate(shape):
        before, after = prod(shape[:axis]), prod(shape[axis + 1 :])
        if before and after and outer % before == 0 and inner % after == 0 and size > 1:
            inside = (outer // before, *middle[first:last], inner // after)
            order = (0, *(p - first + 1 for p in perm[first:last]), last - first + 1)
            indices = np.arange(size).reshape(inside).transpose(order).reshape(-1)
            return axis, tuple(int(i) for i in indices)
    return None
