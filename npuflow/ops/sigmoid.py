"""1 / (1 + exp(-x))."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ir.table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Sigmoid(TableOp):
    onnx: ClassVar[str] = "Sigmoid"
    domain_lo: ClassVar[float] = -8.0
    domain_hi: ClassVar[float] = 8.0

    def f(self, x: Real) -> Real:
        return 1.0 / (1.0 + np.exp(-x))
