"""-1, 0 or 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS, OpContext
from npuflow.ir.types import Span
from npuflow.ops._table import Real, TableOp

STEEP = 1e30


@OPS.entry
@dataclass(frozen=True)
class Sign(TableOp):
    onnx: ClassVar[str] = "Sign"
    signs: ClassVar[bool] = True

    def f(self, x: Real) -> Real:
        return np.sign(x)

    def whole_result(self, site: OpContext, spans: Sequence[Span | None], output: int) -> Span | None:
        return -1, 1

    def smooth(self, x: Real) -> Real:
        """So steep that the code beside the zero point is at a bound: exact at 16 bits too."""
        return x * STEEP

    def bounds(self) -> tuple[float, float]:
        return -1.0, 1.0
