"""LayerNormalization in simpler operators: mean, squared deviation, root, quotient, scale and bias."""

from __future__ import annotations

from npuflow.rules import RULES
from npuflow.rules._norms import NORM, normalized, scaled
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class SpellLayernorm(Decomposition):
    """Its outputs of mean and inverse deviation are kept where they are used."""

    triggers = ("host:layernormalization",)
    makes = (*NORM, "reciprocal")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        x = parts.input(0)
        rank = len(parts.shape(x))
        axes = range(parts.integer("axis", -1) % rank, rank)
        found = normalized(parts, x, axes, parts.real("epsilon", 1e-5))
        y = scaled(parts, found.y, parts.input(1), parts.input(2))
        inverse = parts.op("reciprocal", (found.deviation,)) if parts.output(2) else ""
        return y, found.mean if parts.output(1) else "", inverse
