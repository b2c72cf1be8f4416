"""a * b with broadcasting: one multiplier on the product of the centred codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.hw.numerics import requantize
from npuflow.hw.target import Numerics
from npuflow.ir.op import OPS, Algebra, OpContext
from npuflow.ir.types import Array, IntArray, Span
from npuflow.ops._elementwise import RatioOp, corners
from npuflow.ops._requant import centred


@OPS.entry
@dataclass(frozen=True)
class Mul(RatioOp):
    onnx: ClassVar[str] = "Mul"
    algebra: ClassVar[Algebra] = "product"
    opcode: ClassVar[str] = "MUL"

    @property
    def lane(self) -> str:
        return "mul"

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        a, b = inputs[0], inputs[1]
        assert a is not None and b is not None
        return (np.asarray(a * b),)

    def whole_result(self, site: OpContext, spans: Sequence[Span | None], output: int) -> Span | None:
        return corners(lambda a, b: a * b, *spans)

    def ratio(self, a: float, b: float) -> float:
        return a * b

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        a, b = inputs[0], inputs[1]
        assert a is not None and b is not None
        product = np.asarray(centred(a, site.quant(0)) * centred(b, site.quant(1)))
        y = site.out_quant
        m, n, bounds = site.param("multiplier"), site.param("shift"), (site.param("lo"), site.param("hi"))
        result = requantize(product, m, n, y.zero_point[0], *bounds, numerics.rounding)
        return (result.astype(y.dtype),)
