"""The k largest or smallest elements along a dimension, in order, and where they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.hw.target import Numerics
from npuflow.ir.op import OPS, OnnxCall, OpContext, OpSample, Role
from npuflow.ir.types import Array, IntArray
from npuflow.ops._ranking import RankingOp, ranked


@OPS.entry
@dataclass(frozen=True)
class TopK(RankingOp):
    """Positions are whole numbers in float32."""

    onnx: ClassVar[str] = "TopK"
    values: ClassVar[bool] = True

    def role(self, index: int) -> Role:
        return "table"

    def to_onnx(self, site: OpContext) -> OnnxCall:
        body = """TopK <axis: int, k: int, largest: int> (x) => (y, p) {
            one = Constant <value_int: int = @k> ()
            row = Constant <value_ints = [1]> ()
            k = Reshape (one, row)
            y, at = TopK <axis: int = @axis, largest: int = @largest, sorted = 1> (x, k)
            p = Cast <to = 1> (at)
        }"""
        return OnnxCall(
            "TopK", {"axis": self.axis, "k": self.k, "largest": self.largest}, self.domain, 1, body=body
        )

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        at = self.order(x)
        return np.take_along_axis(x, at, self.axis), at.astype(x.dtype)

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        x = inputs[0]
        assert x is not None
        at, positions = self.order(x.astype(np.int64)), site.outputs[1].quant
        assert positions is not None
        return np.take_along_axis(x, at, self.axis), at.astype(positions.dtype)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        for number, x in enumerate(ranked(rng)):
            yield OpSample(cls(1 if x.ndim > 1 else 0, 2, number % 2), (x,))
