"""Inverse hyperbolic tangent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Atanh(TableOp):
    onnx: ClassVar[str] = "Atanh"
    domain_lo: ClassVar[float] = -0.9
    domain_hi: ClassVar[float] = 0.9

    def f(self, x: Real) -> Real:
        return np.arctanh(x)
