"""GRU as a loop, or written out step by step.
Update and reset gates come together, then the candidate, then a step from the state to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

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
        gates = layer.products(one.w[:cut], total[:cut], "gates")
        inner = one.bias[0, cut:] if self.after else total[cut:]
        return gates, layer.products(one.w[cut:], inner, "inner")

    def step(
        self, layer: RecurrentLayer, one: Direction, sums: Sequence[str], h: str, c: str
    ) -> tuple[str, str]:
        parts, cut, (z_r, new) = layer.parts, 2 * layer.hidden, sums
        gate, candidate = one.functions
        if h:
            own = layer.gemm(h, layer.matrix(one.r[:cut], "gates_r"), None, "gates_h")
            z_r = parts.add(z_r, own, "gates_sum")
        update, reset = layer.halves(layer.active(gate, z_r, "gate"), 2, "gate_part")
        r_inner = layer.matrix(one.r[cut:], "inner_r") if h else ""
        if self.after:
            bias = one.bias[1, cut:]
            own = layer.gemm(h, r_inner, bias, "inner_h") if h else parts.const(bias, "inner_b")
            new = parts.add(new, parts.mul(reset, own, "reset"), "inner_sum")
        elif h:
            own = layer.gemm(parts.mul(reset, h, "reset"), r_inner, None, "inner_h")
            new = parts.add(new, own, "inner_sum")
        new = layer.active(candidate, new, "candidate")
        if h:
            return parts.add(new, parts.mul(update, parts.sub(h, new, "change"), "kept"), "state"), ""
        return parts.sub(new, parts.mul(update, new, "kept"), "state"), ""
