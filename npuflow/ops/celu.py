"""max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Celu(TableOp):
    alpha: float = 1.0
    onnx: ClassVar[str] = "Celu"

    def f(self, x: Real) -> Real:
        return np.maximum(x, 0.0) + np.minimum(0.0, self.alpha * np.expm1(x / self.alpha))
