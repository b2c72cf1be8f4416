"""Square root."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.ir.op import OPS, Algebra
from npuflow.ops._table import Real, TableOp


@OPS.entry
@dataclass(frozen=True)
class Sqrt(TableOp):
    onnx: ClassVar[str] = "Sqrt"
    algebra: ClassVar[Algebra] = "root"
    sensitive: ClassVar[bool] = True
    domain_lo: ClassVar[float] = 0.1
    domain_hi: ClassVar[float] = 8.0
    # in the first step from 0, where it is steepest; a few codes above 1 % of its range
    loosest: ClassVar[int] = 1 << 10

    @property
    def lane(self) -> str:
        return "sqrt"

    def f(self, x: Real) -> Real:
        return np.sqrt(x)
