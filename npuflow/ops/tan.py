"""Tangent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Tan(TableOp):
    onnx: ClassVar[str] = "Tan"
    domain_lo: ClassVar[float] = -1.2
    domain_hi: ClassVar[float] = 1.2

    def f(self, x: Real) -> Real:
        return np.tan(x)
