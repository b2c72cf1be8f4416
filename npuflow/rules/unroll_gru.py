"""GRU as a loop, or written out step by step.
Update and reset gates come together, then the candidate, then a step from the state to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts
from npuflow.rules._recurrent import MAKES, Direction, RecurrentLayer, read, written


@RULES.entry
class UnrollGru(Decomposition):
    """Gates lie in the order update, reset, candidate; `linear_before_reset` resets the
    candidate's product of the state."""

    triggers = ("host:gru",)
    makes = MAKES

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        layer = read(parts, 3, 2, cell=False)
        after = bool(parts.integer("linear_before_reset", 0))
        return layer if isinstance(layer, str) else written(layer, _Gru(after), cell=False)


class _Gru:
    remembers: ClassVar[bool] = False

    def __init__(self, after: bool) -> None:
        self.after = after

    def sums(self, layer: RecurrentLayer, one: Direction) -> Sequence[str]:
        cut, total = 2 * layer.hidden, one.bias.sum(0)
        inner = one.bias[0, cut:] if self.after else total[cut:]
        if self.after and layer.joined:
            return (layer.products(one.w, np.concatenate([total[:cut], inner]), "gates"),)
        gates = layer.products(one.w[:cut], total[:cut], "gates")
        return gates, layer.products(one.w[cut:], inner, "inner")

    def step(
        self, layer: RecurrentLayer, one: Direction, sums: Sequence[str], h: str, c: str
    ) -> tuple[str, str]:
        parts, cut = layer.parts, 2 * layer.hidden
        gate, candidate = one.functions
        own = ""                              # the candidate's product of the state
        if self.after and layer.joined:
            bias = np.pad(one.bias[1, cut:], (cut, 0))
            own = layer.gemm(h, layer.matrix(one.r, "gates_r"), bias, "gates_h")
            z_r, new = layer.cut(sums[0], (2, 1), "part")
            gates, own = layer.cut(own, (2, 1), "part_h")
            z_r = parts.add(z_r, gates, "gates_sum")
        else:
            z_r, new = sums
            if h:
                gates = layer.gemm(h, layer.matrix(one.r[:cut], "gates_r"), None, "gates_h")
                z_r = parts.add(z_r, gates, "gates_sum")
        update, reset = layer.halves(layer.active(gate, z_r, "gate"), 2, "gate_part")
        if self.after:
            own = own or self.own(layer, one, h)
            new = parts.add(new, parts.mul(reset, own, "reset"), "inner_sum")
        elif h:
            weights = layer.matrix(one.r[cut:], "inner_r")
            own = layer.gemm(parts.mul(reset, h, "reset"), weights, None, "inner_h")
            new = parts.add(new, own, "inner_sum")
        new = layer.active(candidate, new, "candidate")
        if h:
            return parts.add(new, parts.mul(update, parts.sub(h, new, "change"), "kept"), "state"), ""
        return parts.sub(new, parts.mul(update, new, "kept"), "state"), ""

    def own(self, layer: RecurrentLayer, one: Direction, h: str) -> str:
        """What the state adds to the candidate before it is reset."""
        cut = 2 * layer.hidden
        bias = one.bias[1, cut:]
        if not h:
            return layer.parts.const(bias, "inner_b")
        return layer.gemm(h, layer.matrix(one.r[cut:], "inner_r"), bias, "inner_h")
