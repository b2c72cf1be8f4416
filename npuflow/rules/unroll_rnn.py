"""RNN as a loop, or written out step by step.
A step is a function of the input's Gemm plus one of the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts
from npuflow.rules._recurrent import MAKES, Direction, RecurrentLayer, read, written


@RULES.entry
class UnrollRnn(Decomposition):
    triggers = ("host:rnn",)
    makes = MAKES

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        layer = read(parts, 1, 1, cell=False)
        return layer if isinstance(layer, str) else written(layer, _Rnn(), cell=False)


class _Rnn:
    remembers: ClassVar[bool] = False

    def sums(self, layer: RecurrentLayer, one: Direction) -> Sequence[str]:
        return (layer.products(one.w, one.bias.sum(0), "inner"),)

    def step(
        self, layer: RecurrentLayer, one: Direction, sums: Sequence[str], h: str, c: str
    ) -> tuple[str, str]:
        parts, (function,), (total,) = layer.parts, one.functions, sums
        if h:
            own = layer.gemm(h, layer.matrix(one.r, "inner_r"), None, "inner_h")
            total = parts.add(total, own, "inner_sum")
        return layer.active(function, total, "state"), ""
