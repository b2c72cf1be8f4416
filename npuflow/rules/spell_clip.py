"""Spells Clip between computed bounds as the larger and the smaller of two values.
Such a bound is a spectrum's largest value less 80 dB.
"""

from __future__ import annotations

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class SpellClip(Decomposition):
    """min(max(x, lower), upper), as ONNX defines it: the upper bound counts where they cross."""

    triggers = ("host:clip",)
    makes = ("max", "min", "reshape")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        x = parts.input(0)
        for index, name in ((1, "max"), (2, "min")):
            bound = parts.input(index)
            if bound:
                x = parts.op(name, (x, parts.reshape(bound, (1,) * len(parts.shape(x)))))
        return (x,)
