"""RMSNormalization (and onnxruntime's SimplifiedLayerNormalization) in simpler operators:
x over its root mean square."""

from __future__ import annotations

from npuflow.rules import RULES
from npuflow.rules._norms import NORM, root_mean_square, scaled
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class SpellRmsnorm(Decomposition):
    """The skip form adds its second input and a bias first, and gives the sum as its last output."""

    triggers = (
        "host:rmsnormalization", "host:simplifiedlayernormalization", "host:skipsimplifiedlayernormalization",
    )
    makes = (*NORM, "reciprocal")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        x, scale, total = parts.input(0), parts.input(1), ""
        skips = getattr(parts.node.op, "op_type", "").startswith("Skip")
        if skips:
            x, scale = parts.add(x, parts.input(1), "skipped"), parts.input(2)
            x = total = parts.add(x, parts.input(3), "skipped") if parts.input(3) else x
        rank = len(parts.shape(x))
        axes = range(parts.integer("axis", -1) % rank, rank)
        root = root_mean_square(parts, x, axes, parts.real("epsilon", 1e-5))
        y = scaled(parts, parts.div(x, root, "normalized"), scale, "")
        inverse = parts.op("reciprocal", (root,)) if parts.output(2 if skips else 1) else ""
        return (y, "", inverse, total) if skips else (y, inverse)
