"""The centre of mass of each channel of a heatmap in pixels: [n, c, h, w] -> [n, c, 2] (x, y). Host only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.hw.target import Target
from npuflow.ir.op import OPS, No, OnnxCall, Op, OpContext, OpSample, Role, Yes
from npuflow.ir.types import Array, TensorType

BODY = """Centroid (x) => (y) {
    zero = Constant <value_int: int = 0> ()
    one = Constant <value_int: int = 1> ()
    sizes = Shape (x)
    two = Constant <value_int: int = 2> ()
    three = Constant <value_int: int = 3> ()
    h = Gather (sizes, two)
    w = Gather (sizes, three)
    rows = Range (zero, h, one)
    columns = Range (zero, w, one)
    across = CastLike (columns, x)
    down = CastLike (rows, x)
    last = Constant <value_ints: ints = [3]> ()
    behind = Constant <value_ints: ints = [2]> ()
    both = Constant <value_ints: ints = [2, 3]> ()
    mass = ReduceSum <keepdims: int = 0> (x, both)
    by_column = ReduceSum <keepdims: int = 0> (x, behind)
    by_row = ReduceSum <keepdims: int = 0> (x, last)
    weighed_x = Mul (by_column, across)
    weighed_y = Mul (by_row, down)
    sum_x = ReduceSum <keepdims: int = 0> (weighed_x, behind)
    sum_y = ReduceSum <keepdims: int = 0> (weighed_y, behind)
    mean_x = Div (sum_x, mass)
    mean_y = Div (sum_y, mass)
    deep_x = Unsqueeze (mean_x, behind)
    deep_y = Unsqueeze (mean_y, behind)
    y = Concat <axis: int = 2> (deep_x, deep_y)
}"""


@OPS.entry
@dataclass(frozen=True)
class Centroid(Op):
    """No target accepts it: it runs between programs, in floats."""

    onnx: ClassVar[str] = "Centroid"
    domain: ClassVar[str] = "acme"

    def to_onnx(self, site: OpContext) -> OnnxCall:
        return OnnxCall("Centroid", domain="acme", body=BODY)

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        (x,) = types
        assert x is not None
        if len(x.shape) != 4:
            raise ValueError(f"a heatmap has 4 dimensions, not {len(x.shape)}")
        return (TensorType((*x.shape[:2], 2), x.dtype),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        (x,) = inputs
        assert x is not None
        mass = x.sum((2, 3))
        across = (x.sum(2) * np.arange(x.shape[3])).sum(2) / mass
        down = (x.sum(3) * np.arange(x.shape[2])).sum(2) / mass
        return (np.stack([across, down], 2).astype(x.dtype),)

    def role(self, index: int) -> Role:
        return "plain"

    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        return No("a coordinate needs more than 8 bits; the host computes it in floats")

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        yield OpSample(cls(), (rng.random((1, 3, 5, 7), np.float32) + np.float32(0.1),))
