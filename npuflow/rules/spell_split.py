"""A Split into few parts becomes a Slice for each part that is read."""

from __future__ import annotations

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.rules import RULES, Change, Refusal
from npuflow.rules._match import plain_float
from npuflow.rules._parts import Decomposition, Parts

_MOST = 8                                 # parts: heads, gates, branches; more are steps or rows


@RULES.entry
class SpellSplit(Decomposition):
    """A Slice can be made in local memory, beside what reads it; a Split makes all its parts in external
    memory. Where a part is contiguous both cost nothing there. After the rules that look for a Split."""

    order = 89
    triggers = ("split",)
    makes = ("slice",)

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        fits = 1 < len(node.outputs) <= _MOST and plain_float(graph, node)
        return super().rewrite(graph, node) if fits else None

    def spelled(self, parts: Parts) -> tuple[str, ...] | str | None:
        op, x, start, made = parts.node.op, parts.input(0), 0, []
        assert isinstance(op, OPS["split"])
        for size, out in zip(op.sizes, parts.node.outputs, strict=False):
            made.append(parts.slice(x, op.axis, start, start + size, what="part") if out else "")
            start += size
        return tuple(made)
