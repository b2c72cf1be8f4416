"""Pow with several exponents: constant ones group by group, others as the exponential of a product."""

from __future__ import annotations

import numpy as np

from npuflow.ir.types import Array
from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts
from npuflow.rules._signs import positive

_GROUPS = 16                              # different exponents


@RULES.entry
class SpellPow(Decomposition):
    """Elements of one exponent become one Pow: they are gathered, raised and put back in their order, along
    the axis where the exponents differ, or all of them in one row. Computed exponents take a base that is
    known to be positive: exp(y log x)."""

    triggers = ("host:pow",)
    makes = ("pow", "gather", "slice", "concat", "expand", "reshape", "mul", "exp", "log")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        x, by = parts.input(0), parts.input(1)
        shape, exponents = parts.shape(parts.node.outputs[0]), parts.number(1)
        if exponents is not None:
            values = np.broadcast_to(exponents.astype(np.float32), shape)
            if not np.isfinite(values).all():
                return "an exponent that is not finite"
            count = len(np.unique(values))
            if count <= _GROUPS:
                return (_grouped(parts, parts.expand(x, shape), values),)
            if not positive(parts.graph, x):
                return f"{count} different exponents, and a base that is not known to be positive"
        elif parts.type(by).dtype != "float32":
            return f"an exponent of {parts.type(by).dtype} that is not a constant"
        if not positive(parts.graph, x):
            return "the exponent is not a constant, and the base not known to be positive"
        base = parts.number(0)
        log = parts.op("log", (x,)) if base is None else parts.const(np.log(base.astype(np.float64)), "log")
        power = by if exponents is None else parts.const(exponents, "exponent")
        return (parts.op("exp", (parts.mul(power, log),)),)


def _grouped(parts: Parts, x: str, exponents: Array) -> str:
    shape = parts.shape(x)
    differ = [d for d in range(len(shape)) if (exponents != exponents.take([0], d)).any()]
    if not differ:
        return parts.op("pow", (x,), exponent=float(exponents.flat[0]))
    axis = differ[0] if len(differ) == 1 else 0
    if len(differ) == 1:
        row = np.moveaxis(exponents, axis, 0).reshape(shape[axis], -1)[:, 0]
    else:
        x, row = parts.reshape(x, (exponents.size,)), exponents.reshape(-1)
    order = np.argsort(row, kind="stable")
    sorted_ = _picked(parts, x, axis, order)
    pieces, start = [], 0
    for exponent, count in zip(*np.unique(row, return_counts=True), strict=True):
        piece = parts.slice(sorted_, axis, start, start + int(count))
        pieces.append(piece if exponent == 1 else parts.op("pow", (piece,), exponent=float(exponent)))
        start += int(count)
    joined = parts.concat(pieces, axis)
    return parts.reshape(_picked(parts, joined, axis, np.argsort(order)), shape)


def _picked(parts: Parts, x: str, axis: int, order: Array) -> str:
    """The rows of an axis in another order."""
    indices = tuple(int(i) for i in order)
    if indices == tuple(range(len(indices))):
        return x
    return parts.op("gather", (x,), indices=indices, index_shape=(len(indices),), axis=axis)
