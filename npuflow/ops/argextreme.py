"""Where the largest or the smallest element along a dimension is (ArgMax, ArgMin)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.hw.target import Numerics
from npuflow.ir.op import OPS, OnnxCall, OpContext, OpSample
from npuflow.ir.types import Array, IntArray
from npuflow.ops._ranking import RankingOp, ranked


@OPS.entry
@dataclass(frozen=True)
class ArgExtreme(RankingOp):
    """The dimension stays, with size 1; the result is a whole number in float32."""

    onnx: ClassVar[str] = "ArgExtreme"

    def to_onnx(self, site: OpContext) -> OnnxCall:
        kind = "ArgMax" if self.largest else "ArgMin"
        body = f"""{kind} <axis: int, last: int> (x) => (y) {{
            at = {kind} <axis: int = @axis, select_last_index: int = @last> (x)
            y = Cast <to = 1> (at)
        }}"""
        given = {"axis": self.axis, "last": self.select_last_index}
        return OnnxCall(kind, given, self.domain, 1, body=body)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        assert inputs[0] is not None
        return (self.order(inputs[0]).astype(inputs[0].dtype),)

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        assert inputs[0] is not None
        return (self.order(inputs[0].astype(np.int64)).astype(site.out_quant.dtype),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        for number, x in enumerate(ranked(rng)):
            yield OpSample(cls(1 if x.ndim > 1 else 0, 1, number % 2, number // 2), (x,))
