"""x - bias above lambd, x + bias below -lambd, 0 between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Shrink(TableOp):
    bias: float = 0.0
    lambd: float = 0.5
    onnx: ClassVar[str] = "Shrink"

    def f(self, x: Real) -> Real:
        return np.where(x > self.lambd, x - self.bias, np.where(x < -self.lambd, x + self.bias, 0.0))
