"""LSTM as a loop, or written out step by step.
The gates of a step are two Gemms of the state beside the input's, and functions of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts
from npuflow.rules._recurrent import MAKES, Direction, RecurrentLayer, read, written


@RULES.entry
class UnrollLstm(Decomposition):
    """Gates lie in the order input, output, forget, cell; the first three have one
    function and are computed together."""

    triggers = ("host:lstm",)
    makes = MAKES

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        layer, coupled = read(parts, 4, 3, cell=True), bool(parts.integer("input_forget", 0))
        return layer if isinstance(layer, str) else written(layer, _Lstm(coupled), cell=True)


class _Lstm:
    """`coupled`: the forget gate is what the input gate leaves of 1."""

    remembers: ClassVar[bool] = True

    def __init__(self, coupled: bool) -> None:
        self.coupled = coupled

    def sums(self, layer: RecurrentLayer, one: Direction) -> Sequence[str]:
        cut, bias = 3 * layer.hidden, one.bias.sum(0)
        if layer.joined:
            return (layer.products(one.w, bias, "gates"),)
        gates = layer.products(one.w[:cut], bias[:cut], "gates")
        return gates, layer.products(one.w[cut:], bias[cut:], "cell")

    def step(
        self, layer: RecurrentLayer, one: Direction, sums: Sequence[str], h: str, c: str
    ) -> tuple[str, str]:
        parts, (total, new) = layer.parts, self.totals(layer, one, sums, h)
        gate, candidate, squash = one.functions
        new = layer.active(candidate, new, "candidate")
        if one.peepholes is None:
            i, o, f = layer.halves(layer.active(gate, total, "gate"), 3, "gate_part")
            f = self.left(parts, i, f)
            made = _cell(parts, i, f, new, c)
        else:
            p_i, p_o, p_f = (parts.const(p, "peephole") for p in np.split(one.peepholes, 3))
            i, o, f = layer.halves(total, 3, "gate_part")
            if c:
                i, f = parts.add(i, parts.mul(c, p_i)), parts.add(f, parts.mul(c, p_f))
            i = layer.active(gate, i, "input")
            f = self.left(parts, i, "") or layer.active(gate, f, "forget")
            made = _cell(parts, i, f, new, c)
            o = layer.active(gate, parts.add(o, parts.mul(made, p_o)), "output")
        return parts.mul(o, squash(parts, made, "squashed"), "state"), made

    def totals(
        self, layer: RecurrentLayer, one: Direction, sums: Sequence[str], h: str
    ) -> tuple[str, str]:
        """The sums of the gates, and of the candidate."""
        parts, cut = layer.parts, 3 * layer.hidden
        if layer.joined:
            own = layer.gemm(h, layer.matrix(one.r, "gates_r"), None, "gates_h")
            total, new = layer.cut(sums[0], (3, 1), "part")
            gates, cell = layer.cut(own, (3, 1), "part_h")
            return parts.add(total, gates, "gates_sum"), parts.add(new, cell, "cell_sum")
        total, new = sums
        if h:
            own = layer.gemm(h, layer.matrix(one.r[:cut], "gates_r"), None, "gates_h")
            total = parts.add(total, own, "gates_sum")
            own = layer.gemm(h, layer.matrix(one.r[cut:], "cell_r"), None, "cell_h")
            new = parts.add(new, own, "cell_sum")
        return total, new

    def left(self, parts: Parts, i: str, f: str) -> str:
        """The forget gate: the layer's own one, or that of the input gate."""
        return parts.sub(1.0, i, "forget") if self.coupled else f


def _cell(parts: Parts, i: str, f: str, new: str, c: str) -> str:
    """f * c + i * new."""
    fresh = parts.mul(i, new, "fresh")
    return parts.add(parts.mul(f, c, "kept"), fresh, "memory") if c else fresh
