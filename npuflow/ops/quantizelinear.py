"""The boundary from float values to codes: round(x / scale) to even, plus zero point, saturated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from npuflow.hw.numerics import along, quantize
from npuflow.hw.target import Numerics
from npuflow.ir.op import OPS, Site
from npuflow.ir.types import Array, IntArray, QuantType
from npuflow.ops._boundary import BoundaryOp


@OPS.entry
@dataclass(frozen=True)
class QuantizeLinear(BoundaryOp):
    onnx: ClassVar[str] = "QuantizeLinear"

    def quant_type(self, site: Site) -> QuantType:
        return site.out_quant

    def integer(
        self, site: Site, inputs: Sequence[IntArray | Array | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        x, q = inputs[0], site.out_quant
        assert x is not None
        scale, zero = along(q.scale, q.axis, x.ndim), along(q.zero_point, q.axis, x.ndim)
        return (quantize(x, scale, zero, q.lo, q.hi).astype(q.dtype),)
