"""x where x >= 0, alpha * x below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class LeakyRelu(TableOp):
    alpha: float = 0.01
    onnx: ClassVar[str] = "LeakyRelu"

    def f(self, x: Real) -> Real:
        return np.where(x >= 0, x, self.alpha * x)
