"""x where x > alpha, 0 below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class ThresholdedRelu(TableOp):
    alpha: float = 1.0
    onnx: ClassVar[str] = "ThresholdedRelu"

    def f(self, x: Real) -> Real:
        return np.where(x > self.alpha, x, 0.0)
