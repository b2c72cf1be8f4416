"""What the operators that move data ask of an ONNX node, and which dimensions of two shapes are the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from npuflow.ir.lowering import Buffer
from npuflow.ir.op import No, OnnxCall
from npuflow.ir.types import TensorType


def static_input(call: OnnxCall) -> TensorType | No:
    """The first input's type, whose every dimension must be known."""
    x = call.types[0]
    return x if x is not None and x.is_static else No("the input's shape is not static")


def integers(call: OnnxCall, name: str) -> tuple[int, ...] | No | None:
    """What is an attribute in old opsets and the second input in new ones; None if the node has neither."""
    given = call.attributes.get(name)
    if given is not None:
        return tuple(int(v) for v in given)
    if len(call.types) < 2 or call.types[1] is None:
        return None
    if call.consts[1] is None:
        return No(f"the {name} is not a constant" if name == "shape" else f"the {name} are not a constant")
    return tuple(np.asarray(call.consts[1]).reshape(-1).tolist())


@dataclass(frozen=True)
class SameElements:
    """Dimensions of two shapes that have the same elements, by position; those of extent 1 are left out."""

    x: tuple[int, ...]
    y: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Dimensions of a copy between them."""
        return max(len(self.x), len(self.y)) if min(len(self.x), len(self.y)) == 1 else 1

    def runs(self, x: Buffer, y: Buffer) -> Iterator[tuple[int, int, int]]:
        """(extent, step in `x`, step in `y`) of every dimension of a copy. All but the first dimension of
        several are whole, and of several on both sides all."""
        fine, dims = (x, self.x) if len(self.x) > 1 else (y, self.y)
        extents = [fine.extent[d] for d in dims]
        if self.rank == 1:
            yield prod(extents), x.strides[self.x[-1]], y.strides[self.y[-1]]
            return
        for k, d in enumerate(dims):
            behind = prod(extents[k + 1 :])
            coarse = behind * (y.strides[self.y[0]] if fine is x else x.strides[self.x[0]])
            yield (extents[k], *((x.strides[d], coarse) if fine is x else (coarse, y.strides[d])))


def matched(x: Sequence[int], y: Sequence[int]) -> list[SameElements]:
    """The shortest runs of dimensions of two shapes of one size that have the same elements."""
    found, mine, theirs = [], list[int](), list[int]()
    left, right = ([d for d, n in enumerate(shape) if n != 1] for shape in (x, y))
    while left or right:
        a, b = prod(x[d] for d in mine), prod(y[d] for d in theirs)
        if left and (a <= b or not right):
            mine.append(left.pop(0))
        else:
            theirs.append(right.pop(0))
        if mine and theirs and prod(x[d] for d in mine) == prod(y[d] for d in theirs):
            found.append(SameElements(tuple(mine), tuple(theirs)))
            mine, theirs = [], []
    return found
