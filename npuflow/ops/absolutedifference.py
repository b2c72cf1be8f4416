"""|a - b| with broadcasting, rounded once: the distance that Siamese networks compare features by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.hw.numerics import requantize
from npuflow.hw.target import Numerics
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OPS, OnnxCall, OpContext
from npuflow.ir.types import Array, IntArray, Span
from npuflow.ops._elementwise import SumOp, binary_operands


@OPS.entry
@dataclass(frozen=True)
class AbsoluteDifference(SumOp):
    """No operator of ONNX: a node AbsoluteDifference of the domain npuflow."""

    domain: ClassVar[str] = "npuflow"
    onnx: ClassVar[str] = "AbsoluteDifference"
    sums: ClassVar[bool] = False
    sign: ClassVar[int] = -1

    @property
    def lane(self) -> str:
        return "sub abs"

    def to_onnx(self, site: OpContext) -> OnnxCall:
        body = "AbsoluteDifference (a, b) => (y) { d = Sub (a, b) y = Abs (d) }"
        return OnnxCall("AbsoluteDifference", {}, self.domain, 1, body=body)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        return (np.abs(super().reference(*inputs)[0]),)

    def whole_result(self, site: OpContext, spans: Sequence[Span | None], output: int) -> Span | None:
        found = super().whole_result(site, spans, output)
        if found is None:
            return None
        ends = abs(found[0]), abs(found[1])
        return (0 if found[0] <= 0 <= found[1] else min(ends)), max(ends)

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        y, bounds = site.out_quant, (site.param("lo"), site.param("hi"))
        size = np.abs(self.total(site, inputs))
        found = requantize(size, 1, site.param("shift"), y.zero_point[0], *bounds, numerics.rounding)
        return (found.astype(y.dtype),)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        numbers = {k: site.param(k) for k in ("a_multiplier", "b_multiplier", "shift", "lo", "hi")}
        em.emit("ABSDIFFERENCE", **binary_operands(site, tile), **numbers, rounding=em.numerics.rounding)
