"""e to the power of x."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Exp(TableOp):
    onnx: ClassVar[str] = "Exp"
    domain_lo: ClassVar[float] = -4.0
    domain_hi: ClassVar[float] = 2.0

    def f(self, x: Real) -> Real:
        return np.exp(x)
