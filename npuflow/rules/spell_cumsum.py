"""CumSum along a constant axis as a product with a triangular matrix of ones."""

from __future__ import annotations

import numpy as np

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts

_MOST = 4096                              # elements along the axis: the matrix has the square of it


@RULES.entry
class SpellCumsum(Decomposition):
    triggers = ("host:cumsum",)
    makes = ("matmul", "transpose", "reshape")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        axis, shape = parts.number(1), parts.shape(parts.input(0))
        if axis is None:
            return "the axis is not a constant"
        at = int(axis.reshape(-1)[0]) % len(shape)
        if shape[at] > _MOST:
            return f"{shape[at]} elements along the axis, more than {_MOST}"
        reverse, exclusive = bool(parts.integer("reverse", 0)), bool(parts.integer("exclusive", 0))
        return (running_sum(parts, parts.input(0), at, reverse, exclusive),)


def running_sum(parts: Parts, x: str, axis: int, reverse: bool, exclusive: bool) -> str:
    shape = parts.shape(x)
    order = [d for d in range(len(shape)) if d != axis] + [axis]
    rows = parts.transpose(x, order)
    moved, size = parts.shape(rows), shape[axis]
    ones = np.ones((size, size), np.float32)
    triangle = np.tril(ones, -int(exclusive)) if reverse else np.triu(ones, int(exclusive))
    y = parts.matmul(
        parts.reshape(rows, (-(-parts.type(x).size // size), size)), parts.const(triangle, "triangle")
    )
    return parts.transpose(parts.reshape(y, moved), np.argsort(order).tolist())
