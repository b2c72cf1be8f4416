"""MeanVarianceNormalization in simpler operators: epsilon, 1e-9, is added to the standard deviation."""

from __future__ import annotations

from npuflow.rules import RULES
from npuflow.rules._norms import NORM, normalized
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class SpellMeanvariancenorm(Decomposition):
    triggers = ("host:meanvariancenormalization",)
    makes = NORM

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        axes = parts.attribute("axes", (0, 2, 3))
        if not isinstance(axes, tuple) or not axes:
            return "no axes"
        return (normalized(parts, parts.input(0), axes, 1e-9, outside=True).y,)
