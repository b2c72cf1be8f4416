"""Writes out LSTM step by step.
The gates of a step are two Gemms of the state beside the input's, and functions of them.
"""

from __future__ import annotations

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts
from npuflow.rules._recurrent import MAKES, Direction, RecurrentLayer, Swept, read, written


@RULES.entry
class UnrollLstm(Decomposition):
    """Gates lie in the order input, output, forget, cell; the first three have one
    function and are computed together."""

    triggers = ("host:lstm",)
    makes = MAKES

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        if parts.integer("input_forget", 0):
            return "its input and forget gates are coupled"
        layer = read(parts, 4, 3, cell=True)
        return layer if isinstance(layer, str) else written(layer, _run, cell=True)


def _run(layer: RecurrentLayer, one: Direction) -> Swept:
    parts, cut = layer.parts, 3 * layer.hidden
    bias = one.bias.sum(0)
    gates = layer.products(one.w[:cut], bias[:cut], "gates")
    inner = layer.products(one.w[cut:], bias[cut:], "cell")
    r_gates, r_inner = layer.matrix(one.r[:cut], "gates_r"), layer.matrix(one.r[cut:], "cell_r")
    gate, candidate, squash = one.functions
    h, c, rows = one.h, one.c, [""] * layer.steps
    for t in one.steps:
        total, new = gates[t], inner[t]
        if h:
            total = parts.add(total, layer.gemm(h, r_gates, None, "gates_h"), "gates_sum")
            new = parts.add(new, layer.gemm(h, r_inner, None, "cell_h"), "cell_sum")
        new = layer.active(candidate, new, "candidate")
        if one.peepholes is None:
            i, o, f = layer.halves(layer.active(gate, total, "gate"), 3, "gate_part")
            made = _cell(parts, i, f, new, c)
        else:
            hidden = layer.hidden
            p_i, p_o, p_f = (
                parts.const(one.peepholes[k * hidden : (k + 1) * hidden], "peephole") for k in range(3)
            )
            i, o, f = layer.halves(total, 3, "gate_part")
            if c:
                i, f = parts.add(i, parts.mul(c, p_i)), parts.add(f, parts.mul(c, p_f))
            i, f = layer.active(gate, i, "input"), layer.active(gate, f, "forget")
            made = _cell(parts, i, f, new, c)
            o = layer.active(gate, parts.add(o, parts.mul(made, p_o)), "output")
        _, c = layer.held(t, made, c)
        rows[t], h = layer.held(t, parts.mul(o, squash(parts, made, "squashed"), "state"), h)
    return Swept(rows, h, c)


def _cell(parts: Parts, i: str, f: str, new: str, c: str) -> str:
    """f * c + i * new."""
    fresh = parts.mul(i, new, "fresh")
    return parts.add(parts.mul(f, c, "kept"), fresh, "memory") if c else fresh
