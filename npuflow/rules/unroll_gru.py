"""Writes out GRU step by step.
Update and reset gates come together, then the candidate, then a step from the state to it.
"""

from __future__ import annotations

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts
from npuflow.rules._recurrent import MAKES, Direction, RecurrentLayer, Swept, read, written


@RULES.entry
class UnrollGru(Decomposition):
    """Gates lie in the order update, reset, candidate; `linear_before_reset` resets the
    candidate's product of the state."""

    triggers = ("host:gru",)
    makes = MAKES

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        layer = read(parts, 3, 2, cell=False)
        return layer if isinstance(layer, str) else written(layer, _run, cell=False)


def _run(layer: RecurrentLayer, one: Direction) -> Swept:
    parts, cut = layer.parts, 2 * layer.hidden
    after = bool(parts.integer("linear_before_reset", 0))
    total = one.bias.sum(0)
    gates = layer.products(one.w[:cut], total[:cut], "gates")
    inner = layer.products(one.w[cut:], one.bias[0, cut:] if after else total[cut:], "inner")
    r_gates, r_inner = layer.matrix(one.r[:cut], "gates_r"), layer.matrix(one.r[cut:], "inner_r")
    gate, candidate = one.functions
    h, rows = one.h, [""] * layer.steps
    for t in one.steps:
        z_r = parts.add(gates[t], layer.gemm(h, r_gates, None, "gates_h"), "gates_sum") if h else gates[t]
        update, reset = layer.halves(layer.active(gate, z_r, "gate"), 2, "gate_part")
        new = inner[t]
        if after:
            own = (
                layer.gemm(h, r_inner, one.bias[1, cut:], "inner_h")
                if h
                else parts.const(one.bias[1, cut:], "inner_b")
            )
            new = parts.add(new, parts.mul(reset, own, "reset"), "inner_sum")
        elif h:
            new = parts.add(
                new, layer.gemm(parts.mul(reset, h, "reset"), r_inner, None, "inner_h"), "inner_sum"
            )
        new = layer.active(candidate, new, "candidate")
        if h:
            made = parts.add(new, parts.mul(update, parts.sub(h, new, "change"), "kept"), "state")
        else:
            made = parts.sub(new, parts.mul(update, new, "kept"), "state")
        rows[t], h = layer.held(t, made, h)
    return Swept(rows, h)
