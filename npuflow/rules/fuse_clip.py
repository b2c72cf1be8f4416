"""A Relu or Clip becomes the `clip` of the operator before it, so that both are one rounding."""

from __future__ import annotations

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind, maker, sole_user
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._match import bounds, origins, plain_float


@RULES.entry
class FuseClip(Rule):
    """Clips of clips intersect; a producer that others read too keeps its own value."""

    order = 80
    triggers = ("relu", "clip")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        source = maker(graph, node.inputs[0])
        if (
            source is None
            or not source.op.fuses_clip
            or len(source.outputs) != 1
            or not plain_float(graph, node)
        ):
            return None
        if kind(source).startswith("host:") or node.op.clip is not None:
            return None
        if sole_user(graph, source.outputs[0]) is not node:
            return Refusal("fuse_clip", node.name, f"{source.name} is read elsewhere too, before the clip")
        lo, hi = bounds(node)
        if source.op.clip is not None:
            # min(max(x, lo), hi) after another one: exact only by pushing the old bounds through the new clip
            old_lo, old_hi = source.op.clip
            # bounds by channel come with equalisation, behind the rules
            assert not isinstance(old_lo, tuple) and not isinstance(old_hi, tuple)
            lo, hi = min(max(old_lo, lo), hi), min(max(old_hi, lo), hi)
        if not lo <= hi:
            return Refusal("fuse_clip", node.name, f"its bounds are empty: {lo:g} > {hi:g}")
        fused = Node(source.op.with_(clip=(lo, hi)), source.inputs, node.outputs, origins(source, node))
        return Change((source, node), (fused,))
