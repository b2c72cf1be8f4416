"""RNN written out step by step: a function of the input's Gemm plus one of the state."""

from __future__ import annotations

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts
from npuflow.rules._recurrent import MAKES, Direction, RecurrentLayer, Swept, read, written


@RULES.entry
class UnrollRnn(Decomposition):
    triggers = ("host:rnn",)
    makes = MAKES

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        layer = read(parts, 1, 1, cell=False)
        return layer if isinstance(layer, str) else written(layer, _run, cell=False)


def _run(layer: RecurrentLayer, one: Direction) -> Swept:
    parts, (function,) = layer.parts, one.functions
    products = layer.products(one.w, one.bias.sum(0), "inner")
    weights, h, rows = layer.matrix(one.r, "inner_r"), one.h, [""] * layer.steps
    for t in one.steps:
        total = (
            parts.add(products[t], layer.gemm(h, weights, None, "inner_h"), "inner_sum") if h else products[t]
        )
        rows[t], h = layer.held(t, layer.active(function, total, "state"), h)
    return Swept(rows, h)
