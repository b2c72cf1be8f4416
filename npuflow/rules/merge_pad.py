"""A zero Pad in front of a convolution becomes its padding; before a MaxPool, a Pad of -infinity does."""

from __future__ import annotations

from math import inf

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind, made_by, sole_user
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._match import origins


@RULES.entry
class MergePad(Rule):
    """Only spatial dimensions, only additions, and only values that the operator itself pads with."""

    order = 40
    triggers = ("conv", "maxpool")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        pad = made_by(graph, node.inputs[0], "pad")
        if pad is None:
            return None
        op, user = pad.op, node.op
        pads: tuple[int, ...] = op.pads  # type: ignore[attr-defined]
        rank = len(pads) // 2
        reason = ""
        if op.mode != "constant":  # type: ignore[attr-defined]
            reason = f"the Pad's mode is {op.mode}"  # type: ignore[attr-defined]
        elif op.value != (0.0 if kind(node) == "conv" else -inf):  # type: ignore[attr-defined]
            padding = "0" if kind(node) == "conv" else "-inf"
            value = op.value  # type: ignore[attr-defined]
            reason = f"the Pad writes {value:g}, {kind(node)} pads with {padding}"
        elif any((*pads[:2], *pads[rank : rank + 2])):
            reason = "the Pad widens the batch or the channels"
        elif min(pads) < 0:
            reason = "the Pad crops"
        elif getattr(user, "auto_pad", "NOTSET") != "NOTSET" or getattr(user, "ceil_mode", 0):
            reason = f"{kind(node)} rounds its own size up"
        elif sole_user(graph, pad.outputs[0]) is not node:
            reason = "the padded tensor is read elsewhere too"
        if reason:
            return Refusal("merge_pad", node.name, reason)
        spatial = (*pads[2:rank], *pads[rank + 2 :])
        own = user.pads or (0,) * len(spatial)  # type: ignore[attr-defined]
        merged = tuple(a + b for a, b in zip(own, spatial, strict=True))
        fused = Node(
            user.with_(pads=merged), (pad.inputs[0], *node.inputs[1:]), node.outputs, origins(node, pad)
        )
        return Change((pad, node), (fused,))
