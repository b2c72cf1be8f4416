"""gamma * (x where x > 0, alpha * (exp(x) - 1) below)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Selu(TableOp):
    alpha: float = 1.6732631921768188
    gamma: float = 1.0507010221481323
    onnx: ClassVar[str] = "Selu"

    def f(self, x: Real) -> Real:
        return self.gamma * np.where(x > 0, x, self.alpha * np.expm1(np.minimum(x, 0.0)))
